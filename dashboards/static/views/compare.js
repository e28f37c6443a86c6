/* The page that compares any two commits: sides, rows and the page. */

/* The two sides of a comparison: which records they are, and their series side by side. */
"use strict";

(() => {
  const R = Ridgeline,
    {h, foreign, short, pick, markdownText} = R,
    {compared, means} = R.comparison;
  const key = (...names) => JSON.stringify(names);

  /** {lane, data, place}: what a side of the state names, else the usual one; place: index of its commit. */
  function chosen(lane, data, hash, usual) {
    const found = data.commits.findIndex(([commit]) => hash && commit.startsWith(hash));
    return {lane, data, place: found >= 0 ? found : usual, unknown: Boolean(hash) && found < 0};
  }

  async function sides(values) {
    const later = R.lane(values),
      earlier = values.from_machine ? R.lane({machine: values.from_machine, env: values.from_env}) : later;
    const [a, b] = await Promise.all([earlier, later].map(lane => R.data(lane.slug + "/compare")));
    const newest = data => data.commits.length - 1;
    const [from, to] = b.usual || [Math.max(0, newest(b) - 1), newest(b)];
    const after = chosen(later, b, values.commit, to);
    const usual = earlier === later ? (after.place === to ? from : Math.max(0, after.place - 1)) : newest(a);
    return {before: chosen(earlier, a, values.from, usual), after};
  }

  /** The kernels that are measured in one of these lanes: [{name, slug}]. */
  const kernelsIn = (...lanes) => R.site.kernels.filter(({slug}) => lanes.some(lane => lane.kernels.includes(slug)));

  /** {files, paired}: of each kernel the block of the history that has the commit of a side, and its paired ratios. */
  async function filesOf(side, wanted) {
    const {lane, data, place} = side;
    const paths = kernelsIn(lane)
      .filter(({name}) => wanted === "*" || name === wanted)
      .map(({slug}) => `${lane.slug}/${data.commits[place][4]}/kernel-${slug}`)
      .filter(R.has);
    const [paired, ...files] = await Promise.all([pairedAt(side), ...paths.map(R.data)]);
    return {files, paired};
  }

  /** Map of [kernel, case, backend] to the ratio to a baseline that was timed in the same rounds, at the commit of a side. */
  async function pairedAt({lane, data, place}) {
    const [hash, , , , block] = data.commits[place],
      path = `${lane.slug}/${block}/paired`,
      {commits, baselines, series} = R.has(path) ? await R.data(path) : {commits: [], baselines: [], series: []},
      here = commits.indexOf(hash),
      found = new Map();
    for (const [kernel, name, backend, points] of series) {
      const point = points.find(([at]) => at === here);
      if (!point) continue;
      const [, number, ratio, low, high] = point;
      found.set(key(kernel, name, backend), {with: baselines[number], ratio, low, high});
    }
    return found;
  }

  /** Everything measured at the commit of a side: Map of [kernel, case, backend] to what R.comparison compares. */
  function measuredAt({data, place}, {files, paired}) {
    const [hash] = data.commits[place],
      found = new Map(),
      definitions = new Map(data.definitions.map(([kernel, name, changes]) => [key(kernel, name), changes]));
    const definition = (kernel, name) => {
      const number = (definitions.get(key(kernel, name)) || []).findLast(([from]) => from <= place);
      return number ? data.digests[number[1]] : ["", ""];
    };
    for (const file of files) {
      const {kernel} = file;
      const at = file.commits.findIndex(([commit]) => commit === hash);
      if (at < 0) continue;
      for (const series of file.series) {
        const info = file.cases[series.case],
          side = sideOf(file, series, at);
        if (side)
          found.set(key(kernel, info.name, series.backend), {
            ...side,
            kernel,
            info,
            series,
            file,
            definition: definition(kernel, info.name),
            paired: paired.get(key(kernel, info.name, series.backend)) || null,
          });
      }
    }
    return found;
  }

  function sideOf(file, series, at) {
    const [status, why] = series.bad[at] || ["ok", null];
    if (status === "ok" && series.us[at] === null) return null;
    return {
      status,
      why: why === null ? "" : file.whys[why],
      at,
      us: series.us[at],
      low: series.low[at],
      high: series.high[at],
    };
  }

  /** The baseline that both sides timed in the case, the fastest on side b; null on another machine, whose baseline is another. */
  function baselines(a, b) {
    if (!a || !b || b.series.baseline) return [null, null];
    const timed = one =>
      new Map(
        one.file.series
          .filter(({case: number, baseline, us}) => baseline && number === one.series.case && us[one.at] !== null)
          .map(({backend, us, low, high}) => [
            backend,
            {name: backend, us: us[one.at], low: low[one.at], high: high[one.at]},
          ]),
      );
    const [mine, theirs] = [timed(a), timed(b)];
    const common = [...theirs].filter(([name]) => mine.has(name)).sort(([, x], [, y]) => x.us - y.us)[0];
    return common ? [mine.get(common[0]), common[1]] : [null, null];
  }

  function rowsOf({before, after}, files) {
    const a = measuredAt(before, files[0]),
      b = measuredAt(after, files[1]),
      oneMachine = before.lane.machine === after.lane.machine;
    return [...new Set([...a.keys(), ...b.keys()])].map(name => {
      const [x, y] = [a.get(name) || null, b.get(name) || null],
        [from, to] = oneMachine ? baselines(x, y) : [null, null],
        one = y || x;
      return {
        kernel: one.kernel,
        case: one.info.name,
        backend: one.series.backend,
        baseline: one.series.baseline,
        rate: one.info.rate,
        before: x,
        after: y,
        ...compared(
          x && {...x, baseline: from, paired: oneMachine ? x.paired : null},
          y && {...y, baseline: to, paired: oneMachine ? y.paired : null},
          R.site.limits,
        ),
      };
    });
  }

  /** Sureness times size first, then what cannot be timed, then the rest by name. */
  function ordered(rows) {
    const rank = row => (["broken", "mended"].includes(row.verdict) ? Infinity : (row.least ?? -1));
    return [...rows].sort(
      (x, y) => (rank(y) > rank(x)) - (rank(y) < rank(x)) || Math.abs(y.change ?? 0) - Math.abs(x.change ?? 0),
    );
  }

  /* ---- series of two sides as rows of a table and points of a chart ---- */

  const WORDS = {slower: "▼ slower", faster: "▲ faster", broken: "✕ broken", mended: "✓ mended"};

  const known = row => (row.kind ? row.kind + (row.with ? ", beside " + row.with : "") : "");

  /** "+1.2 %" from a logarithm of speeds. */
  const percent = log => (log === null || log === undefined ? "–" : R.signedPercent(Math.expm1(log)));
  const share = log => (log === null || log === undefined ? null : Number(Math.expm1(log).toPrecision(5)));
  const around = row =>
    row.reach === null || row.reach === undefined
      ? ""
      : `${percent(row.change - row.reach)} to ${percent(row.change + row.reach)}`;

  const valueAt = (row, side) =>
    side && side.us !== null ? R.inRate(side.file, side.series, row.rate)[side.at] : null;
  const shownAt = (row, side) => {
    if (!side) return h("span.muted", "–");
    if (side.us === null) return R.status(side.status, side.why);
    return [R.withUnit(valueAt(row, side), row.rate), h("span.sub", R.duration(side.us))];
  };
  const plainAt = (row, side) =>
    !side ? "" : side.us === null ? side.status : R.withUnit(valueAt(row, side), row.rate);

  const COLUMNS = [
    {
      key: "case",
      cell: row => h("a", {href: historyOf(row)}, foreign(row.case)),
    },
    {key: "kernel", title: "operator"},
    {
      key: "backend",
      cell: row => foreign(row.backend + (row.baseline ? " (baseline)" : "")),
    },
    {
      key: "verdict",
      look: row => row.verdict,
      cell: row => WORDS[row.verdict] || row.verdict,
    },
    {
      key: "change",
      title: "change of speed",
      help: "paired: of the ratios to one baseline, each with its interval from rounds that both ran in; separate: of the ratios to one baseline, with the intervals of all four times; alone: of the two times; with the 99 % interval, the drift between separate runs included",
      number: true,
      value: row => share(row.change),
      cell: row => [
        percent(row.change),
        h("span.sub", around(row)),
        h("span.sub", foreign(known(row))),
      ],
      plain: row => (row.change === undefined ? "" : `${percent(row.change)} (${around(row)}; ${known(row)})`),
    },
    {
      key: "least",
      title: "at least",
      help: "the least change that the interval allows: its size times its sureness; the order of the table",
      number: true,
      value: row => share(row.least),
      cell: row => (row.least > 0 ? R.percent(Math.expm1(row.least)) : "–"),
      plain: row => (row.least > 0 ? R.percent(Math.expm1(row.least)) : ""),
    },
    {
      key: "speed",
      title: "time alone",
      help: "change of the speed without regard to the baseline",
      number: true,
      value: row => share(row.alone),
      cell: row => percent(row.alone),
      plain: row => percent(row.alone),
    },
    {
      key: "us_before",
      title: "before",
      number: true,
      value: row => row.before?.us ?? null,
      cell: row => shownAt(row, row.before),
      plain: row => plainAt(row, row.before),
    },
    {
      key: "us_after",
      title: "after",
      number: true,
      value: row => row.after?.us ?? null,
      cell: row => shownAt(row, row.after),
      plain: row => plainAt(row, row.after),
    },
  ];

  const MEANS = [
    {key: "operator", value: row => row.name},
    {key: "pairs", title: "compared", number: true},
    {key: "slower", number: true},
    {key: "faster", number: true},
    {
      key: "beside",
      title: "vs baseline, geometric mean",
      number: true,
      value: row => share(row.beside),
      cell: row => percent(row.beside),
      plain: row => percent(row.beside),
    },
    {
      key: "alone",
      title: "time alone, geometric mean",
      number: true,
      value: row => share(row.alone),
      cell: row => percent(row.alone),
      plain: row => percent(row.alone),
    },
  ];

  function historyOf(row) {
    const {machine, env} = R.lane(R.state());
    return R.kernelPage(row.kernel, {machine, env, case: row.case, backend: row.backend});
  }

  /** The changes with their intervals, widest certainty first. */
  function picture(rows) {
    const of = (verdicts, tone, turn) => {
      const some = rows.filter(({verdict}) => verdicts(verdict)),
        shares = add => some.map(row => Math.expm1(row.change + add * row.reach));
      return {rows: some, tone, turn, x: shares(0), low: shares(-1), high: shares(1), y: some.map(row => rows.indexOf(row))};
    };
    return {
      label: `Change of speed of ${rows.length} series with 99 % intervals`,
      x: {text: R.signedPercent},
      y: {names: rows.map(row => `${row.case} ${row.backend}`)},
      upright: false,
      level: 0,
      marks: [
        of(verdict => verdict === "slower", "bad", 180),
        of(verdict => verdict === "faster", "good", 0),
        of(verdict => !["slower", "faster"].includes(verdict), "soft", 0),
      ],
      tip,
      picked: row => (location.href = historyOf(row)),
    };
  }

  function tip(row) {
    const facts = [
      ["operator", row.kernel],
      ["backend", row.backend],
      ["change", `${percent(row.change)} (${around(row)})`],
      ["known by", known(row)],
      ["time alone", percent(row.alone)],
      ["before", plainAt(row, row.before)],
      ["after", plainAt(row, row.after)],
    ];
    return R.box(row.case, facts, " ", WORDS[row.verdict] || row.verdict);
  }

  /* ---- any two commits, environments or machines: what moved, by how much and how surely ---- */

  const MOST = 40; // rows of the chart; the table has all
  const MOVED = ["slower", "faster", "broken", "mended"];

  function chooser(title, side, names) {
    const lanes = R.site.lanes.map(lane => [
      lane.slug,
      lane.title + (lane.title === lane.machine ? "" : ` (${lane.machine})`) + (lane.env ? ", " + lane.env : ""),
    ]);
    const commits = side.data.commits
      .map(([hash, date, env, count]) => [hash, `${date.slice(0, 10)}  ${short(hash)}  ${count} series`])
      .reverse();
    const moveTo = slug => {
      const lane = R.site.lanes.find(one => one.slug === slug);
      choose({[names.machine]: lane.machine, [names.env]: lane.env, [names.commit]: "", sort: ""});
    };
    const [hash, , env] = side.data.commits[side.place];
    return h(
      "fieldset",
      h("legend", title),
      pick("machine", lanes, side.lane.slug, moveTo),
      pick("commit", commits, hash, commit => choose({[names.commit]: commit})),
      h("span.hint", R.commitLink(hash), " ", foreign(env)),
      side.unknown
        ? h("span.notice.bad", {role: "alert"}, "The commit that the address names has no record here.")
        : null,
    );
  }

  async function show(values) {
    const both = await sides(values),
      wanted = values.kernel || "*";
    R.header(both.after.lane, change =>
      choose({machine: both.after.lane.machine, env: both.after.lane.env, ...change, commit: "", from: ""}),
    );
    const files = await Promise.all([both.before, both.after].map(side => filesOf(side, wanted)));
    return host => draw(host, values, both, rowsOf(both, files));
  }

  function draw(host, values, both, found) {
    const {before, after} = both,
      everything = values.all === "1";
    const usual = found.filter(row => (everything || !row.baseline) && row.verdict !== "not run");
    const rows = ordered(
      usual.filter(
        row =>
          (everything || MOVED.includes(row.verdict)) &&
          R.matches([row.kernel, row.case, row.backend, row.verdict].join(" "), values.q || ""),
      ),
    );
    const kernels = kernelsIn(before.lane, after.lane).map(({name}) => name);
    const all = h("input", {
      type: "checkbox",
      checked: everything,
      change: event => choose({all: event.target.checked ? "1" : ""}),
    });
    const averages = means(usual, row => row.kernel);
    const total = means(usual, () => "all operators");
    host.replaceChildren(
      h(
        "div.sides",
        chooser("before", before, {machine: "from_machine", env: "from_env", commit: "from"}),
        chooser("after", after, {machine: "machine", env: "env", commit: "commit"}),
      ),
      h(
        "div.tools",
        pick(
          "operator",
          [["*", "all operators"], ...kernels],
          values.kernel || "*",
          kernel => choose({kernel: kernel === "*" ? "" : kernel}),
        ),
        h("label.check", all, " all series, not only what moved"),
        h("button", {type: "button", click: () => choose(swapped(both))}, "⇄ swap sides"),
        h("span.count", {id: "shown", "aria-live": "polite"}, `${rows.length} of ${usual.length} series`),
      ),
      verdicts(usual, both),
      ...R.why(causes(both)),
    );
    const drawn = rows.filter(row => row.reach !== undefined && row.reach !== null).slice(0, MOST);
    if (drawn.length) R.panelChart(host, picture(drawn));
    const table = R.grid({
      caption: "series by how much they surely moved",
      columns: COLUMNS,
      rows,
      ...choose.order("sort"),
      file: "compare",
      markdown: shown => markdown(both, [...averages, ...total], shown),
    });
    if (rows.length) host.append(table);
    else host.append(h("p.notice", nothing(usual)));
    if (averages.length) {
      host.append(
        h(
          "h2",
          "Geometric means ",
          h("span.sub", "of all comparable series, moved or not; above 0 the later side is faster"),
        ),
      );
      host.append(
        R.grid({
          caption: "geometric means by operator",
          columns: MEANS,
          rows: [...averages, ...(averages.length > 1 ? total : [])],
          ...choose.order("means"),
          file: "compare-means",
        }),
      );
    }
    host.append(
      h(
        "p.beside",
        "To reproduce with fresh paired trials, which know 0.1 %: ",
        h(
          "code",
          `ridgeline ab ${short(before.data.commits[before.place][0])} ${short(after.data.commits[after.place][0])}`,
        ),
      ),
    );
  }

  /** What experiments have shown about these two commits on their machine. */
  function causes({before, after}) {
    const [base, head] = [before, after].map(({data, place}) => data.commits[place][0]);
    const same = before.lane.machine === after.lane.machine;
    return same ? (after.data.causes || []).filter(([from, to]) => from === base && to === head).map(([, , one]) => one) : [];
  }

  /** Why the table is empty. */
  function nothing(rows) {
    if (!rows.length) return "The two sides have no series in common.";
    if (rows.every(({alone}) => alone === undefined))
      return "No series was timed on both sides under the same benchmark definition; all series say why not.";
    return "Nothing moved by more than its interval and the drift between separate runs.";
  }

  const swapped = ({before, after}) => ({
    machine: before.lane.machine,
    env: before.lane.env,
    commit: before.data.commits[before.place][0],
    from_machine: after.lane.machine,
    from_env: after.lane.env,
    from: after.data.commits[after.place][0],
  });

  function verdicts(rows, {before, after}) {
    const count = word => rows.filter(row => row.verdict === word).length;
    const tile = (words, text, look) => {
      const sum = words.reduce((total, word) => total + count(word), 0);
      return h(
        "div",
        {class: ["tile", look, sum ? "some" : ""].join(" ")},
        h("strong", String(sum)),
        h("span", text),
      );
    };
    const several = before.lane.machine !== after.lane.machine;
    return h(
      "div",
      h(
        "div",
        {id: "tiles"},
        tile(["slower", "broken"], "slower or broken", "slower"),
        tile(["faster", "mended"], "faster or mended", "faster"),
        tile(["same", "unsure"], "within the intervals"),
        tile(["not comparable"], "not comparable: the benchmark definition differs"),
        tile(["only before", "only after", "no time"], "measured on one side only"),
      ),
      several
        ? h("p.hint", "Two machines: the times alone are compared, since their baselines differ too.")
        : null,
    );
  }

  const markdown = ({before, after}, averages, rows) => {
    const named = ({lane, data, place}) =>
      `${markdownText(short(data.commits[place][0]))} on ${markdownText(lane.machine)} (${markdownText(data.commits[place][2])})`;
    return `**${named(before)} → ${named(after)}**\n\n${R.asMarkdown(averages, MEANS)}\n${R.asMarkdown(rows, COLUMNS)}`;
  };

  const choose = R.view(show);
})();
