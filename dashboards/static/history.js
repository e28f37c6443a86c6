/* The history of a case: its steps, and all that is drawn of it. */

/* The steps of a case: levels and marks for its chart, a button for each, and the panel of the chosen one. */
"use strict";

(() => {
  const R = Ridgeline,
    {h, foreign, quantity, short, press} = R;
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
  function stepPicture(lines, steps, up, chosen) {
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

  const words = step => `${step.backend} ${R.event.change(step)} since ${short(step.at)}`;

  /** What the address calls a step: its event, or its place where it is part of none. */
  const idOf = step => step.event || `step:${short(step.at)}:${step.backend}`;

  /** One button per step, under the chart: for keys and fingers. */
  function stepButtons(steps, chosen, choose) {
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
    return h("div.step-chips", {role: "group", "aria-label": "steps of this history"}, chips);
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

  /* ---- the history of one case: every backend over the commits, and what changed besides the code ---- */

  const AUTO = ""; // the state's word for "the machine code of the machine's own architecture, or of the first recorded"

  /** Draw the history of case `number` of a kernel's data into `host`.
   *
   * about: {machine, arch, record: views/history-KERNEL, events: all events}.
   */
  function history(host, timed, number, about) {
    const info = timed.cases[number],
      rates = R.ratesOf(timed, number);
    const backends = new Set(R.seriesOf(timed, number).map(series => series.backend)),
      arches = R.archesOf(about.record.code, info.name, backends);
    const now = wanted(rates, info, arches, about);
    const numbers = R.numbers(timed, info, R.seriesOf(timed, number), () => now.rate);
    let view = viewOf(timed, number, about, now);
    now.range = rangeAsked(view.data.commits);
    const zoomed = range => {
      now.range = range;
      remember();
      again();
    };

    /** Another architecture's code, or none; all commits, or those that were measured: others stand on the axis. */
    function chooseAxis(change) {
      Object.assign(now, change, {range: null});
      view = viewOf(timed, number, about, now);
      remember();
      again();
    }

    function choose(event) {
      now.event = event === now.event ? "" : event;
      R.go({event: now.event});
      again();
    }

    function remember() {
      const {commits} = view.data,
        named = now.range && now.range[1] < commits.length - 1,
        last = now.range && !named;
      R.setState({
        unit: now.rate === info.rate ? "" : now.rate,
        zero: now.zero ? "1" : "",
        commits: now.every ? "all" : "",
        code: now.code === usualCode(arches, about) ? AUTO : now.code || "0",
        last: last ? commits.length - now.range[0] : "",
        from: named ? short(commits[now.range[0]][0]) : "",
        to: named ? short(commits[now.range[1]][0]) : "",
      });
      numbers.refresh();
    }

    const style = R.styles(timed),
      beneath = h("div.beneath");
    const entries = view.all.filter(measuredHere).map(series => ({
      name: series.backend,
      baseline: series.baseline,
      ...style[series.backend],
    }));
    host.replaceChildren(facts(info, R.costOf(timed, number)));
    const again = R.panel(host, {
      rates,
      now,
      entries,
      legend: "hide",
      changed: remember,
      spec: (_, shown) => {
        const spec = picture(view, info, now, shown, about);
        beneath.replaceChildren(...under(view, info, now, about, choose));
        return {...spec, zoomed, stepped: n => choose(idOf(spec.steps[n].step))};
      },
      extra: redraw => [
        ...rangeControls(view.data.commits.length, now, () => {
          remember();
          redraw();
        }),
        commitControls(view, now, every => chooseAxis({every})),
        codeControls(arches, now, code => chooseAxis({code})),
      ],
    });
    host.append(beneath, absent(timed, view.all), numbers.element);
  }

  /** A backend without any time and without a fault (unsupported, skipped) has no line: a sentence, not a legend entry. */
  const measuredHere = series =>
    series.us.some(us => us !== null && us !== undefined) ||
    Object.values(series.bad).some(([status]) => status !== "unsupported" && status !== "skipped");

  function absent(data, all) {
    const items = all
      .filter(series => !measuredHere(series))
      .map(series => {
        const [status, why] = Object.values(series.bad).at(-1) || ["not measured", null];
        return h(
          "li",
          R.status(status),
          " ",
          R.foreign(series.backend),
          " ",
          R.foreign(data.whys[why] || ""),
        );
      });
    return h("ul.not-here", {hidden: items.length === 0}, items);
  }

  /** The data of this case, its series and steps, at the commits where it was measured.
   *
   * Of every commit: at those of the whole kernel, and where the code is shown at those that were only compiled.
   */
  function viewOf(timed, number, about, now) {
    const data = now.code ? R.together(timed, about.record.code.commits) : timed,
      {name} = timed.cases[number],
      all = R.seriesOf(data, number);
    const whole = {
      data,
      all,
      steps: stepsOf(about.record, about.machine, name, data.commits),
      code: now.code ? codeOf(data, all, name, about, now.code) : {lanes: [], constant: []},
    };
    return {...(now.every ? whole : R.whereMeasured(whole)), count: data.commits.length};
  }

  /** Between the commits that were measured and all that there are, where that is not the same. */
  function commitControls({data, count}, now, choose) {
    if (!now.every && data.commits.length === count) return null;
    return press("commits", [[false, "measured commits"], [true, `all ${count}`]], now.every, choose);
  }

  function codeOf(data, all, name, about, arch) {
    const backends = new Set(all.map(series => series.backend));
    return R.codeLanes(about.record.code, data.commits, name, backends, arch);
  }

  const usualCode = (arches, {arch}) => (arches.includes(arch) ? arch : arches[0] || "");

  function codeControls(arches, now, choose) {
    if (arches.length === 0) return null;
    return press("machine code", [...arches.map(arch => [arch, "code " + arch]), ["", "no code"]], now.code || "", choose);
  }

  /** Beneath the chart: what of the code never changed, the steps as buttons, and the panel of the chosen one. */
  function under({data, steps, code}, info, now, about, choose) {
    const event = now.event ? eventOf(now.event, steps, about.events, data) : null;
    const chosen = {
      kernel: data.kernel,
      case: info.name,
      backend: steps.find(step => idOf(step) === now.event)?.backend,
    };
    return [
      code.constant.length ? unchanged(code.constant, now.code) : null,
      stepButtons(steps, now.event, choose),
      event && R.eventPanel(event, {chosen, close: () => choose(now.event)}),
    ].filter(Boolean);
  }

  function unchanged(pairs, arch) {
    const shown = pairs.map(([name, value]) => `${name} ${value}`).join(" · ");
    return h(
      "details.constant",
      h("summary", `${pairs.length} numbers of the ${arch} code never changed`),
      h("p", R.foreign(shown)),
    );
  }

  /** What the URL asks for, where this case has it. */
  function wanted(rates, info, arches, about) {
    const values = R.state(),
      code = values.code === "0" ? "" : arches.includes(values.code) ? values.code : usualCode(arches, about);
    return {
      rate: [values.unit, info.rate, "time"].find(rate => rates.includes(rate)),
      zero: values.zero === "1",
      event: values.event || "",
      every: values.commits === "all",
      code,
      range: null,
    };
  }

  /** The stretch of commits that the URL asks for; null for all of them. */
  function rangeAsked(commits) {
    const values = R.state(),
      count = commits.length,
      last = Number(values.last);
    const index = start => (start ? commits.findIndex(([hash]) => hash.startsWith(start)) : -1);
    if (last > 1 && last < count) return [count - last, count - 1];
    const [from, to] = [index(values.from), index(values.to)];
    return from >= 0 && to > from ? [from, to] : null;
  }

  function rangeControls(count, now, changed) {
    const spans = [50, 200].filter(last => last < count).map(last => [last, "last " + last]),
      shown = now.range ? (now.range[1] === count - 1 ? count - now.range[0] : null) : count;
    const range = press("range", [...spans, [count, count === 1 ? "1 commit" : `all ${count} commits`]], shown, last => {
      now.range = last === count ? null : [count - last, count - 1];
      changed();
    });
    const zero = h("input", {
      type: "checkbox",
      checked: now.zero,
      change: () => {
        now.zero = zero.checked;
        changed();
      },
    });
    return [
      range,
      h("label.check", zero, " from 0"),
      h(
        "span.hint",
        "drag to zoom, double-click for all, click a step" + (R.site.repo ? " or a commit" : ""),
      ),
    ];
  }

  /** The chart's spec: lines with intervals, levels and steps, the second axis, marks, faults and the code's lanes. */
  function picture({data, all, steps, code}, info, now, shown, about) {
    const {commits} = data,
      style = R.styles(data),
      visible = all.filter(series => shown.has(series.backend));
    const lines = visible.map(series => {
      const [low, high] = R.interval(data, series, now.rate);
      return {
        name: series.backend,
        y: R.inRate(data, series, now.rate),
        low,
        high,
        breaks: new Set(series.breaks),
        quiet: series.baseline,
        ...style[series.backend],
      };
    });
    const moved = steps.filter(step => shown.has(step.backend));
    return {
      lines,
      ...stepPicture(lines, moved, R.RATES[now.rate].up, now.event),
      label: `${data.kernel}, ${info.name}: ${R.RATES[now.rate].name} over ${commits.length} commits`,
      x: {count: commits.length, tick: i => [commits[i][1].slice(0, 10), short(commits[i][0])]},
      y: {title: R.axisTitle(now.rate), tick: R.tick, zero: now.zero},
      right: roof(info, all, now.rate),
      range: now.range,
      marks: marks(data, all, about),
      faults: faults(data, visible),
      lanes: code.lanes,
      tip: i => tip(data, visible, i, now.rate, code.lanes),
      picked: i => visit(commits[i][0]),
    };
  }

  /** The value that is 100 % of peak, for the second axis; a time or a ratio has none. */
  function roof(info, all, rate) {
    if (rate === "time" || rate === "ratio") return null;
    const newest = all.flatMap(series => series.cost.slice(-1)).map(([, number]) => info.costs[number]);
    const full = newest.map(cost => R.rateOf(rate, cost, cost.roofline_seconds)).find(peak => peak !== null);
    return full === undefined ? null : {full, title: "% of peak"};
  }

  /** Vertical marks: a new benchmark definition (the line is broken there), a new environment; one mark per commit. */
  function marks({commits, envs}, all, {machine, record}) {
    const texts = new Map(),
      released = record.versions[machine] || {};
    for (const i of all.flatMap(series => series.breaks)) texts.set(i, ["benchmark definition changed"]);
    commits.forEach(([, , env], i) => {
      if (i > 0 && env !== commits[i - 1][2])
        texts.set(i, [...(texts.get(i) || []), ...environmentStep(envs[commits[i - 1][2]], envs[env])]);
    });
    commits.forEach(([hash], i) => {
      if (released[hash]) texts.set(i, [...(texts.get(i) || []), ...released[hash]]);
    });
    return [...texts].map(([i, lines]) => ({i, lines}));
  }

  /** Only the parts that differ: "torch2.11.0 → torch2.13.0". */
  function environmentStep(before, after) {
    const [old, young] = [before.split("-"), after.split("-")];
    const steps = young.map((part, n) => (part === old[n] ? null : `${old[n] || "–"} → ${part}`)).filter(Boolean);
    return steps.length ? steps : ["environment changed"];
  }

  function faults(data, visible) {
    const style = R.styles(data);
    return visible.flatMap(series =>
      Object.entries(series.bad).map(([i, [status, why]]) => ({
        i: Number(i),
        text: `${series.backend} ${status}: ${data.whys[why]}`,
        color: style[series.backend].color,
      })),
    );
  }

  function tip(data, visible, i, rate, lanes) {
    const [hash, date, env] = data.commits[i],
      lines = visible.map(series => R.tipLine(data, series, i, rate)).filter(Boolean);
    return [
      h("p.tip-head", h("code", short(hash)), " ", date, h("span.sub", data.envs[env])),
      ...(lines.length ? lines : [h("p.muted", "this case was not measured here")]),
      ...codeLines(lanes, i),
    ];
  }

  /** What the compiler emitted here, the changes in bold. */
  function codeLines(lanes, i) {
    const parts = lanes
      .filter(lane => lane.values[i] !== undefined)
      .map(lane => [lane, R.laneChanges(lane.values).includes(i)])
      .map(([lane, changed]) =>
        h(changed ? "strong" : "span", {class: "code-value"}, `${lane.name} ${lane.text(lane.values[i])}`),
      );
    return parts.length ? [h("p.tip-code", parts)] : [];
  }

  function visit(hash) {
    const link = R.commitLink(hash);
    if (link.href) window.open(link.href, "_blank", "noopener");
  }

  function facts(info, cost) {
    const {flops, hbm_bytes: hbm, link_bytes: link, payload_bytes: payload} = cost;
    const parts = [
      ["dtype", info.dtype],
      ["ranks", info.world > 1 ? String(info.world) : null],
      ["tier", info.tier],
      ["work per rank", flops ? quantity(flops, "FLOP") : null],
      ["HBM per rank", hbm ? quantity(hbm, "B") : null],
      ["links per rank", link ? quantity(link, "B") : null],
      ["payload", payload ? quantity(payload, "B", true) : null],
    ];
    return h(
      "dl.facts",
      parts.filter(([, value]) => value).map(([name, value]) => h("div", h("dt", name), h("dd", value))),
    );
  }

  Object.assign(R, {history});
})();
