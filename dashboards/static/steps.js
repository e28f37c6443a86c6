/* The steps of a case: levels and marks for its chart, a button for each, and the panel of the chosen one. */
"use strict";

(() => {
  const R = Ridgeline,
    {h, foreign} = R;

  /** Steps of a case on a machine, oldest first, each with its index; those at commits that are not here are left out. */
  function stepsOf(record, machine, name, commits) {
    const place = new Map(commits.map(([hash], i) => [hash, i]));
    return record.steps
      .filter(step => step.machine === machine && step.case === name && place.has(step.at))
      .map(step => ({...step, i: place.get(step.at)}))
      .sort((a, b) => a.i - b.i || a.backend.localeCompare(b.backend));
  }

  function median(values) {
    const known = values.filter(value => value !== null && value !== undefined).sort((a, b) => a - b),
      middle = known.length >> 1;
    if (known.length === 0) return null;
    return known.length % 2 ? known[middle] : (known[middle - 1] + known[middle]) / 2;
  }

  /** From the first to the last value of a stretch: a level is drawn where something was measured. */
  function measured(values, {from, to}) {
    const known = i => values[i] !== null && values[i] !== undefined;
    while (from < to && !known(from)) from++;
    while (to > from && !known(to)) to--;
    return {from, to};
  }

  /** The levels of a line: medians of what is drawn between its steps, and where its definition changed. */
  function levelsOf(line, steps) {
    const own = steps.filter(step => step.backend === line.name).map(({i}) => i);
    if (own.length === 0) return [];
    const starts = [...new Set([0, ...own, ...line.breaks])].sort((a, b) => a - b);
    return starts
      .map((from, n) => ({from, to: (starts[n + 1] ?? line.y.length) - 1, color: line.color}))
      .map(level => ({...level, ...measured(line.y, level), value: median(line.y.slice(level.from, level.to + 1))}))
      .filter(({value}) => value !== null);
  }

  /** {levels, steps} of a chart's spec.  up: is more of the drawn quantity better? */
  function picture(lines, steps, up, chosen) {
    const levels = lines.flatMap(line => levelsOf(line, steps).map(level => ({...level, name: line.name})));
    const marks = steps.map(step => {
      const level = levels.find(one => one.name === step.backend && one.from <= step.i && one.to >= step.i);
      const better = step.direction === "faster";
      return (
        level && {
          i: step.i,
          value: level.value,
          up: better === up,
          color: better ? "var(--good)" : "var(--bad)",
          text: words(step),
          chosen: idOf(step) === chosen,
          step,
        }
      );
    });
    return {levels, steps: marks.filter(Boolean)};
  }

  const words = step => `${step.backend} ${R.event.change(step)} since ${R.short(step.at)}`;

  /** What the address calls a step: its event, or its place where it is part of none. */
  const idOf = step => step.event || `step:${R.short(step.at)}:${step.backend}`;

  /** One button per step, under the chart: for keys and fingers. */
  function buttons(steps, chosen, choose) {
    if (steps.length === 0) return null;
    const chips = steps.map(step =>
      h(
        "button",
        {
          type: "button",
          class: "step-chip " + step.direction,
          "aria-pressed": String(idOf(step) === chosen),
          click: () => choose(idOf(step)),
        },
        R.event.SIGN[step.direction] + " ",
        foreign(words(step)),
      ),
    );
    return h("div", {class: "step-chips", role: "group", "aria-label": "steps of this history"}, chips);
  }

  /** The chosen step as an event: its own, or one made of the step alone. */
  function eventOf(id, steps, events, {kernel, commits}) {
    const known = events.find(event => event.id === id);
    if (known) return known;
    const step = steps.find(one => idOf(one) === id);
    if (!step) return null;
    const facts = hash => ({
      hash,
      date_ms: Date.parse((commits.find(one => one[0] === hash)?.[1] || "").replace(" ", "T") + "Z"),
      author: "",
      subject: "",
      pull_request: null,
    });
    return {
      id,
      kind: "kernel",
      state: "no event",
      direction: step.direction,
      machine: step.machine,
      ratio: step.ratio,
      ratio_low: step.low,
      ratio_high: step.high,
      p_value: null,
      first_bad: facts(step.at),
      last_good: facts(step.from),
      between: null,
      causes: [],
      owner: "",
      reason: "",
      link: "",
      ended_at: null,
      moved: [[kernel, step.backend, step.case, step.ratio, step.low, step.high, step.by]],
    };
  }

  Object.assign(R, {steps: {of: stepsOf, picture, buttons, eventOf, idOf, levelsOf}});
})();
