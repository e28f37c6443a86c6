/* The overview: newest numbers of every kernel on one machine, and what was not measured there. */
"use strict";

(() => {
  const R = Ridgeline,
    {h} = R;
  const view = {rows: [], commits: [], absent: [], order: {column: -1, down: false}, query: "", all: false, only: ""};

  const COLUMNS = [
    {title: "case", sort: row => row.case},
    {title: "backend", sort: row => row.backend},
    {title: "newest", number: true, sort: row => row.value, help: R.HELP.value},
    {title: "% of peak", number: true, sort: row => row.share ?? null, help: R.HELP.share},
    {title: "vs baseline", number: true, sort: row => row.ratio ?? null, help: R.HELP.ratio},
    {title: "vs commit before", number: true, sort: row => (row.step && row.step.speed) ?? null, help: R.HELP.step},
    {title: "history", help: R.HELP.history},
    {title: "commit", sort: row => row.at},
  ];

  const FILTERS = {
    slower: row => row.step && row.step.moved === "slower",
    faster: row => row.step && row.step.moved === "faster",
    behind: row => row.ratio !== null && row.ratio !== undefined && row.ratio < 1,
    unmeasured: row => row.status !== "ok",
  };

  function kernelHref(row) {
    const slug = R.site.kernels.find(kernel => kernel.name === row.kernel).slug,
      {machine, env} = R.lane(R.state());
    return "kernels/" + slug + ".html" + R.hashOf({machine, env, case: row.case, backend: row.backend});
  }

  function bodyRow(row) {
    const [hash, date] = view.commits[row.at],
      old = row.at < view.commits.length - 1;
    const line = h(
      "tr",
      {class: row.status === "ok" ? null : "gone"},
      h(
        "th",
        {scope: "row"},
        h("a", {href: kernelHref(row)}, row.case),
        h("span", {class: "sub"}, [row.dtype, row.world > 1 ? row.world + " ranks" : ""].filter(Boolean).join(", ")),
      ),
      h("td", {}, row.backend),
      R.valueCell(row),
      R.shareCell(row.share),
      R.ratioCell(row),
      R.stepCell(row.step),
      h("td", {class: "history"}, R.spark(row.spark, row.rate)),
      h(
        "td",
        {class: old ? "commit muted" : "commit", title: old ? "not measured at the newest commit" : null},
        R.commitLink(hash),
        h("span", {class: "sub"}, date.slice(0, 10)),
      ),
    );
    return R.labelled(line, COLUMNS);
  }

  function groupHead(kernel, rows) {
    const href = kernelHref(rows[0]).replace(/&?(case|backend)=[^&]*/g, "");
    const hidden = view.rows.filter(row => row.kernel === kernel).length - rows.length;
    return h(
      "tr",
      {class: "group"},
      h(
        "th",
        {scope: "rowgroup", colspan: COLUMNS.length},
        h("a", {href}, kernel),
        hidden > 0 ? h("span", {class: "sub"}, `${hidden} more`) : null,
      ),
    );
  }

  function shown() {
    const rows = view.rows.filter(
      row =>
        (view.all || view.only || view.query || row.headline) &&
        (!view.only || FILTERS[view.only](row)) &&
        R.matches(
          [row.kernel, row.case, row.backend, row.dtype, row.status, row.world + "ranks"].join(" "),
          view.query,
        ),
    );
    return R.sorted(rows, COLUMNS, view.order);
  }

  function draw() {
    const rows = shown(),
      table = document.getElementById("kernels");
    table.tHead.replaceChildren(
      h(
        "tr",
        {},
        R.headCells(COLUMNS, view.order, order => {
          view.order = order;
          R.keepFocus(table.tHead, draw);
        }),
      ),
    );
    const groups = new Map();
    for (const row of rows) groups.set(row.kernel, [...(groups.get(row.kernel) || []), row]);
    for (const body of [...table.tBodies]) body.remove();
    for (const [kernel, members] of groups)
      table.append(h("tbody", {}, groupHead(kernel, members), members.map(bodyRow)));
    document.getElementById("shown").textContent = `${rows.length} of ${view.rows.length} series`;
    document.getElementById("nothing").hidden = rows.length > 0;
    for (const tile of document.querySelectorAll(".tile[aria-pressed]"))
      tile.setAttribute("aria-pressed", String(tile.dataset.only === view.only));
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
          R.setState({only: view.only});
          draw();
        },
      },
      h("strong", {}, value),
      h("span", {}, label),
    );
  }

  function tiles() {
    const count = only => String(view.rows.filter(FILTERS[only]).length);
    const ratios = view.rows.filter(row => row.ratio > 0 && row.status === "ok").map(row => row.ratio);
    const mean = geometricMean(ratios);
    document
      .getElementById("tiles")
      .replaceChildren(
        tile(
          view.rows.length === 1
            ? "series"
            : "series of " + new Set(view.rows.map(row => row.kernel)).size + " kernels",
          String(view.rows.length),
          "one series is one case with one backend",
        ),
        tile(
          "vs baselines, geometric mean",
          mean === null ? "–" : R.number(mean, 3) + " ×",
          `time of the fastest vendor library / our time, over ${ratios.length} series; above 1 ours is faster`,
        ),
        tile("slower than the commit before", count("slower"), "show only these", "slower"),
        tile("faster than the commit before", count("faster"), "show only these", "faster"),
        tile("behind their baseline", count("behind"), "show only these", "behind"),
        tile("not measured", count("unmeasured"), "show only these; the reasons are below the table", "unmeasured"),
      );
  }

  /* ---- what was not measured, and why ---- */

  function absences() {
    const host = document.getElementById("absent"),
      groups = new Map();
    for (const gap of view.absent) {
      const key = JSON.stringify([gap.status, gap.why]);
      groups.set(key, [...(groups.get(key) || []), gap]);
    }
    host.replaceChildren(
      ...[...groups.values()].map(gaps =>
        h(
          "li",
          {},
          h("span", {class: "status " + gaps[0].status}, gaps[0].status),
          " ",
          h("span", {class: "why"}, gaps[0].why || "no reason was recorded"),
          h(
            "ul",
            {},
            gaps.map(gap =>
              h(
                "li",
                {},
                h("a", {href: kernelHref(gap)}, `${gap.kernel} / ${gap.case} / ${gap.backend}`),
                " at ",
                R.commitLink(view.commits[gap.at][0]),
              ),
            ),
          ),
        ),
      ),
    );
    const {broken} = view,
      {problems} = R.site;
    host.prepend(
      ...broken.map(({module, why}) =>
        h(
          "li",
          {},
          h("span", {class: "status broken"}, "broken module"),
          " ",
          h("code", {}, module),
          " ",
          h("span", {class: "why"}, why),
        ),
      ),
    );
    host.append(...problems.map(text => h("li", {}, h("span", {class: "status unsupported"}, "left out"), " ", text)));
    document.getElementById("all-measured").hidden = view.absent.length + broken.length + problems.length > 0;
  }

  async function show() {
    const values = R.state(),
      lane = R.lane(values);
    if (!lane) return;
    R.header(lane, change => {
      R.setState({machine: lane.machine, env: lane.env, ...change});
      show();
    });
    Object.assign(view, {
      only: FILTERS[values.only] ? values.only : "",
      query: values.q || "",
      all: values.all === "1",
    });
    document.getElementById("filter").value = view.query;
    document.getElementById("all").checked = view.all;
    const data = await R.load(lane.slug + "/overview");
    if (R.lane(R.state()) !== lane) return;
    Object.assign(view, data);
    tiles();
    draw();
    absences();
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
      R.setState({all: view.all ? "1" : ""});
      draw();
    });
    window.addEventListener("hashchange", () => show().catch(R.fail));
    show().catch(R.fail);
  });
})();
