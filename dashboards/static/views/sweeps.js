/* Sweeps: points of an operator beside their anchor, ranked, with the winner of each case. */
"use strict";

(() => {
  const R = Ridgeline,
    {h, foreign, grid} = R;

  const opener = (row, pressed) => R.opener(row.operator, pressed, () => choose({operator: row.operator, on: row.machine, case: "", order: "", off: ""}));

  const columns = current => [
    {key: "operator", cell: row => opener(row, row === current)},
    {key: "machine", cell: row => [foreign(row.device), h("span.sub", foreign(row.machine))]},
    {key: "date", title: "measured", cell: row => [row.date || "–", h("span.sub", R.commitLink(row.commit))]},
    {key: "cases", number: true},
    {key: "points", number: true, text: value => value.toLocaleString("en-US")},
    {key: "measured", title: "with a time", number: true, text: value => value.toLocaleString("en-US")},
    {key: "faster", title: "cases with a faster point", help: "faster than the anchor beyond its interval", number: true},
  ];

  const ratio = (key, title, help) => ({key, title, help, number: true, value: row => row[key], cell: row => R.number(row[key])});
  const RATIOS = [
    {key: "us", title: "time, µs", number: true, text: R.number},
    ratio("ratio", "time / anchor's", "time / time of the anchor that was timed in turn with it: below 1, it is faster"),
    ratio("low", "lower end"),
    ratio("high", "upper end"),
  ];

  const WINNERS = [
    {key: "case"},
    {key: "regime"},
    {key: "knobs", title: "fastest point", value: row => row.knobs || "the present choice"},
    ...RATIOS,
    {key: "beats", title: "faster beyond doubt", value: row => (row.beats ? "yes" : "no"), look: row => (row.beats ? "best" : "")},
  ];

  const POINTS = [
    {key: "case"},
    {key: "backend", cell: row => [foreign(row.backend), row.is_anchor ? h("span.sub", "anchor") : null]},
    {key: "knobs", value: row => row.knobs || "the present choice"},
    ...RATIOS,
    {key: "status", cell: row => (row.status === "ok" ? (row.equal_to ? foreign("equal to " + row.equal_to) : "ok") : R.status(row.status, row.why))},
    {key: "trials", number: true},
    {key: "rounds", number: true},
  ];

  function one(host, sweep, found, values) {
    const title = `${sweep.operator} on ${sweep.device}`;
    host.append(h("h2", foreign(title), h("span.sub", foreign(sweep.versions))));
    host.append(
      h("h3", "Fastest point of each case"),
      grid({caption: "fastest point of each case", columns: WINNERS, rows: found.winners, file: "winners-" + sweep.operator}),
    );
    if (found.figure) {
      const section = h("section.figure", h("h3", foreign(found.figure.picture.title)));
      host.append(section);
      R.picture(section, found.figure.picture, "sweep-" + sweep.operator, ...choose.off());
      section.append(...R.foot(found.figure.foot));
    }
    const cases = [...new Set(found.points.map(row => row.case))],
      wanted = cases.includes(values.case) ? values.case : "";
    host.append(
      h("h3", "All points"),
      h("div.tools", R.pick("case", [["", "all cases"], ...cases], wanted, name => choose({case: name}))),
      grid({caption: "points of the sweep", columns: POINTS, rows: found.points.filter(row => !wanted || row.case === wanted), ...choose.order("order"), file: "sweep-" + sweep.operator}),
      R.besideLinks(sweep.path, "All points of this sweep"),
    );
  }

  async function show(values) {
    const {sweeps, problems} = await R.load("views/sweeps"),
      sweep = R.experiment(sweeps, "operator", values.operator, values.on),
      found = sweep ? await R.data(sweep.path) : null;
    const list = [
      h("p.hint", "The newest recorded sweep of each operator and machine. Every point is a ratio to an anchor that was timed in turn with it."),
      grid({caption: "sweeps", columns: columns(sweep), rows: sweeps, ...choose.order("sort"), file: "sweeps"}),
    ];
    return R.experiments(values, choose, problems, list, sweep && (host => one(host, sweep, found, values)));
  }

  const choose = R.view(show);
})();
