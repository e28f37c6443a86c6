/* The front page: history of the headline cases, the verdict, and the newest numbers. */

/* The first picture of the front page: the history of one headline case of each kernel, unit by unit. */
"use strict";

(() => {
  const R = Ridgeline,
    {h, foreign, commitLink, go, grouped, fail} = R,
    E = R.event;
  /** A picture for each kernel and unit: its headline case, dotted the baseline beside it, and their ratio below.
   *
   * history: as dashboards/overview.py gives it; commits: [[hash, date]]; page(kernel, values): address of its page;
   * unmeasured: [[hash, date, [kernel], hash of the commit with the same files, why there is no number]].
   */
  function headlines(host, history, commits, page, unmeasured) {
    host.hidden = history.length === 0;
    const pictures = history.flatMap(({unit, lines}) => [...grouped(lines, line => line.kernel)].map(([, own]) => picture(unit, own, commits, page)));
    host.replaceChildren(h("h2", "History of the headline cases"), h("div.pictures", pictures), ...absent(unmeasured));
  }

  /** Commits that have no number of some kernel, with the reason, and those that share another's: they are no points. */
  function absent(unmeasured) {
    const row = ([hash, date, kernels, same, why]) =>
      h("li", commitLink(hash), ` ${new Date(date).toISOString().slice(0, 10)} ${kernels.filter(Boolean).join(", ") || "all kernels"}: `, same ? ["the same files as ", commitLink(same)] : foreign(why));
    const fold = (rows, words, open) =>
      rows.length > 0 && h("details.fold", {open}, h("summary", `${E.several(new Set(rows.map(([hash]) => hash)).size, "commit")} ${words}`), h("ul.absent", rows.map(row)));
    const [failed, shared] = [unmeasured.filter(one => one[4]), unmeasured.filter(one => !one[4])];
    return [fold(failed, "could not be measured", true), fold(shared, "with the files of another commit for some kernel", false)].filter(Boolean);
  }

  const AROUND = 3; // commits on either side of the one that was clicked: its history, machine code and counts

  function picture(unit, lines, commits, page) {
    const at = [...new Set(lines.flatMap(line => line.at))].sort((a, b) => a - b);
    const drawn = lines.map(line => {
      const placed = values => {
        const found = new Map(line.at.map((i, k) => [i, values[k]]));
        return at.map(i => found.get(i));
      };
      return {
        ...line,
        ratios: placed(line.ratios),
        name: `${line.kernel} ${line.case} ${line.backend}`,
        y: placed(line.values),
        color: "var(--series-0)",
        dash: line.baseline ? "2 3" : null,
        quiet: line.baseline,
      };
    });
    const area = h("div.chart-area"),
      words = `over ${at.length} ${at.length === 1 ? "commit" : "commits"}`,
      figure = h("figure", h("figcaption", foreign(lines[0].kernel), h("span.sub", `${unit} ${words}`)), area, h("div.legend", drawn.map(line => legend(line, page)))),
      [own, beside] = drawn,
      name = i => R.short(commits[at[Math.min(Math.max(i, 0), at.length - 1)]][0]);
    const spec = {
      lines: drawn,
      label: `${lines[0].kernel}: ${unit} ${words}`,
      x: {count: at.length, tick: i => [commits[at[i]][1].slice(0, 10), R.short(commits[at[i]][0])]},
      y: {title: unit, tick: R.tick, log: spread(drawn) > 20},
      lanes: beside ? [{name: `of ${beside.backend}`, values: own.ratios.map(ratio => ratio ?? undefined), text: value => `${value.toFixed(3)} ×`}] : [],
      tip: i => tip(drawn, i, commits[at[i]], beside && own.ratios[i]),
      picked: i => (location.href = page(own.kernel, {case: own.case, backend: own.backend, from: name(i - AROUND), to: name(i + AROUND)})),
      zoomed: range => {
        spec.range = range;
        chart.redraw(spec);
      },
    };
    const chart = R.chart(area, spec);
    return figure;
  }

  /** Largest value / smallest value of some lines. */
  function spread(lines) {
    const values = lines.flatMap(line => line.values).filter(value => value > 0);
    return Math.max(...values) / Math.min(...values);
  }

  function legend({kernel, case: name, backend, baseline, color, dash, rate}, page) {
    const words = baseline ? foreign(backend) : [h("a", {href: page(kernel, {case: name, backend})}, foreign(`${name} / ${backend}`)), rate.endsWith("bw") ? h("span.sub", " " + R.RATES[rate].name) : null];
    return h("span", R.sample(color, dash), " ", words);
  }

  function tip(lines, i, [hash, date], ratio) {
    const said = lines.filter(line => line.y[i] !== undefined).map(line => h("p", h("strong", R.withUnit(line.y[i], line.rate)), " ", foreign(line.backend)));
    const beside = ratio ? h("p", h("strong", `${ratio.toFixed(3)} ×`), " ", foreign(lines[1].backend)) : "";
    return [h("p.tip-head", h("code", R.short(hash)), " ", date), ...said, beside];
  }

  /* The front page's verdict: what is slower than it was, since when, by whom and how surely; then everything else.
   */

  const UNDECIDED = 50; // rows of the list of undecided series; the rest is counted

  const slower = event => event.kind === "kernel" && event.direction === "slower";

  /** [name in the address, title of n, which events]; the first part is always open, the others fold. */
  const PARTS = [
    [
      "improvements",
      n => E.several(n, "improvement"),
      event => E.isOpen(event) && event.kind === "kernel" && event.direction === "faster",
    ],
    [
      "machines",
      n => E.several(n, "event of a machine", "events of machines"),
      event => E.isOpen(event) && event.kind === "machine",
    ],
    [
      "libraries",
      n => E.several(n, "event of a vendor's library", "events of vendors' libraries"),
      event => E.isOpen(event) && event.kind === "library",
    ],
    [
      "configurations",
      n => E.several(n, "best configuration moved", "best configurations moved"),
      event => E.isOpen(event) && event.kind === "configuration",
    ],
    ["code", n => E.several(n, "change of machine code", "changes of machine code"), event => event.kind === "code"],
    ["closed", n => `${n.toLocaleString("en-US")} closed`, event => !E.isOpen(event) && event.kind !== "code"],
  ];

  /** "2 fixed, 1 accepted": closed events by their state. */
  function byState(events) {
    const states = [...grouped(events, ({state}) => state)];
    return states.map(([state, {length}]) => `${length.toLocaleString("en-US")} ${state}`).join(", ");
  }

  function headline(open) {
    if (open.length === 0) return h("h1.verdict.good", "No regression is open on main");
    const owned = open.filter(event => event.owner).length;
    return h(
      "h1.verdict.bad",
      `${E.several(open.length, "regression")} open on main`,
      h(
        "span.sub",
        owned === open.length ? "each has an owner" : `${open.length - owned} without an owner`,
      ),
    );
  }

  function looked({machines, series, points, commits, newest}) {
    if (!newest) return h("p.looked", "No time has been measured yet.");
    return h(
      "p.looked",
      `Looked at ${E.several(series, "series", "series")} with ${E.several(points, "point")} of ${E.several(commits, "commit")} on ${E.several(machines, "machine")}; newest commit `,
      commitLink(newest.hash),
      ` of ${R.day(newest.date_ms)}. `,
      h("a", {href: R.root + "events.html"}, "All events"),
      " · ",
      h("a", {href: R.root + "feed.xml"}, "feed"),
    );
  }

  /** A part that folds; `content()` is made when it is first opened. */
  function fold(name, title, content, forced) {
    const opened = forced || R.listed("open").has(name),
      element = h(
        "details.fold",
        {id: "fold-" + name, open: opened},
        h("summary", title),
        opened ? content() : null,
      );
    element.addEventListener("toggle", () => {
      if (element.open && element.children.length === 1) element.append(content());
      const open = R.listed("open");
      if (open.has(name) === element.open) return;
      if (!open.delete(name)) open.add(name);
      go({open: R.listing(open)});
    });
    return element;
  }

  function undecidedList(rows) {
    const items = rows
      .slice(0, UNDECIDED)
      .map(row =>
        h(
          "li",
          E.link(
            R.kernelPage(row.kernel, {machine: row.machine, case: row.case, backend: row.backend}),
            `${row.kernel} / ${row.case} / ${row.backend}`,
          ),
          ` ${R.signedPercent(row.speed)} speed at `,
          commitLink(row.at),
          " on ",
          foreign(row.machine),
        ),
      );
    const more = rows.length - items.length;
    return h(
      "div",
      h(
        "p.muted",
        "The newest point lies apart from the one before, and one point is no step: the next record decides.",
      ),
      h(
        "ul.undecided",
        items,
        more > 0 ? h("li.muted", `and ${more.toLocaleString("en-US")} more`) : null,
      ),
    );
  }

  function drawVerdict(host, data) {
    const {events, undecided} = data,
      chosen = R.state().event || null;
    const toggle = event => {
      go({event: chosen === event.id ? "" : event.id});
      R.keepFocus(host, () => drawVerdict(host, data));
    };
    const table = (members, key, caption) => {
      const area = h("div");
      R.eventTable(area, members, {caption, key, chosen, toggle});
      return area;
    };
    const open = events.filter(event => slower(event) && E.isOpen(event));
    const parts = PARTS.map(([name, title, wanted]) => [name, title, events.filter(wanted)]).filter(
      ([, , members]) => members.length,
    );
    const folds = parts.map(([name, title, members]) => {
      const text = name === "closed" ? `${title(members.length)}: ${byState(members)}` : title(members.length);
      return fold(
        name,
        text,
        () => table(members, "by-" + name, text),
        members.some(({id}) => id === chosen),
      );
    });
    if (undecided.length) {
      const place = parts.findIndex(([name]) => name !== "improvements");
      folds.splice(
        place < 0 ? folds.length : place,
        0,
        fold("undecided", `${undecided.length.toLocaleString("en-US")} undecided`, () => undecidedList(undecided)),
      );
    }
    host.replaceChildren(
      headline(open),
      looked(data.looked),
      ...data.notes.map(text => h("p.looked", foreign(text + "."))),
      ...(open.length ? [table(open, "by", "open regressions")] : []),
      h("div.folds", folds),
    );
  }

  async function showVerdict() {
    const host = document.getElementById("events");
    if (!host) return;
    const [events, verdict] = await Promise.all([R.events(), R.load("views/verdict")]);
    drawVerdict(host, {...events, ...verdict});
    delete host.dataset.busy;
  }

  document.addEventListener("DOMContentLoaded", () => {
    if (R.site.lanes.length === 0) return;
    window.addEventListener("hashchange", () => showVerdict().catch(fail));
    showVerdict().catch(fail);
  });

  /* The overview: newest numbers of every kernel on one machine, and what was not measured there.
   *  * A long table is built in slices, so that the page answers at once: its first rows stand when the data are there, the
   * others follow within a second.  All rows end up in the document, so the browser's search, the keyboard and the printer
   * find them; printing waits for none: what is missing is added before.
   */

  const FIRST = 80; // rows that are drawn at once: more than a window shows
  const SLICE = 24; // milliseconds of building before the page may answer again
  const view = {rows: [], commits: [], absent: [], baselines: new Map(), query: "", all: false, only: "", rest: null};

  const {newest: value, share, ratio, step} = R.MEASURED;
  const COLUMNS = [
    {title: "case", value: row => row.case, cell: caseCell},
    {title: "backend", value: row => row.backend, cell: row => h("td", foreign(row.backend))},
    ...[value, share, ratio, step],
    {title: "history", help: R.HELP.history, cell: sparkCell},
    {title: "commit", value: row => row.good_at ?? row.at, cell: commitCell},
  ];

  const FILTERS = new Map([
    ["slower", row => row.step && row.step.moved === "slower"],
    ["faster", row => row.step && row.step.moved === "faster"],
    ["behind", row => row.ratio !== null && row.ratio !== undefined && row.ratio < 1],
    ["unmeasured", row => row.here && row.status !== "ok"],
  ]);

  /** Addresses of kernels' pages on this machine. */
  function kernelPages() {
    const slugs = new Map(R.site.kernels.map(({name, slug}) => [name, slug])),
      {machine, env} = R.lane(R.state());
    return (kernel, values = {}) => "kernels/" + slugs.get(kernel) + ".html" + R.hashOf({machine, env, ...values});
  }

  function bodyRow(row) {
    const line = h("tr", {class: row.status === "ok" ? null : "gone"}, COLUMNS.map(({cell}) => cell(row)));
    return R.labelled(line, COLUMNS);
  }

  function caseCell(row) {
    return h(
      "th",
      {scope: "row"},
      h("a", {href: view.page(row.kernel, {case: row.case, backend: row.backend})}, foreign(row.case)),
      h("span.sub", [row.dtype, row.world > 1 ? row.world + " ranks" : ""].filter(Boolean).join(", ")),
    );
  }

  function commitCell(row) {
    const at = row.good_at ?? row.at,
      old = at < view.commits.length - 1,
      [hash, date] = view.commits[at];
    return h(
      "td",
      {class: old ? "commit muted" : "commit", title: old ? "not measured at the newest commit" : null},
      commitLink(hash),
      h("span.sub", date.slice(0, 10)),
    );
  }

  const sparks = R.drawings();

  function sparkCell(row) {
    const cell = h("td.history");
    sparks.add(cell, () => cell.append(R.spark(row.spark, row.rate)));
    return cell;
  }

  /** What a kernel has besides the rows that are shown: "12 more, 94 never measured here, beside hipblaslt". */
  function besides(kernel, shown) {
    const all = view.byKernel.get(kernel),
      never = all.filter(row => !row.here && !row.gone && !shown.has(row)).length,
      more = all.filter(row => row.here && !shown.has(row)).length,
      vendors = view.baselines.get(kernel) || [];
    return [
      more ? `${more} more` : "",
      never ? `${never} cannot be measured here` : "",
      vendors.length ? [`beside ${vendors.length === 1 ? "" : vendors.length + (view.cpu ? " baselines: " : " vendor libraries: ")}`, foreign(vendors.join(", "))] : "",
    ]
      .filter(Boolean)
      .flatMap((text, n) => (n ? [", ", text].flat() : text));
  }

  function groupHead(kernel, shown) {
    return h(
      "tr.group",
      h(
        "th",
        {scope: "rowgroup", colspan: COLUMNS.length},
        h("a", {href: view.page(kernel)}, foreign(kernel)),
        h("span.sub", besides(kernel, shown)),
      ),
    );
  }

  /** Rows of the headlines; all with a number or a failure; of what was never tried here those that are asked for. */
  function shown(order) {
    const wanted = FILTERS.get(view.only) || (row => view.query || (view.all ? row.here : row.headline));
    const rows = view.rows.filter(row => !row.gone && wanted(row) && R.matches(row.text, view.query));
    return R.inOrder(rows, COLUMNS, order);
  }

  function draw() {
    const order = R.orderIn("sort", COLUMNS),
      rows = shown(order),
      table = document.getElementById("kernels");
    R.drawHead(table, COLUMNS, "sort", order, draw);
    sparks.clear();
    for (const body of [...table.tBodies]) body.remove();
    drawRows(table, rows);
    const never = view.rows.filter(row => !row.here && !row.gone).length,
      hint = never && !view.query && !view.only ? `; ${never} cannot be measured here` : "";
    document.getElementById("shown").textContent = `${rows.length} of ${view.declared.length} series` + hint;
    document.getElementById("nothing").hidden = rows.length > 0;
    for (const tile of document.querySelectorAll(".tile[aria-pressed]"))
      tile.setAttribute("aria-pressed", String(tile.dataset.only === view.only));
  }

  /** The first rows at once, the rest in slices outside of the document, which then come in together. */
  function drawRows(table, rows) {
    const lines = linesOf(rows),
      rest = new Set();
    const take = (bodies, most) => {
      for (let next; most > 0 && !(next = lines.next()).done; most--) bodies.add(next.value);
      return most > 0; // that was all
    };
    clearTimeout(view.rest?.timer);
    view.rest = null;
    const first = new Set(),
      whole = take(first, FIRST);
    table.append(...first);
    if (whole) return;
    const later = {timer: setTimeout(slice, 0), finish};
    view.rest = later;
    table.dataset.building = "1";
    function finish() {
      clearTimeout(later.timer);
      take(rest, Infinity);
      table.append(...rest);
      view.rest = null;
      delete table.dataset.building;
    }
    function slice() {
      const end = performance.now() + SLICE;
      while (performance.now() < end) if (take(rest, 20)) return finish();
      later.timer = setTimeout(slice, 0);
    }
  }

  /** The bodies of the table, kernel by kernel; each is given once for every line that it got. */
  function* linesOf(rows) {
    view.page = kernelPages();
    const visible = new Set(rows),
      groups = grouped(rows, ({kernel}) => kernel);
    if (!view.query && !view.only) for (const kernel of elsewhereOnly()) groups.set(kernel, []); // a line with their count
    for (const [kernel, members] of groups) {
      const body = h("tbody", groupHead(kernel, visible));
      yield body;
      for (const row of members) {
        body.append(bodyRow(row));
        yield body;
      }
    }
  }

  /** Kernels of which nothing can be measured on this machine. */
  const elsewhereOnly = () => [...view.byKernel].filter(([, all]) => all.every(row => !row.here) && all.some(row => !row.gone)).map(([kernel]) => kernel);

  /* ---- the tiles on top ---- */

  function geometricMean(values) {
    return values.length ? Math.exp(values.reduce((sum, value) => sum + Math.log(value), 0) / values.length) : null;
  }

  function tile(label, value, help, only) {
    if (!only) return h("div.tile", {title: help}, h("strong", value), h("span", label));
    return h(
      "button",
      {
        type: "button",
        class: `tile ${only}${value === "0" ? "" : " some"}`,
        "data-only": only,
        "aria-pressed": "false",
        title: help,
        click: () => {
          view.only = view.only === only ? "" : only;
          go({only: view.only});
          draw();
        },
      },
      h("strong", value),
      h("span", label),
    );
  }

  function tiles() {
    const count = only => String(view.declared.filter(FILTERS.get(only)).length),
      kernels = new Set(view.declared.map(row => row.kernel)).size;
    const ratios = view.declared.filter(row => row.ratio > 0 && row.status === "ok").map(row => row.ratio);
    const mean = geometricMean(ratios);
    document
      .getElementById("tiles")
      .replaceChildren(
        tile(
          view.declared.length === 1 ? "series" : `series of ${kernels} ${kernels === 1 ? "kernel" : "kernels"}`,
          String(view.declared.length),
          "one series is one case with one backend",
        ),
        view.cpu // no vendor's library runs there
          ? ""
          : tile(
              "vs vendor libraries, geometric mean",
              mean === null ? "–" : R.number(mean, 3) + " ×",
              `time of the fastest vendor library / our time, over ${ratios.length} series; above 1 ours is faster`,
            ),
        tile("slower than the commit before", count("slower"), "show only these", "slower"),
        tile("faster than the commit before", count("faster"), "show only these", "faster"),
        view.cpu ? "" : tile("behind their baseline", count("behind"), "show only these", "behind"),
        tile("not measured", count("unmeasured"), "show only these; the reasons are below the table", "unmeasured"),
      );
  }

  /** Of how many numbers the newest commit is true. */
  function newest({at, measured, of}) {
    const host = document.getElementById("newest"),
      [hash, date] = view.commits[at] || [];
    host.hidden = !hash;
    if (!hash) return;
    const all = measured === of && of > 0;
    host.replaceChildren(
      all ? "All numbers are of the newest commit, " : `${measured} of ${of} numbers are of the newest commit, `,
      commitLink(hash),
      date ? ` of ${date.slice(0, 10)}` : "",
      all ? "." : "; the others are older, each row names its commit.",
    );
  }

  /* ---- what was not measured, and why ---- */

  function absences(broken) {
    const host = document.getElementById("absent"),
      page = kernelPages(),
      groups = grouped(view.absent, ({status, why}) => JSON.stringify([status, why]));
    const {problems} = R.site;
    host.replaceChildren(
      ...broken.map(({module, why}) =>
        absence("broken", "broken module", [h("code", foreign(module)), " ", h("span.why", foreign(why))]),
      ),
      ...[...groups.values()].filter(gaps => !notForHere(gaps[0])).map(gaps => reason(gaps, page)),
      elsewhere(
        [...groups.values()].filter(gaps => notForHere(gaps[0])),
        page,
      ),
      ...problems.map(text => absence("unsupported", "left out", [foreign(text)])),
    );
    document.getElementById("all-measured").hidden = view.absent.length + broken.length + problems.length > 0;
  }

  const absence = (status, label, content) => h("li", h("span", {class: "status " + status}, label), " ", content);

  const notForHere = ({status}) => status === "unsupported" || status === "skipped";

  /** What cannot be measured on this machine: one line, which opens to the reasons. */
  function elsewhere(groups, page) {
    const count = groups.reduce((sum, gaps) => sum + gaps.length, 0);
    if (!count) return "";
    const fold = h("details", h("summary", `${count} series cannot be measured on this machine`));
    fold.addEventListener("toggle", () => fold.children.length > 1 || fold.append(h("ul.absent", groups.map(gaps => reason(gaps, page)))));
    return h("li", fold);
  }

  const MOST = 8; // arms of a reason that are listed at once

  function reason(gaps, page) {
    const why = h("span.why", foreign(gaps[0].why || "no reason was recorded"));
    if (gaps.length <= MOST) return absence(gaps[0].status, gaps[0].status, [why, arms(gaps, page)]);
    const list = h("details", h("summary", `${gaps.length} cases`));
    list.addEventListener("toggle", () => list.children.length > 1 || list.append(arms(gaps, page)));
    return absence(gaps[0].status, gaps[0].status, [why, list]);
  }

  function arms(gaps, page) {
    const items = gaps.map(gap =>
      h(
        "li",
        h("a", {href: page(gap.kernel, {case: gap.case, backend: gap.backend})}, foreign(`${gap.kernel} / ${gap.case} / ${gap.backend}`)),
        " at ",
        commitLink(view.commits[gap.at][0]),
      ),
    );
    return h("ul", items);
  }

  /* ---- the page ---- */

  const textOf = row => [row.kernel, row.case, row.backend, row.dtype, row.status, row.world + "ranks"].join(" ").toLowerCase();

  function receive(data) {
    for (const row of data.rows) row.text = textOf(row);
    const byKernel = grouped(data.rows, ({kernel}) => kernel);
    const {rows, commits, absent, cpu} = data,
      declared = rows.filter(row => !row.gone);
    Object.assign(view, {rows, declared, commits, absent, cpu, byKernel, baselines: new Map(data.baselines)});
  }

  async function show() {
    const values = R.state(),
      lane = R.lane(values);
    if (!lane) return;
    R.header(lane, change => {
      go({machine: lane.machine, env: lane.env, ...change});
      show().catch(fail);
    });
    Object.assign(view, {
      only: FILTERS.has(values.only) ? values.only : "",
      query: values.q || "",
      all: values.all === "1",
    });
    document.getElementById("filter").value = view.query;
    document.getElementById("all").checked = view.all;
    const data = await R.load(lane.slug + "/overview");
    if (R.lane(R.state()) !== lane) return;
    receive(data);
    headlines(document.getElementById("history"), data.history, data.commits, kernelPages(), data.unmeasured);
    tiles();
    newest(data.newest);
    draw();
    absences(data.broken);
    R.downloads(lane.slug + "/overview");
  }

  document.addEventListener("DOMContentLoaded", () => {
    if (R.site.lanes.length === 0) return;
    const all = document.getElementById("all");
    R.filterKeys(document.getElementById("filter"), query => {
      view.query = query.trim();
      R.setState({q: view.query});
      draw();
    });
    all.addEventListener("change", () => {
      view.all = all.checked;
      go({all: view.all ? "1" : ""});
      draw();
    });
    window.addEventListener("hashchange", () => show().catch(fail));
    window.addEventListener("beforeprint", () => {
      view.rest?.finish();
      sparks.all();
    });
    show().catch(fail);
  });
})();
