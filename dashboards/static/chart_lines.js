/* The lines of a chart with their noise bands, dots and levels; lines that coincide stay visible.  chart.js gives the
 * spec and the scales.
 */
"use strict";

(() => {
  const {s, path} = Ridgeline;
  const DOTS_BELOW = 70; // points get dots while there are fewer
  const TOGETHER = 1.5; // pixels: lines that are nowhere further apart hide each other
  const PIECE = 7; // pixels of a line that hides behind others, before the next one shows

  /** The interval around a line as one filled outline per unbroken stretch. */
  function band(line, at) {
    const outlines = [];
    let upper = [],
      lower = [];
    const close = () => {
      if (upper.length > 1) outlines.push("M" + upper.join("L") + "L" + lower.reverse().join("L") + "Z");
      upper = [];
      lower = [];
    };
    for (let i = at.from; i <= at.to; i++) {
      const low = line.low && line.low[i],
        high = line.high && line.high[i];
      if (line.breaks && line.breaks.has(i)) close();
      if (line.y[i] === undefined) continue;
      if (low === null || low === undefined || high === null || high === undefined) {
        close();
        continue;
      }
      const inside = value => Math.min(at.bottom, Math.max(at.top, at.y(value))).toFixed(1);
      upper.push(at.x(i).toFixed(1) + " " + inside(high));
      lower.push(at.x(i).toFixed(1) + " " + inside(low));
    }
    close();
    return outlines.join("");
  }

  /** The value beside index i that a line can go to; undefined places are passed over. */
  function beside(line, i, by) {
    let n = i + by;
    while (n >= 0 && n < line.y.length && line.y[n] === undefined) n += by;
    return line.y[n] ?? null;
  }

  /** A visible point gets a dot if there are few points, or if no line reaches it.  rank: of lines that coincide. */
  function dots(line, at, rank) {
    const few = at.to - at.from < DOTS_BELOW,
      found = [];
    const alone = i => beside(line, i, -1) === null && beside(line, i, 1) === null;
    for (let i = at.from; i <= at.to; i++) {
      if ((line.y[i] ?? null) !== null && (few || alone(i)))
        found.push(
          s("circle", {cx: at.x(i).toFixed(1), cy: at.y(line.y[i]).toFixed(1), r: (few ? 2.6 : 1.8) + 1.9 * rank}),
        );
    }
    return found;
  }

  /** Groups of lines that nowhere stand apart: the later of them would hide the others. */
  function coinciding(lines, at) {
    const together = (a, b) => {
      let shared = 0;
      for (let i = at.from; i <= at.to; i++) {
        const [p, q] = [a.y[i] ?? null, b.y[i] ?? null];
        if (p === null || q === null) continue;
        if (Math.abs(at.y(p) - at.y(q)) > TOGETHER) return false;
        shared++;
      }
      return shared > 0;
    };
    const groups = [];
    for (const line of lines) {
      const group = groups.find(members => members.every(member => together(member, line)));
      if (group) group.push(line);
      else groups.push([line]);
    }
    return groups;
  }

  /** All lines.  Those that coincide share the way in turn, piece by piece, and their dots are rings in each other. */
  function drawLines(spec, at) {
    return coinciding(spec.lines, at).flatMap(group =>
      group.map((line, n) => {
        const turn = group.length > 1 ? {dash: `${PIECE} ${PIECE * (group.length - 1)}`, offset: -PIECE * n} : {};
        return drawLine({...line, ...turn}, at, group.length - 1 - n);
      }),
    );
  }

  function drawLine(line, at, rank) {
    const cut = line.y.map((value, i) => (i < at.from || i > at.to ? null : value));
    const stroke = {class: "stroke", d: path(cut, at.x, at.y, line.breaks), "stroke-dasharray": line.dash || null};
    if (line.offset) stroke["stroke-dashoffset"] = line.offset;
    const group = s(
      "g",
      {class: "line" + (line.quiet ? " quiet" : ""), "data-name": line.name},
      s("path", {class: "band", d: band(line, at)}),
      s("path", stroke),
      dots(line, at, rank),
    );
    group.style.setProperty("--line", line.color);
    return group;
  }

  /** The levels between steps, and a triangle where one begins: up is a larger value. */
  function drawSteps(spec, at) {
    const levels = (spec.levels || [])
      .filter(({from, to}) => to >= at.from && from <= at.to)
      .map(({from, to, value, color}) => {
        const [a, b] = [Math.max(from, at.from), Math.min(to, at.to)].map(at.x);
        const line = s("line", {class: "level", x1: a - 4, x2: b + 4, y1: at.y(value), y2: at.y(value)});
        line.style.setProperty("--line", color);
        return line;
      });
    const steps = (spec.steps || [])
      .map((step, n) => ({...step, n}))
      .filter(({i}) => i >= at.from && i <= at.to)
      .map(({i, value, up, color, text, chosen, n}) => {
        const x = at.x(i),
          y = Math.min(at.bottom - 9, Math.max(at.top + 9, at.y(value) + (up ? -13 : 13)));
        const mark = s(
          "g",
          {class: "step" + (chosen ? " chosen" : ""), "data-step": n},
          s("title", {}, text),
          s("circle", {class: "target", cx: x, cy: y, r: 11}),
          s("path", {
            d: up
              ? `M${x - 6} ${y + 4}L${x} ${y - 6}L${x + 6} ${y + 4}Z`
              : `M${x - 6} ${y - 4}L${x} ${y + 6}L${x + 6} ${y - 4}Z`,
          }),
        );
        mark.style.setProperty("--line", color);
        return mark;
      });
    return [...levels, ...steps];
  }

  Object.assign(Ridgeline, {drawLines, drawSteps});
})();
