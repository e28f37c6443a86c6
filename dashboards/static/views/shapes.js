/* Speed over the shape: lines over one dimension under the roof, and grids of shapes and of tile configurations. */
"use strict";

(() => {
  const R = Ridgeline,
    {h, cases: C} = R,
    {AMOUNTS, longest, axesOf, familyOf, familiesOf, widest} = R.shapes;
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
      return {...looks.get(name), kind: "line", rows: those, x: those.map(({row}) => x.of(row)), y: those.map(value)};
    });
    const values = marks.flatMap(({y}) => y),
      wide = Math.max(...values) > WIDE * Math.min(...values), // most of them would lie on the ground of a linear axis
      roof = rows.map(row => [x.of(row), roofOf(row, rate)]).filter(([, one]) => one !== null);
    return {
      label: `${R.RATES[rate].name} over ${x.title}, ${title}`,
      x: {title: x.title, scale: x.base === 10 ? "log" : "log2", text: x.text},
      y: {title: R.axisTitle(rate), scale: rate === "time" || wide ? "log" : "linear", zero: true},
      marks: roof.length ? [...marks, {name: "roof", kind: "rule", dashed: 2, x: roof.map(([at]) => at), y: roof.map(([, one]) => one)}] : marks,
      tip: ({row, arm}) => R.box(row.case, [[x.title, x.text(x.of(row))], ...C.armFacts(row, arm, rate)]),
      picked: ({row, arm}) => (location.href = C.historyOf(row, arm.backend)),
    };
  }

  function columns(x, rate) {
    return [
      {key: "case", title: "case", value: ({row}) => row.case, cell: ({row}) => C.caseLink(row)},
      {key: "family", title: "at", value: ({row}) => familyOf(row, x)},
      {
        key: "x",
        title: x.title,
        number: true,
        value: ({row}) => x.of(row) ?? null,
        cell: ({row}) => (x.of(row) ? x.text(x.of(row)) : "–"),
      },
      {key: "backend", title: "backend", value: ({arm}) => arm.backend, cell: ({arm}) => C.named(arm)},
      measured(rate, R.RATES[rate].name, (row, arm) => C.valueOf(row, arm, rate)),
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

  async function show(values, current) {
    const lane = R.lane(values);
    R.header(lane, change => choose({machine: lane.machine, env: lane.env, ...change}));
    const [{cases}, sweeps] = await Promise.all([R.data(lane.slug + "/newest"), R.data(lane.slug + "/configurations")]);
    if (!current()) return;
    const host = document.getElementById("view");
    R.keepFocus(host, () => draw(host, values, lane, cases.filter(C.runsHere), sweeps));
  }

  function draw(host, values, lane, all, sweeps) {
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
        "div",
        {class: "tools"},
        R.pick(
          "operator",
          kernels.map(name => [name, name]),
          kernel,
          name => choose({kernel: name, x: "", rate: "", family: "", backend: "", sort: ""}),
        ),
        R.pick(
          "over",
          (axes.length ? axes : [x]).map(({key, title}) => [key, title]),
          x.key,
          key => choose({x: key, family: ""}),
        ),
        R.pick(
          "at",
          [...families.keys()].map(name => [name, name]),
          family,
          name => choose({family: name}),
        ),
        R.press(
          "unit",
          rates.map(name => [name, R.RATES[name].name]),
          rate,
          name => choose({rate: name}),
        ),
        R.shownCount(placed.length, rows.length, "cases have this dimension"),
      ),
    );
    overShape(host, {members: families.get(family) || [], x, rate, backends, off, title: `${kernel}, ${family}`});
    overGrid(host, {families, x, backends, values});
    R.configurations(host, sweeps, kernel);
    const points = placed.flatMap(row => row.arms.filter(arm => arm.us !== null).map(arm => ({row, arm})));
    host.append(
      h("h2", {}, "Numbers"),
      R.grid({
        caption: `speed of ${kernel} by shape`,
        columns: columns(x, rate),
        rows: points,
        sort: values.sort,
        sorted: sort => choose({sort}),
        file: "shapes-" + kernel,
      }),
      R.besideLinks(lane.slug + "/newest"),
    );
  }

  function overShape(host, {members, x, rate, backends, off, title}) {
    if (!members.length || !backends.length)
      return host.append(
        h("p", {class: "notice"}, "No case of this operator has a time and a known size on this machine."),
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
    host.append(h("h2", {}, "Relative to the fastest baseline"));
    if (!compared.length)
      return host.append(
        h(
          "p",
          {class: "hint"},
          "No case of this operator has a baseline and a backend of ours with times from one place.",
        ),
      );
    const backend = compared.find(({name}) => name === values.backend) || compared[0];
    host.append(
      h(
        "div",
        {class: "controls"},
        R.pick(
          "backend",
          compared.map(({name}) => [name, name]),
          backend.name,
          name => choose({backend: name}),
        ),
      ),
    );
    R.panelChart(host, R.shapeGrid(families, x, backend.name));
    const hidden = families.size - R.MOST_ROWS;
    if (hidden > 0) host.append(h("p", {class: "hint"}, `${hidden} more rows are in the table only.`));
  }

  const choose = R.view(show);
})();
