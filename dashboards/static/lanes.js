/* Exact numbers under a chart, on its axis: one small step line per number, a mark wherever it changes. */
"use strict";

(() => {
  const R = Ridgeline,
    {s} = R;
  const HEIGHT = 30, // of a lane
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
    const [roof, floor] = [top + 7, top + HEIGHT - 7],
      y = value => (high > low ? floor - ((value - low) / (high - low)) * (floor - roof) : (roof + floor) / 2);
    const marks = changes(lane.values).filter(i => i >= at.from && i <= at.to),
      last = lane.values.slice(0, at.to + 1).findLast(value => value !== undefined);
    return s(
      "g",
      {class: "lane", "data-lane": lane.name},
      s("line", {class: "edge", x1: at.left, x2: at.right, y1: top, y2: top}),
      s("path", {class: "stroke", d: staircase(lane.values, at, y)}),
      marks.map(i =>
        s(
          "circle",
          {cx: at.x(i).toFixed(1), cy: y(lane.values[i] ?? low).toFixed(1), r: 3},
          s("title", {}, lane.text(lane.values[i])),
        ),
      ),
      s("text", {class: "name", x: at.left + 4, y: top + 10}, lane.name),
      s(
        "text",
        {class: "now", x: at.right + 6, y: top + HEIGHT / 2, dy: "0.32em"},
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

  Object.assign(R, {lanesHeight, drawLanes, laneChanges: changes});
})();
