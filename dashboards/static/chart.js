/* Line charts in SVG: the exact lanes below them, their lines, and the chart itself. */

/* Exact numbers under a chart, on its axis: one small step line per number, a mark wherever it changes. */
"use strict";

(() => {
  const R = Ridgeline,
    {s, path, h} = R;
  const HEIGHT = 38, // of a lane
    NAME = 13, // of these, the line with its name
    GAP = 10; // between the chart's axis and the first lane

  const lanesHeight = spec => (spec.lanes && spec.lanes.length ? GAP + HEIGHT * spec.lanes.length : 0);

  /** Indices at which the value differs from the one before; undefined places are passed over. */
  function changes(values) {
    const found = [];
    let before;
    values.forEach((value, i) => {
      if (value === undefined) return;
      if (before !== undefined && value !== before) found.push(i);
      before = value;
    });
    return found;
  }

  /** Lanes in the picture whose scales are `at` and whose height is `height`. */
  function drawLanes(spec, at, height) {
    const top = height - HEIGHT * (spec.lanes || []).length;
    return (spec.lanes || []).map((lane, n) => drawLane(lane, at, top + HEIGHT * n));
  }

  function drawLane(lane, at, top) {
    const known = lane.values.filter(value => value !== undefined && value !== null),
      low = Math.min(...known),
      high = Math.max(...known);
    const [roof, floor] = [top + NAME + 5, top + HEIGHT - 5],
      y = value => (high > low ? floor - ((value - low) / (high - low)) * (floor - roof) : (roof + floor) / 2);
    const marks = changes(lane.values).filter(i => i >= at.from && i <= at.to),
      last = lane.values.slice(0, at.to + 1).findLast(value => value !== undefined);
    return s(
      "g.lane",
      {"data-lane": lane.name},
      s("line.edge", {x1: at.left, x2: at.right, y1: top, y2: top}),
      s("path.stroke", {d: staircase(lane.values, at, y)}),
      marks.map(i =>
        s(
          "circle",
          {cx: at.x(i).toFixed(1), cy: y(lane.values[i] ?? low).toFixed(1), r: 3},
          s("title", lane.text(lane.values[i])),
        ),
      ),
      s("text.name", {x: at.left + 4, y: top + NAME - 2}, lane.name),
      s(
        "text.now",
        {x: at.right + 6, y: (roof + floor) / 2, dy: "0.32em"},
        last === undefined ? "" : lane.text(last),
      ),
    );
  }

  /** A step line: a value holds until the next one; what failed to compile (null) leaves a gap. */
  function staircase(values, at, y) {
    let now = values.slice(0, at.from + 1).findLast(value => value !== undefined),
      text = now === undefined || now === null ? "" : `M${at.x(at.from).toFixed(1)} ${y(now).toFixed(1)}`;
    for (let i = at.from + 1; i <= at.to; i++) {
      const value = values[i];
      if (value === undefined) continue;
      const x = at.x(i).toFixed(1),
        open = now !== undefined && now !== null;
      if (open) text += "H" + x;
      if (value !== null) text += (open ? "V" : `M${x} `) + y(value).toFixed(1);
      now = value;
    }
    return now === undefined || now === null ? text : text + "H" + at.x(at.to).toFixed(1);
  }

  /* The lines of a chart with their noise bands, dots and levels; lines that coincide stay visible.  chart.js gives the
   * spec and the scales.
   */

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
      s("path.band", {d: band(line, at)}),
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
        const line = s("line.level", {x1: a - 4, x2: b + 4, y1: at.y(value), y2: at.y(value)});
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
          s("title", text),
          s("circle.target", {cx: x, cy: y, r: 11}),
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

  /* Line charts in SVG: noise bands, a second axis, marks, a cursor for mouse, finger and keyboard, zoom by dragging.
   *  * chart(host, spec) draws, draws again when the width changes, and returns {redraw(changes)}.
   * spec:
   *   label      what the chart shows, for screen readers
   *   x          {count, tick(i) -> [text, text]}
   *   y          {title, tick(value) -> text, zero: start at 0, log: logarithmic}
   *   right      {title, full: the value that is 100 %} or null
   *   lines      [{name, color, dash, y: [], low: [], high: [], breaks: Set, quiet}] aligned with x; null is a hole,
   *              undefined is a place that the line passes over
   *   levels     [{from, to, value, color}] the level of a line between two of its steps
   *   steps      [{i, value, up, color, text, chosen}] where a level begins; stepped(n) is called on a click
   *   marks      [{i, lines: [text]}] vertical lines: something changed at x index i
   *   faults     [{i, text, color}] crosses at the bottom: not measured
   *   lanes      [{name, values: [], text(value), breaks}] small exact step lines below, on the same axis
   *   tip(i)     nodes for the box at the cursor
   *   range      [from, to] visible indices; zoomed([from, to] or null) is called on a change
   *   picked(i)  Enter or click
   * Enter on a point with a step is a click on the step.
   */

  const MARGIN = {top: 30, right: 58, bottom: 42, left: 66};
  const MARK_LINE = 13; // height of a line of a mark's text; the text is above the plot
  const MARK_LINES = 4; // lines of such text at most; further marks keep their line and their title
  const LETTER = 6.4; // mean width of a letter of that text
  const LEAST_SPAN = 0.02; // of the values: noise of 0.1 % must not fill the chart
  const BAND = 0.25; // share of the values beyond which bands are cut
  const DRAG = 6; // pixels before a press becomes a drag

  /* ---- scales ---- */

  /** Round numbers in [low, high], about `wanted` of them: steps of 1, 2, 2.5 or 5 times a power of ten. */
  function ticks(low, high, wanted) {
    const raw = (high - low) / wanted,
      power = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 2.5, 5, 10].map(m => m * power).find(candidate => candidate >= raw * 0.999);
    const found = [];
    for (let n = Math.ceil(low / step - 1e-9); n * step <= high + step * 1e-9; n++)
      found.push(Number((n * step).toPrecision(12)));
    return found;
  }

  /** 1, 2 and 5 times the powers of ten in [low, high]; over many decades only the powers. */
  function logTicks(low, high) {
    const found = [],
      factors = Math.log10(high / low) > 3 ? [1] : [1, 2, 5];
    for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power++)
      found.push(...factors.map(m => Number((m * 10 ** power).toPrecision(3))));
    return found.filter(value => value >= low && value <= high);
  }

  /** Least and largest of some columns of all lines; [Infinity, -Infinity] without any value. */
  function ends(spec, columns, from, to) {
    let low = Infinity,
      high = -Infinity;
    for (const line of spec.lines) {
      for (const values of columns.map(column => line[column] || [])) {
        for (let i = from; i <= to; i++) {
          const value = values[i];
          if (value === null || value === undefined) continue;
          low = Math.min(low, value);
          high = Math.max(high, value);
        }
      }
    }
    return [low, high];
  }

  /** Visible [low, high] of all lines with their bands, with a margin; never an empty interval.
   *
   * The band of two trials is wider than all that was measured: it is cut, so that the points fill the chart.
   */
  function extent(spec, from, to) {
    let [low, high] = ends(spec, ["y"], from, to);
    if (low > high) return null;
    const [least, most] = ends(spec, ["low", "high"], from, to);
    [low, high] = [Math.min(low, Math.max(least, low * (1 - BAND))), Math.max(high, Math.min(most, high * (1 + BAND)))];
    if (spec.y.log) return [low / 1.4, high * 1.4];
    if (spec.y.zero) return [0, Math.max(high, spec.right ? spec.right.full : 0) * 1.04 || 1];
    const span = Math.max(high - low, LEAST_SPAN * Math.abs(high)) || 1,
      middle = (low + high) / 2;
    return [Math.max(middle - span * 0.56, low >= 0 ? 0 : -Infinity), middle + span * 0.56];
  }

  function scales(spec, width, height) {
    const [from, to] = spec.range || [0, spec.x.count - 1],
      span = extent(spec, from, to);
    const left = MARGIN.left,
      right = width - (spec.right || (spec.lanes && spec.lanes.length) ? MARGIN.right : 34),
      bottom = height - MARGIN.bottom - lanesHeight(spec);
    const x = i => (to > from ? left + 8 + ((i - from) / (to - from)) * (right - left - 16) : (left + right) / 2);
    const marks = placeMarks(
      (spec.marks || []).filter(({i}) => i >= from && i <= to),
      x,
      left,
      right,
    );
    const top =
      MARGIN.top + MARK_LINE * Math.max(0, ...marks.map(({row, lines}) => (row === null ? 0 : row + lines.length)));
    const [low, high] = span || [0, 1],
      level = spec.y.log ? Math.log10 : value => value;
    const y = value => bottom - ((level(value) - level(low)) / (level(high) - level(low))) * (bottom - top);
    return {from, to, left, right, top, bottom, low, high, empty: !span, marks, x, y};
  }

  /** Where each mark stands and in which row its text is free of the others; row null: no room for its text. */
  function placeMarks(marks, x, left, right) {
    const taken = [];
    return marks.map(mark => {
      const at = mark.i > 0 ? Math.max(left, x(mark.i) - (x(mark.i) - x(mark.i - 1)) / 2) : x(mark.i);
      const width = LETTER * Math.max(...mark.lines.map(line => line.length)),
        flip = at + 8 + width > right + 40;
      const [start, end] = flip ? [at - 8 - width, at] : [at, at + 8 + width];
      const free = row => mark.lines.every((_, n) => (taken[row + n] || []).every(([a, b]) => end < a || start > b));
      const row = [...Array(Math.max(0, MARK_LINES - mark.lines.length + 1)).keys()].find(free) ?? null;
      if (row !== null) mark.lines.forEach((_, n) => (taken[row + n] ??= []).push([start, end]));
      return {...mark, x: at, flip, row};
    });
  }

  /* ---- parts of the picture ---- */

  function leftAxis(spec, at) {
    return (spec.y.log ? logTicks(at.low, at.high) : ticks(at.low, at.high, 6))
      .map(value =>
        s(
          "g.tick",
          s("line", {x1: at.left, x2: at.right, y1: at.y(value), y2: at.y(value)}),
          s("text", {x: at.left - 8, y: at.y(value), dy: "0.32em", "text-anchor": "end"}, spec.y.tick(value)),
        ),
      )
      .concat(s("text.axis", {x: 10, y: 18}, spec.y.title));
  }

  function rightAxis(spec, at) {
    if (!spec.right) return [];
    const {full, title} = spec.right;
    const shares = ticks((100 * at.low) / full, (100 * at.high) / full, 6);
    const texts = shares.map(share =>
      s("text.right", {x: at.right + 8, y: at.y((share / 100) * full), dy: "0.32em"}, share + " %"),
    );
    const roof =
      full <= at.high && full >= at.low
        ? [
            s(
              "g.roof",
              s("line", {x1: at.left, x2: at.right, y1: at.y(full), y2: at.y(full)}),
              s("text", {x: at.right - 4, y: at.y(full) - 5, "text-anchor": "end"}, "peak " + spec.y.tick(full)),
            ),
          ]
        : [];
    return [...texts, ...roof, s("text.axis", {x: at.right + 48, y: 18, "text-anchor": "end"}, title)];
  }

  function bottomAxis(spec, at) {
    const wanted = Math.max(2, Math.floor((at.right - at.left) / 96));
    const every = Math.max(1, Math.ceil((at.to - at.from + 1) / wanted));
    const chosen = [];
    for (let i = at.to; i >= at.from; i -= every) chosen.push(i);
    return chosen.map(i =>
      s(
        "g.tick",
        s("line", {x1: at.x(i), x2: at.x(i), y1: at.bottom, y2: at.bottom + 5}),
        spec.x.tick(i).map((text, n) =>
          s("text", {x: at.x(i), y: at.bottom + 17 + 14 * n, "text-anchor": "middle", class: n ? "minor" : null}, text),
        ),
      ),
    );
  }

  function drawMarks(spec, at) {
    const marks = at.marks.map(({x, flip, row, lines}) =>
      s(
        "g.mark",
        s("title", lines.join(", ")),
        s("line", {x1: x, x2: x, y1: row === null ? at.top : MARGIN.top - 8 + MARK_LINE * row, y2: at.bottom}),
        row === null
          ? []
          : lines.map((text, n) =>
              s(
                "text",
                {x: x + (flip ? -5 : 5), y: MARGIN.top + MARK_LINE * (row + n), "text-anchor": flip ? "end" : "start"},
                text,
              ),
            ),
      ),
    );
    const faults = (spec.faults || [])
      .filter(({i}) => i >= at.from && i <= at.to)
      .map(({i, text, color}) => {
        const x = at.x(i),
          y = at.bottom - 7,
          cross = s("path.fault", {d: `M${x - 4} ${y - 4}l8 8m0 -8l-8 8`}, s("title", text));
        cross.style.setProperty("--line", color);
        return cross;
      });
    return [...marks, ...faults];
  }

  /* ---- the chart ---- */

  function chart(host, spec) {
    const box = h("div.tip", {hidden: true}),
      said = h("p.visually-hidden", {"aria-live": "polite"});
    const holder = h("div.chart-holder");
    host.replaceChildren(holder, box, said);
    let at = null,
      cursor = null,
      pressed = null,
      svg = null;

    function draw() {
      const width = Math.max(280, holder.clientWidth || 900),
        height = (width < 560 ? 260 : 340) + lanesHeight(spec);
      at = scales(spec, width, height);
      svg = s("svg.chart", {
        viewBox: `0 0 ${width} ${height}`,
        height,
        role: "img",
        tabindex: "0",
        "aria-label": spec.label + ". Arrow keys move along the points.",
      });
      if (at.empty) {
        svg.append(
          s(
            "text.empty",
            {x: width / 2, y: height / 2, "text-anchor": "middle"},
            "no time was measured in this range",
          ),
          ...bottomAxis(spec, at),
          ...drawMarks(spec, at),
        );
      } else {
        svg.append(
          ...leftAxis(spec, at),
          ...rightAxis(spec, at),
          ...bottomAxis(spec, at),
          ...drawMarks(spec, at),
          ...drawLines(spec, at),
          ...drawSteps(spec, at),
        );
      }
      svg.append(
        ...drawLanes(spec, at, height),
        s("line.cursor", {y1: at.top, y2: height - 4, visibility: "hidden"}),
        s("rect.brush", {y: at.top, height: at.bottom - at.top, visibility: "hidden"}),
      );
      holder.replaceChildren(svg);
      listen();
    }

    /** The visible index nearest to a pixel. */
    function nearest(event) {
      const bounds = svg.getBoundingClientRect(),
        x = ((event.clientX - bounds.left) * svg.viewBox.baseVal.width) / bounds.width;
      let best = at.from;
      for (let i = at.from; i <= at.to; i++) if (Math.abs(at.x(i) - x) < Math.abs(at.x(best) - x)) best = i;
      return best;
    }

    function moveTo(i, speak) {
      cursor = i;
      const line = svg.querySelector(".cursor"),
        hidden = i === null;
      box.hidden = hidden;
      line.setAttribute("visibility", hidden ? "hidden" : "visible");
      if (hidden) return;
      line.setAttribute("x1", at.x(i));
      line.setAttribute("x2", at.x(i));
      box.replaceChildren(...spec.tip(i));
      const scale = svg.getBoundingClientRect().width / svg.viewBox.baseVal.width,
        x = at.x(i) * scale;
      const left = x + 16 + box.offsetWidth > host.clientWidth ? x - 16 - box.offsetWidth : x + 16;
      box.style.left = Math.max(0, Math.min(left, host.clientWidth - box.offsetWidth)) + "px";
      if (speak) said.textContent = box.innerText;
    }

    function brush(to) {
      const rect = svg.querySelector(".brush"),
        [a, b] = [at.x(pressed), at.x(to)].sort((p, q) => p - q);
      rect.setAttribute("x", a);
      rect.setAttribute("width", b - a);
      rect.setAttribute("visibility", "visible");
    }

    function zoom(range) {
      if (spec.zoomed) spec.zoomed(range);
    }

    function listen() {
      let down = null;
      svg.addEventListener("pointermove", event => {
        const i = nearest(event);
        moveTo(i);
        if (down !== null && spec.zoomed && Math.abs(event.clientX - down) > DRAG) brush(i);
      });
      svg.addEventListener("pointerdown", event => {
        moveTo(nearest(event));
        if (event.button === 0 && event.pointerType === "mouse") {
          down = event.clientX;
          pressed = nearest(event);
        }
      });
      svg.addEventListener("pointerup", event => {
        const i = nearest(event),
          dragged = down !== null && Math.abs(event.clientX - down) > DRAG,
          [a, b] = [Math.min(i, pressed), Math.max(i, pressed)];
        svg.querySelector(".brush").setAttribute("visibility", "hidden");
        const step = event.target instanceof Element && event.target.closest("[data-step]");
        if (dragged && b > a) zoom([a, b]);
        else if (!dragged && step) spec.stepped(Number(step.dataset.step));
        else if (!dragged && spec.picked && event.pointerType === "mouse") spec.picked(i);
        down = null;
      });
      svg.addEventListener("pointerleave", event => {
        down = null;
        if (event.pointerType === "mouse") moveTo(null); // a finger leaves when it is lifted: its box stays
        svg.querySelector(".brush").setAttribute("visibility", "hidden");
      });
      svg.addEventListener("dblclick", () => zoom(null));
      svg.addEventListener("blur", () => moveTo(null));
      svg.addEventListener("keydown", event => {
        const moves = {ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -Infinity, End: Infinity};
        if (event.key in moves) {
          event.preventDefault();
          const start = cursor === null ? (moves[event.key] > 0 ? at.from - 1 : at.to + 1) : cursor;
          moveTo(Math.min(at.to, Math.max(at.from, start + moves[event.key])), true);
        } else if (event.key === "Enter" && cursor !== null && spec.picked) {
          event.preventDefault(); // else the control that gets the focus would be pressed as well
          const step = (spec.steps || []).findIndex(({i}) => i === cursor);
          if (step >= 0) spec.stepped(step);
          else spec.picked(cursor);
        } else if (event.key === "Escape") {
          moveTo(null);
          zoom(null);
        }
      });
    }

    function redraw(changes) {
      Object.assign(spec, changes);
      draw();
    }

    let width = 0;
    new ResizeObserver(() => {
      if (holder.clientWidth !== width) {
        width = holder.clientWidth;
        draw();
      }
    }).observe(holder);
    draw();
    return {redraw};
  }

  Object.assign(R, {chart, laneChanges: changes});
})();
