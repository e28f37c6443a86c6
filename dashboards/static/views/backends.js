/* Backends beside each other: a map of who is best at what, and the numbers. */
"use strict";

(() => {
  const R = Ridgeline,
    {h, cases: C} = R;
  const MOST = 150; // cases of a map; the table has all
  const WORST = 0.5; // speed relative to the best that gets the full colour of "behind"

  function standing(arm) {
    if (arm.us === null) return arm.status;
    return arm.standing === "best" ? "best" : R.number(arm.of_best, 3) + (arm.standing === "tied" ? " tie" : "");
  }

  /** How often each backend is best, alone or tied, among the cases that it ran. */
  function summary(rows, backends) {
    const tile = backend => {
      const arms = rows.map(row => C.armOf(row, backend.name)).filter(arm => arm && arm.us !== null);
      const count = word => arms.filter(arm => arm.standing === word).length,
        tied = count("tied");
      return h(
        "div.tile",
        h("strong", `${count("best")} of ${arms.length}`),
        h("span", C.named(backend), " is best", tied ? `, tied in ${tied} more` : ""),
      );
    };
    return h("div", {id: "tiles"}, backends.map(tile));
  }

  function tip(row, arm) {
    const [backend, ...facts] = C.armFacts(row, arm, row.rate);
    const share =
      arm.of_best === null ? null : R.number(arm.of_best, 3) + (arm.standing === "tied" ? ", tied with it" : "");
    return R.box(row.case, [backend, ["speed / best", share], ...facts]);
  }

  /** A heat map of the measured cells, and words where there is no time. */
  function map(rows, backends) {
    const cells = rows.map(row => backends.map(({name}) => C.armOf(row, name))),
      of = make => cells.map(row => row.map(arm => (arm ? make(arm) : null)));
    return {
      label: `Speed of ${backends.length} backends relative to the best one, in ${rows.length} cases`,
      x: {names: backends.map(({name}) => name)},
      y: {names: rows.map(row => row.case)},
      cells: {
        values: of(arm => (arm.us === null ? null : arm.of_best)),
        texts: of(standing),
        best: of(arm => arm.standing === "best"),
        ends: [WORST, 1],
        bar: ["best", `${WORST} of the best`],
      },
      tip: ({x, y}) => tip(rows[y], cells[y][x]),
      picked: ({x, y}) => (location.href = C.historyOf(rows[y], cells[y][x].backend)),
    };
  }

  function columns(backends, everywhere) {
    const fixed = [
      everywhere ? {key: "kernel", title: "operator"} : null,
      {key: "case", cell: C.caseLink},
      {key: "dtype", value: row => row.dtype || null},
      {key: "world", title: "ranks", number: true},
      {key: "best", value: row => row.arms.find(arm => arm.standing === "best")?.backend ?? null},
    ];
    const measured = backends.map(({name, baseline}) => ({
      key: "of_best:" + name,
      title: name + (baseline ? " (baseline)" : ""),
      help: "speed relative to the best backend of the case; tie: within the 99 % intervals",
      number: true,
      value: row => C.armOf(row, name)?.of_best ?? null,
      look: row => ({best: "best", tied: "tied"})[C.armOf(row, name)?.standing] || "",
      cell: row => cell(row, C.armOf(row, name)),
      plain: row => inWords(row, C.armOf(row, name)),
    }));
    const place = {key: "commit", title: "measured at", cell: C.placeCell};
    return [...fixed.filter(Boolean), ...measured, place];
  }

  const inWords = (row, arm) =>
    arm ? standing(arm) + (arm.us === null ? "" : ", " + R.withUnit(arm.value, row.rate)) : "";

  function cell(row, arm) {
    if (!arm) return h("span.muted", "–");
    if (arm.us === null) return R.status(arm.status, arm.why);
    return [standing(arm), h("span.sub", R.withUnit(arm.value, row.rate))];
  }

  async function show(values) {
    const lane = R.laneOf(values, choose);
    const {cases} = await R.data(lane.slug + "/newest");
    return host => draw(host, values, lane, cases);
  }

  function draw(host, values, lane, all) {
    const here = all.filter(C.runsHere),
      kernels = [...new Set(here.map(row => row.kernel))];
    const wanted = values.kernel === "*" || kernels.includes(values.kernel) ? values.kernel : kernels[0];
    const rows = here.filter(
      row => [row.kernel, "*"].includes(wanted) && R.matches(`${row.case} ${row.dtype}`, values.q || ""),
    );
    const backends = C.backendsOf(rows),
      operators = [...kernels, ["*", "all operators"]];
    host.replaceChildren(
      h(
        "div.tools",
        R.pick("operator", operators, wanted, kernel => choose({kernel, sort: ""})),
        R.filterBox(values.q || "", "Filter cases … ( / )", q => choose({q})),
        R.shownCount(rows.length, here.length, "cases that run on this machine"),
      ),
      summary(rows, backends),
    );
    if (wanted !== "*" && backends.length) R.panelChart(host, map(rows.slice(0, MOST), backends));
    if (wanted !== "*" && rows.length > MOST)
      host.append(h("p.hint", `The map shows the first ${MOST} cases; the filter chooses others.`));
    host.append(
      R.grid({
        caption: "speed of each backend relative to the best one of the case",
        columns: columns(backends, wanted === "*"),
        rows,
        ...choose.order("sort"),
        file: "backends-" + (wanted === "*" ? "all" : wanted),
      }),
      R.besideLinks(lane.slug + "/newest"),
    );
  }

  const choose = R.view(show);
})();
