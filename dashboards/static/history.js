/* The history of one case: every backend over the commits, and what changed besides the code. */
"use strict";

(() => {
  const R = Ridgeline,
    {h} = R;

  /** Draw the history of case `number` of a kernel's data into `host`. */
  function history(host, data, number) {
    const info = data.cases[number],
      all = R.seriesOf(data, number),
      style = R.styles(data),
      rates = R.ratesOf(data, number);
    const now = wanted(data, rates, info);
    const numbers = R.numbers(data, info, all, () => now.rate);
    const zoomed = range => {
      now.range = range;
      remember();
      again();
    };

    function remember() {
      const {commits} = data,
        named = now.range && now.range[1] < commits.length - 1,
        last = now.range && !named;
      R.setState({
        unit: now.rate === info.rate ? "" : now.rate,
        zero: now.zero ? "1" : "",
        last: last ? commits.length - now.range[0] : "",
        from: named ? R.short(commits[now.range[0]][0]) : "",
        to: named ? R.short(commits[now.range[1]][0]) : "",
      });
      numbers.refresh();
    }

    host.replaceChildren(facts(info, R.costOf(data, number)));
    const again = R.panel(host, {
      rates,
      now,
      changed: remember,
      entries: all.map(series => ({name: series.backend, baseline: series.baseline, ...style[series.backend]})),
      spec: (_, shown) => ({...picture(data, info, all, now, shown), zoomed}),
      extra: redraw =>
        rangeControls(data.commits.length, now, () => {
          remember();
          redraw();
        }),
    });
    host.append(numbers.element);
  }

  /** What the URL asks for, where this case has it. */
  function wanted({commits}, rates, info) {
    const values = R.state(),
      count = commits.length,
      last = Number(values.last);
    const index = start => (start ? commits.findIndex(([hash]) => hash.startsWith(start)) : -1);
    const range =
      last > 1 && last < count
        ? [count - last, count - 1]
        : index(values.from) >= 0 && index(values.to) > index(values.from)
          ? [index(values.from), index(values.to)]
          : null;
    return {
      rate: [values.unit, info.rate, "time"].find(rate => rates.includes(rate)),
      zero: values.zero === "1",
      range,
    };
  }

  function rangeControls(count, now, changed) {
    const isLast = last => Boolean(now.range) && now.range[1] === count - 1 && now.range[0] === count - last;
    const spans = [50, 200]
      .filter(last => last < count)
      .map(last =>
        R.choice("last " + last, isLast(last), () => {
          now.range = [count - last, count - 1];
          changed();
        }),
      );
    const whole = R.choice(count === 1 ? "1 commit" : `all ${count} commits`, !now.range, () => {
      now.range = null;
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
      R.choices("range", [...spans, whole]),
      h("label", {class: "check"}, zero, " from 0"),
      h("span", {class: "hint"}, "drag to zoom, double-click for all" + (R.site.repo ? ", click for the commit" : "")),
    ];
  }

  /** The chart's spec: lines with intervals, the second axis, marks and faults. */
  function picture(data, info, all, now, shown) {
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
    return {
      lines,
      label: `${data.kernel}, ${info.name}: ${R.RATES[now.rate].name} over ${commits.length} commits`,
      x: {kind: "commits", count: commits.length, tick: i => [commits[i][1].slice(0, 10), R.short(commits[i][0])]},
      y: {title: R.axisTitle(now.rate), tick: R.tick, zero: now.zero},
      right: roof(info, all, now.rate),
      range: now.range,
      marks: marks(data, all),
      faults: faults(data, visible),
      tip: i => tip(data, visible, i, now.rate),
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
  function marks({commits, envs}, all) {
    const texts = new Map();
    for (const i of all.flatMap(series => series.breaks)) texts.set(i, ["benchmark definition changed"]);
    commits.forEach(([, , env], i) => {
      if (i > 0 && env !== commits[i - 1][2])
        texts.set(i, [...(texts.get(i) || []), ...environmentStep(envs[commits[i - 1][2]], envs[env])]);
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

  function tip(data, visible, i, rate) {
    const [hash, date, env] = data.commits[i],
      lines = visible.map(series => R.tipLine(data, series, i, rate)).filter(Boolean);
    return [
      h("p", {class: "tip-head"}, h("code", {}, R.short(hash)), " ", date, h("span", {class: "sub"}, data.envs[env])),
      ...(lines.length ? lines : [h("p", {class: "muted"}, "this case was not measured here")]),
    ];
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
      ["work per rank", flops ? R.quantity(flops, "FLOP") : null],
      ["HBM per rank", hbm ? R.quantity(hbm, "B") : null],
      ["links per rank", link ? R.quantity(link, "B") : null],
      ["payload", payload ? R.quantity(payload, "B", true) : null],
    ];
    return h(
      "dl",
      {class: "facts"},
      parts.filter(([, value]) => value).map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))),
    );
  }

  Object.assign(R, {history});
})();
