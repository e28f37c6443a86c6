/* A chart by ECharts in the colours of the page: drawn again when the width, the colour scheme or the medium changes.
 *
 * The box at the cursor is an element that we make: ECharts' own comes as text with styles, which the policy of the page
 * forbids.  A canvas says nothing to a screen reader: a table of the same numbers stands below each chart.
 */
"use strict";

(() => {
  const R = Ridgeline,
    {h} = R;
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
  function label(text, longest = LONGEST_LABEL) {
    const plain = String(text).replace(/[\u0000-\u001f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g, "");
    return plain.length > longest ? plain.slice(0, longest - 1) + "…" : plain;
  }

  /* ---- axes ---- */

  /** Looks that every axis shares. */
  function axis(colours, changes) {
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

  /** Put a chart into `host`; returns {draw(spec)}.
   *
   * spec: {label: what it shows, height: pixels, least: width below which it scrolls, option(colours, width) -> ECharts option without the tooltip,
   *        points: [[series, index]] in the order of the arrow keys, tip(series, index) -> nodes or null,
   *        picked(series, index): a click or Enter}
   */
  function plot(host) {
    const area = h("div", {class: "plot", tabindex: "0", role: "img"}),
      said = h("p", {class: "visually-hidden", "aria-live": "polite"});
    host.append(h("div", {class: "scroll"}, area), said);
    const chart = echarts.init(area, null, {renderer: "canvas"});
    let spec = null,
      at = -1;

    function draw(changed) {
      spec = changed || spec;
      if (!spec || !area.clientWidth) return;
      at = -1;
      area.setAttribute("aria-label", spec.label + "; the table below has the same numbers");
      area.style.height = spec.height + "px";
      area.style.minWidth = (spec.least || 0) + "px";
      chart.resize();
      const colours = palette();
      chart.setOption(
        {
          animation: false,
          backgroundColor: "transparent",
          textStyle: {fontFamily: "system-ui, sans-serif", color: colours.text},
          ...spec.option(colours, area.clientWidth),
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
        return nodes && h("div", {class: "plot-tip"}, nodes);
      },
    });

    function show(step) {
      const {points} = spec;
      if (!points.length) return;
      at = at < 0 ? (step > 0 ? 0 : points.length - 1) : (at + step + points.length) % points.length;
      const [seriesIndex, dataIndex] = points[at];
      chart.dispatchAction({type: "showTip", seriesIndex, dataIndex});
      said.replaceChildren(h("span", {}, spec.tip(seriesIndex, dataIndex)));
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
    area.addEventListener("blur", hide);
    chart.on("click", ({componentType, seriesIndex, dataIndex}) => {
      if (componentType === "series" && spec.picked) spec.picked(seriesIndex, dataIndex);
    });

    let width = 0;
    const watcher = new ResizeObserver(() => {
      if (!area.isConnected) return gone();
      if (area.clientWidth === width) return;
      width = area.clientWidth;
      draw();
    });
    watcher.observe(area);
    const media = ["(prefers-color-scheme: dark)", "print"].map(query => window.matchMedia(query)),
      repaint = () => (area.isConnected ? draw() : gone());
    for (const medium of media) medium.addEventListener("change", repaint);

    /** The page has drawn something else in its place. */
    function gone() {
      watcher.disconnect();
      for (const medium of media) medium.removeEventListener("change", repaint);
      chart.dispose();
    }
    return {draw, chart};
  }

  Object.assign(R, {plot, scale, axis, colourBar, plotLabel: label, SYMBOLS});
})();
