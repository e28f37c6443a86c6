/* Scaling over ranks, and over the CUs that a collective takes. */
"use strict";

(() => {
  const R = Ridgeline,
    {h} = R;

  let choose = null;

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
    const found = new Map();
    for (const point of points) {
      if (mode === "weak" && !point.per_rank) continue;
      const name = groupOf(point, mode);
      found.set(name, [...(found.get(name) || []), point]);
    }
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
    const found = new Map();
    for (const point of points) found.set(point.backend, [...(found.get(point.backend) || []), point]);
    return [...found].map(([backend, those]) => {
      const sorted = those.sort((a, b) => a.world - b.world);
      return {backend, baseline: sorted[0].baseline, points: sorted.map(point => ({world: point.world, shown: valueOf(point, sorted[0], what), point}))};
    });
  }

  const unitOf = (rate, what) => (what === "us" ? "µs" : what === "share" ? "× of the fewest ranks" : R.RATES[rate].name + (rate === "tflops" ? "" : ", " + R.RATES[rate].unit).replace("HBM GB/s, GB/s", "HBM GB/s"));

  function chart(title, lines, what, off, looked) {
    const shown = lines.filter(({backend}) => !off.has(backend)),
      rate = lines[0].points[0].point.rate;
    const worlds = [...new Set(lines.flatMap(({points}) => points.map(({world}) => world)))].sort((a, b) => a - b);
    return {
      label: `${title}: ${unitOf(rate, what)} over ${worlds.join(", ")} ranks`,
      height: 320,
      points: shown.flatMap(({points}, n) => points.map((_, at) => [n, at])),
      tip: (n, at) => tip(shown[n], shown[n].points[at]),
      picked: (n, at) => {
        const {machine, case: name} = shown[n].points[at].point;
        location.href = R.kernelPage(shown[n].points[at].point.kernel, {machine, case: name});
      },
      option: colours => {
        const looks = looked(colours);
        return {
          grid: {left: 70, right: 26, top: 36, bottom: 46},
          xAxis: R.axis(colours, {type: "category", data: worlds.map(String), name: "ranks", nameLocation: "middle", nameGap: 28, boundaryGap: true, splitLine: {show: false}}),
          yAxis: R.axis(colours, {type: "value", min: 0, name: unitOf(rate, what), nameTextStyle: {align: "left", color: colours.soft}}),
          series: shown.map(({backend, points}) => {
            const {color, dash, symbol} = looks.get(backend);
            return {
              type: "line",
              data: points.map(({world, shown: value}) => [String(world), value]),
              symbol,
              symbolSize: 9,
              lineStyle: {color, type: dash, width: 1.8},
              itemStyle: {color},
            };
          }),
        };
      },
    };
  }

  function tip({backend, baseline}, {world, point}) {
    const facts = [
      ["ranks", String(world)],
      ["speed", R.withUnit(point.value, point.rate)],
      ["time", R.duration(point.us)],
      point.busbw ? ["bus bandwidth", R.withUnit(point.busbw, "busbw")] : null,
      ["measured", `${R.short(point.commit)}, ${point.date}`],
      ["on", point.machine],
    ].filter(Boolean);
    return [
      h("p", {}, h("strong", {}, R.foreign(backend)), baseline ? " baseline" : "", " ", R.foreign(point.case)),
      h("dl", {}, facts.map(([name, text]) => h("div", {}, h("dt", {}, name), h("dd", {}, R.foreign(text))))),
    ];
  }

  const columns = mode => [
    {key: "shape", title: mode === "weak" ? "bytes per rank" : "problem", value: row => groupOf(row, mode)},
    {key: "backend", title: "backend", value: row => row.backend, cell: row => [R.foreign(row.backend), row.baseline ? h("span", {class: "sub"}, "baseline") : null]},
    {key: "world", title: "ranks", number: true, value: row => row.world},
    {key: "value", title: "speed", number: true, value: row => row.value, cell: row => R.withUnit(row.value, row.rate)},
    {key: "us", title: "time, µs", number: true, value: row => row.us, cell: row => R.duration(row.us)},
    {key: "share", title: "of the fewest ranks", help: "speed / speed with the fewest ranks", number: true, value: row => row.share, cell: row => (row.share === null ? "–" : R.number(row.share, 3) + " ×")},
    {key: "machine", title: "machine", value: row => row.machine, cell: row => h("a", {href: R.kernelPage(row.kernel, {machine: row.machine, case: row.case})}, R.foreign(row.machine))},
    {key: "commit", title: "measured at", value: row => row.commit, cell: row => [R.commitLink(row.commit), h("span", {class: "sub"}, row.date.slice(0, 10))]},
  ];

  function ranks(host, values, index, data) {
    const kernels = [...new Set(data.points.map(({kernel}) => kernel))].sort(),
      kernel = kernels.includes(values.kernel) ? values.kernel : kernels[0];
    const mode = MODES.some(([key]) => key === values.mode) ? values.mode : "strong",
      what = VALUES.some(([key]) => key === values.value) ? values.value : "rate";
    const found = groups(data.points.filter(point => point.kernel === kernel), mode),
      names = [...found.keys()];
    const tools = h(
      "div",
      {class: "tools"},
      index.products.length > 1 ? R.pick("product", index.products.map(({device}) => [device, device]), data.device, device => choose({device})) : null,
      R.pick("operator", kernels.map(name => [name, name]), kernel, name => choose({kernel: name, shape: ""})),
      R.press("what stays the same", MODES, mode, key => choose({mode: key, shape: ""})),
      R.press("what is shown", VALUES, what, key => choose({value: key})),
    );
    host.append(tools);
    if (!names.length) {
      host.append(h("p", {class: "notice"}, `No ${mode === "weak" ? "payload per rank" : "problem"} of ${kernel} was measured with two numbers of ranks.`));
      return;
    }
    const shape = names.includes(values.shape) ? values.shape : names[names.length - 1],
      lines = linesOf(found.get(shape), what),
      off = R.listed("off");
    const named = lines.map(({backend: name, baseline}) => ({name, baseline}));
    tools.append(R.pick(mode === "weak" ? "bytes" : "problem", names.map(name => [name, name]), shape, name => choose({shape: name})));
    const area = h("div", {}),
      looked = colours => R.looks(colours, named);
    host.append(legendOf(named, off), area);
    R.plot(area).draw(chart(shape, lines, what, off, looked));
    const rows = names.flatMap(name => linesOf(found.get(name), "share").flatMap(({points}) => points.map(({shown, point}) => ({...point, share: shown}))));
    const table = R.grid({caption: "speed by ranks", columns: columns(mode), rows, sort: values.sort, sorted: sort => choose({sort}), file: `scaling-${kernel}`});
    host.append(
      h("details", {open: Boolean(values.sort)}, h("summary", {}, `All ${names.length} problems of ${kernel} as a table`), table),
      R.besideLinks(index.products.find(({device}) => device === data.device).path, "All numbers of this product"),
    );
  }

  /** Colours in the sheet's own variables, so that a legend follows the scheme. */
  function legendOf(named, off) {
    const own = named.filter(({baseline}) => !baseline).map(({name}) => name);
    const looks = R.looks(R.palette(), named);
    const entries = named.map(({name, baseline}) => ({name, baseline, color: baseline ? "var(--baseline)" : `var(--series-${own.indexOf(name) % 6})`, dash: looks.get(name).dash}));
    return R.viewLegend(entries, off, changed => choose({off: R.listing(changed)}));
  }

  /* ---- over CUs ---- */

  function cuChart(curve) {
    const {backends} = curve,
      named = backends.map(({name, baseline}) => ({name, baseline}));
    const chosen = backends.flatMap(({name, chosen: count, points}) => points.filter(([cus]) => cus === count).map(([cus, value]) => ({name, cus, value})));
    const units = /^(AMD|Radeon|Instinct)/i.test(curve.device) ? "CUs" : "SMs";
    return {
      label: `bus bandwidth of ${curve.kernel} ${curve.case} over the number of ${units}`,
      height: 320,
      points: backends.flatMap(({points}, n) => points.map((_, at) => [n, at])),
      tip: (n, at) => (n < backends.length ? cuTip(backends[n], backends[n].points[at], units) : cuTip(backends.find(({name}) => name === chosen[at].name), [chosen[at].cus, chosen[at].value], units)),
      picked: () => (location.href = R.kernelPage(curve.kernel, {machine: curve.machine, case: curve.case}) || location.href),
      option: colours => {
        const looks = R.looks(colours, named);
        return {
          grid: {left: 70, right: 26, top: 36, bottom: 46},
          xAxis: R.axis(colours, {type: "log", logBase: 2, name: units, nameLocation: "middle", nameGap: 28}),
          yAxis: R.axis(colours, {type: "value", min: 0, name: "busbw, GB/s", nameTextStyle: {align: "left", color: colours.soft}}),
          series: [
            ...backends.map(({name, points}) => {
              const {color, dash, symbol} = looks.get(name);
              return {type: "line", data: points.map(([cus, value]) => [cus, value]), symbol, symbolSize: 8, lineStyle: {color, type: dash, width: 1.8}, itemStyle: {color}};
            }),
            {type: "scatter", data: chosen.map(({cus, value}) => [cus, value]), symbol: "circle", symbolSize: 18, itemStyle: {color: "transparent", borderColor: colours.text, borderWidth: 1.5}},
          ],
        };
      },
    };
  }

  function cuTip({name, baseline, chosen}, [cus, value], units) {
    return [
      h("p", {}, h("strong", {}, R.foreign(name)), baseline ? " baseline" : ""),
      h("p", {}, `${cus} ${units}${baseline ? " (channels)" : ""}: ${R.withUnit(value, "busbw")}${chosen === cus ? ", what it uses now" : ""}`),
    ];
  }

  function curves(host, values, found) {
    host.append(h("h2", {id: "curves"}, "Bandwidth over the CUs that a collective takes"));
    if (!found.length) {
      host.append(h("p", {class: "notice"}, "There is no curve in results/curves; the help of ", h("code", {}, "python -m ci.study.curve"), " says how one is measured."));
      return;
    }
    const nameOf = curve => [curve.kernel, curve.case, curve.machine].join(" · ");
    const curve = found.find(one => nameOf(one) === values.curve) || found[0];
    if (found.length > 1) host.append(h("div", {class: "tools"}, R.pick("curve", found.map(one => [nameOf(one), nameOf(one)]), nameOf(curve), name => choose({curve: name}))));
    const area = h("div", {});
    host.append(
      h("p", {class: "hint"}, R.foreign(nameOf(curve)), `, ${curve.world} ranks. A ring is what the newest record uses; a library takes one for each of its channels.`),
      legendOf(curve.backends, new Set()),
      area,
    );
    R.plot(area).draw(cuChart(curve));
    const rows = curve.backends.flatMap(({name, baseline, chosen, points}) => points.map(([cus, value, commit]) => ({name, baseline, cus, value, commit, now: cus === chosen})));
    const table = R.grid({
        caption: "bandwidth by CUs",
        columns: [
          {key: "backend", title: "backend", value: row => row.name, cell: row => [R.foreign(row.name), row.baseline ? h("span", {class: "sub"}, "baseline") : null]},
          {key: "cus", title: "CUs", number: true, value: row => row.cus, cell: row => row.cus + (row.now ? " (now)" : "")},
          {key: "busbw", title: "busbw, GB/s", number: true, value: row => row.value, cell: row => R.number(row.value)},
          {key: "commit", title: "measured at", value: row => row.commit, cell: row => R.commitLink(row.commit)},
        ],
        rows,
        file: "curve-" + curve.kernel,
      });
    host.append(h("details", {}, h("summary", {}, "The curve as a table"), table));
  }

  async function show(values, current) {
    const index = await R.load("views/scaling"),
      lane = R.lane(values);
    const product = index.products.find(({device}) => device === values.device) || index.products[0];
    const data = product ? await R.load(product.path) : null;
    if (!current()) return;
    R.header(lane, change => choose({machine: lane.machine, env: lane.env, ...change}));
    const host = document.getElementById("view");
    R.keepFocus(host, () => {
      host.replaceChildren(h("h2", {}, "Speed over ranks"));
      if (data) ranks(host, values, index, data);
      else host.append(h("p", {class: "notice"}, "Nothing with more than one rank was measured."));
      curves(host, values, index.curves);
    });
  }

  choose = R.view(show);
})();
