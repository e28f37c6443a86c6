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

  function lines(rows, x, rate, backends, off, title) {
    const shown = backends.filter(({name}) => !off.has(name));
    const points = shown.map(({name}) =>
      rows
        .map(row => ({row, arm: C.armOf(row, name)}))
        .filter(({row, arm}) => arm && C.valueOf(row, arm, rate) !== null),
    );
    const roof = rows.map(row => [x.of(row), roofOf(row, rate)]).filter(([, value]) => value !== null);
    return {
      label: `${R.RATES[rate].name} over ${x.title}, ${title}`,
      height: 380,
      points: points.flatMap((part, series) => part.map((_, n) => [series, n])),
      tip: (series, n) => {
        const one = points[series] && points[series][n];
        return one
          ? C.box(one.row.case, [[x.title, x.text(x.of(one.row))], ...C.armFacts(one.row, one.arm, rate)])
          : null;
      },
      picked: (series, n) => points[series] && (location.href = C.historyOf(points[series][n].row, shown[series].name)),
      option: colours => {
        const looks = R.looks(colours, backends);
        const line = ({name}, n) => ({
          type: "line",
          name,
          symbol: looks.get(name).symbol,
          symbolSize: 8,
          itemStyle: {color: looks.get(name).color},
          lineStyle: {color: looks.get(name).color, type: looks.get(name).dash, width: 2},
          data: points[n].map(({row, arm}) => [x.of(row), C.valueOf(row, arm, rate)]),
        });
        return {
          grid: {left: 70, right: 26, top: 34, bottom: 46},
          xAxis: R.axis(colours, {
            type: "log",
            name: x.title,
            nameLocation: "middle",
            nameGap: 28,
            ...reach(rows.map(x.of), x.base || 2),
            axisLabel: {formatter: x.text},
          }),
          yAxis: R.axis(colours, {
            type: rate === "time" || wide(points, rate) ? "log" : "value",
            name: R.axisTitle(rate),
            nameTextStyle: {color: colours.soft, align: "left"},
            axisLabel: {formatter: R.tick},
          }),
          series: [...shown.map(line), roofLine(colours, roof)],
        };
      },
    };
  }

  /** Do the values span so much that most of them would lie on the ground of a linear axis? */
  function wide(points, rate) {
    const values = points.flat().map(({row, arm}) => C.valueOf(row, arm, rate));
    return Math.max(...values) > WIDE * Math.min(...values);
  }

  /** A logarithmic axis that ends at the powers around its values. */
  function reach(values, base) {
    const power = (value, round) => base ** round(Math.log(value) / Math.log(base));
    const min = power(Math.min(...values) / 1.1, Math.floor),
      max = power(Math.max(...values) * 1.1, Math.ceil);
    return {logBase: base, min, max, interval: Math.ceil(Math.log(max / min) / Math.log(base) / 10)};
  }

  const roofLine = (colours, data) => ({
    type: "line",
    symbol: "none",
    silent: true,
    lineStyle: {color: colours.text, type: [2, 4], width: 1.2},
    endLabel: {show: data.length > 0, formatter: "roof", color: colours.soft, offset: [-30, -9]},
    data,
  });

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
    const colours = R.palette(),
      looks = R.looks(colours, backends);
    const entries = backends.map(one => ({...one, color: looks.get(one.name).color, dash: looks.get(one.name).dash}));
    host.append(R.viewLegend(entries, off, hidden => choose({off: R.listing(hidden)})));
    R.plot(host).draw(lines(members, x, rate, backends, off, title));
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
    R.plot(host).draw(R.shapeGrid(families, x, backend.name));
    const hidden = families.size - R.MOST_ROWS;
    if (hidden > 0) host.append(h("p", {class: "hint"}, `${hidden} more rows are in the table only.`));
  }

  const choose = R.view(show);
})();
