/* The page of shapes: what a shape is, heat maps, and the page. */

/* What a shape is: the dimensions of a case, and the families of cases that differ in one of them alone. */
"use strict";

(() => {
  const R = Ridgeline,
    {h, cases: C, RATES, number, quantity, pick, box} = R;
  const AMOUNTS = [
    {
      key: "payload",
      title: "message bytes",
      of: row => row.cost.payload_bytes,
      text: value => quantity(value, "B", true),
    },
    {key: "bytes", title: "HBM bytes", of: row => row.cost.hbm_bytes, base: 10, text: value => quantity(value, "B")},
    {key: "flops", title: "FLOP", of: row => row.cost.flops, base: 10, text: value => quantity(value, "FLOP")},
  ].map(one => ({...one, amount: true}));

  const PREFERRED = ["M", "tokens", "MB", "S"]; // what people sweep comes first

  /** What may be the horizontal axis: dimensions that are numbers and differ, then amounts that differ. */
  function axesOf(rows) {
    const names = new Set(rows.flatMap(row => Object.keys(row.shape).filter(name => Number.isFinite(row.shape[name]))));
    const rank = name => (PREFERRED.indexOf(name) + PREFERRED.length + 1) % (PREFERRED.length + 1);
    const dimensions = [...names]
      .sort((a, b) => rank(a) - rank(b))
      .map(name => ({key: name, title: name, of: row => row.shape[name], text: value => R.tick(value)}));
    const differs = ({of}) => new Set(rows.map(of).filter(value => value > 0)).size > 1;
    return [...dimensions, ...AMOUNTS].filter(differs);
  }

  /** What stays the same along a line over `x`: the other dimensions where x is one, the kind of data, the ranks. */
  function familyOf(row, x) {
    const {shape} = row,
      names = Object.keys(shape),
      measured = names.filter(name => Number.isFinite(shape[name]));
    const fixed = x.amount ? names.filter(name => !measured.includes(name)) : names.filter(name => name !== x.key);
    const kind = x.amount ? measured.join(" × ") : "",
      ranks = row.world > 1 ? `${row.world} ranks` : "";
    return [...fixed.map(name => `${name} ${shape[name]}`), row.dtype, ranks, kind].filter(Boolean).join(", ") || "all";
  }

  function familiesOf(rows, x) {
    const found = R.grouped(rows, row => familyOf(row, x));
    for (const members of found.values()) members.sort((a, b) => x.of(a) - x.of(b));
    return found;
  }

  /** The family with the most places on the axis. */
  const widest = (families, x) =>
    [...families].reduce(
      (best, [name, rows]) => {
        const size = new Set(rows.map(x.of)).size;
        return size > best.size ? {name, size} : best;
      },
      {name: "", size: 0},
    ).name;

  /** The axis along which most cases differ in nothing else; the first of several. */
  function longest(rows, axes) {
    const sizes = axes.map(x => {
      const families = familiesOf(
        rows.filter(row => x.of(row) > 0),
        x,
      );
      return Math.max(0, ...[...families.values()].map(members => new Set(members.map(x.of)).size));
    });
    return axes[sizes.indexOf(Math.max(...sizes))];
  }

  /* A heat map of shapes by their ratio to the baseline. */

  const SPAN = 2, // ratio to the baseline that gets the full colour: twice as fast, or half
    MOST_ROWS = 80,
    MOST_COLUMNS = 60; // of a map; the table has all

  /** Ratio to the baseline of one backend: rows are families, columns the values of x. */
  function shapeGrid(families, x, backend) {
    const names = [...families.keys()].slice(0, MOST_ROWS),
      places = [...new Set(names.flatMap(name => families.get(name).map(x.of)))]
        .sort((a, b) => a - b)
        .slice(0, MOST_COLUMNS);
    const cells = names.map(name => places.map(place => ratios(families.get(name), x, place, backend)));
    const mean = rows => Math.exp(rows.reduce((sum, {ratio}) => sum + Math.log(ratio), 0) / rows.length);
    return {
      label: `${backend} relative to the fastest baseline, over ${x.title}`,
      x: {title: x.title, names: places.map(x.text)},
      y: {names},
      cells: {
        ...shaded(cells.map(row => row.map(rows => (rows.length ? byRatio(mean(rows)) : null)))),
        texts: cells.map(row => row.map(rows => (rows.length ? number(mean(rows), 3) : ""))),
        bar: [`${SPAN} × as fast`, `1/${SPAN} as fast`],
      },
      tip: ({x: at, y}) => cells[y][at].slice(0, 4).flatMap(({row, arm}) => box(row.case, C.armFacts(row, arm, row.rate))),
      picked: ({x: at, y}) => (location.href = C.historyOf(cells[y][at][0].row, backend)),
    };
  }

  /** Cells by shades, -1 to 1, none with a frame. */
  const shaded = values => ({values, best: values.map(row => row.map(() => false)), ends: [-1, 1]});

  /** The cases of a family at one place of the axis that have a ratio to the baseline; usually one. */
  const ratios = (rows, x, place, backend) =>
    rows
      .filter(row => x.of(row) === place)
      .map(row => ({row, arm: C.armOf(row, backend)}))
      .filter(({row, arm}) => arm && C.ratioOf(row, arm) !== null)
      .map(({row, arm}) => ({row, arm, ratio: C.ratioOf(row, arm)}));

  /** Where a ratio around 1 lies between the two full colours, -1 to 1. */
  const byRatio = ratio => Math.max(-1, Math.min(1, Math.log(ratio) / Math.log(SPAN)));

  /* Speed over the shape: lines over one dimension under the roof, and a grid of shapes.
   */

  const WIDE = 50; // times the least value: from there on the speeds get a logarithmic axis

  /** The rate that the roof allows; null where it is not known. */
  function roofOf(row, rate) {
    const seconds = row.cost.roofline_seconds;
    if (!(seconds > 0) || rate === "ratio") return null;
    return rate === "time" ? seconds * 1e6 : R.rateOf(rate, C.costOf(row), seconds);
  }

  function lines(rows, x, rate, backends, title) {
    const looks = R.looksOf(backends),
      value = ({row, arm}) => C.valueOf(row, arm, rate);
    const marks = backends.map(({name}) => {
      const those = rows.map(row => ({row, arm: C.armOf(row, name)})).filter(one => one.arm && value(one) !== null);
      const end = column => those.map(({row, arm}) => C.valueOf(row, arm, rate, column));
      return {...looks.get(name), kind: "line", rows: those, x: those.map(({row}) => x.of(row)), y: those.map(value), low: end("low"), high: end("high")};
    });
    const values = marks.flatMap(({y}) => y),
      wide = Math.max(...values) > WIDE * Math.min(...values), // most of them would lie on the ground of a linear axis
      roof = rows.map(row => [x.of(row), roofOf(row, rate)]).filter(([, one]) => one !== null);
    return {
      label: `${RATES[rate].name} over ${x.title}, ${title}`,
      x: {title: x.title, scale: x.base === 10 ? "log" : "log2", text: x.text},
      y: {title: R.axisTitle(rate), scale: rate === "time" || wide ? "log" : "linear", zero: true},
      marks: roof.length ? [...marks, {name: "roof", kind: "rule", dashed: 2, x: roof.map(([at]) => at), y: roof.map(([, one]) => one)}] : marks,
      tip: ({row, arm}) => box(row.case, [[x.title, x.text(x.of(row))], ...C.armFacts(row, arm, rate)]),
      picked: ({row, arm}) => (location.href = C.historyOf(row, arm.backend)),
    };
  }

  function columns(x, rate) {
    return [
      {key: "case", value: ({row}) => row.case, cell: ({row}) => C.caseLink(row)},
      {key: "family", title: "at", value: ({row}) => familyOf(row, x)},
      {
        key: "x",
        title: x.title,
        number: true,
        value: ({row}) => x.of(row) ?? null,
        cell: ({row}) => (x.of(row) ? x.text(x.of(row)) : "–"),
      },
      {key: "backend", value: ({arm}) => arm.backend, cell: ({arm}) => C.named(arm)},
      measured(rate, RATES[rate].name, (row, arm) => C.valueOf(row, arm, rate)),
      measured("peak_share", "% of roof", (row, arm) => C.valueOf(row, arm, "peak_share")),
      ...(rate === "ratio" ? [] : [measured("ratio", "vs baseline", C.ratioOf)]),
      ...(rate === "time" ? [] : [measured("time", "time", (row, arm) => arm.us)]),
      {key: "commit", title: "measured at", value: ({row}) => row.commit, cell: ({row}) => C.placeCell(row)},
    ];
  }

  const measured = (rate, title, of) => ({
    key: rate === "time" ? "us" : rate,
    title,
    number: true,
    value: ({row, arm}) => of(row, arm),
    cell: ({row, arm}) => R.withUnit(of(row, arm), rate),
  });

  async function show(values) {
    const lane = R.laneOf(values, choose);
    const {cases} = await R.data(lane.slug + "/newest");
    return host => draw(host, values, lane, cases.filter(C.runsHere));
  }

  function draw(host, values, lane, all) {
    const kernels = [...new Set(all.map(row => row.kernel))],
      kernel = kernels.includes(values.kernel) ? values.kernel : kernels[0];
    const rows = all.filter(row => row.kernel === kernel),
      axes = axesOf(rows),
      rates = C.ratesOf(rows);
    const x = axes.find(({key}) => key === values.x) || longest(rows, axes) || AMOUNTS[1],
      rate = rates.includes(values.rate)
        ? values.rate
        : rows.some(row => row.rate === "tflops")
          ? "tflops"
          : rows[0]?.rate || "time";
    const placed = rows.filter(row => x.of(row) > 0),
      families = familiesOf(placed, x),
      family = families.has(values.family) ? values.family : widest(families, x);
    const backends = C.backendsOf(rows),
      off = R.listed("off");
    host.replaceChildren(
      h(
        "div.tools",
        pick(
          "operator",
          kernels,
          kernel,
          name => choose({kernel: name, x: "", rate: "", family: "", backend: "", sort: ""}),
        ),
        pick(
          "over",
          (axes.length ? axes : [x]).map(({key, title}) => [key, title]),
          x.key,
          key => choose({x: key, family: ""}),
        ),
        pick(
          "at",
          [...families.keys()].map(name => [name, name]),
          family,
          name => choose({family: name}),
        ),
        R.press(
          "unit",
          rates.map(name => [name, RATES[name].name]),
          rate,
          name => choose({rate: name}),
        ),
        R.shownCount(placed.length, rows.length, "cases have this dimension"),
      ),
    );
    overShape(host, {members: families.get(family) || [], x, rate, backends, off, title: `${kernel}, ${family}`});
    overGrid(host, {families, x, backends, values});
    const points = placed.flatMap(row => row.arms.filter(arm => arm.us !== null).map(arm => ({row, arm})));
    host.append(
      h("h2", "Numbers"),
      R.grid({
        caption: `speed of ${kernel} by shape`,
        columns: columns(x, rate),
        rows: points,
        ...choose.order("sort"),
        file: "shapes-" + kernel,
      }),
      R.besideLinks(lane.slug + "/newest"),
    );
  }

  function overShape(host, {members, x, rate, backends, off, title}) {
    if (!members.length || !backends.length)
      return host.append(
        h("p.notice", "No case of this operator has a time and a known size on this machine."),
      );
    R.panelChart(host, lines(members, x, rate, backends, title), off, hidden => choose({off: R.listing(hidden)}));
  }

  function overGrid(host, {families, x, backends, values}) {
    const own = backends.filter(({baseline}) => !baseline);
    const compared = own.filter(({name}) =>
      [...families.values()].flat().some(row => {
        const arm = C.armOf(row, name);
        return arm && C.ratioOf(row, arm) !== null;
      }),
    );
    host.append(h("h2", "Relative to the fastest baseline"));
    if (!compared.length)
      return host.append(
        h(
          "p.hint",
          "No case of this operator has a baseline and a backend of ours with times from one place.",
        ),
      );
    const backend = compared.find(({name}) => name === values.backend) || compared[0];
    host.append(
      h(
        "div.controls",
        pick(
          "backend",
          compared.map(({name}) => [name, name]),
          backend.name,
          name => choose({backend: name}),
        ),
      ),
    );
    R.panelChart(host, shapeGrid(families, x, backend.name));
    const hidden = families.size - MOST_ROWS;
    if (hidden > 0) host.append(h("p.hint", `${hidden} more rows are in the table only.`));
  }

  const choose = R.view(show);
})();
