/* The roofline of one device: FLOP/s over FLOP per HBM byte, under the roofs, with a trail from where each case was. */
"use strict";

(() => {
  const R = Ridgeline,
    {h, cases: C, number, signedPercent} = R;

  /** FLOP per byte of HBM of a case; null for what computes nothing. */
  const intensity = row => (row.cost.flops > 0 && row.cost.hbm_bytes > 0 ? row.cost.flops / row.cost.hbm_bytes : null);

  /** FLOP/s of one rank, which is what the roofs of one device bound. */
  const achieved = (row, us) => (us > 0 ? row.cost.flops / (us * 1e-6) : null);

  const flops = value => number(value / 1e12) + " TFLOPS";

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
    return [...R.grouped(flat, ([, peak]) => peak)].map(([peak, members]) => ({
      name: members.map(([dtype]) => dtype).join(", "),
      data: [low, Math.max(low, Math.min(high, peak / roofs.hbm)), high].map(x => [x, Math.min(peak, x * roofs.hbm)]),
    }));
  }

  function facts({row, arm, before}) {
    const [backend, ...others] = C.armFacts(row, arm, "tflops").filter(([name]) => name !== "vs baseline");
    const change =
      before &&
      `${signedPercent(before.us / arm.us - 1)} speed since ${R.short(before.commit)}, ${before.date.slice(0, 10)}`;
    const place = [
      ["intensity", number(intensity(row)) + " FLOP/byte"],
      ["per device", flops(achieved(row, arm.us))],
    ];
    return [["operator", row.kernel], backend, ...place, ...others, ["before", change]];
  }

  /** Points under the roofs, each with a line from where it was. */
  function panel(points, backends, roofs, device) {
    const xs = points.map(({row}) => intensity(row)),
      span = [10 ** Math.floor(Math.log10(Math.min(...xs))), 10 ** Math.ceil(Math.log10(Math.max(...xs) * 1.01))],
      dtypes = [...new Set(points.map(({row}) => row.dtype))].sort(),
      looks = R.looksOf(backends);
    const marksOf = ({name}) => {
      const rows = points.filter(({arm}) => arm.backend === name),
        moved = rows.filter(({before}) => before);
      const trail = {
        ...looks.get(name),
        kind: "rule",
        dashed: 0,
        x: moved.flatMap(({row}) => [intensity(row), intensity(row), null]),
        y: moved.flatMap(({row, arm, before}) => [achieved(row, before.us), achieved(row, arm.us), null]),
      };
      const dots = {...looks.get(name), rows, x: rows.map(({row}) => intensity(row)), y: rows.map(({row, arm}) => achieved(row, arm.us))};
      return [...(moved.length ? [trail] : []), dots];
    };
    const lines = (roofs ? roofsOf(roofs, dtypes, span) : []).map(({name, data}) => ({name: "roof, " + name, kind: "rule", x: data.map(([x]) => x), y: data.map(([, y]) => y)}));
    return {
      label: `FLOP/s over FLOP per byte of ${points.length} cases on ${device}`,
      x: {title: "FLOP per byte of HBM", scale: "log"},
      y: {title: "FLOP/s of one device", scale: "log", text: value => R.quantity(value, "")},
      marks: [...backends.flatMap(marksOf), ...lines],
      tip: one => R.box(one.row.case, facts(one)),
      picked: one => (location.href = C.historyOf(one.row, one.arm.backend)),
    };
  }

  const COLUMNS = [
    {key: "case", value: ({row}) => row.case, cell: ({row}) => C.caseLink(row)},
    {key: "kernel", title: "operator", value: ({row}) => row.kernel},
    {key: "backend", value: ({arm}) => arm.backend, cell: ({arm}) => C.named(arm)},
    {key: "dtype", value: ({row}) => row.dtype || null},
    {
      key: "intensity",
      title: "FLOP/byte",
      number: true,
      value: ({row}) => intensity(row),
      cell: ({row}) => number(intensity(row)),
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
              signedPercent(before.us / arm.us - 1),
              h("span.sub", R.short(before.commit) + ", " + before.date.slice(0, 10)),
            ]
          : "–",
      plain: ({arm, before}) => (before ? signedPercent(before.us / arm.us - 1) : ""),
    },
    {key: "commit", title: "measured at", value: ({row}) => row.commit, cell: ({row}) => C.placeCell(row)},
  ];

  async function show(values) {
    const lane = R.laneOf(values, choose);
    const [{cases}, {roofs, before}] = await Promise.all([
      R.data(lane.slug + "/newest"),
      R.data(lane.slug + "/roofline"),
    ]);
    return host => draw(host, values, lane, cases.filter(C.runsHere), roofs, before);
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
    const every = pointsOf(rows, before),
      points = every.filter(({arm}) => !off.has(arm.backend));
    host.replaceChildren(
      h(
        "div.tools",
        R.pick("operator", [["*", "all operators"], ...kernels], chosen, kernel =>
          choose({kernel}),
        ),
        R.filterBox(values.q || "", "Filter: gemm fp16 …  ( / )", q => choose({q})),
        R.shownCount(rows.length, all.length, "cases; the others compute nothing or are filtered out"),
      ),
      h(
        "p.hint",
        roofs ? sources(roofs) : "The peaks of this device are not known (kernels/hardware.py), so there is no roof.",
      ),
    );
    if (every.length) R.panelChart(host, panel(every, backends, roofs, lane.title), off, hidden => choose({off: R.listing(hidden) || ","}));
    host.append(
      R.grid({
        caption: "cases under the roofline",
        columns: COLUMNS,
        rows: points,
        ...choose.order("sort"),
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
