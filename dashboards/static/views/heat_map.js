/* Heat maps: of shapes by their ratio to the baseline, and of tile configurations by their share of the best. */
"use strict";

(() => {
  const R = Ridgeline,
    {h, cases: C} = R;
  const CELL = 26, // pixels of a row
    COLUMN = 58, // least pixels of a column
    WIDEST = 170, // most pixels of one
    SPAN = 2, // ratio to the baseline that gets the full colour: twice as fast, or half
    MOST_ROWS = 80,
    MOST_COLUMNS = 60; // of a map; the table has all

  /** Ratio to the baseline of one backend: rows are families, columns the values of x. */
  function shapeGrid(families, x, backend) {
    const names = [...families.keys()].slice(0, MOST_ROWS),
      places = [...new Set(names.flatMap(name => families.get(name).map(x.of)))]
        .sort((a, b) => a - b)
        .slice(0, MOST_COLUMNS);
    const cells = names.flatMap((name, y) =>
      places.map((place, at) => ({x: at, y, rows: ratios(families.get(name), x, place, backend)})),
    );
    const known = cells.filter(({rows}) => rows.length);
    const mean = rows => Math.exp(rows.reduce((sum, {ratio}) => sum + Math.log(ratio), 0) / rows.length);
    return heatMap({
      label: `${backend} relative to the fastest baseline, over ${x.title}`,
      columns: places.map(x.text),
      rows: names,
      cells: known.map(({rows, ...at}) => ({...at, value: mean(rows), shade: byRatio(mean(rows)), ringed: false})),
      tip: n => known[n].rows.slice(0, 4).flatMap(({row, arm}) => C.box(row.case, C.armFacts(row, arm, row.rate))),
      picked: n => (location.href = C.historyOf(known[n].rows[0].row, backend)),
      ends: [`${SPAN} × as fast`, `1/${SPAN} as fast`],
    });
  }

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

  function heatMap({label, columns, rows, cells, tip, picked, ends}) {
    return {
      label,
      height: 90 + CELL * rows.length,
      least: 190 + COLUMN * columns.length,
      points: cells.map((_, n) => [0, n]),
      tip: (_, n) => tip(n),
      picked: (_, n) => picked && picked(n),
      option: (colours, width) => {
        const names = {type: "category", splitLine: {show: false}};
        const letters = width < 700 ? 22 : 44;
        const left = Math.min(width * 0.4, 24 + 6.6 * Math.min(letters, Math.max(...rows.map(text => text.length), 4)));
        return {
          grid: {left, right: Math.max(12, width - left - WIDEST * columns.length), top: 34, bottom: 40},
          xAxis: R.axis(colours, {
            ...names,
            position: "top",
            data: columns.map(text => R.plotLabel(text, 16)),
            axisLabel: {interval: 0, hideOverlap: true},
          }),
          yAxis: R.axis(colours, {
            ...names,
            inverse: true,
            data: rows.map(text => R.plotLabel(text, letters)),
            axisLabel: {interval: 0, hideOverlap: false},
          }),
          visualMap: R.colourBar(colours, {left, min: -1, max: 1, text: ends, seriesIndex: 0}),
          series: [
            {
              type: "heatmap",
              data: cells.map(({x, y, value, shade, ringed}) => ({
                value: [x, y, shade],
                itemStyle: {borderColor: ringed ? colours.text : colours.ground, borderWidth: ringed ? 2.5 : 1},
                label: {
                  show: true,
                  formatter: () => (ringed ? "◉ " : "") + R.number(value, 3),
                  color: colours.text,
                  fontSize: 11,
                },
              })),
            },
          ],
        };
      },
    };
  }

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
    R.plot(host).draw(
      heatMap({
        label: `Speed of ${configs.length} configurations of ${backend} relative to the best`,
        columns: cases,
        rows: configs.slice(0, MOST_ROWS).map(knobText),
        cells: measured
          .filter(({y}) => y < MOST_ROWS)
          .map(({x, y, share, ringed}) => ({x, y, value: share, shade: byShare(share), ringed})),
        tip: n =>
          C.box(measured[n].name, [
            ["time", R.duration(measured[n].time)],
            ["speed / best", R.number(measured[n].share, 3)],
            ["knobs", knobText(measured[n].knobs)],
          ]),
        ends: ["best", `1/${SPAN} of it`],
      }),
    );
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
