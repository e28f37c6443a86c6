/* Speed over the shape: lines over one dimension under the roof, and grids of shapes and of tile configurations. */
"use strict";

(() => {
  const R = Ridgeline,
    {h, cases: C} = R;
  const CELL = 26, // pixels of a row of a grid
    COLUMN = 58, // least pixels of a column
    WIDEST = 170, // most pixels of one
    WIDE = 50, // times the least value: from there on the speeds get a logarithmic axis
    SPAN = 2, // ratio to the baseline that gets the full colour: twice as fast, or half
    MOST_ROWS = 80,
    MOST_COLUMNS = 60; // of a grid; the table has all

  /* ---- what a shape is ---- */

  const AMOUNTS = [
    {key: "payload", title: "message bytes", of: row => row.cost.payload_bytes, text: value => R.quantity(value, "B", true)},
    {key: "bytes", title: "HBM bytes", of: row => row.cost.hbm_bytes, base: 10, text: value => R.quantity(value, "B")},
    {key: "flops", title: "FLOP", of: row => row.cost.flops, base: 10, text: value => R.quantity(value, "FLOP")},
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
    const found = new Map();
    for (const row of rows) {
      const name = familyOf(row, x);
      found.set(name, [...(found.get(name) || []), row]);
    }
    for (const members of found.values()) members.sort((a, b) => x.of(a) - x.of(b));
    return found;
  }

  /** The family with the most places on the axis. */
  const widest = (families, x) =>
    [...families].reduce((best, [name, rows]) => {
      const size = new Set(rows.map(x.of)).size;
      return size > best.size ? {name, size} : best;
    }, {name: "", size: 0}).name;

  /* ---- lines over one dimension ---- */

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
        return one ? C.box(one.row.case, [[x.title, x.text(x.of(one.row))], ...C.armFacts(one.row, one.arm, rate)]) : null;
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
          xAxis: R.axis(colours, {type: "log", name: x.title, nameLocation: "middle", nameGap: 28, ...reach(rows.map(x.of), x.base || 2), axisLabel: {formatter: x.text}}),
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

  /* ---- a grid of shapes ---- */

  /** Ratio to the baseline of one backend: rows are families, columns the values of x. */
  function shapeGrid(families, x, backend) {
    const names = [...families.keys()].slice(0, MOST_ROWS),
      places = [...new Set(names.flatMap(name => families.get(name).map(x.of)))].sort((a, b) => a - b).slice(0, MOST_COLUMNS);
    const cells = names.flatMap((name, y) => places.map((place, at) => ({x: at, y, rows: ratios(families.get(name), x, place, backend)})));
    const known = cells.filter(({rows}) => rows.length);
    const mean = rows => Math.exp(rows.reduce((sum, {ratio}) => sum + Math.log(ratio), 0) / rows.length);
    return heatMap({
      label: `${backend} relative to the fastest baseline, over ${x.title}`,
      columns: places.map(x.text),
      rows: names,
      cells: known.map(({rows, ...at}) => ({...at, value: mean(rows), shade: byRatio(mean(rows)), ringed: false})),
      tip: n => known[n].rows.slice(0, 4).flatMap(({row, arm}) => C.box(row.case, C.armFacts(row, arm, row.rate))),
      picked: n => (location.href = C.historyOf(known[n].rows[0].row, backend)),
      ends: [`${SPAN} × as fast`, `1/${SPAN} as fast`],
    });
  }

  /** The cases of a family at one place of the axis that have a ratio to the baseline; usually one. */
  const ratios = (rows, x, place, backend) =>
    rows
      .filter(row => x.of(row) === place)
      .map(row => ({row, arm: C.armOf(row, backend)}))
      .filter(({row, arm}) => arm && C.ratioOf(row, arm) !== null)
      .map(({row, arm}) => ({row, arm, ratio: C.ratioOf(row, arm)}));

  /** Where a value lies between the two full colours, -1 to 1: of a ratio around 1, of a share of the best. */
  const byRatio = ratio => Math.max(-1, Math.min(1, Math.log(ratio) / Math.log(SPAN)));
  const byShare = share => Math.max(-1, 1 - (1 - share) * 2 * SPAN);

  function heatMap({label, columns, rows, cells, tip, picked, ends}) {
    return {
      label,
      height: 90 + CELL * rows.length,
      least: 190 + COLUMN * columns.length,
      points: cells.map((_, n) => [0, n]),
      tip: (_, n) => tip(n),
      picked: (_, n) => picked && picked(n),
      option: (colours, width) => {
        const names = {type: "category", splitLine: {show: false}};
        const letters = width < 700 ? 22 : 44;
        const left = Math.min(width * 0.4, 24 + 6.6 * Math.min(letters, Math.max(...rows.map(text => text.length), 4)));
        return {
          grid: {left, right: Math.max(12, width - left - WIDEST * columns.length), top: 34, bottom: 40},
          xAxis: R.axis(colours, {...names, position: "top", data: columns.map(text => R.plotLabel(text, 16)), axisLabel: {interval: 0, hideOverlap: true}}),
          yAxis: R.axis(colours, {...names, inverse: true, data: rows.map(text => R.plotLabel(text, letters)), axisLabel: {interval: 0, hideOverlap: false}}),
          visualMap: R.colourBar(colours, {left, min: -1, max: 1, text: ends, seriesIndex: 0}),
          series: [
            {
              type: "heatmap",
              data: cells.map(({x, y, value, shade, ringed}) => ({
                value: [x, y, shade],
                itemStyle: {borderColor: ringed ? colours.text : colours.ground, borderWidth: ringed ? 2.5 : 1},
                label: {show: true, formatter: () => (ringed ? "◉ " : "") + R.number(value, 3), color: colours.text, fontSize: 11},
              })),
            },
          ],
        };
      },
    };
  }

  /* ---- tile configurations ---- */

  const knobText = knobs => Object.entries(knobs).map(([name, value]) => `${name}=${value}`).join(" ");

  /** Speed of every configuration relative to the best of the case; the one that records were made with is ringed. */
  function configurations(host, sweeps, kernel) {
    const mine = sweeps.filter(sweep => sweep.kernel === kernel);
    host.append(h("h2", {}, "Configurations"));
    if (!mine.length) {
      return host.append(h("p", {class: "hint"}, "No sweep of this operator is recorded on this machine."));
    }
    for (const sweep of mine) configurationsOf(host, sweep);
  }

  function configurationsOf(host, {backend, configs, cases, chosen, running, us}) {
    const best = us.map(times => Math.min(...times.filter(time => time !== null)));
    const cells = configs.flatMap((knobs, y) =>
      cases.map((name, x) => ({x, y, time: us[x][y], ringed: chosen[x] === y, name, knobs, share: us[x][y] === null ? null : best[x] / us[x][y]})),
    );
    const measured = cells.filter(({time}) => time !== null);
    host.append(
      h("h3", {}, R.foreign(backend), h("span", {class: "sub"}, ` ${configs.length} configurations, ${cases.length} cases; ◉ is what the records run`)),
    );
    const other = cases.filter((_, x) => running[x] && chosen[x] === null).map(name => `${name}: ${knobText(running[cases.indexOf(name)])}`);
    if (other.length) host.append(h("p", {class: "hint"}, "Records run settings that this sweep lacks. ", R.foreign(other.join("; "))));
    R.plot(host).draw(
      heatMap({
        label: `Speed of ${configs.length} configurations of ${backend} relative to the best`,
        columns: cases,
        rows: configs.slice(0, MOST_ROWS).map(knobText),
        cells: measured.filter(({y}) => y < MOST_ROWS).map(({x, y, share, ringed}) => ({x, y, value: share, shade: byShare(share), ringed})),
        tip: n => C.box(measured[n].name, [["time", R.duration(measured[n].time)], ["speed / best", R.number(measured[n].share, 3)], ["knobs", knobText(measured[n].knobs)]]),
        ends: ["best", `1/${SPAN} of it`],
      }),
    );
    const columns = [
      {key: "case", title: "case", value: cell => cell.name},
      {key: "knobs", title: "configuration", value: cell => knobText(cell.knobs)},
      {key: "us", title: "time, µs", number: true, value: cell => cell.time, cell: cell => R.number(cell.time)},
      {key: "share", title: "speed / best", number: true, value: cell => cell.share, cell: cell => R.number(cell.share, 3)},
      {key: "chosen", title: "chosen", value: cell => (cell.ringed ? "yes" : "")},
    ];
    host.append(h("details", {class: "numbers"}, h("summary", {}, "Numbers behind the map"), R.grid({caption: "configurations", columns, rows: measured, file: "configurations-" + backend})));
  }

  /* ---- the page ---- */

  function columns(x, rate) {
    return [
      {key: "case", title: "case", value: ({row}) => row.case, cell: ({row}) => C.caseLink(row)},
      {key: "family", title: "at", value: ({row}) => familyOf(row, x)},
      {key: "x", title: x.title, number: true, value: ({row}) => x.of(row) ?? null, cell: ({row}) => (x.of(row) ? x.text(x.of(row)) : "–")},
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
    const x = axes.find(({key}) => key === values.x) || axes[0] || AMOUNTS[1],
      rate = rates.includes(values.rate) ? values.rate : rows.some(row => row.rate === "tflops") ? "tflops" : rows[0]?.rate || "time";
    const placed = rows.filter(row => x.of(row) > 0),
      families = familiesOf(placed, x),
      family = families.has(values.family) ? values.family : widest(families, x);
    const backends = C.backendsOf(rows),
      off = R.listed("off");
    host.replaceChildren(
      h(
        "div",
        {class: "tools"},
        R.pick("operator", kernels.map(name => [name, name]), kernel, name => choose({kernel: name, x: "", rate: "", family: "", backend: "", sort: ""})),
        R.pick("over", axes.map(({key, title}) => [key, title]), x.key, key => choose({x: key, family: ""})),
        R.pick("at", [...families.keys()].map(name => [name, name]), family, name => choose({family: name})),
        R.press("unit", rates.map(name => [name, R.RATES[name].name]), rate, name => choose({rate: name})),
        R.shownCount(placed.length, rows.length, "cases have this dimension"),
      ),
    );
    overShape(host, {members: families.get(family) || [], x, rate, backends, off, title: `${kernel}, ${family}`});
    overGrid(host, {families, x, backends, values});
    configurations(host, sweeps, kernel);
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
    const colours = R.palette(),
      looks = R.looks(colours, backends);
    const entries = backends.map(one => ({...one, color: looks.get(one.name).color}));
    host.append(R.viewLegend(entries, off, hidden => choose({off: R.listing(hidden)})));
    R.plot(host).draw(lines(members, x, rate, backends, off, title));
  }

  function overGrid(host, {families, x, backends, values}) {
    const own = backends.filter(({baseline}) => !baseline);
    const compared = own.filter(({name}) => [...families.values()].flat().some(row => {
      const arm = C.armOf(row, name);
      return arm && C.ratioOf(row, arm) !== null;
    }));
    host.append(h("h2", {}, "Relative to the fastest baseline"));
    if (!compared.length)
      return host.append(h("p", {class: "hint"}, "No case of this operator has a baseline and a backend of ours with times from one place."));
    const backend = compared.find(({name}) => name === values.backend) || compared[0];
    host.append(h("div", {class: "controls"}, R.pick("backend", compared.map(({name}) => [name, name]), backend.name, name => choose({backend: name}))));
    R.plot(host).draw(shapeGrid(families, x, backend.name));
    const hidden = families.size - MOST_ROWS;
    if (hidden > 0) host.append(h("p", {class: "hint"}, `${hidden} more rows are in the table only.`));
  }

  const choose = R.view(show);
})();
