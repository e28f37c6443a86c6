/* Scaling over ranks, and over the CUs that a collective takes. */
"use strict";

(() => {
  const R = Ridgeline,
    {h, foreign, withUnit, kernelPage, pick} = R;

  /* ---- over ranks ---- */

  const MODES = [
    ["strong", "same problem"],
    ["weak", "same bytes per rank"],
  ];
  const VALUES = [
    ["rate", "speed"],
    ["us", "time"],
    ["share", "speed relative to the fewest ranks"],
  ];

  /** The groups whose points make a line: the same problem, or the same payload for each rank. */
  const groupOf = (point, mode) => (mode === "weak" ? R.quantity(point.per_rank, "B", true) + " per rank" : point.shape);

  /** {group: points}, only groups that were measured with two or more numbers of ranks, short ones first. */
  function groups(points, mode) {
    const found = R.grouped(points.filter(point => mode !== "weak" || point.per_rank), point => groupOf(point, mode));
    const scaled = [...found].filter(([, those]) => new Set(those.map(({world}) => world)).size > 1);
    const longest = points => Math.max(...points.map(({us}) => us));
    return new Map(scaled.sort(([, a], [, b]) => longest(a) - longest(b)));
  }

  function valueOf(point, first, what) {
    if (what === "us") return point.us;
    return what === "share" ? (first.value ? point.value / first.value : null) : point.value;
  }

  /** One line per backend: [{backend, baseline, points: [{world, shown, point}]}], few ranks first. */
  function linesOf(points, what) {
    return [...R.grouped(points, ({backend}) => backend)].map(([backend, those]) => {
      const sorted = those.sort((a, b) => a.world - b.world);
      return {backend, baseline: sorted[0].baseline, points: sorted.map(point => ({world: point.world, shown: valueOf(point, sorted[0], what), point}))};
    });
  }

  const unitOf = (rate, what) => (what === "us" ? "µs" : what === "share" ? "× of the fewest ranks" : R.RATES[rate].name + (rate === "tflops" ? "" : ", " + R.RATES[rate].unit).replace("HBM GB/s, GB/s", "HBM GB/s"));

  function panel(title, lines, what) {
    const rate = lines[0].points[0].point.rate,
      worlds = [...new Set(lines.flatMap(({points}) => points.map(({world}) => world)))].sort((a, b) => a - b),
      looks = R.looksOf(lines.map(({backend: name, baseline}) => ({name, baseline})));
    return {
      label: `${title}: ${unitOf(rate, what)} over ${worlds.join(", ")} ranks`,
      x: {title: "ranks", names: worlds.map(String)},
      y: {title: unitOf(rate, what), zero: true},
      marks: lines.map(({backend, points}) => ({
        ...looks.get(backend),
        kind: "line",
        x: points.map(({world}) => worlds.indexOf(world)),
        y: points.map(({shown}) => shown),
        rows: points,
      })),
      tip: (one, marks) => tip(marks, one),
      picked: ({point: {kernel, machine, case: name}}) => (location.href = kernelPage(kernel, {machine, case: name})),
    };
  }

  function tip({name, baseline}, {world, point}) {
    const facts = [
      ["ranks", String(world)],
      ["speed", withUnit(point.value, point.rate)],
      ["time", R.duration(point.us)],
      ["bus bandwidth", point.busbw ? withUnit(point.busbw, "busbw") : null],
      ["measured", `${R.short(point.commit)}, ${point.date}`],
      ["on", point.machine],
    ];
    return R.box(name, facts, baseline ? " baseline " : " ", foreign(point.case));
  }

  const columns = mode => [
    {key: "shape", title: mode === "weak" ? "bytes per rank" : "problem", value: row => groupOf(row, mode)},
    {key: "backend", cell: row => [foreign(row.backend), row.baseline ? h("span.sub", "baseline") : null]},
    {key: "world", title: "ranks", number: true},
    {key: "value", title: "speed", number: true, cell: row => withUnit(row.value, row.rate)},
    {key: "us", title: "time, µs", number: true, cell: row => R.duration(row.us)},
    {key: "share", title: "of the fewest ranks", help: "speed / speed with the fewest ranks", number: true, text: value => R.number(value, 3) + " ×"},
    {key: "machine", cell: row => h("a", {href: kernelPage(row.kernel, {machine: row.machine, case: row.case})}, foreign(row.machine))},
    {key: "commit", title: "measured at", cell: row => [R.commitLink(row.commit), h("span.sub", row.date.slice(0, 10))]},
  ];

  function ranks(host, values, index, data) {
    const kernels = [...new Set(data.points.map(({kernel}) => kernel))].sort(),
      kernel = kernels.includes(values.kernel) ? values.kernel : kernels[0];
    const mode = MODES.some(([key]) => key === values.mode) ? values.mode : "strong",
      what = VALUES.some(([key]) => key === values.value) ? values.value : "rate";
    const found = groups(data.points.filter(point => point.kernel === kernel), mode),
      names = [...found.keys()];
    const tools = h(
      "div.tools",
      index.products.length > 1 ? pick("product", index.products.map(({device}) => [device, device]), data.device, device => choose({device})) : null,
      pick("operator", kernels, kernel, name => choose({kernel: name, shape: ""})),
      R.press("what stays the same", MODES, mode, key => choose({mode: key, shape: ""})),
      R.press("what is shown", VALUES, what, key => choose({value: key})),
    );
    host.append(tools);
    if (!names.length) {
      host.append(h("p.notice", `No ${mode === "weak" ? "payload per rank" : "problem"} of ${kernel} was measured with two numbers of ranks.`));
      return;
    }
    const shape = names.includes(values.shape) ? values.shape : names[names.length - 1],
      lines = linesOf(found.get(shape), what);
    tools.append(pick(mode === "weak" ? "bytes" : "problem", names, shape, name => choose({shape: name})));
    R.panelChart(host, panel(shape, lines, what), ...choose.off());
    const rows = names.flatMap(name => linesOf(found.get(name), "share").flatMap(({points}) => points.map(({shown, point}) => ({...point, share: shown}))));
    const table = R.grid({caption: "speed by ranks", columns: columns(mode), rows, ...choose.order("sort"), file: `scaling-${kernel}`});
    host.append(
      h("details", {open: Boolean(values.sort)}, h("summary", `All ${names.length} problems of ${kernel} as a table`), table),
      R.besideLinks(index.products.find(({device}) => device === data.device).path, "All numbers of this product"),
    );
  }

  /* ---- over CUs ---- */

  function cuPanel({backends, device, kernel, machine, case: name}) {
    const units = /^(AMD|Radeon|Instinct)/i.test(device) ? "CUs" : "SMs",
      looks = R.looksOf(backends);
    const lines = backends.map(one => ({
      ...looks.get(one.name),
      kind: "line",
      x: one.points.map(([cus]) => cus),
      y: one.points.map(([, value]) => value),
      rows: one.points.map(point => ({one, point})),
    }));
    const chosen = backends.flatMap(({chosen: count, points}) => points.filter(([cus]) => cus === count));
    return {
      label: `bus bandwidth of ${kernel} ${name} over the number of ${units}`,
      x: {title: units, scale: "log2"},
      y: {title: "busbw, GB/s", zero: true},
      marks: [...lines, {kind: "ring", x: chosen.map(([cus]) => cus), y: chosen.map(([, value]) => value)}],
      tip: ({one, point}) => cuTip(one, point, units),
      picked: () => (location.href = kernelPage(kernel, {machine, case: name}) || location.href),
    };
  }

  function cuTip({name, baseline, chosen}, [cus, value], units) {
    return [
      h("p", h("strong", foreign(name)), baseline ? " baseline" : ""),
      h("p", `${cus} ${units}${baseline ? " (channels)" : ""}: ${withUnit(value, "busbw")}${chosen === cus ? ", what it uses now" : ""}`),
    ];
  }

  function curves(host, values, found) {
    host.append(h("h2", {id: "curves"}, "Bandwidth over the CUs that a collective takes"));
    if (!found.length) {
      host.append(h("p.notice", "There is no curve in results/curves. A point of one, for 8 CUs: ", h("code", "ridgeline run --kernel OPERATOR --case CASE --set programs=8 --trials 1 --out results/curves/NAME.jsonl"), "."));
      return;
    }
    const nameOf = curve => [curve.kernel, curve.case, curve.machine].join(" · ");
    const curve = found.find(one => nameOf(one) === values.curve) || found[0];
    if (found.length > 1) host.append(h("div.tools", pick("curve", found.map(one => [nameOf(one), nameOf(one)]), nameOf(curve), name => choose({curve: name}))));
    host.append(
      h("p.hint", foreign(nameOf(curve)), `, ${curve.world} ranks. A ring is what the newest record uses; a library takes one for each of its channels.`),
    );
    R.panelChart(host, cuPanel(curve), ...choose.off());
    const rows = curve.backends.flatMap(({name, baseline, chosen, points}) => points.map(([cus, value, commit]) => ({name, baseline, cus, value, commit, now: cus === chosen})));
    const table = R.grid({
        caption: "bandwidth by CUs",
        columns: [
          {key: "backend", value: row => row.name, cell: row => [foreign(row.name), row.baseline ? h("span.sub", "baseline") : null]},
          {key: "cus", title: "CUs", number: true, cell: row => row.cus + (row.now ? " (now)" : "")},
          {key: "busbw", title: "busbw, GB/s", number: true, value: row => row.value, text: R.number},
          {key: "commit", title: "measured at", text: R.commitLink},
        ],
        rows,
        file: "curve-" + curve.kernel,
      });
    host.append(h("details", h("summary", "The curve as a table"), table));
  }

  async function show(values) {
    const index = await R.load("views/scaling");
    const product = index.products.find(({device}) => device === values.device) || index.products[0];
    const data = product ? await R.load(product.path) : null;
    R.laneOf(values, choose);
    return host => {
      host.replaceChildren(h("h2", "Speed over ranks"));
      if (data) ranks(host, values, index, data);
      else host.append(h("p.notice", "Nothing with more than one rank was measured."));
      curves(host, values, index.curves);
    };
  }

  const choose = R.view(show);
})();
