/* The page of a pull request: one verdict per machine, and every case with its interval on one axis. */
"use strict";

(() => {
  const R = Ridgeline,
    {h, s, foreign, number, signedPercent, go, fail} = R,
    E = R.event;
  /** Worst first, as the comment has them. */
  const RANK = ["BROKEN", "SLOWER", "CANNOT TELL", "NOT COMPARABLE", "YARDSTICK CHANGED", "NEW", "FASTER", "SAME"];
  const MOVED = new Set(["BROKEN", "SLOWER", "FASTER", "CANNOT TELL", "NOT COMPARABLE", "YARDSTICK CHANGED", "NEW"]);
  const LEAST = 0.02, // half width of the axis: a change of 0.1 % must not fill it
    MOST = 0.5; // a wider interval is cut
  const [WIDTH, HEIGHT] = [240, 18];

  const rank = ({verdict}) => (RANK.includes(verdict) ? RANK.indexOf(verdict) : RANK.length);
  const size = ({ratio}) => (ratio > 0 ? Math.abs(Math.log(ratio)) : null);
  /** The name of a case without its operator and backend: "gemm/triton/m64" -> "m64". */
  const caseOf = ({case: name, kernel, backend}) =>
    name.startsWith(`${kernel}/${backend}/`) ? name.slice(kernel.length + backend.length + 2) : name;

  const chip = verdict => h("span", {class: "verdict-chip " + verdict.toLowerCase().replaceAll(" ", "-")}, verdict);
  const time = seconds => (seconds === null ? "–" : R.duration(seconds * 1e6));

  /* ---- the interval bars ---- */

  /** Half width of the common axis as a share: what the intervals of all cases need. */
  function reach(cases) {
    const ends = cases.flatMap(one => [one.ratio, one.ci_low, one.ci_high]).filter(ratio => ratio > 0);
    return Math.min(MOST, Math.max(LEAST, ...ends.map(ratio => Math.abs(ratio - 1) * 1.1)));
  }

  function bar({ratio, ci_low: low, ci_high: high}, half) {
    if (!(ratio > 0)) return null;
    const x = value => WIDTH / 2 + (Math.max(-half, Math.min(half, value - 1)) / half) * (WIDTH / 2 - 5);
    const side = low > 1 ? "slower" : high !== null && high < 1 ? "faster" : "unsure";
    return s(
      "svg",
      {
        class: "interval " + side,
        width: WIDTH,
        height: HEIGHT,
        viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
        "aria-hidden": "true",
      },
      s("line.none", {x1: WIDTH / 2, x2: WIDTH / 2, y1: 0, y2: HEIGHT}),
      low > 0 && high > 0 ? s("line.range", {x1: x(low), x2: x(high), y1: HEIGHT / 2, y2: HEIGHT / 2}) : null,
      s("circle", {cx: x(ratio), cy: HEIGHT / 2, r: 4}),
    );
  }

  /* ---- a report ---- */

  function caseLink(one) {
    const name = caseOf(one),
      href = R.kernelPage(one.kernel, {case: name, backend: one.backend});
    return [E.link(href, name), h("span.sub", foreign(`${one.kernel} / ${one.backend}`))];
  }

  const changed = one => [one.ratio === null ? "–" : h("strong", signedPercent(one.ratio - 1)), h("span.sub", E.interval(one.ci_low, one.ci_high))];

  const columns = half => [
    {key: "verdict", value: rank, cell: ({verdict}) => chip(verdict), plain: ({verdict}) => verdict},
    {key: "case", cell: caseLink},
    {key: "change", most: true, value: size, help: "head time / base time - 1, with its confidence interval", cell: changed, plain: one => (one.ratio === null ? "" : signedPercent(one.ratio - 1))},
    {key: "interval", value: null, help: "the interval on one axis for all cases; the line is no change", cell: one => bar(one, half), plain: one => E.interval(one.ci_low, one.ci_high) || ""},
    {key: "base_seconds", title: "base", number: true, text: time},
    {key: "head_seconds", title: "head", number: true, text: time},
    {key: "trials", number: true, cell: one => (one.trials ? `${one.trials} × ${one.rounds}` : "–")},
    {key: "why", value: one => one.evidence[0] || null, cell: one => [...one.evidence, ...one.warnings].map(text => h("p", foreign(text)))},
  ];

  const sideName = ({name, commit, dirty}) => [
    name && name !== commit ? [foreign(name), " "] : null,
    commit ? R.commitLink(commit) : "no commit",
    dirty ? " with changes" : null,
  ];

  function heading({verdict, why, title, base, head, machine, cases, links}) {
    const counts = RANK.map(name => [name, cases.filter(one => one.verdict === name).length]).filter(([, n]) => n);
    const device = [machine.count > 1 ? machine.count + " ×" : "", machine.device || machine.name || ""]
      .join(" ")
      .trim();
    return [
      h("h1.report-head", chip(verdict), " ", foreign(why)),
      h(
        "p.looked",
        foreign(title),
        ": ",
        sideName(head),
        " against ",
        sideName(base),
        device
          ? [
              " on ",
              foreign(device),
              machine.name && machine.name !== device ? [" (", foreign(machine.name), ")"] : null,
            ]
          : null,
        ". ",
        counts.map(([name, n]) => `${n} ${name}`).join(" · "),
      ),
      base.commit && head.commit
        ? E.command(["Measure it again", `ridgeline ab ${R.short(base.commit)} ${R.short(head.commit)}`])
        : null,
      Object.keys(links).length
        ? h(
            "p",
            Object.entries(links).flatMap(([label, url], n) => [
              n ? " · " : null,
              foreign(label),
              ": ",
              E.outside(url),
            ]),
          )
        : null,
    ];
  }

  function groups(found) {
    return found.map(group =>
      h(
        "p",
        {class: "notice " + (group.direction === "slower" ? "bad" : "")},
        h(
          "strong",
          foreign(`${group.kernel} / ${group.backend}`),
          ` ${signedPercent(group.ratio - 1)} of the time`,
        ),
        ` (${E.interval(group.ci_low, group.ci_high)}) on ${E.several(group.cases.length, "case")}: `,
        foreign(group.evidence),
      ),
    );
  }

  const FLOORS = [
    {key: "case"},
    {key: "state"},
    {key: "floor", value: floor => `${number(floor.bound, 3)} × ${floor.baseline}`},
    {key: "found", value: ({share, share_low: low, share_high: high}) => (share === null ? "–" : `${number(share, 3)} × (${number(low, 3)} to ${number(high, 3)})`)},
    {key: "reason"},
  ];

  const floors = rows => rows.length && [h("h2", "Floors against the baseline"), R.grid({caption: "floors", columns: FLOORS, rows, file: "floors"})];

  const part = (title, ...content) => [
    h("h2", title),
    h("div.scroll", {tabindex: "0", role: "region", "aria-label": title}, content),
  ];
  const list = items =>
    h(
      "ul.absent",
      items.map(item => h("li", item)),
    );

  function report(found, values, key) {
    const rows = [...found.cases]
      .sort((a, b) => rank(a) - rank(b) || (size(b) ?? Infinity) - (size(a) ?? Infinity))
      .filter(one => (values.all === "1" || values.q || MOVED.has(one.verdict)) && R.matches([one.case, one.verdict].join(" "), values.q || ""));
    const sorted = next => {
      go({[key]: next});
      show().catch(fail);
    };
    const table = R.grid({caption: "cases of this report", columns: columns(reach(rows)), rows, sort: values[key], sorted, file: "report"});
    const skipped = found.skipped.map(({what, status, why}) => [
      R.status(status),
      " ",
      foreign(what),
      ": ",
      foreign(why),
    ]);
    return {
      count: rows.length,
      nodes: [
        heading(found),
        groups(found.groups),
        R.why(found.explanations),
        rows.length ? table : h("p.muted", "No case moved."),
        floors(found.floors) || null,
        found.warnings.length ? part("What makes it less sure", list(found.warnings.map(foreign))) : null,
        skipped.length ? part("Not measured", list(skipped)) : null,
      ].flat(3),
    };
  }

  async function show() {
    const {reports} = await R.load("views/pull_request"),
      values = R.state(),
      host = document.getElementById("reports");
    const input = document.getElementById("filter");
    if (input !== document.activeElement) input.value = values.q || "";
    document.getElementById("all").checked = values.all === "1";
    const drawn = reports.map((one, n) => report(one, values, n ? "by" + n : "by"));
    R.keepFocus(host, () => host.replaceChildren(...drawn.map(({nodes}) => h("section.report", nodes))));
    const cases = reports.reduce((sum, one) => sum + one.cases.length, 0),
      shown = drawn.reduce((sum, {count}) => sum + count, 0);
    document.getElementById("shown").textContent = `${shown} of ${E.several(cases, "case")}`;
    document.getElementById("nothing").hidden = shown > 0;
  }

  document.addEventListener("DOMContentLoaded", () => {
    const all = document.getElementById("all");
    R.filterKeys(document.getElementById("filter"), query => {
      R.setState({q: query.trim()});
      show().catch(fail);
    });
    all.addEventListener("change", () => {
      go({all: all.checked ? "1" : ""});
      show().catch(fail);
    });
    if (R.site.lanes.length) R.header(R.lane(R.state()), change => go(change));
    window.addEventListener("hashchange", () => show().catch(fail));
    show().catch(fail);
  });
})();
