/* Series of two sides as rows of a table and points of a chart. */
"use strict";

(() => {
  const R = Ridgeline,
    {h} = R;
  const WORDS = {slower: "▼ slower", faster: "▲ faster", broken: "✕ broken", mended: "✓ mended"};

  const known = row => (row.kind ? row.kind + (row.with ? ", beside " + row.with : "") : "");

  /** "+1.2 %" from a logarithm of speeds. */
  const percent = log => (log === null || log === undefined ? "–" : R.signedPercent(Math.expm1(log)));
  const share = log => (log === null || log === undefined ? null : Number(Math.expm1(log).toPrecision(5)));
  const around = row =>
    row.reach === null || row.reach === undefined
      ? ""
      : `${percent(row.change - row.reach)} to ${percent(row.change + row.reach)}`;

  const valueAt = (row, side) =>
    side && side.us !== null ? R.inRate(side.file, side.series, row.rate)[side.at] : null;
  const shownAt = (row, side) => {
    if (!side) return h("span", {class: "muted"}, "–");
    if (side.us === null) return h("span", {class: "status " + side.status, title: side.why}, side.status);
    return [R.withUnit(valueAt(row, side), row.rate), h("span", {class: "sub"}, R.duration(side.us))];
  };
  const plainAt = (row, side) =>
    !side ? "" : side.us === null ? side.status : R.withUnit(valueAt(row, side), row.rate);

  const COLUMNS = [
    {
      key: "case",
      title: "case",
      value: row => row.case,
      cell: row => h("a", {href: historyOf(row)}, R.foreign(row.case)),
    },
    {key: "kernel", title: "operator", value: row => row.kernel},
    {
      key: "backend",
      title: "backend",
      value: row => row.backend,
      cell: row => R.foreign(row.backend + (row.baseline ? " (baseline)" : "")),
    },
    {
      key: "verdict",
      title: "verdict",
      value: row => row.verdict,
      look: row => row.verdict,
      cell: row => WORDS[row.verdict] || row.verdict,
    },
    {
      key: "change",
      title: "change of speed",
      help: "paired: of the ratios to one baseline, each with its interval from rounds that both ran in; separate: of the ratios to one baseline, with the intervals of all four times; alone: of the two times; with the 99 % interval, the drift between separate runs included",
      number: true,
      value: row => share(row.change),
      cell: row => [
        percent(row.change),
        h("span", {class: "sub"}, around(row)),
        h("span", {class: "sub"}, R.foreign(known(row))),
      ],
      plain: row => (row.change === undefined ? "" : `${percent(row.change)} (${around(row)}; ${known(row)})`),
    },
    {
      key: "least",
      title: "at least",
      help: "the least change that the interval allows: its size times its sureness; the order of the table",
      number: true,
      value: row => share(row.least),
      cell: row => (row.least > 0 ? R.percent(Math.expm1(row.least)) : "–"),
      plain: row => (row.least > 0 ? R.percent(Math.expm1(row.least)) : ""),
    },
    {
      key: "speed",
      title: "time alone",
      help: "change of the speed without regard to the baseline",
      number: true,
      value: row => share(row.alone),
      cell: row => percent(row.alone),
      plain: row => percent(row.alone),
    },
    {
      key: "us_before",
      title: "before",
      number: true,
      value: row => row.before?.us ?? null,
      cell: row => shownAt(row, row.before),
      plain: row => plainAt(row, row.before),
    },
    {
      key: "us_after",
      title: "after",
      number: true,
      value: row => row.after?.us ?? null,
      cell: row => shownAt(row, row.after),
      plain: row => plainAt(row, row.after),
    },
  ];

  const MEANS = [
    {key: "operator", title: "operator", value: row => row.name},
    {key: "pairs", title: "compared", number: true, value: row => row.pairs},
    {key: "slower", title: "slower", number: true, value: row => row.slower},
    {key: "faster", title: "faster", number: true, value: row => row.faster},
    {
      key: "beside",
      title: "vs baseline, geometric mean",
      number: true,
      value: row => share(row.beside),
      cell: row => percent(row.beside),
      plain: row => percent(row.beside),
    },
    {
      key: "alone",
      title: "time alone, geometric mean",
      number: true,
      value: row => share(row.alone),
      cell: row => percent(row.alone),
      plain: row => percent(row.alone),
    },
  ];

  function historyOf(row) {
    const {machine, env} = R.lane(R.state());
    return R.kernelPage(row.kernel, {machine, env, case: row.case, backend: row.backend});
  }

  /** The changes with their intervals, widest certainty first. */
  function picture(rows) {
    return {
      label: `Change of speed of ${rows.length} series with 99 % intervals`,
      height: 80 + 22 * rows.length,
      points: rows.map((_, n) => [0, n]),
      tip: (series, n) => (series ? null : tip(rows[n])),
      picked: (_, n) => (location.href = historyOf(rows[n])),
      option: (colours, width) => ({
        grid: {left: Math.min(width * 0.42, 330), right: 20, top: 34, bottom: 24},
        xAxis: R.axis(colours, {
          type: "value",
          position: "top",
          axisLabel: {formatter: value => R.signedPercent(value)},
        }),
        yAxis: R.axis(colours, {
          type: "category",
          inverse: true,
          data: rows.map(row => R.plotLabel(`${row.case} ${row.backend}`, width < 700 ? 22 : 48)),
          axisLabel: {interval: 0, hideOverlap: false},
          splitLine: {show: false},
        }),
        series: [
          {
            type: "scatter",
            symbolSize: 9,
            data: rows.map((row, y) => ({
              value: [Math.expm1(row.change), y],
              symbol: {slower: "triangle", faster: "triangle"}[row.verdict] || "circle",
              symbolRotate: row.verdict === "slower" ? 180 : 0,
              itemStyle: {color: {slower: colours.bad, faster: colours.good}[row.verdict] || colours.soft},
            })),
          },
          {
            type: "line",
            silent: true,
            symbol: "none",
            lineStyle: {color: colours.soft, width: 1.5},
            data: rows.flatMap((row, y) => [
              [Math.expm1(row.change - row.reach), y],
              [Math.expm1(row.change + row.reach), y],
              ["-", "-"],
            ]),
          },
        ],
      }),
    };
  }

  function tip(row) {
    const facts = [
      ["operator", row.kernel],
      ["backend", row.backend],
      ["change", `${percent(row.change)} (${around(row)})`],
      ["known by", known(row)],
      ["time alone", percent(row.alone)],
      ["before", plainAt(row, row.before)],
      ["after", plainAt(row, row.after)],
    ];
    return R.box(row.case, facts, " ", WORDS[row.verdict] || row.verdict);
  }

  Object.assign(R, {changes: {COLUMNS, MEANS, picture}});
})();
