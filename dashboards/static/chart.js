/* The one host of charts: ECharts options come from Python (dashboards/charts); here they get the theme's colours, the
 * texts of their axes, and what a click, a key and a button do.  A chart is drawn when it comes near the window.
 */
"use strict";

(() => {
  const R = Ridgeline,
    {h, foreign} = R,
    drawn = new Set();
  let echarts = null;

  /** ECharts is loaded when the first chart is near. */
  const library = () => (echarts ??= R.script("static/echarts/charts.min.js").then(() => window.echarts));

  const near = new IntersectionObserver(
    found => found.filter(entry => entry.isIntersecting).forEach(entry => begin(entry.target)),
    {rootMargin: "500px"},
  );
  const sizes = new ResizeObserver(found => found.forEach(({target}) => target.drawn?.resize()));
  const waiting = new Map();

  function begin(element) {
    near.unobserve(element);
    waiting.get(element)?.();
    waiting.delete(element);
  }

  /** Before the page is printed, and when the scheme changes. */
  window.addEventListener("beforeprint", () => [...waiting.keys()].forEach(begin));
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawn.forEach(draw => draw()));

  /** A colour of the theme by the name of its variable. */
  const colour = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim() || name;

  const text = size => ({color: colour("--soft"), fontSize: size, lineHeight: size + 3});

  function axis(given, category, small) {
    const {unit, one: _, ...own} = given,
      line = {lineStyle: {color: colour("--edge")}};
    const labels = {...text(small ? 10 : 11), hideOverlap: true};
    if (!category) labels.formatter = value => R.tick(value, unit);
    return {
      type: "value",
      nameTextStyle: text(11),
      axisLine: {show: Boolean(category), ...line},
      axisTick: {show: false},
      splitLine: {show: !category, lineStyle: {color: colour("--grid")}},
      splitNumber: small ? 2 : 5,
      ...own,
      axisLabel: {...labels, ...own.axisLabel},
    };
  }

  /** A series with its hollow points, and a series of bars for its intervals. */
  function parts(series, small) {
    const {low = [], high = [], hollow = [], tips: _tips, links: _links, level, dash, ...own} = series,
      color = colour(own.color),
      few = new Set(hollow);
    const line = own.type === "line",
      points = own.data.map((value, n) => (few.has(n) ? {value, symbol: "emptyCircle"} : value));
    const main = {
      symbol: "circle",
      symbolSize: line ? (small ? 4 : 5) : 8,
      showSymbol: !level,
      showAllSymbol: own.data.length < 80,
      silent: Boolean(level),
      animation: false,
      connectNulls: line && !level,
      emphasis: {scale: line ? 1.6 : 1.3},
      z: level ? 1 : line ? 3 : 5,
      ...own,
      data: points,
      color,
      itemStyle: {color, ...own.itemStyle},
      lineStyle: {type: dash, ...own.lineStyle, color},
    };
    if (level) Object.assign(main, {symbol: "none", tooltip: {show: false}});
    const ends = own.data.flatMap((_, n) => (R.known(low[n]) ? [[n, low[n]], [n, high[n]], [n, null]] : []));
    const bars = {
      type: "line",
      name: own.name,
      data: ends,
      symbol: "none",
      silent: true,
      animation: false,
      tooltip: {show: false},
      z: 2,
      lineStyle: {color, width: 3, opacity: 0.35},
    };
    return ends.length ? [main, bars] : [main];
  }

  /** The line of ratio 1, where it is among what is drawn. */
  function unity({xAxis, yAxis, series}) {
    const values = series.flatMap(({data}) => data.map(value => (Array.isArray(value) ? value[1] : value))).filter(R.known);
    const [low, high] = [yAxis.min ?? Math.min(...values), yAxis.max ?? Math.max(...values)];
    if (!yAxis.one || !(low <= 1 && high >= 1)) return [];
    const style = {color: colour("--soft"), width: 1, type: [2, 3]};
    return [{type: "line", name: "1", data: xAxis.data.map(() => 1), symbol: "none", silent: true, animation: false, z: 0, tooltip: {show: false}, lineStyle: style}];
  }

  const label = ([hash, date]) => [date.slice(0, 10), hash.slice(0, 8)].filter(Boolean).join("\n");

  /** What ECharts draws of an option, with the series whose names are not hidden. */
  function complete(option, piece, commits, off) {
    const shown = option.series.filter(({name}) => !off.has(name)),
      category = option.xAxis.type === "category",
      small = Boolean(piece.small);
    const x = {...option.xAxis};
    if (option.commits) x.data = x.data.map(at => label(commits[at]));
    const grid = small
      ? {left: 44, right: 8, top: 8, bottom: 18}
      : {left: 62, right: 18, top: 34, bottom: (category ? 40 : 46) + (piece.zoom ? 34 : 0)};
    if (small) x.axisLabel = {formatter: value => value.split("\n")[0].slice(5), showMinLabel: true};
    const zoom = {borderColor: colour("--edge"), textStyle: text(10), labelFormatter: () => ""};
    return {
      animation: false,
      aria: {enabled: false},
      textStyle: {fontFamily: getComputedStyle(document.body).fontFamily},
      grid,
      xAxis: axis({...x, nameLocation: "middle", nameGap: category ? 30 : 28, name: option.commits ? "" : x.name}, category, small),
      yAxis: axis({...option.yAxis, nameLocation: "end", nameTextStyle: {...text(11), align: "left"}}, false, small),
      series: [...unity({...option, series: shown}), ...shown.flatMap(one => parts(one, small))],
      dataZoom: piece.zoom ? [{type: "inside", zoomOnMouseWheel: "ctrl", moveOnMouseWheel: false}, {type: "slider", height: 18, bottom: 6, ...zoom}] : [],
      tooltip: {
        trigger: category ? "axis" : "item",
        confine: true,
        backgroundColor: colour("--ground"),
        borderColor: colour("--edge"),
        textStyle: {...text(12), color: colour("--text")},
        formatter: found => tip([found].flat(), option, shown, commits),
      },
    };
  }

  /** The box at the cursor. */
  function tip(found, option, shown, commits) {
    const at = found[0]?.dataIndex,
      rows = [];
    for (const {seriesName, dataIndex, value, color, seriesType} of found) {
      const series = shown.find(one => one.name === seriesName && one.type === seriesType && same(one, dataIndex, value));
      if (!series) continue;
      const number = Array.isArray(value) ? value[1] : value,
        note = series.tips?.[dataIndex];
      if (!R.known(number)) continue;
      const [low, high] = [series.low?.[dataIndex], series.high?.[dataIndex]],
        {unit} = option.yAxis;
      const parts = [
        R.withUnit(number, unit),
        R.known(low) ? `${R.withUnit(low, unit)} to ${R.withUnit(high, unit)}` : null,
        series.hollow?.includes(dataIndex) ? "one or two trials" : null,
        Array.isArray(value) && option.xAxis.unit !== undefined ? `at ${R.tick(value[0], option.xAxis.unit)}` : null,
      ];
      const name = h("span.tip-name", foreign(seriesName === "steps" ? "step" : seriesName));
      name.style.setProperty("--line", color);
      rows.push(h("div.tip-row", name, h("span", note ? foreign(note) : null, note ? h("br") : null, seriesName === "steps" ? null : parts.filter(Boolean).join(" · "))));
    }
    const places = option.xAxis.data;
    const head = option.commits && commits[places[at]] ? commits[places[at]].toReversed().map((part, n) => (n ? part.slice(0, 8) : part)).join(" ") : places?.[at];
    return rows.length ? h("div.tip", head ? h("strong", foreign(String(head))) : null, rows) : "";
  }

  const same = (series, n, value) => JSON.stringify(series.data[n]) === JSON.stringify(value);

  const GLYPHS = {circle: "●", rect: "■", triangle: "▲", diamond: "◆", roundRect: "▬", pin: "▼"};

  /** What a series looks like: the glyph of its points, or a piece of its line. */
  function mark({type, symbol = "circle", dash, color}) {
    const element = h(type === "scatter" ? "span.mark.point" : "span.mark", {"aria-hidden": "true"}, type === "scatter" ? GLYPHS[symbol] : null);
    let at = 0;
    const stops = (Array.isArray(dash) ? dash : [9]).map((width, n) => `${n % 2 ? "transparent" : "var(--line)"} ${at}px ${(at += width)}px`);
    element.style.setProperty("--line", `var(${color})`);
    if (type !== "scatter") element.style.setProperty("background", `repeating-linear-gradient(90deg, ${stops.join(", ")})`);
    return element;
  }

  R.legend = ({series}) => legend({series}, new Set(), null);

  /** Names of the lines with their looks; a button hides or shows one. */
  function legend(option, off, changed) {
    const seen = new Map(option.series.filter(one => one.name !== "steps" && !one.level).map(one => [one.name, one]));
    const items = [...seen].map(([name, series]) => {
      if (!changed) return h("span", mark(series), foreign(name));
      return h("button", {type: "button", "aria-pressed": String(!off.has(name)), click: () => changed(name)}, mark(series), foreign(name));
    });
    return seen.size > 1 || !changed ? h("div.legend", changed ? {role: "group", "aria-label": "lines"} : {}, items) : null;
  }

  /** A figure with its buttons; commits: the list of the page. */
  R.chart = (piece, commits = []) => {
    const names = piece.units.map(([name]) => name),
      off = new Set(),
      asked = piece.key ? R.state()[piece.key] : null;
    let chosen = names.includes(asked) ? asked : names[0],
      chart = null;
    const option = () => piece.units.find(([name]) => name === chosen)[1];
    const canvas = h("div.canvas", {tabindex: piece.small ? null : "0", role: "img", "aria-label": piece.title}),
      controls = h("div.controls"),
      figure = h("figure", {class: piece.small ? "chart small" : "chart"}, piece.named ? h("figcaption", foreign(piece.title)) : null, controls, canvas);
    canvas.style.height = `${piece.height}px`;

    function draw() {
      if (canvas.isConnected) chart.setOption(complete(option(), piece, commits, off), {notMerge: true});
      else if (chart) drawn.delete(draw);
    }

    const picture = () => {
      if (chart) h("a", {href: chart.getDataURL({pixelRatio: 3, backgroundColor: colour("--ground")}), download: `${piece.title}.png`}).click();
    };
    const saved = piece.small ? null : h("button.save", {type: "button", click: picture}, "PNG");

    function show() {
      const buttons = names.length > 1 ? R.press("unit", names, chosen, unit) : null;
      const toggle = name => (off.has(name) ? off.delete(name) : off.add(name), show());
      controls.replaceChildren(...[buttons, piece.legend === false ? null : legend(option(), off, piece.small ? null : toggle), saved].filter(Boolean));
      if (chart) draw();
    }

    function unit(name) {
      chosen = name;
      if (piece.key) R.go({[piece.key]: name === names[0] ? "" : name}, false);
      show();
    }

    /** Where a value leads: its own address, or its commit in the repository. */
    function open({seriesName, dataIndex, seriesType, value}) {
      const series = option().series.find(one => one.name === seriesName && one.type === seriesType && same(one, dataIndex, value));
      const place = option().commits ? commits[option().xAxis.data[dataIndex]] : null;
      if (series?.links?.[dataIndex]) R.follow(series.links[dataIndex]);
      else if (place && R.site.repo && seriesName !== "steps") location.assign(`${R.site.repo}/commit/${place[0]}`);
    }

    let cursor = 0;
    canvas.addEventListener("keydown", event => {
      const step = {ArrowRight: 1, ArrowLeft: -1}[event.key],
        {series} = option(),
        {length} = series[0].data;
      if (event.key === "Enter") open({seriesName: series[0].name, seriesType: series[0].type, dataIndex: cursor, value: series[0].data[cursor]});
      if (!step || !chart) return;
      event.preventDefault();
      cursor = Math.min(length - 1, Math.max(0, cursor + step));
      chart.dispatchAction({type: "showTip", seriesIndex: chart.getOption().series.findIndex(one => one.name === series[0].name), dataIndex: cursor});
    });

    waiting.set(canvas, () =>
      library().then(({init}) => {
        if (!canvas.isConnected) return;
        canvas.drawn = chart = init(canvas, null, {renderer: "canvas"});
        chart.on("click", open);
        drawn.add(draw);
        sizes.observe(canvas);
        draw();
        canvas.dataset.drawn = "1";
      }).catch(R.fail),
    );
    near.observe(canvas);
    show();
    return figure;
  };
})();
