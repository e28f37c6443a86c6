/* A chart with its controls: units, a legend that hides lines, and the box at the cursor. */
"use strict";

(() => {
  const R = Ridgeline,
    {h} = R;

  /** Put a panel into `host`.
   *
   * rates: units to choose from; entries: [{name, baseline, color, dash}], one per backend; now: {rate, ...}, changed in place;
   * legend: key of the state that names the hidden ones;
   * spec(now, shown): what R.chart draws, `shown` a set of backends; extra(again): more controls; changed(now): called after a choice.
   * Returns again(), to be called after `now` was changed from outside.
   */
  function panel(host, {rates, entries, now, spec, extra, changed, legend: key}) {
    const controls = h("div", {class: "controls"}),
      area = h("div", {class: "chart-area"});
    let legend = h("div", {}),
      hidden = R.listed(key);
    const current = () => spec(now, new Set(entries.map(entry => entry.name).filter(name => !hidden.has(name))));
    host.append(controls, legend, area);

    function again() {
      R.keepFocus(host, drawControls);
      drawn.redraw(current());
    }

    function drawControls() {
      const units = R.press("unit", rates.map(rate => [rate, R.RATES[rate].name]), now.rate, rate => {
        now.rate = rate;
        again();
        changed(now);
      });
      controls.replaceChildren(units, ...extra(again).filter(Boolean));
      const drawnLegend = R.legend(entries, hidden, off => {
        hidden = off;
        R.setState({[key]: R.listing(hidden)});
        again();
      });
      legend.replaceWith(drawnLegend);
      legend = drawnLegend;
    }

    const drawn = R.chart(area, current());
    drawControls();
    return again;
  }

  /* ---- the box at the cursor ---- */

  /** What a series has at a commit: value, interval, time, share, samples; or why it has none.  Null if nothing is recorded. */
  function tipLine(data, series, i, rate) {
    const bad = series.bad[i],
      value = R.inRate(data, series, rate)[i] ?? null;
    if (!bad && value === null) return null;
    const name = h("span", {class: "tip-name"}, series.backend);
    name.style.setProperty("--line", R.styles(data)[series.backend].color);
    const text = bad
      ? [h("span", {class: "status " + bad[0]}, bad[0]), " ", data.whys[bad[1]]]
      : [h("strong", {}, R.withUnit(value, rate)), h("span", {class: "sub"}, detail(data, series, i, rate))];
    return h("div", {class: "tip-line"}, name, h("div", {}, text));
  }

  function detail(data, series, i, rate) {
    const [low, high] = R.interval(data, series, rate).map(end => end[i] ?? null),
      share = R.inRate(data, series, "peak_share")[i];
    const ratio = series.ratio && rate !== "ratio" ? series.ratio[i] : null;
    return [
      low === null || high === null ? null : `${R.number(low)} to ${R.withUnit(high, rate)}`,
      rate === "time" ? null : R.duration(series.us[i]),
      share ? R.percent(share) + " of peak" : null,
      ratio ? R.number(ratio, 3) + " × baseline" : null,
      sampling(series, i),
    ]
      .filter(Boolean)
      .join(" · ");
  }

  function sampling(series, i) {
    const samples = R.unfold(series.samples, i + 1)[i],
      trials = R.unfold(series.trials, i + 1)[i];
    return samples ? `${samples} samples` + (trials ? ` in ${trials} ${trials === 1 ? "trial" : "trials"}` : "") : null;
  }

  Object.assign(R, {panel, tipLine});
})();
