/* Charts of a kernel: their controls, the numbers behind them, and curves over the message size. */

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

  /* ---- curves of a collective over the size of its message, from the newest record of every case ---- */

  const RATES = ["busbw", "algbw", "time"];

  /** Cases that differ only in their payload: [{title, cases: case numbers by size}]; at least two sizes with a time.
   *
   * A machine of two GPUs has the cases of four ranks too, unmeasured: they make no chart.
   */
  function groupsOf(data) {
    const found = new Map(),
      size = number => R.costOf(data, number).payload_bytes;
    data.cases.forEach((info, number) => {
      const cost = R.costOf(data, number);
      if (!cost.payload_bytes || cost.flops || !R.seriesOf(data, number).some(({us}) => R.lastGood(us) >= 0)) return;
      const title = `${info.dtype}, ${info.world} ranks`;
      found.set(title, [...(found.get(title) || []), number]);
    });
    return [...found]
      .map(([title, cases]) => ({title, cases: cases.sort((a, b) => size(a) - size(b))}))
      .filter(({cases}) => new Set(cases.map(size)).size > 1);
  }

  /** Draw one panel per group into `host`; a click on a size calls select(case number). */
  function curves(host, data, select) {
    const found = groupsOf(data);
    host.hidden = found.length === 0;
    host.replaceChildren();
    for (const group of found) {
      host.append(h("h2", "Over the message size ", h("span.sub", group.title + ", newest records")));
      curve(host, data, group, select);
    }
  }

  function curve(host, data, group, select) {
    const style = R.styles(data),
      asked = R.state().cunit,
      now = {rate: RATES.includes(asked) ? asked : RATES[0]},
      members = data.series.filter(series => group.cases.includes(series.case));
    const names = [...new Set(members.filter(({us}) => R.lastGood(us) >= 0).map(series => series.backend))];
    const entries = names.map(name => ({
      name,
      baseline: members.find(series => series.backend === name).baseline,
      ...style[name],
    }));
    panel(host, {
      rates: RATES,
      entries,
      now,
      legend: "chide",
      changed: () => R.setState({cunit: now.rate === RATES[0] ? "" : now.rate}),
      spec: (_, shown) =>
        picture(
          data,
          group,
          entries.filter(({name}) => shown.has(name)),
          now.rate,
          select,
        ),
      extra: () => [h("span.hint", "click a size for its history")],
    });
  }

  function picture(data, {title, cases}, entries, rate, select) {
    const sizes = cases.map(number => R.costOf(data, number).payload_bytes);
    const member = (name, n) => data.series.find(series => series.backend === name && series.case === cases[n]);
    const newest = (series, values) => (series ? (values(series)[R.lastGood(series.us)] ?? null) : null);
    const lines = entries.map(entry => {
      const all = cases.map((_, n) => member(entry.name, n)),
        take = values => all.map(series => newest(series, values));
      return {
        ...entry,
        quiet: entry.baseline,
        y: take(series => R.inRate(data, series, rate)),
        low: take(series => R.interval(data, series, rate)[0]),
        high: take(series => R.interval(data, series, rate)[1]),
      };
    });
    return {
      lines,
      label: `${data.kernel}: ${R.RATES[rate].name} over the message size, ${title}`,
      x: {kind: "log", values: sizes, tick: size => R.quantity(size, "B", true)},
      y: {title: R.axisTitle(rate), tick: R.tick, zero: rate !== "time", log: rate === "time"},
      right: null,
      picked: n => select(cases[n]),
      tip: n => [
        h(
          "p.tip-head",
          R.quantity(sizes[n], "B", true),
          h("span.sub", data.cases[cases[n]].name),
        ),
        ...entries
          .map(({name}) => member(name, n))
          .map(series => series && tipLine(data, series, newestIndex(series), rate))
          .filter(Boolean),
      ],
    };
  }

  /** Index of the newest record of a series: a time, else the newest reason why there is none. */
  function newestIndex(series) {
    return Math.max(
      R.lastGood(series.us),
      R.lastGood(series.us) >= 0 ? -1 : Math.max(-1, ...Object.keys(series.bad).map(Number)),
    );
  }

  Object.assign(R, {panel, tipLine, numbers, curves});
})();
