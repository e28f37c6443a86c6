/* Any two commits, environments or machines: what moved, by how much and how surely. */
"use strict";

(() => {
  const R = Ridgeline,
    {h} = R,
    {means} = R.comparison,
    {sides, kernelsIn, filesOf, rowsOf, ordered} = R.sides,
    {COLUMNS, MEANS, picture} = R.changes;
  const MOST = 40; // rows of the chart; the table has all
  const MOVED = ["slower", "faster", "broken", "mended"];

  function chooser(title, side, names) {
    const lanes = R.site.lanes.map(lane => [
      lane.slug,
      lane.title + (lane.title === lane.machine ? "" : ` (${lane.machine})`) + (lane.env ? ", " + lane.env : ""),
    ]);
    const commits = side.data.commits
      .map(([hash, date, env, count]) => [hash, `${date.slice(0, 10)}  ${R.short(hash)}  ${count} series`])
      .reverse();
    const moveTo = slug => {
      const lane = R.site.lanes.find(one => one.slug === slug);
      choose({[names.machine]: lane.machine, [names.env]: lane.env, [names.commit]: "", sort: ""});
    };
    const [hash, , env] = side.data.commits[side.place];
    return h(
      "fieldset",
      {},
      h("legend", {}, title),
      R.pick("machine", lanes, side.lane.slug, moveTo),
      R.pick("commit", commits, hash, commit => choose({[names.commit]: commit})),
      h("span", {class: "hint"}, R.commitLink(hash), " ", R.foreign(env)),
      side.unknown
        ? h("span", {class: "notice bad", role: "alert"}, "The commit that the address names has no record here.")
        : null,
    );
  }

  async function show(values, current) {
    const both = await sides(values),
      wanted = values.kernel || "*";
    R.header(both.after.lane, change =>
      choose({machine: both.after.lane.machine, env: both.after.lane.env, ...change, commit: "", from: ""}),
    );
    const files = await Promise.all([both.before, both.after].map(side => filesOf(side, wanted)));
    if (!current()) return;
    const host = document.getElementById("view");
    R.keepFocus(host, () => draw(host, values, both, rowsOf(both, files)));
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
        "div",
        {class: "sides"},
        chooser("before", before, {machine: "from_machine", env: "from_env", commit: "from"}),
        chooser("after", after, {machine: "machine", env: "env", commit: "commit"}),
      ),
      h(
        "div",
        {class: "tools"},
        R.pick(
          "operator",
          [["*", "all operators"], ...kernels.map(name => [name, name])],
          values.kernel || "*",
          kernel => choose({kernel: kernel === "*" ? "" : kernel}),
        ),
        h("label", {class: "check"}, all, " all series, not only what moved"),
        h("button", {type: "button", click: () => choose(swapped(both))}, "⇄ swap sides"),
        h("span", {class: "count", id: "shown", "aria-live": "polite"}, `${rows.length} of ${usual.length} series`),
      ),
      verdicts(usual, both),
      ...R.why(causes(both)),
    );
    const drawn = rows.filter(row => row.reach !== undefined && row.reach !== null).slice(0, MOST);
    if (drawn.length) R.plot(host).draw(picture(drawn));
    const table = R.grid({
      caption: "series by how much they surely moved",
      columns: COLUMNS,
      rows,
      sort: values.sort,
      sorted: sort => choose({sort}),
      file: "compare",
      markdown: shown => markdown(both, [...averages, ...total], shown),
    });
    if (rows.length) host.append(table);
    else host.append(h("p", {class: "notice"}, nothing(usual)));
    if (averages.length) {
      host.append(
        h(
          "h2",
          {},
          "Geometric means ",
          h("span", {class: "sub"}, "of all comparable series, moved or not; above 0 the later side is faster"),
        ),
      );
      host.append(
        R.grid({
          caption: "geometric means by operator",
          columns: MEANS,
          rows: [...averages, ...(averages.length > 1 ? total : [])],
          sort: values.means,
          sorted: sort => choose({means: sort}),
          file: "compare-means",
        }),
      );
    }
    host.append(
      h(
        "p",
        {class: "beside"},
        "To reproduce with fresh paired trials, which know 0.1 %: ",
        h(
          "code",
          {},
          `ridgeline ab ${R.short(before.data.commits[before.place][0])} ${R.short(after.data.commits[after.place][0])}`,
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
        h("strong", {}, String(sum)),
        h("span", {}, text),
      );
    };
    const several = before.lane.machine !== after.lane.machine;
    return h(
      "div",
      {},
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
        ? h("p", {class: "hint"}, "Two machines: the times alone are compared, since their baselines differ too.")
        : null,
    );
  }

  const markdown = ({before, after}, averages, rows) => {
    const named = ({lane, data, place}) =>
      `${R.markdownText(R.short(data.commits[place][0]))} on ${R.markdownText(lane.machine)} (${R.markdownText(data.commits[place][2])})`;
    return `**${named(before)} → ${named(after)}**\n\n${R.asMarkdown(averages, MEANS)}\n${R.asMarkdown(rows, COLUMNS)}`;
  };

  const choose = R.view(show);
})();
