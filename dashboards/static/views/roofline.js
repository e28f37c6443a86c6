/* The roofline of one device: FLOP/s over FLOP per HBM byte, under the roofs, with a trail from where each case was. */
"use strict";

(() => {
  const R = Ridgeline,
    {h, cases: C} = R;

  /** FLOP per byte of HBM of a case; null for what computes nothing. */
  const intensity = row => (row.cost.flops > 0 && row.cost.hbm_bytes > 0 ? row.cost.flops / row.cost.hbm_bytes : null);

  /** FLOP/s of one rank, which is what the roofs of one device bound. */
  const achieved = (row, us) => (us > 0 ? row.cost.flops / (us * 1e-6) : null);

  const flops = value => R.number(value / 1e12) + " TFLOPS";

  /** Every case and backend with a place under the roofs, and its older time where there is one. */
  function pointsOf(rows, older) {
    const before = new Map(older.map(one => [JSON.stringify([one.kernel, one.case, one.backend]), one]));
    return rows.flatMap(row =>
      row.arms
        .filter(arm => arm.us !== null)
        .map(arm => ({row, arm, before: before.get(JSON.stringify([row.kernel, row.case, arm.backend])) || null})),
    );
  }

  /** Lines of the roofs between two intensities: up along the bandwidth, then flat; one per dtype that has a peak. */
  function roofsOf(roofs, dtypes, [low, high]) {
    const flat = dtypes.filter(dtype => roofs.peaks[dtype]).map(dtype => [dtype, roofs.peaks[dtype]]);
    const levels = Map.groupBy ? Map.groupBy(flat, ([, peak]) => peak) : grouped(flat);
    return [...levels].map(([peak, members]) => ({
      name: members.map(([dtype]) => dtype).join(", "),
      data: [low, Math.max(low, Math.min(high, peak / roofs.hbm)), high].map(x => [x, Math.min(peak, x * roofs.hbm)]),
    }));
  }

  function grouped(pairs) {
    const found = new Map();
    for (const pair of pairs) found.set(pair[1], [...(found.get(pair[1]) || []), pair]);
    return found;
  }

  function facts({row, arm, before}) {
    const [backend, ...others] = C.armFacts(row, arm, "tflops").filter(([name]) => name !== "vs baseline");
    const change =
      before &&
      `${R.signedPercent(before.us / arm.us - 1)} speed since ${R.short(before.commit)}, ${before.date.slice(0, 10)}`;
    const place = [
      ["intensity", R.number(intensity(row)) + " FLOP/byte"],
      ["per device", flops(achieved(row, arm.us))],
    ];
    return [["operator", row.kernel], backend, ...place, ...others, ["before", change]];
  }

  function picture(points, backends, roofs, device) {
    const xs = points.map(({row}) => intensity(row)),
      ys = points
        .flatMap(({row, arm, before}) => [achieved(row, arm.us), before && achieved(row, before.us)])
        .filter(Boolean);
    const span = [10 ** Math.floor(Math.log10(Math.min(...xs))), 10 ** Math.ceil(Math.log10(Math.max(...xs) * 1.01))];
    const parts = backends.map(({name}) => points.filter(({arm}) => arm.backend === name));
    const dtypes = [...new Set(points.map(({row}) => row.dtype))].sort();
    const lines = roofs ? roofsOf(roofs, dtypes, span) : [];
    const top = Math.max(...ys, ...lines.flatMap(({data}) => data.map(([, y]) => y)));
    return {
      label: `FLOP/s over FLOP per byte of ${points.length} cases on ${device}`,
      height: 480,
      points: parts.flatMap((part, series) => part.map((_, n) => [series, n])),
      tip: (series, n) => (parts[series] ? C.box(parts[series][n].row.case, facts(parts[series][n])) : null),
      picked: (series, n) =>
        parts[series] && (location.href = C.historyOf(parts[series][n].row, backends[series].name)),
      option: colours => {
        const looks = R.looks(colours, backends);
        return {
          grid: {left: 84, right: 24, top: 34, bottom: 46},
          xAxis: R.axis(colours, {
            type: "log",
            name: "FLOP per byte of HBM",
            nameLocation: "middle",
            nameGap: 28,
            min: span[0],
            max: span[1],
            axisLabel: {formatter: R.tick},
          }),
          yAxis: R.axis(colours, {
            type: "log",
            name: "FLOP/s of one device",
            nameTextStyle: {color: colours.soft, align: "left"},
            min: 10 ** Math.floor(Math.log10(Math.min(...ys))),
            max: 10 ** Math.ceil(Math.log10(top * 1.2)),
            axisLabel: {formatter: value => R.quantity(value, "")},
          }),
          series: [
            ...parts.map((part, n) => dots(part, looks.get(backends[n].name))),
            ...parts.map((part, n) => trails(part, looks.get(backends[n].name))),
            ...lines.map(line => roofLine(line, colours)),
          ],
        };
      },
    };
  }

  const dots = (part, {color, symbol}) => ({
    type: "scatter",
    symbol,
    symbolSize: 9,
    itemStyle: {color, opacity: 0.85},
    data: part.map(({row, arm}) => [intensity(row), achieved(row, arm.us)]),
  });

  /** From the older place to the newest; a hole lifts the pen. */
  const trails = (part, {color}) => ({
    type: "line",
    silent: true,
    symbol: "none",
    lineStyle: {color, width: 3, opacity: 0.4},
    data: part
      .filter(({before}) => before)
      .flatMap(({row, arm, before}) => [
        [intensity(row), achieved(row, before.us)],
        [intensity(row), achieved(row, arm.us)],
        ["-", "-"],
      ]),
  });

  const roofLine = ({name, data}, colours) => ({
    type: "line",
    silent: true,
    symbol: "none",
    lineStyle: {color: colours.text, width: 1.4},
    endLabel: {show: true, formatter: name, color: colours.soft, offset: [-8 - 7 * name.length, -9]},
    data,
  });

  const COLUMNS = [
    {key: "case", title: "case", value: ({row}) => row.case, cell: ({row}) => C.caseLink(row)},
    {key: "kernel", title: "operator", value: ({row}) => row.kernel},
    {key: "backend", title: "backend", value: ({arm}) => arm.backend, cell: ({arm}) => C.named(arm)},
    {key: "dtype", title: "dtype", value: ({row}) => row.dtype || null},
    {
      key: "intensity",
      title: "FLOP/byte",
      number: true,
      value: ({row}) => intensity(row),
      cell: ({row}) => R.number(intensity(row)),
    },
    {
      key: "flops_per_second",
      title: "per device",
      number: true,
      value: ({row, arm}) => achieved(row, arm.us),
      cell: ({row, arm}) => flops(achieved(row, arm.us)),
    },
    {
      key: "peak_share",
      title: "% of roof",
      help: "least possible time by the roofline of this device, links included / measured time",
      number: true,
      value: ({row, arm}) => C.valueOf(row, arm, "peak_share"),
      cell: ({row, arm}) => R.percent(C.valueOf(row, arm, "peak_share")),
    },
    {
      key: "change",
      title: "since then",
      help: "change of speed since the older record, a month before where there is one",
      number: true,
      value: ({arm, before}) => (before ? before.us / arm.us - 1 : null),
      cell: ({arm, before}) =>
        before
          ? [
              R.signedPercent(before.us / arm.us - 1),
              h("span", {class: "sub"}, R.short(before.commit) + ", " + before.date.slice(0, 10)),
            ]
          : "–",
      plain: ({arm, before}) => (before ? R.signedPercent(before.us / arm.us - 1) : ""),
    },
    {key: "commit", title: "measured at", value: ({row}) => row.commit, cell: ({row}) => C.placeCell(row)},
  ];

  async function show(values, current) {
    const lane = R.lane(values);
    R.header(lane, change => choose({machine: lane.machine, env: lane.env, ...change}));
    const [{cases}, {roofs, before}] = await Promise.all([
      R.data(lane.slug + "/newest"),
      R.data(lane.slug + "/roofline"),
    ]);
    if (!current()) return;
    const host = document.getElementById("view");
    R.keepFocus(host, () => draw(host, values, lane, cases.filter(C.runsHere), roofs, before));
  }

  function draw(host, values, lane, all, roofs, before) {
    const computing = all.filter(row => intensity(row) !== null),
      kernels = [...new Set(computing.map(row => row.kernel))];
    const chosen = kernels.includes(values.kernel) ? values.kernel : "*";
    const rows = computing.filter(
      row => [row.kernel, "*"].includes(chosen) && R.matches(`${row.kernel} ${row.case} ${row.dtype}`, values.q || ""),
    );
    const backends = C.backendsOf(rows),
      off =
        values.off === undefined
          ? new Set(backends.filter(({baseline}) => baseline).map(({name}) => name))
          : R.listed("off");
    const points = pointsOf(rows, before).filter(({arm}) => !off.has(arm.backend));
    const looks = R.looks(R.palette(), backends);
    const hide = hidden => choose({off: R.listing(hidden) || ","});
    host.replaceChildren(
      h(
        "div",
        {class: "tools"},
        R.pick("operator", [["*", "all operators"], ...kernels.map(name => [name, name])], chosen, kernel =>
          choose({kernel}),
        ),
        R.filterBox(values.q || "", "Filter: gemm fp16 …  ( / )", q => choose({q})),
        R.shownCount(rows.length, all.length, "cases; the others compute nothing or are filtered out"),
      ),
      h(
        "p",
        {class: "hint"},
        roofs ? sources(roofs) : "The peaks of this device are not known (kernels/hardware.py), so there is no roof.",
      ),
      R.viewLegend(
        backends.map(one => ({...one, color: looks.get(one.name).color})),
        off,
        hide,
      ),
    );
    if (points.length) R.plot(host).draw(picture(points, backends, roofs, lane.title));
    host.append(
      R.grid({
        caption: "cases under the roofline",
        columns: COLUMNS,
        rows: points,
        sort: values.sort,
        sorted: sort => choose({sort}),
        file: "roofline",
      }),
      R.besideLinks(lane.slug + "/newest"),
    );
  }

  function sources({device, hbm, peaks}) {
    const parts = Object.entries(peaks).map(([dtype, peak]) => `${dtype} ${flops(peak)}`);
    return `${device}: HBM ${R.quantity(hbm, "B/s")}; ${parts.join(", ")} (data sheets, dense). A line behind a point comes from its older record.`;
  }

  const choose = R.view(show);
})();
