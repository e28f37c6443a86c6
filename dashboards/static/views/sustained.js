/* Sustained calls beside spaced ones, one row per machine, case and backend. */
"use strict";

(() => {
  const R = Ridgeline,
    {h, foreign, number} = R;

  async function show(values) {
    const {rows} = await R.load("views/sustained");
    R.laneOf(values, choose);
    return host => draw(host, values, rows);
  }

  function draw(host, values, rows) {
    const query = values.q || "";
    const shown = rows.filter(row => R.matches([row.kernel, row.case, row.backend, row.machine].join(" "), query));
    host.replaceChildren(
      h(
        "p.hint",
        "Spaced: each call behind a flush of the caches. Sustained: bursts of at least 0.5 s of back-to-back calls, each arm in turn, at the clock that the power allows. ",
        "The two are never compared with each other: a ratio is the time of the fastest vendor library / our time in the same regime, above 1 ours is faster, with its 99 % interval.",
      ),
      h("div.tools", R.filterBox(query, "Filter operators, cases, backends, machines … ( / )", q => choose({q})), R.shownCount(shown.length, rows.length, "rows")),
      R.grid({caption: "sustained calls beside spaced ones", columns: COLUMNS, rows: shown, ...choose.order("sort"), file: "sustained"}),
      rows.length ? R.besideLinks("views/sustained", "All rows") : "",
    );
  }

  const micro = name => ({number: true, value: row => row[name], cell: row => (row[name] === null ? "–" : R.duration(row[name]))});

  /** A number with its interval. */
  const between = (name, low, high) => ({
    number: true,
    value: row => row[name],
    cell: row => (row[name] === null ? "–" : [number(row[name]), h("span.sub", `${number(row[low])} to ${number(row[high])}`)]),
  });

  const COLUMNS = [
    {key: "case", cell: named},
    {key: "backend", cell: row => [foreign(row.backend), row.baseline ? h("span.sub", " baseline") : null]},
    {key: "machine"},
    {key: "spaced_us", title: "spaced", ...micro("spaced_us")},
    {key: "sustained_us", title: "sustained", ...micro("sustained_us")},
    {key: "spaced_ratio", title: "ratio, spaced", ...between("spaced_ratio", "spaced_low", "spaced_high")},
    {key: "sustained_ratio", title: "ratio, sustained", ...between("sustained_ratio", "sustained_low", "sustained_high")},
    {key: "joules", title: "J per call", help: "of a sustained call on all its devices, by their energy counters", ...between("joules", "joules_low", "joules_high")},
    {key: "commit", text: R.commitLink},
  ];

  function named({kernel, case: name, machine}) {
    const page = R.kernelPage(kernel, {machine, case: name});
    return [page ? h("a", {href: page}, foreign(name)) : foreign(name), h("span.sub", kernel)];
  }

  const choose = R.view(show);
})();
