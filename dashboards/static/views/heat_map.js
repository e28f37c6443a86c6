/* Heat maps: of shapes by their ratio to the baseline, and of tile configurations by their share of the best. */
"use strict";

(() => {
  const R = Ridgeline,
    {h, cases: C} = R;
  const SPAN = 2, // ratio to the baseline that gets the full colour: twice as fast, or half
    MOST_ROWS = 80,
    MOST_COLUMNS = 60; // of a map; the table has all

  /** Ratio to the baseline of one backend: rows are families, columns the values of x. */
  function shapeGrid(families, x, backend) {
    const names = [...families.keys()].slice(0, MOST_ROWS),
      places = [...new Set(names.flatMap(name => families.get(name).map(x.of)))]
        .sort((a, b) => a - b)
        .slice(0, MOST_COLUMNS);
    const cells = names.map(name => places.map(place => ratios(families.get(name), x, place, backend)));
    const mean = rows => Math.exp(rows.reduce((sum, {ratio}) => sum + Math.log(ratio), 0) / rows.length);
    return {
      label: `${backend} relative to the fastest baseline, over ${x.title}`,
      x: {title: x.title, names: places.map(x.text)},
      y: {names},
      cells: {
        ...shaded(cells.map(row => row.map(rows => (rows.length ? byRatio(mean(rows)) : null)))),
        texts: cells.map(row => row.map(rows => (rows.length ? R.number(mean(rows), 3) : ""))),
        bar: [`${SPAN} × as fast`, `1/${SPAN} as fast`],
      },
      tip: ({x: at, y}) => cells[y][at].slice(0, 4).flatMap(({row, arm}) => R.box(row.case, C.armFacts(row, arm, row.rate))),
      picked: ({x: at, y}) => (location.href = C.historyOf(cells[y][at][0].row, backend)),
    };
  }

  /** Cells by shades, -1 to 1, none with a frame. */
  const shaded = values => ({values, best: values.map(row => row.map(() => false)), ends: [-1, 1]});

  /** The cases of a family at one place of the axis that have a ratio to the baseline; usually one. */
  const ratios = (rows, x, place, backend) =>
    rows
      .filter(row => x.of(row) === place)
      .map(row => ({row, arm: C.armOf(row, backend)}))
      .filter(({row, arm}) => arm && C.ratioOf(row, arm) !== null)
      .map(({row, arm}) => ({row, arm, ratio: C.ratioOf(row, arm)}));

  /** Where a value lies between the two full colours, -1 to 1: of a ratio around 1, of a share of the best. */
  const byRatio = ratio => Math.max(-1, Math.min(1, Math.log(ratio) / Math.log(SPAN)));
  const byShare = share => Math.max(-1, 1 - (1 - share) * 2 * SPAN);

  /* ---- tile configurations ---- */

  const knobText = knobs =>
    Object.entries(knobs)
      .map(([name, value]) => `${name}=${value}`)
      .join(" ");

  /** Speed of every configuration relative to the best of the case; the one that records were made with is ringed. */
  function configurations(host, sweeps, kernel) {
    const mine = sweeps.filter(sweep => sweep.kernel === kernel);
    host.append(h("h2", {}, "Configurations"));
    if (!mine.length) {
      return host.append(h("p", {class: "hint"}, "No sweep of this operator is recorded on this machine."));
    }
    for (const sweep of mine) configurationsOf(host, sweep);
  }

  function configurationsOf(host, {backend, configs, cases, chosen, running, us}) {
    const best = us.map(times => Math.min(...times.filter(time => time !== null)));
    const cells = configs.flatMap((knobs, y) =>
      cases.map((name, x) => ({
        x,
        y,
        time: us[x][y],
        ringed: chosen[x] === y,
        name,
        knobs,
        share: us[x][y] === null ? null : best[x] / us[x][y],
      })),
    );
    const measured = cells.filter(({time}) => time !== null);
    host.append(
      h(
        "h3",
        {},
        R.foreign(backend),
        h(
          "span",
          {class: "sub"},
          ` ${configs.length} configurations, ${cases.length} cases; ◉ is what the records run`,
        ),
      ),
    );
    const other = cases
      .filter((_, x) => running[x] && chosen[x] === null)
      .map(name => `${name}: ${knobText(running[cases.indexOf(name)])}`);
    if (other.length)
      host.append(h("p", {class: "hint"}, "Records run settings that this sweep lacks. ", R.foreign(other.join("; "))));
    const shown = configs.slice(0, MOST_ROWS),
      at = ({x, y}) => cells[y * cases.length + x];
    const map = of => shown.map((_, y) => cases.map((_, x) => (at({x, y}).time === null ? null : of(at({x, y})))));
    R.panelChart(host, {
      label: `Speed of ${configs.length} configurations of ${backend} relative to the best`,
      x: {names: cases},
      y: {names: shown.map(knobText)},
      cells: {
        values: map(({share}) => byShare(share)),
        texts: map(({ringed, share}) => (ringed ? "◉ " : "") + R.number(share, 3)),
        best: map(({ringed}) => ringed),
        ends: [-1, 1],
        bar: ["best", `1/${SPAN} of it`],
      },
      tip: cell =>
        R.box(at(cell).name, [
          ["time", R.duration(at(cell).time)],
          ["speed / best", R.number(at(cell).share, 3)],
          ["knobs", knobText(at(cell).knobs)],
        ]),
    });
    const columns = [
      {key: "case", title: "case", value: cell => cell.name},
      {key: "knobs", title: "configuration", value: cell => knobText(cell.knobs)},
      {key: "us", title: "time, µs", number: true, value: cell => cell.time, cell: cell => R.number(cell.time)},
      {
        key: "share",
        title: "speed / best",
        number: true,
        value: cell => cell.share,
        cell: cell => R.number(cell.share, 3),
      },
      {key: "chosen", title: "chosen", value: cell => (cell.ringed ? "yes" : "")},
    ];
    host.append(
      h(
        "details",
        {class: "numbers"},
        h("summary", {}, "Numbers behind the map"),
        R.grid({caption: "configurations", columns, rows: measured, file: "configurations-" + backend}),
      ),
    );
  }

  Object.assign(R, {shapeGrid, configurations, MOST_ROWS});
})();
