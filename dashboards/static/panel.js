/* The chart of a case: its controls, and the numbers behind it. */

/* A chart with its controls: units, a legend that hides lines, and the box at the cursor. */
"use strict";

(() => {
  const R = Ridgeline,
    {h, withUnit} = R;
  /** Put a panel into `host`.
   *
   * rates: units to choose from; entries: [{name, baseline, color, dash}], one per backend; now: {rate, ...}, changed in place;
   * legend: key of the state that names the hidden ones;
   * spec(now, shown): what R.chart draws, `shown` a set of backends; extra(again): more controls; changed(now): called after a choice.
   * Returns again(), to be called after `now` was changed from outside.
   */
  function panel(host, {rates, entries, now, spec, extra, changed, legend: key}) {
    const controls = h("div.controls"),
      area = h("div.chart-area");
    let legend = h("div"),
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
    const name = h("span.tip-name", series.backend);
    name.style.setProperty("--line", R.styles(data)[series.backend].color);
    const text = bad
      ? [R.status(bad[0]), " ", data.whys[bad[1]]]
      : [h("strong", withUnit(value, rate)), h("span.sub", detail(data, series, i, rate))];
    return h("div.tip-line", name, h("div", text));
  }

  function detail(data, series, i, rate) {
    const [low, high] = R.interval(data, series, rate).map(end => end[i] ?? null),
      share = R.inRate(data, series, "peak_share")[i];
    const ratio = series.ratio && rate !== "ratio" ? series.ratio[i] : null;
    return [
      low === null || high === null ? null : `${R.number(low)} to ${withUnit(high, rate)}`,
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

  /* ---- the numbers behind a chart: for screen readers, for copying, as files ---- */

  /** {element, refresh()}: a <details> that is filled when it is opened. */
  function numbers(data, info, all, rate) {
    const element = h("details.numbers", {toggle: refresh}, h("summary", "Numbers behind the chart"));
    function refresh() {
      if (!element.open) return;
      const grid = R.grid({
        caption: `records of ${data.kernel}, ${info.name}`,
        columns: columns(data, info, rate()),
        rows: numberRows(data, all, rate()),
        file: `${data.kernel}-${info.name}`,
      });
      element.replaceChildren(element.querySelector("summary"), grid);
    }
    return {element, refresh};
  }

  /** One row per commit and backend with a record, newest first. */
  function numberRows(data, all, rate) {
    const columns = all.map(series => ({
      series,
      value: R.inRate(data, series, rate),
      ends: R.interval(data, series, rate),
      share: R.inRate(data, series, "peak_share"),
      samples: R.unfold(series.samples, series.us.length),
    }));
    const rows = [];
    for (let i = data.commits.length - 1; i >= 0; i--) {
      for (const column of columns) {
        const {series, value, ends, share, samples} = column;
        const [status, why] = series.bad[i] || ["ok", null];
        if (status === "ok" && series.us[i] === null) continue;
        rows.push({
          i,
          series,
          status,
          why: why === null ? "" : data.whys[why],
          value: value[i],
          low: ends[0][i],
          high: ends[1][i],
          us: series.us[i],
          share: share[i],
          ratio: series.ratio ? series.ratio[i] : null,
          samples: status === "ok" ? samples[i] : null,
        });
      }
    }
    return rows;
  }

  function columns(data, info, rate) {
    const unit = {ratio: "ratio", time: "us", gbs: "hbm_gbs"}[rate] || rate,
      commit = row => data.commits[row.i];
    const amount = (key, title, of, text) => ({key, title, number: true, value: of, cell: row => text(of(row))});
    const inRate = value => withUnit(value, rate);
    const status = row => [
      row.status === "ok" ? "ok" : R.status(row.status),
      row.why ? h("span.sub", row.why) : null,
    ];
    return [
      {key: "commit", value: row => commit(row)[0], cell: row => R.commitLink(commit(row)[0])},
      {key: "date", value: row => commit(row)[1]},
      {key: "kernel", value: () => data.kernel, hidden: true},
      {key: "case", value: () => info.name, hidden: true},
      {key: "backend", value: row => row.series.backend},
      {key: "baseline", value: row => row.series.baseline, hidden: true},
      {key: "status", cell: status},
      {key: "why", hidden: true},
      amount(unit, R.RATES[rate].name, row => row.value, inRate),
      amount(unit + "_low", "low", row => row.low, inRate),
      amount(unit + "_high", "high", row => row.high, inRate),
      amount("microseconds", "time", row => row.us, us => (us === null ? "–" : R.duration(us))),
      amount("peak_share", "% of peak", row => row.share, R.percent),
      amount("baseline_ratio", "vs baseline", row => row.ratio, ratio => withUnit(ratio, "ratio")),
      {key: "samples", number: true},
    ];
  }

  Object.assign(R, {panel, tipLine, numbers});
})();
