/* Backends beside each other: a map of who is best at what, and the numbers. */
"use strict";

(() => {
  const R = Ridgeline,
    {h} = R;
  const ROW = 24, // pixels of a case in the map
    MOST = 150; // cases of a map; the table has all
  const WORST = 0.5; // speed relative to the best that gets the full colour of "behind"

  let choose = null;

  function standing(arm) {
    if (arm.status !== "ok") return arm.status;
    return arm.standing === "best" ? "best" : R.number(arm.of_best, 3) + (arm.standing === "tied" ? " tie" : "");
  }

  /** Every backend of the cases: our own first, then the baselines. */
  function backendsOf(cases) {
    const found = new Map();
    for (const {arms} of cases) for (const {backend, baseline} of arms) found.set(backend, {name: backend, baseline});
    const order = (a, b) => a.baseline - b.baseline || a.name.localeCompare(b.name, "en");
    return [...found.values()].sort(order);
  }

  const armOf = (row, name) => row.arms.find(({backend}) => backend === name);

  /** How often each backend is best, alone or tied, among the cases that it ran. */
  function summary(cases, backends) {
    const count = ({name, baseline}) => {
      const arms = cases.map(row => armOf(row, name)).filter(arm => arm && arm.status === "ok" && arm.us !== null);
      const best = arms.filter(arm => arm.standing === "best").length,
        tied = arms.filter(arm => arm.standing === "tied").length;
      return h(
        "div",
        {class: "tile"},
        h("strong", {}, `${best} of ${arms.length}`),
        h("span", {}, R.foreign(name), baseline ? " (baseline)" : "", " is best", tied ? `, tied in ${tied} more` : ""),
      );
    };
    return h("div", {id: "tiles"}, backends.map(count));
  }

  function tip(row, arm) {
    if (!arm) return null;
    const facts = [
      ["speed", R.withUnit(arm.value, row.rate)],
      ["time", arm.us === null ? "–" : `${R.duration(arm.us)} (${R.number(arm.low)} to ${R.duration(arm.high)})`],
      ["of the best", arm.of_best === null ? "–" : R.number(arm.of_best, 3) + (arm.standing ? ", " + arm.standing : "")],
      ["status", arm.status === "ok" ? null : `${arm.status}: ${arm.why}`],
      ["commit", `${R.short(row.commit)}, ${row.date}`],
    ].filter(([, text]) => text !== null);
    return [
      h("p", {}, h("strong", {}, R.foreign(row.case)), " ", R.foreign(arm.backend)),
      h("dl", {}, facts.map(([name, text]) => h("div", {}, h("dt", {}, name), h("dd", {}, R.foreign(text))))),
    ];
  }

  function map(cases, backends) {
    const cells = [];
    cases.forEach((row, y) =>
      backends.forEach(({name}, x) => {
        const arm = armOf(row, name);
        if (arm) cells.push({row, arm, x, y});
      }),
    );
    const measured = cells.filter(({arm}) => arm.of_best !== null);
    return {
      label: `Speed of ${backends.length} backends relative to the best, in ${cases.length} cases`,
      height: 90 + ROW * cases.length,
      points: measured.map((_, n) => [0, n]),
      tip: (series, n) => tip((series ? missing(cells) : measured)[n].row, (series ? missing(cells) : measured)[n].arm),
      picked: (series, n) => (location.href = R.kernelPage(...target((series ? missing(cells) : measured)[n]))),
      option: (colours, width) => ({
        grid: {left: Math.min(width * 0.36, 230), right: 12, top: 34, bottom: 44},
        xAxis: R.axis(colours, {
          type: "category",
          position: "top",
          data: backends.map(({name, baseline}) => R.plotLabel(name, width < 500 ? 9 : 18) + (baseline ? " ◦" : "")),
          axisLabel: {interval: 0, hideOverlap: false},
          splitLine: {show: false},
        }),
        yAxis: R.axis(colours, {
          type: "category",
          inverse: true,
          data: cases.map(row => R.plotLabel(row.case, width < 500 ? 19 : 34)),
          axisLabel: {interval: 0, hideOverlap: false},
          splitLine: {show: false},
        }),
        visualMap: {
          type: "continuous",
          min: WORST,
          max: 1,
          seriesIndex: 0,
          dimension: 2,
          calculable: false,
          orient: "horizontal",
          left: "center",
          bottom: 4,
          itemHeight: 140,
          itemWidth: 12,
          text: ["best", `${WORST} of the best or less`],
          textStyle: {color: colours.soft},
          inRange: {color: R.scale(colours)},
        },
        series: [
          {
            type: "heatmap",
            data: measured.map(({row, arm, x, y}) => ({
              value: [x, y, Math.max(WORST, arm.of_best)],
              itemStyle: {borderColor: arm.standing ? colours.text : colours.ground, borderWidth: arm.standing === "best" ? 2 : 1},
              label: {show: true, formatter: () => standing(arm), color: colours.text, fontSize: 11},
            })),
          },
          {
            type: "scatter",
            symbolSize: 1,
            itemStyle: {color: "transparent"},
            data: missing(cells).map(({arm, x, y}) => ({
              value: [x, y],
              label: {show: true, formatter: () => R.plotLabel(arm.status, 12), color: colours.soft, fontSize: 11},
            })),
          },
        ],
      }),
    };
  }

  const missing = cells => cells.filter(({arm}) => arm.of_best === null);

  function target({row, arm}) {
    const {machine, env} = R.lane(R.state());
    return [row.kernel, {machine, env, case: row.case, backend: arm.backend}];
  }

  function columns(backends, everywhere) {
    const link = row => {
      const {machine, env} = R.lane(R.state());
      return h("a", {href: R.kernelPage(row.kernel, {machine, env, case: row.case})}, R.foreign(row.case));
    };
    const named = [
      everywhere ? {key: "kernel", title: "operator", value: row => row.kernel} : null,
      {key: "case", title: "case", value: row => row.case, cell: link},
      {key: "dtype", title: "dtype", value: row => row.dtype || null},
      {key: "world", title: "ranks", number: true, value: row => row.world},
      {key: "best", title: "best", value: row => row.arms.find(arm => arm.standing === "best")?.backend ?? null},
    ].filter(Boolean);
    const measured = backends.map(({name, baseline}) => ({
      key: "of_best:" + name,
      title: name + (baseline ? " (baseline)" : ""),
      help: "speed relative to the best backend of the case; tie: within the 99 % intervals",
      number: true,
      value: row => armOf(row, name)?.of_best ?? null,
      look: row => ({best: "best", tied: "tied"})[armOf(row, name)?.standing] || "",
      cell: row => cell(row, armOf(row, name)),
      plain: row => {
        const arm = armOf(row, name);
        return arm ? standing(arm) + (arm.value === null ? "" : `, ${R.withUnit(arm.value, row.rate)}`) : "";
      },
    }));
    const place = {
      key: "commit",
      title: "measured at",
      value: row => row.commit,
      cell: row => [R.commitLink(row.commit), h("span", {class: "sub"}, row.date.slice(0, 10))],
    };
    return [...named, ...measured, place];
  }

  function cell(row, arm) {
    if (!arm) return h("span", {class: "muted"}, "–");
    if (arm.status !== "ok") return h("span", {class: "status " + arm.status, title: arm.why}, arm.status);
    return [standing(arm), h("span", {class: "sub"}, R.withUnit(arm.value, row.rate))];
  }

  async function show(values, current) {
    const lane = R.lane(values);
    R.header(lane, change => choose({machine: lane.machine, env: lane.env, ...change}));
    const {cases} = await R.load(lane.slug + "/backends");
    if (!current()) return;
    const host = document.getElementById("view");
    R.keepFocus(host, () => draw(host, values, lane, cases));
  }

  function draw(host, values, lane, cases) {
    const kernels = [...new Set(cases.map(row => row.kernel))];
    const wanted = kernels.includes(values.kernel) ? values.kernel : values.kernel === "*" ? "*" : kernels[0],
      query = values.q || "";
    const rows = cases.filter(row => (wanted === "*" || row.kernel === wanted) && R.matches([row.case, row.dtype].join(" "), query));
    const backends = backendsOf(rows).filter(({name}) => rows.some(row => armOf(row, name)?.status !== "unsupported" && armOf(row, name)));
    const filter = h("input", {type: "search", id: "filter", placeholder: "Filter cases … ( / )", value: query, autocomplete: "off"});
    filter.addEventListener("change", () => choose({q: filter.value.trim()}));
    host.replaceChildren(
      h(
        "div",
        {class: "tools"},
        R.pick("operator", [...kernels.map(name => [name, name]), ["*", "all operators"]], wanted, kernel => choose({kernel, sort: ""})),
        h("label", {class: "visually-hidden", for: "filter"}, "filter"),
        filter,
        h("span", {class: "count", id: "shown", "aria-live": "polite"}, `${rows.length} of ${cases.length} cases`),
      ),
      summary(rows, backends),
    );
    if (wanted !== "*" && rows.length) {
      const area = h("div", {});
      host.append(area);
      R.plot(area).draw(map(rows.slice(0, MOST), backends));
      if (rows.length > MOST) host.append(h("p", {class: "hint"}, `The map shows the first ${MOST} cases; filter for others.`));
    }
    host.append(
      R.grid({
        caption: "speed of each backend relative to the best one of the case",
        columns: columns(backends, wanted === "*"),
        rows,
        sort: values.sort,
        sorted: sort => choose({sort}),
        file: "backends-" + (wanted === "*" ? "all" : wanted),
      }),
      R.besideLinks(lane.slug + "/backends"),
    );
  }

  choose = R.view(show);
})();
