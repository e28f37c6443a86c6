/* Charts of the views by ECharts: the chart, and the pictures that it draws. */

/* A chart by ECharts in the colours of the page: drawn again when the width, the colour scheme or the medium changes.
 *
 * The box at the cursor is an element that we make: ECharts' own comes as text with styles, which the policy of the page
 * forbids.  A canvas says nothing to a screen reader: a table of the same numbers stands below each chart.
 */
"use strict";

(() => {
  const R = Ridgeline,
    {h, foreign, number} = R;
  const LONGEST_LABEL = 34; // letters of a name on an axis; the box and the table have all of them
  /** One for each colour, all around their point: ECharts' own pin and arrow stand above and below theirs. */
  const SYMBOLS = ["circle", "rect", "triangle", "diamond", "path://M0,0L10,0L5,9Z", "path://M3,0h4v3h3v4h-3v3h-4v-3h-3v-4h3z"];

  /* ---- colours ---- */

  /** The colours of the page as they are now: light, dark or printed. */
  function palette() {
    const style = getComputedStyle(document.documentElement),
      of = name => style.getPropertyValue("--" + name).trim();
    const named = ["text", "soft", "edge", "grid", "ground", "raised", "baseline", "link", "good", "bad"];
    return {
      ...Object.fromEntries(named.map(name => [name, of(name)])),
      series: [0, 1, 2, 3, 4, 5].map(n => of("series-" + n)),
    };
  }

  const channels = colour => [1, 3, 5].map(at => parseInt(colour.slice(at, at + 2), 16));

  /** A colour between two of the form #rrggbb; share: of the second, 0 to 1. */
  function mix(one, other, share) {
    const mixed = channels(one).map((value, n) => Math.round(value + (channels(other)[n] - value) * share));
    return "#" + mixed.map(value => value.toString(16).padStart(2, "0")).join("");
  }

  /** From worse over alike to better, soft enough for a number in the text colour on them. */
  const scale = colours => [
    mix(colours.ground, colours.bad, 0.55),
    mix(colours.ground, colours.grid, 1),
    mix(colours.ground, colours.good, 0.5),
  ];

  /** A name for a canvas: without what turns the writing direction, and not longer than an axis can hold. */
  function plotLabel(text, longest = LONGEST_LABEL) {
    const plain = String(text).replace(/[\u0000-\u001f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g, "");
    return plain.length > longest ? plain.slice(0, longest - 1) + "…" : plain;
  }

  /* ---- axes ---- */

  /** Looks that every axis shares. */
  function axisLooks(colours, changes) {
    const {axisLabel, splitLine, ...others} = changes;
    return {
      nameTextStyle: {color: colours.soft},
      axisLine: {lineStyle: {color: colours.edge}},
      axisTick: {lineStyle: {color: colours.edge}},
      axisLabel: {color: colours.soft, hideOverlap: true, ...axisLabel},
      splitLine: {show: true, lineStyle: {color: colours.grid}, ...splitLine},
      ...others,
    };
  }

  /** The bar that says what the colours of a heat map mean. */
  const colourBar = (colours, changes) => ({
    type: "continuous",
    dimension: 2,
    calculable: false,
    orient: "horizontal",
    left: "center",
    bottom: 4,
    itemHeight: 140,
    itemWidth: 12,
    textStyle: {color: colours.soft},
    inRange: {color: scale(colours)},
    ...changes,
  });

  /* ---- the chart ---- */

  const charts = R.drawings();
  window.addEventListener("beforeprint", charts.all);

  /** Put a chart into `host`, and draw it when it is near the window.
   *
   * spec: {label: what it shows, height: pixels, least: width below which it scrolls, option(colours, width) -> ECharts option without the tooltip,
   *        points: [[series, index]] in the order of the arrow keys, tip(series, index) -> nodes or null,
   *        picked(series, index): a click or Enter}
   */
  function plot(host, spec) {
    const label = spec.label + "; the table below has the same numbers",
      area = h("div.plot", {tabindex: "0", role: "img", "aria-label": label}),
      said = h("p.visually-hidden", {"aria-live": "polite"});
    area.style.height = spec.height + "px";
    area.style.minWidth = (spec.least || 0) + "px";
    host.append(h("div.scroll", area), said);
    const chart = echarts.init(area, null, {renderer: "canvas"});
    let width = 0, // with which it was drawn
      at = -1;

    function draw() {
      width = area.clientWidth;
      if (!width) return;
      at = -1;
      chart.resize();
      const colours = palette();
      chart.setOption(
        {
          animation: false,
          backgroundColor: "transparent",
          textStyle: {fontFamily: "system-ui, sans-serif", color: colours.text},
          ...spec.option(colours, width),
          tooltip: box(colours),
        },
        {notMerge: true},
      );
    }

    const box = colours => ({
      trigger: "item",
      renderMode: "html",
      confine: true,
      transitionDuration: 0,
      padding: [6, 10],
      backgroundColor: colours.ground,
      borderColor: colours.edge,
      textStyle: {color: colours.text, fontSize: 13.5},
      extraCssText: "max-width: min(30rem, 90%); white-space: normal; overflow-wrap: anywhere;",
      formatter: ({seriesIndex, dataIndex}) => {
        const nodes = spec.tip(seriesIndex, dataIndex);
        return nodes && h("div.plot-tip", nodes);
      },
    });

    function show(step) {
      const {points} = spec;
      if (!points.length) return;
      at = at < 0 ? (step > 0 ? 0 : points.length - 1) : (at + step + points.length) % points.length;
      const [seriesIndex, dataIndex] = points[at];
      chart.dispatchAction({type: "showTip", seriesIndex, dataIndex});
      said.replaceChildren(h("span", spec.tip(seriesIndex, dataIndex)));
    }

    function hide() {
      at = -1;
      chart.dispatchAction({type: "hideTip"});
      said.replaceChildren();
    }

    const keys = {
      ArrowRight: () => show(1),
      ArrowDown: () => show(1),
      ArrowLeft: () => show(-1),
      ArrowUp: () => show(-1),
      Escape: hide,
      Enter: () => at >= 0 && spec.picked && spec.picked(...spec.points[at]),
    };
    area.addEventListener("keydown", event => {
      if (!keys[event.key] || event.ctrlKey || event.metaKey) return;
      event.preventDefault();
      keys[event.key]();
    });
    area.addEventListener("focus", () => charts.now(area));
    area.addEventListener("blur", hide);
    chart.on("click", ({componentType, seriesIndex, dataIndex}) => {
      if (componentType === "series" && spec.picked) spec.picked(seriesIndex, dataIndex);
    });

    const watcher = new ResizeObserver(() => {
      if (!area.isConnected) gone();
      else if (!width) charts.add(area, draw);
      else if (area.clientWidth !== width) draw();
    });
    watcher.observe(area);
    const media = ["(prefers-color-scheme: dark)", "print"].map(query => window.matchMedia(query)),
      repaint = () => (!area.isConnected ? gone() : width && draw());
    for (const medium of media) medium.addEventListener("change", repaint);

    /** The page has drawn something else in its place. */
    function gone() {
      charts.drop(area);
      watcher.disconnect();
      for (const medium of media) medium.removeEventListener("change", repaint);
      chart.dispose();
    }
  }

  /* A picture (dashboards/figures/studies/picture.py) on a page: its panels as charts, its texts as tables, one legend.
   *  * A page that makes a panel of its own rows (R.panelChart) leaves out what is as usual, and may say besides:
   *   label                what it shows, for screen readers
   *   of an axis: text     (value) -> text of a tick
   *   of marks: rows       what each point was made of; tone: good, bad or soft instead of a look, turn: degrees of its symbol
   *   of cells: bar        texts at the ends of the colours, best first
   *   tip, picked          (row, marks) of a point or ({x, y}) of a cell: nodes for the box at the cursor; a click or Enter
   */

  const DASHES = ["solid", [7, 4], [2, 3], [9, 3, 2, 3], [5, 2], [1, 5]];
  const LETTER = 7; // pixels of a letter
  const LINE = 22; // pixels of a name on a vertical axis
  const LETTERS = 18; // of a name on a horizontal axis
  const TURNED = 84; // pixels below a horizontal axis whose names are turned
  const NARROW_CELL = 36; // pixels of a cell that holds no number
  const FEW = 12; // columns of a map that scrolls before it hides its numbers
  const SMALL_FROM = 250; // points of a panel from which on they are small

  const WIDEST = 1240; // pixels of a page
  const LEAST_SPAN = 0.02; // of the values of a linear axis
  const BAR = 0.8; // part of a name's room that its bars take together

  const colourOf = (colours, {look, tone}) => (tone ? colours[tone] : look === null ? colours.baseline : colours.series[look % 6]);
  const measured = ({kind}) => ["line", "dots", "bars"].includes(kind);
  const known = value => value !== null && value !== undefined;

  /** A value of an axis as text. */
  function textOf(axis, value, usual = number) {
    if (axis.names.length) return axis.names[Math.round(value)] ?? "";
    if (axis.text) return axis.text(value);
    return axis.scale === "bytes" ? R.quantity(value, "B", true) : usual(value);
  }

  const tickOf = (axis, value) => textOf(axis, value, R.tick);

  /* ---- axes ---- */

  const logarithmic = axis => ["log", "log2", "bytes"].includes(axis.scale) && !axis.names.length;

  function axisOf(colours, axis, values, vertical, width) {
    const title = {
      name: axis.title,
      nameTextStyle: {color: colours.soft, align: vertical ? "left" : "center"},
      axisLine: {onZero: false, lineStyle: {color: colours.edge}},
    };
    const place = vertical ? {} : {nameLocation: "middle", nameGap: 28};
    if (axis.names.length) return axisLooks(colours, {...title, ...place, ...namesAxis(axis, vertical, width)});
    if (logarithmic(axis)) return axisLooks(colours, {...title, ...place, ...logAxis(axis, values)});
    const limits = axis.zero ? {min: 0} : around(values) || {scale: true};
    return axisLooks(colours, {...title, ...place, type: "value", ...limits, axisLabel: {formatter: value => tickOf(axis, value)}});
  }

  /** Limits for values that are nearly equal: noise must not fill the axis, nor must they look like nothing on it. */
  function around(values) {
    const [low, high] = [Math.min(...values), Math.max(...values)],
      room = LEAST_SPAN * Math.max(Math.abs(low), Math.abs(high)),
      step = 10 ** Math.floor(Math.log10(room));
    return high - low < room && {min: Math.floor((low - room) / step) * step, max: Math.ceil((high + room) / step) * step};
  }

  /** A name in so many letters, its middle left out: names of cases differ at both ends. */
  function middle(text, most) {
    const plain = plotLabel(text, text.length + 1);
    return plain.length <= most ? plain : plain.slice(0, Math.ceil(most / 2)) + "…" + plain.slice(plain.length - Math.floor(most / 2) + 1);
  }

  /** Pixels for the names of a vertical axis: all their letters, where half of the width is enough for them. */
  const nameRoom = (names, width) => Math.min(width * 0.5, 300, 20 + LETTER * Math.max(0, ...names.map(({length}) => length)));

  /** Least width of a panel with such names. */
  const leastOf = names => 220 + nameRoom(names, Infinity);

  /** Whether names below each other's ends would touch, so that they are turned. */
  const tight = (names, width) => names.reduce((sum, name) => sum + Math.min(LETTERS, name.length) + 2, 0) * LETTER > width - 90;

  /** Names at whole numbers of a linear axis, so that groups can stand side by side between them. */
  function namesAxis({names}, vertical, width) {
    const letters = vertical ? Math.floor((nameRoom(names, width) - 12) / LETTER) : LETTERS,
      turned = !vertical && tight(names, width);
    return {
      type: "value",
      min: -1, // with whole ends the ticks are at whole numbers
      max: names.length,
      interval: 1,
      inverse: vertical,
      ...(vertical ? {name: ""} : {nameGap: turned ? TURNED : 28}),
      splitLine: {show: false},
      axisTick: {show: false},
      axisLabel: {
        rotate: turned ? 45 : 0,
        formatter: value => middle(names[value] ?? "", letters),
      },
    };
  }

  /** A logarithmic axis that ends at the powers around its values. */
  function logAxis(axis, values) {
    const base = axis.scale === "log" ? 10 : 2,
      above = values.filter(value => value > 0);
    const power = (value, round, room) => base ** round(Math.log(value) / Math.log(base) + room);
    let min = power(Math.min(...above), Math.floor, 1e-9),
      max = power(Math.max(...above), Math.ceil, -1e-9);
    if (min === max) [min, max] = [min / base, max * base]; // one value stands in the middle
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

  /** Place of a group's symbol; the second six have others beside their colours. */
  const symbolOf = ({look}) => (look === null ? 2 : (look + Math.floor(look / 6)) % 6);

  /** Dashes of a line; those of the second six of the groups have dots. */
  const dashOf = ({look, dashed}) => (dashed || look === null || look < 6 ? dashed % 6 : 2);

  function pointsOf(colours, marks, small) {
    const colour = colourOf(colours, marks),
      others = marks.look === null && !marks.dashed && !marks.hollow && !marks.tone;
    return {
      name: marks.name,
      type: marks.kind === "line" ? "line" : "scatter",
      symbol: marks.tone === "soft" ? "circle" : SYMBOLS[symbolOf(marks)],
      symbolRotate: marks.turn || 0,
      symbolSize: small ? 4 : others ? 5 : 8,
      lineStyle: {color: colour, width: 1.8, type: DASHES[dashOf(marks)]},
      itemStyle: {color: marks.hollow ? colours.ground : colour, borderColor: colour, borderWidth: marks.hollow ? 1.6 : 0, opacity: others ? 0.45 : 1},
      data: marks.x.map((x, n) => [x, known(marks.y[n]) ? marks.y[n] : "-"]),
    };
  }

  /** A line that says nothing at the cursor. */
  const silent = (colour, width, type, data) => ({
    type: "line",
    symbol: "none",
    silent: true,
    lineStyle: {color: colour, width, type, cap: "butt"},
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

  /** Bars as thick segments that begin at the level of the panel, or at 0; their ends, unseen, have the box at the cursor. */
  function barsOf(colours, marks, {level, marks: all}) {
    const groups = groupsOf(all),
      wide = Math.max(3, (BAR * lineOf(groups)) / groups - 1),
      from = known(level) ? level : 0;
    const data = marks.x.flatMap((x, n) => (known(x) ? [[from, marks.y[n]], [x, marks.y[n]], [null, null]] : []));
    const ends = {...pointsOf(colours, marks, false), symbol: "rect", symbolSize: [24, wide + 1], itemStyle: {opacity: 0}};
    return [{series: silent(colourOf(colours, marks), wide, "solid", data), marks: null}, {series: ends, marks}];
  }

  /** Pixels of a name beside which so many bars stand. */
  const lineOf = groups => Math.max(LINE, 7 * groups + 4);

  const groupsOf = marks => marks.filter(({kind}) => kind === "bars").length;

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
      if (marks.kind === "bars") return barsOf(colours, marks, panel);
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
      ["interval", marks.low.length && known(marks.low[n]) ? `${textOf(value, marks.low[n])} to ${textOf(value, marks.high[n])}` : null],
    ];
    return R.box(marks.name, facts, " ", foreign(marks.labels[n] || ""));
  }

  function chart(panel, title, off) {
    const shown = panel.marks.filter(({name}) => !off.has(name)),
      laid = seriesOf({series: [], baseline: ""}, panel, shown).map(({marks}) => marks);
    return {
      label: panel.label || [title, panel.title, `${panel.y.title || "names"} over ${panel.x.title}`].filter(Boolean).join(", "),
      height: panel.y.names.length ? 90 + lineOf(groupsOf(panel.marks)) * (panel.y.names.length + 1) : 340,
      least: panel.y.names.length ? leastOf(panel.y.names) : 0,
      points: laid.flatMap((marks, series) => (marks ? marks.x.map((_, n) => [series, n]) : [])).filter(([series, n]) => known(laid[series].x[n]) && known(laid[series].y[n])),
      tip: (series, n) => laid[series] && (panel.tip ? panel.tip(laid[series].rows[n], laid[series]) : tip(panel, laid[series], n)),
      picked: (series, n) => laid[series] && panel.picked && panel.picked(laid[series].rows[n], laid[series]),
      option: (colours, width) => {
        const {xs, ys} = reachOf(panel);
        return {
          grid: {left: panel.y.names.length ? nameRoom(panel.y.names, width) : 70, right: 24, top: 34, bottom: panel.x.names.length && tight(panel.x.names, width) ? TURNED + 22 : 50},
          xAxis: axisOf(colours, panel.x, xs, false, width),
          yAxis: axisOf(colours, panel.y, ys, true, width),
          series: seriesOf(colours, panel, shown).map(({series}) => series),
        };
      },
    };
  }

  /* ---- heat maps ---- */

  function heatMap(panel, title) {
    const {values, texts, best, ends, title: shade, bar} = panel.cells,
      [columns, rows] = [panel.x.names, panel.y.names];
    const every = values.flatMap((row, y) => row.map((value, x) => ({x, y, value}))),
      inOrder = every.filter(({value}) => known(value)),
      worded = every.filter(({x, y, value}) => !known(value) && texts[y][x]); // why there is no value
    const cells = [...inOrder].sort((a, b) => best[a.y][a.x] - best[b.y][b.x]), // the frame of a best one is drawn over its neighbours
      place = new Map(cells.map((cell, n) => [cell, n]));
    const [low, high] = [...ends].sort((a, b) => a - b);
    return {
      label: panel.label || [title, panel.title, `${shade} of ${rows.length} by ${columns.length} cells`].filter(Boolean).join(", "),
      height: 110 + LINE * rows.length,
      least: 160 + (columns.length > FEW ? 26 : 64) * columns.length,
      points: [...inOrder.map(cell => [0, place.get(cell)]), ...worded.map((_, n) => [1, n])],
      tip: (series, n) => (panel.tip || (cell => cellTip(panel, cell)))([cells, worded][series][n]),
      picked: (series, n) => panel.picked && panel.picked([cells, worded][series][n]),
      option: (colours, width) => {
        const left = Math.min(width * 0.34, 220),
          cell = (width - left - 20) / columns.length,
          wide = cell >= NARROW_CELL,
          shades = scale(colours);
        const names = {type: "category", splitLine: {show: false}};
        return {
          grid: {left, right: 14, top: 50, bottom: 46},
          xAxis: axisLooks(colours, {...names, name: panel.x.title, nameLocation: "middle", nameGap: 24, position: "top", data: columns.map(text => middle(text, Math.max(12, Math.floor(cell / LETTER) - 1)))}),
          yAxis: axisLooks(colours, {...names, inverse: true, data: rows.map(text => middle(text, Math.floor(left / 7)))}),
          visualMap: colourBar(colours, {min: low, max: high === low ? low + 1e-9 : high, text: bar || [number(high, 3), number(low, 3)], seriesIndex: 0, inRange: {color: ends[0] > ends[1] ? [...shades].reverse() : shades}}),
          series: [
            {
              type: "heatmap",
              data: cells.map(({x, y, value}) => ({
                value: [x, y, Math.min(high, Math.max(low, value))],
                itemStyle: {borderColor: best[y][x] ? colours.text : colours.ground, borderWidth: best[y][x] ? 2 : 1},
                label: {show: wide, formatter: () => texts[y][x], color: colours.text, fontSize: 11},
              })),
            },
            {
              type: "scatter",
              symbol: "rect",
              symbolSize: [NARROW_CELL, LINE - 4],
              itemStyle: {color: "transparent"},
              data: worded.map(({x, y}) => ({value: [x, y], label: {show: wide, formatter: () => plotLabel(texts[y][x], 12), color: colours.soft, fontSize: 11}})),
            },
          ],
        };
      },
    };
  }

  const cellTip = ({x, y, cells}, one) => [
    h("p", h("strong", foreign(y.names[one.y]))),
    h("p", foreign(`${x.title} ${x.names[one.x]}: ${number(one.value)}`), h("span.sub", cells.title)),
  ];

  /* ---- texts, and all of it ---- */

  function textTable(panel, title, file) {
    const rows = panel.y.names.map((name, n) => ({name, texts: panel.texts.map(column => column.texts[n])}));
    const columns = [
      {key: "name", title: "change"},
      ...panel.texts.map((column, n) => ({key: column.title, title: column.title, value: row => row.texts[n]})),
    ];
    return R.grid({caption: `${title}: ${panel.title}`, columns, rows, file});
  }

  /** Colours in the sheet's own variables, so that a legend follows the scheme. */
  function legend(marks, off, changed) {
    const named = new Map(marks.filter(({name}) => name).map(one => [one.name, one]));
    if (named.size < 2) return null;
    const several = name => new Set(marks.filter(one => one.name === name).map(({look}) => look)).size > 1;
    const entries = [...named.values()].map(marks => ({
      name: marks.name,
      color: marks.look === null || several(marks.name) ? "var(--baseline)" : `var(--series-${marks.look % 6})`,
      dash: ["line", "rule"].includes(marks.kind) && dashOf(marks) ? DASHES[dashOf(marks)] : null,
      baseline: marks.baseline,
    }));
    return R.legend(entries, off, changed);
  }

  /** Draw a picture into `host`, which is on the page; off: names that are hidden, changed(off) when that changes. */
  function picture(host, {title, panels, columns}, file, off, changed) {
    const all = panels.flatMap(({marks}) => marks),
      charts = panels.filter(({texts}) => !texts.length),
      least = Math.max(1, ...charts.filter(({cells}) => !cells).map(({y}) => (y.names.length ? leastOf(y.names) : 1))),
      grid = h("div.panels", {"data-columns": Math.min(columns, charts.length, Math.max(1, Math.floor(WIDEST / least)))});
    host.append(...[legend(all, off, changed), grid].filter(Boolean));
    for (const panel of panels) {
      if (panel.texts.length) {
        host.append(h("h4", panel.title), textTable(panel, title, file));
        continue;
      }
      const area = h("div.panel", panel.title ? h("h4", foreign(panel.title)) : null);
      grid.append(area);
      const said = panel.cells ? panel.cells.title : panel.said;
      if (said) area.append(h("p.hint", foreign(said)));
      plot(area, panel.cells ? heatMap(panel, title) : chart(panel, title, off));
    }
  }

  /* ---- panels that a page makes of its own rows ---- */

  const AXIS = {title: "", scale: "linear", names: [], zero: false};
  const PANEL = {title: "", marks: [], upright: true, level: null};
  const MARKS = {name: "", kind: "dots", low: [], high: [], look: null, dashed: 0, hollow: false, labels: []};

  /** Draw such a panel and its legend into `host`; off: names that are hidden, changed(off) when that changes. */
  function panelChart(host, said, off = new Set(), changed = () => {}) {
    const marks = (said.marks || []).map(one => ({...MARKS, ...one})),
      panel = {...PANEL, ...said, x: {...AXIS, ...said.x}, y: {...AXIS, ...said.y}, marks};
    host.append(...[legend(marks, off, changed)].filter(Boolean));
    plot(host, panel.cells ? heatMap(panel, "") : chart(panel, "", off));
  }

  /** What marks say of backends, by name: own ones in colour, baselines grey and dashed. */
  function looksOf(backends) {
    const own = backends.filter(({baseline}) => !baseline),
      others = backends.filter(({baseline}) => baseline);
    const look = one => (one.baseline ? {dashed: others.indexOf(one) + 1, hollow: true, baseline: true} : {look: own.indexOf(one)});
    return new Map(backends.map(one => [one.name, {name: one.name, ...look(one)}]));
  }

  Object.assign(R, {picture, panelChart, looksOf});
})();
