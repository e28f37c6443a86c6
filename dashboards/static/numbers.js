/* The numbers behind a chart: for screen readers, for copying, as files. */
"use strict";

(() => {
  const R = Ridgeline,
    {h} = R;

  /** {element, refresh()}: a <details> that is filled when it is opened. */
  function numbers(data, info, all, rate) {
    const element = h("details", {class: "numbers", toggle: refresh}, h("summary", {}, "Numbers behind the chart"));
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
    const inRate = value => R.withUnit(value, rate);
    const status = row => [
      row.status === "ok" ? "ok" : h("span", {class: "status " + row.status}, row.status),
      row.why ? h("span", {class: "sub"}, row.why) : null,
    ];
    return [
      {key: "commit", title: "commit", value: row => commit(row)[0], cell: row => R.commitLink(commit(row)[0])},
      {key: "date", title: "date", value: row => commit(row)[1]},
      {key: "kernel", value: () => data.kernel},
      {key: "case", value: () => info.name},
      {key: "backend", title: "backend", value: row => row.series.backend},
      {key: "baseline", value: row => row.series.baseline},
      {key: "status", title: "status", value: row => row.status, cell: status},
      {key: "why", value: row => row.why},
      amount(unit, R.RATES[rate].name, row => row.value, inRate),
      amount(unit + "_low", "low", row => row.low, inRate),
      amount(unit + "_high", "high", row => row.high, inRate),
      amount("microseconds", "time", row => row.us, us => (us === null ? "–" : R.duration(us))),
      amount("peak_share", "% of peak", row => row.share, R.percent),
      amount("baseline_ratio", "vs baseline", row => row.ratio, ratio => R.withUnit(ratio, "ratio")),
      {key: "samples", title: "samples", number: true, value: row => row.samples},
    ];
  }

  Object.assign(R, {numbers});
})();
