/* The overview: newest numbers of every kernel on one machine, and what was not measured there.
 *
 * A long table is built in slices, so that the page answers at once: its first rows stand when the data are there, the
 * others follow within a second.  All rows end up in the document, so the browser's search, the keyboard and the printer
 * find them; printing waits for none: what is missing is added before.
 */
"use strict";

(() => {
  const R = Ridgeline,
    {h, foreign} = R;
  const FIRST = 80; // rows that are drawn at once: more than a window shows
  const SLICE = 24; // milliseconds of building before the page may answer again
  const view = {rows: [], commits: [], absent: [], baselines: new Map(), query: "", all: false, only: "", rest: null};

  const {newest: value, share, ratio, step} = R.MEASURED;
  const COLUMNS = [
    {title: "case", value: row => row.case, cell: caseCell},
    {title: "backend", value: row => row.backend, cell: row => h("td", {}, foreign(row.backend))},
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
      h("span", {class: "sub"}, [row.dtype, row.world > 1 ? row.world + " ranks" : ""].filter(Boolean).join(", ")),
    );
  }

  function commitCell(row) {
    const at = row.good_at ?? row.at,
      old = at < view.commits.length - 1,
      [hash, date] = view.commits[at];
    return h(
      "td",
      {class: old ? "commit muted" : "commit", title: old ? "not measured at the newest commit" : null},
      R.commitLink(hash),
      h("span", {class: "sub"}, date.slice(0, 10)),
    );
  }

  /* Drawings of thousands of rows take longer than all else: a cell gets its line when it comes near the window, and
   * all of them before the page is printed. */
  const waiting = new Map();
  const near = new IntersectionObserver(
    found => found.filter(entry => entry.isIntersecting).forEach(entry => drawSpark(entry.target)),
    {rootMargin: "600px"},
  );

  function sparkCell(row) {
    const cell = h("td", {class: "history"});
    waiting.set(cell, row);
    near.observe(cell);
    return cell;
  }

  function drawSpark(cell) {
    const row = waiting.get(cell);
    near.unobserve(cell);
    waiting.delete(cell);
    if (row) cell.append(R.spark(row.spark, row.rate));
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
      "tr",
      {class: "group"},
      h(
        "th",
        {scope: "rowgroup", colspan: COLUMNS.length},
        h("a", {href: view.page(kernel)}, foreign(kernel)),
        h("span", {class: "sub"}, besides(kernel, shown)),
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
    table.tHead.replaceChildren(
      h(
        "tr",
        {},
        R.headCells(COLUMNS, order, next => {
          R.go({sort: next});
          R.keepFocus(table.tHead, draw);
        }),
      ),
    );
    near.disconnect();
    waiting.clear();
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
      rest = [];
    clearTimeout(view.rest?.timer);
    view.rest = null;
    table.append(...take(lines, FIRST));
    const later = {timer: 0, finish};
    function finish() {
      clearTimeout(later.timer);
      rest.push(...take(lines));
      table.append(...rest);
      view.rest = null;
      delete table.dataset.building;
    }
    function slice() {
      const end = performance.now() + SLICE;
      while (performance.now() < end) {
        const some = take(lines, 20);
        if (!some.length) return finish();
        rest.push(...some);
      }
      later.timer = setTimeout(slice, 0);
    }
    if (lines.left) {
      view.rest = later;
      table.dataset.building = "1";
      later.timer = setTimeout(slice, 0);
    }
  }

  /** The lines to draw, kernel by kernel: {makers: [[kernel, function that makes the line]], at: the next, left}. */
  function linesOf(rows) {
    view.page = kernelPages();
    const visible = new Set(rows),
      groups = new Map();
    for (const row of rows) {
      if (!groups.has(row.kernel)) groups.set(row.kernel, []);
      groups.get(row.kernel).push(row);
    }
    if (!view.query && !view.only) for (const kernel of elsewhereOnly()) groups.set(kernel, []); // a line with their count
    const makers = [...groups].flatMap(([kernel, members]) => [
      [kernel, () => groupHead(kernel, visible)],
      ...members.map(row => [kernel, () => bodyRow(row)]),
    ]);
    return {makers, at: 0, left: makers.length > 0};
  }

  /** Kernels of which nothing can be measured on this machine. */
  const elsewhereOnly = () => [...view.byKernel].filter(([, all]) => all.every(row => !row.here) && all.some(row => !row.gone)).map(([kernel]) => kernel);

  /** The next `most` lines, in table bodies that are new: one for each kernel, or for a kernel's further lines. */
  function take(lines, most = Infinity) {
    const bodies = [];
    let kernel = null;
    for (; most > 0 && lines.at < lines.makers.length; most--, lines.at++) {
      const [name, make] = lines.makers[lines.at];
      if (name !== kernel) bodies.push(h("tbody", {}));
      kernel = name;
      bodies.at(-1).append(make());
    }
    lines.left = lines.at < lines.makers.length;
    return bodies;
  }

  /* ---- the tiles on top ---- */

  function geometricMean(values) {
    return values.length ? Math.exp(values.reduce((sum, value) => sum + Math.log(value), 0) / values.length) : null;
  }

  function tile(label, value, help, only) {
    if (!only) return h("div", {class: "tile", title: help}, h("strong", {}, value), h("span", {}, label));
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
          R.go({only: view.only});
          draw();
        },
      },
      h("strong", {}, value),
      h("span", {}, label),
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
      R.commitLink(hash),
      date ? ` of ${date.slice(0, 10)}` : "",
      all ? "." : "; the others are older, each row names its commit.",
    );
  }

  /* ---- what was not measured, and why ---- */

  function absences(broken) {
    const host = document.getElementById("absent"),
      page = kernelPages(),
      groups = new Map();
    for (const gap of view.absent) {
      const key = JSON.stringify([gap.status, gap.why]);
      if (!groups.has(key)) groups.set(key, []);
      groups.get(key).push(gap);
    }
    const {problems} = R.site;
    host.replaceChildren(
      ...broken.map(({module, why}) =>
        absence("broken", "broken module", [h("code", {}, foreign(module)), " ", h("span", {class: "why"}, foreign(why))]),
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

  const absence = (status, label, content) => h("li", {}, h("span", {class: "status " + status}, label), " ", content);

  const notForHere = ({status}) => status === "unsupported" || status === "skipped";

  /** What cannot be measured on this machine: one line, which opens to the reasons. */
  function elsewhere(groups, page) {
    const count = groups.reduce((sum, gaps) => sum + gaps.length, 0);
    if (!count) return "";
    const fold = h("details", {}, h("summary", {}, `${count} series cannot be measured on this machine`));
    fold.addEventListener("toggle", () => fold.children.length > 1 || fold.append(h("ul", {class: "absent"}, groups.map(gaps => reason(gaps, page)))));
    return h("li", {}, fold);
  }

  const MOST = 8; // arms of a reason that are listed at once

  function reason(gaps, page) {
    const why = h("span", {class: "why"}, foreign(gaps[0].why || "no reason was recorded"));
    if (gaps.length <= MOST) return absence(gaps[0].status, gaps[0].status, [why, arms(gaps, page)]);
    const list = h("details", {}, h("summary", {}, `${gaps.length} cases`));
    list.addEventListener("toggle", () => list.children.length > 1 || list.append(arms(gaps, page)));
    return absence(gaps[0].status, gaps[0].status, [why, list]);
  }

  function arms(gaps, page) {
    const items = gaps.map(gap =>
      h(
        "li",
        {},
        h("a", {href: page(gap.kernel, {case: gap.case, backend: gap.backend})}, foreign(`${gap.kernel} / ${gap.case} / ${gap.backend}`)),
        " at ",
        R.commitLink(view.commits[gap.at][0]),
      ),
    );
    return h("ul", {}, items);
  }

  /* ---- the page ---- */

  const textOf = row => [row.kernel, row.case, row.backend, row.dtype, row.status, row.world + "ranks"].join(" ").toLowerCase();

  function receive(data) {
    const byKernel = new Map();
    for (const row of data.rows) {
      row.text = textOf(row);
      if (!byKernel.has(row.kernel)) byKernel.set(row.kernel, []);
      byKernel.get(row.kernel).push(row);
    }
    const {rows, commits, absent, cpu} = data,
      declared = rows.filter(row => !row.gone);
    Object.assign(view, {rows, declared, commits, absent, cpu, byKernel, baselines: new Map(data.baselines)});
  }

  async function show() {
    const values = R.state(),
      lane = R.lane(values);
    if (!lane) return;
    R.header(lane, change => {
      R.go({machine: lane.machine, env: lane.env, ...change});
      show().catch(R.fail);
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
    R.headlines(document.getElementById("history"), data.history, data.commits, kernelPages());
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
      R.go({all: view.all ? "1" : ""});
      draw();
    });
    window.addEventListener("hashchange", () => show().catch(R.fail));
    window.addEventListener("beforeprint", () => {
      view.rest?.finish();
      [...waiting.keys()].forEach(drawSpark);
    });
    show().catch(R.fail);
  });
})();
