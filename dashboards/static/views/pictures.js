/* A picture (dashboards/figures/studies/picture.py) on a page: its panels as charts, its texts as tables, one legend. */
"use strict";

(() => {
  const R = Ridgeline,
    {h} = R;
  const SYMBOLS = ["circle", "rect", "triangle", "diamond", "pin", "arrow"];
  const DASHES = ["solid", [7, 4], [2, 3], [9, 3, 2, 3], [5, 2], [1, 5]];
  const LINE = 22; // pixels of a name on a vertical axis
  const NARROW_CELL = 36; // pixels of a cell that holds no number
  const SMALL_FROM = 250; // points of a panel from which on they are small

  const colourOf = (colours, {look}) => (look === null ? colours.baseline : colours.series[look % 6]);
  const measured = ({kind}) => ["line", "dots", "bars"].includes(kind);
  const known = value => value !== null && value !== undefined;

  /** A value of an axis as text. */
  function textOf(axis, value) {
    if (axis.names.length) return axis.names[Math.round(value)] ?? "";
    return axis.scale === "bytes" ? R.quantity(value, "B", true) : R.number(value);
  }

  const tickOf = (axis, value) => (axis.scale === "bytes" ? R.quantity(value, "B", true) : R.tick(value));

  /* ---- axes ---- */

  const logarithmic = axis => ["log", "log2", "bytes"].includes(axis.scale) && !axis.names.length;

  function axisOf(colours, axis, values, vertical, width) {
    const title = {
      name: axis.title,
      nameTextStyle: {color: colours.soft, align: vertical ? "left" : "center"},
      axisLine: {onZero: false, lineStyle: {color: colours.edge}},
    };
    const place = vertical ? {} : {nameLocation: "middle", nameGap: 28};
    if (axis.names.length) return R.axis(colours, {...title, ...place, ...namesAxis(axis, vertical, width)});
    if (logarithmic(axis)) return R.axis(colours, {...title, ...place, ...logAxis(axis, values)});
    const limits = axis.zero ? {min: 0} : {scale: true};
    return R.axis(colours, {...title, ...place, type: "value", ...limits, axisLabel: {formatter: R.tick}});
  }

  /** A name in so many letters, its middle left out: names of cases differ at both ends. */
  function middle(text, most) {
    const plain = R.plotLabel(text, text.length + 1);
    return plain.length <= most ? plain : plain.slice(0, Math.ceil(most / 2)) + "…" + plain.slice(plain.length - Math.floor(most / 2) + 1);
  }

  const nameRoom = width => Math.min(width * 0.4, 240);

  /** Names at whole numbers of a linear axis, so that groups can stand side by side between them. */
  function namesAxis({names}, vertical, width) {
    const letters = vertical ? Math.floor(nameRoom(width) / 7) : 18;
    const tight = !vertical && names.reduce((sum, name) => sum + Math.min(18, name.length) + 2, 0) * 7 > width - 90;
    return {
      type: "value",
      min: -1, // with whole ends the ticks are at whole numbers
      max: names.length,
      interval: 1,
      inverse: vertical,
      name: "",
      splitLine: {show: false},
      axisTick: {show: false},
      axisLabel: {
        rotate: tight ? 45 : 0,
        formatter: value => middle(names[value] ?? "", letters),
      },
    };
  }

  /** A logarithmic axis that ends at the powers around its values. */
  function logAxis(axis, values) {
    const base = axis.scale === "log" ? 10 : 2,
      above = values.filter(value => value > 0);
    const power = (value, round, room) => base ** round(Math.log(value) / Math.log(base) + room);
    const min = power(Math.min(...above), Math.floor, 1e-9),
      max = Math.max(min * base, power(Math.max(...above), Math.ceil, -1e-9));
    const interval = Math.max(1, Math.ceil(Math.log(max / min) / Math.log(base) / 11));
    return {type: "log", logBase: base, min, max, interval, axisLabel: {formatter: value => tickOf(axis, value)}};
  }

  /* ---- marks ---- */

  /** All values of each axis, and its ends for a line over its whole length. */
  function reachOf({x, y, marks, level, upright}) {
    const of = key => marks.flatMap(one => one[key]).filter(known);
    const [xs, ys] = [of("x"), of("y")];
    (upright ? ys : xs).push(...(known(level) ? [level] : []));
    const ends = (axis, values) =>
      axis.names.length ? [-1, axis.names.length] : [Math.min(...values), Math.max(...values)];
    return {xs, ys, xEnds: ends(x, xs), yEnds: ends(y, ys)};
  }

  function pointsOf(colours, marks, small) {
    const colour = colourOf(colours, marks),
      place = (marks.look ?? 2) % 6,
      others = marks.look === null && !marks.dashed && !marks.hollow;
    return {
      name: marks.name,
      type: marks.kind === "line" ? "line" : "scatter",
      symbol: SYMBOLS[place],
      symbolSize: small ? 4 : others ? 5 : 8,
      lineStyle: {color: colour, width: 1.8, type: DASHES[marks.dashed % 6]},
      itemStyle: {color: marks.hollow ? colours.ground : colour, borderColor: colour, borderWidth: marks.hollow ? 1.6 : 0, opacity: others ? 0.45 : 1},
      data: marks.x.map((x, n) => [x, marks.y[n]]),
    };
  }

  /** A line that says nothing at the cursor. */
  const silent = (colour, width, type, data) => ({
    type: "line",
    symbol: "none",
    silent: true,
    lineStyle: {color: colour, width, type},
    data,
  });

  function rule(colours, marks, {xEnds, yEnds}) {
    const flat = marks.x.every(x => !known(x)),
      upright = marks.y.every(y => !known(y));
    const data = flat
      ? xEnds.map(x => [x, marks.y[0]])
      : upright
        ? yEnds.map(y => [marks.x[0], y])
        : marks.x.map((x, n) => [x, marks.y[n]]);
    return silent(marks.look === null ? colours.soft : colourOf(colours, marks), 1.3, DASHES[marks.dashed % 6], data);
  }

  /** Segments, each apart from the next. */
  function segments(colours, marks, upright) {
    const data = marks.low.flatMap((low, n) => {
      if (!known(low) || !known(marks.high[n])) return [];
      const ends = [low, marks.high[n]].map(end => (upright ? [marks.x[n], end] : [end, marks.y[n]]));
      return [...ends, [null, null]];
    });
    return silent(colourOf(colours, marks), 1.2, "solid", data);
  }

  const ring = (colours, marks) => ({
    type: "scatter",
    silent: true,
    symbolSize: 16,
    itemStyle: {color: "transparent", borderColor: colours.text, borderWidth: 1.5},
    data: marks.x.map((x, n) => [x, marks.y[n]]),
  });

  /** [{series, marks of its points or null}]. */
  function seriesOf(colours, panel, shown) {
    const reach = reachOf(panel),
      small = shown.filter(measured).reduce((sum, {x}) => sum + x.length, 0) > SMALL_FROM;
    const found = shown.flatMap(marks => {
      if (marks.kind === "rule") return [{series: rule(colours, marks, reach), marks: null}];
      if (marks.kind === "links") return [{series: segments(colours, marks, false), marks: null}];
      if (marks.kind === "ring") return [{series: ring(colours, marks), marks: null}];
      const ends = marks.low.length ? [{series: segments(colours, marks, panel.upright), marks: null}] : [];
      return [{series: pointsOf(colours, marks, small), marks}, ...ends];
    });
    if (!known(panel.level)) return found;
    const data = panel.upright ? reach.xEnds.map(x => [x, panel.level]) : reach.yEnds.map(y => [panel.level, y]);
    return [...found, {series: silent(colours.soft, 1, "solid", data), marks: null}];
  }

  function tip(panel, marks, n) {
    const value = panel.upright ? panel.y : panel.x;
    const facts = [
      [panel.x.title || "x", textOf(panel.x, marks.x[n])],
      [panel.y.title || "", textOf(panel.y, marks.y[n])],
      marks.low.length && known(marks.low[n]) ? ["interval", `${textOf(value, marks.low[n])} to ${textOf(value, marks.high[n])}`] : null,
    ];
    return [
      h("p", {}, h("strong", {}, R.foreign(marks.name)), " ", R.foreign(marks.labels[n] || "")),
      h("dl", {}, facts.filter(fact => fact && fact[1] !== "").map(([name, text]) => h("div", {}, h("dt", {}, R.foreign(name)), h("dd", {}, R.foreign(text))))),
    ];
  }

  function chart(panel, title, off) {
    const shown = panel.marks.filter(({name}) => !off.has(name)),
      laid = seriesOf({series: [], baseline: ""}, panel, shown).map(({marks}) => marks);
    return {
      label: [title, panel.title, `${panel.y.title || "names"} over ${panel.x.title}`].filter(Boolean).join(", "),
      height: panel.y.names.length ? 90 + LINE * panel.y.names.length : 340,
      points: laid.flatMap((marks, series) => (marks ? marks.x.map((_, n) => [series, n]) : [])).filter(([series, n]) => known(laid[series].x[n]) && known(laid[series].y[n])),
      tip: (series, n) => (laid[series] ? tip(panel, laid[series], n) : null),
      option: (colours, width) => {
        const {xs, ys} = reachOf(panel);
        return {
          grid: {left: panel.y.names.length ? nameRoom(width) : 70, right: 24, top: 34, bottom: 50},
          xAxis: axisOf(colours, panel.x, xs, false, width),
          yAxis: axisOf(colours, panel.y, ys, true, width),
          series: seriesOf(colours, panel, shown).map(({series}) => series),
        };
      },
    };
  }

  /* ---- heat maps ---- */

  function heatMap(panel, title) {
    const {values, texts, best, ends, title: shade} = panel.cells,
      [columns, rows] = [panel.x.names, panel.y.names];
    const cells = values.flatMap((row, y) => row.map((value, x) => ({x, y, value}))).filter(({value}) => known(value));
    const [low, high] = [...ends].sort((a, b) => a - b);
    return {
      label: [title, panel.title, `${shade} of ${rows.length} by ${columns.length} cells`].filter(Boolean).join(", "),
      height: 110 + LINE * rows.length,
      least: 160 + 26 * columns.length,
      points: cells.map((_, n) => [0, n]),
      tip: (_, n) => cellTip(panel, cells[n]),
      option: (colours, width) => {
        const left = Math.min(width * 0.34, 220),
          wide = (width - left - 20) / columns.length >= NARROW_CELL,
          shades = R.scale(colours);
        const names = {type: "category", splitLine: {show: false}};
        return {
          grid: {left, right: 14, top: 50, bottom: 46},
          xAxis: R.axis(colours, {...names, name: panel.x.title, nameLocation: "middle", nameGap: 24, position: "top", data: columns.map(text => middle(text, 12))}),
          yAxis: R.axis(colours, {...names, inverse: true, data: rows.map(text => middle(text, Math.floor(left / 7)))}),
          visualMap: R.colourBar(colours, {min: low, max: high === low ? low + 1e-9 : high, text: [R.number(high, 3), R.number(low, 3)], inRange: {color: ends[0] > ends[1] ? [...shades].reverse() : shades}}),
          series: [
            {
              type: "heatmap",
              data: cells.map(({x, y, value}) => ({
                value: [x, y, Math.min(high, Math.max(low, value))],
                itemStyle: {borderColor: best[y][x] ? colours.text : colours.ground, borderWidth: best[y][x] ? 2 : 1},
                label: {show: wide, formatter: () => texts[y][x], color: colours.text, fontSize: 11},
              })),
            },
          ],
        };
      },
    };
  }

  const cellTip = ({x, y, cells}, one) => [
    h("p", {}, h("strong", {}, R.foreign(y.names[one.y]))),
    h("p", {}, R.foreign(`${x.title} ${x.names[one.x]}: ${R.number(one.value)}`), h("span", {class: "sub"}, cells.title)),
  ];

  /* ---- texts, and all of it ---- */

  function textTable(panel, title, file) {
    const rows = panel.y.names.map((name, n) => ({name, texts: panel.texts.map(column => column.texts[n])}));
    const columns = [
      {key: "name", title: "change", value: row => row.name},
      ...panel.texts.map((column, n) => ({key: column.title, title: column.title, value: row => row.texts[n]})),
    ];
    return R.grid({caption: `${title}: ${panel.title}`, columns, rows, file});
  }

  /** Colours in the sheet's own variables, so that a legend follows the scheme. */
  function legend(marks, off, changed) {
    const named = new Map(marks.filter(({name}) => name).map(one => [one.name, one]));
    if (named.size < 2) return null;
    const several = name => new Set(marks.filter(one => one.name === name).map(({look}) => look)).size > 1;
    const entries = [...named.values()].map(({name, look}) => ({name, color: look === null || several(name) ? "var(--baseline)" : `var(--series-${look % 6})`}));
    return R.viewLegend(entries, off, changed);
  }

  /** Draw a picture into `host`, which is on the page; off: names that are hidden, changed(off) when that changes. */
  function picture(host, {title, panels, columns}, file, off, changed) {
    const all = panels.flatMap(({marks}) => marks),
      charts = panels.filter(({texts}) => !texts.length),
      grid = h("div", {class: "panels", "data-columns": Math.min(columns, charts.length)});
    host.append(...[legend(all, off, changed), grid].filter(Boolean));
    for (const panel of panels) {
      if (panel.texts.length) {
        host.append(h("h4", {}, panel.title), textTable(panel, title, file));
        continue;
      }
      const area = h("div", {class: "panel"}, panel.title ? h("h4", {}, R.foreign(panel.title)) : null);
      grid.append(area);
      const said = panel.cells ? panel.cells.title : panel.said;
      if (said) area.append(h("p", {class: "hint"}, R.foreign(said)));
      R.plot(area).draw(panel.cells ? heatMap(panel, title) : chart(panel, title, off));
    }
  }

  Object.assign(R, {picture});
})();
