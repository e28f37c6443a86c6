/* The numbers behind a chart: for screen readers, for copying, as a CSV file. */
"use strict";

(() => {
  const R = Ridgeline,
    {h} = R;

  /** {element, refresh()}: a <details> that is filled when it is opened. */
  function numbers(data, info, all, rate) {
    const element = h("details", {class: "numbers", toggle: refresh}, h("summary", {}, "Numbers behind the chart"));
    function refresh() {
      if (!element.open) return;
      const rows = numberRows(data, all, rate());
      const save = h("button", {type: "button", click: () => saveCsv(data, info, rows, rate())}, "Save as CSV");
      element.replaceChildren(
        element.querySelector("summary"),
        save,
        h("div", {class: "scroll"}, table(data, rows, rate())),
      );
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

  function table(data, rows, rate) {
    const measured = [R.RATES[rate].name, "low", "high", "time", "% of peak", "vs baseline", "samples"];
    const heads = ["commit", "date", "backend", "status", ...measured];
    const cells = heads.map((name, n) => h("th", {scope: "col", class: n > 3 ? "number" : null}, name));
    const body = rows.map(row => tableRow(data, row, rate));
    return h("table", {}, h("thead", {}, h("tr", {}, cells)), h("tbody", {}, body));
  }

  function tableRow(data, row, rate) {
    const [hash, date] = data.commits[row.i],
      status = row.status === "ok" ? "ok" : h("span", {class: "status " + row.status}, row.status);
    const cells = [
      R.withUnit(row.value, rate),
      R.withUnit(row.low, rate),
      R.withUnit(row.high, rate),
      row.us === null ? "–" : R.duration(row.us),
      R.percent(row.share),
      R.withUnit(row.ratio, "ratio"),
      row.samples ?? "–",
    ];
    return h(
      "tr",
      {},
      h("td", {}, R.commitLink(hash)),
      h("td", {}, date),
      h("td", {}, row.series.backend),
      h("td", {}, status, row.why ? h("span", {class: "sub"}, row.why) : null),
      cells.map(text => h("td", {class: "number"}, text)),
    );
  }

  /* ---- CSV ---- */

  /** A field; an apostrophe keeps a spreadsheet from running a text as a formula. */
  function field(value) {
    const text =
      value === null || value === undefined
        ? ""
        : typeof value === "string" && /^[=+\-@\t\r]/.test(value)
          ? "'" + value
          : String(value);
    return /[",\n\r]/.test(text) ? '"' + text.replaceAll('"', '""') + '"' : text;
  }

  function csv(data, info, rows, rate) {
    const unit = {ratio: "ratio", time: "us", gbs: "hbm_gbs"}[rate] || rate;
    const named = ["commit", "date", "kernel", "case", "backend", "baseline", "status", "why"];
    const measured = [unit, unit + "_low", unit + "_high", "microseconds", "peak_share", "baseline_ratio", "samples"];
    const lines = rows.map(row => [
      data.commits[row.i][0],
      data.commits[row.i][1],
      data.kernel,
      info.name,
      row.series.backend,
      row.series.baseline,
      row.status,
      row.why,
      row.value,
      row.low,
      row.high,
      row.us,
      row.share,
      row.ratio,
      row.samples,
    ]);
    return [[...named, ...measured], ...lines].map(fields => fields.map(field).join(",")).join("\n") + "\n";
  }

  function saveCsv(data, info, rows, rate) {
    const url = URL.createObjectURL(new Blob([csv(data, info, rows, rate)], {type: "text/csv"}));
    h("a", {href: url, download: `${data.kernel}-${info.name}.csv`}).click();
    setTimeout(() => URL.revokeObjectURL(url), 1000);
  }

  Object.assign(R, {numbers, csvField: field});
})();
