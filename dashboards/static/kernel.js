/* The page of a kernel: a table of its cases; the open case shows its history below its row. */
"use strict";

(() => {
  const R = Ridgeline,
    {h, go, fail} = R,
    slug = document.documentElement.dataset.kernel,
    kernel = R.site.kernels.find(one => one.slug === slug)?.name;
  const view = {data: null, about: null, rows: [], query: "", open: null};

  const {newest, share, ratio, step} = R.MEASURED;
  const text = title => ({title, value: row => row[title], cell: row => h("td", row[title])});
  const COLUMNS = [
    {title: "case", value: row => row.case, cell: caseCell},
    text("backend"),
    text("dtype"),
    {title: "ranks", number: true, value: row => row.world, cell: row => h("td.number", row.world ?? "–")},
    newest,
    {title: "time", number: true, value: row => row.us, help: R.HELP.time, cell: row => h("td.number", row.us ? R.duration(row.us) : "–")},
    ...[share, ratio, step],
    {title: "history", help: R.HELP.history, cell: row => h("td.history", R.spark(row.spark, row.rate))},
    {title: "commit", value: row => row.at, cell: commitCell},
  ];

  const isOpen = row => view.open !== null && row.case === view.open.case && row.backend === view.open.backend;

  const idOf = row => "case-" + view.rows.indexOf(row);

  function caseCell(row) {
    const opened = isOpen(row);
    const button = h(
      "button.opener",
      {
        type: "button",
        "aria-expanded": String(opened),
        "aria-controls": idOf(row),
        click: () => openRow(opened ? null : row),
      },
      row.case,
    );
    return h("th", {scope: "row"}, button, h("span.sub", row.tier));
  }

  function commitCell(row) {
    const [hash, date] = view.commits[row.at];
    return h("td.commit", R.commitLink(hash), h("span.sub", date.slice(0, 10)));
  }

  function bodyRows(row) {
    const opened = isOpen(row);
    const line = h(
      "tr",
      {
        class: [opened ? "opened" : "", row.status === "ok" ? "" : "gone"].join(" ").trim() || null,
        click: event => {
          if (!event.target.closest("a, button")) openRow(opened ? null : row);
        },
      },
      COLUMNS.map(({cell}) => cell(row)),
    );
    R.labelled(line, COLUMNS);
    return opened ? [line, detailRow(row, idOf(row))] : [line];
  }

  function detailRow(row, id) {
    const host = h("div.detail"),
      why =
        row.status === "ok"
          ? null
          : h(
              "p.notice.bad",
              R.status(row.status),
              " ",
              row.why || "no reason was recorded",
            );
    const chart = h("div");
    host.append(h("h2", R.foreign(row.case), " ", h("span.sub", kernel)), ...(why ? [why] : []), chart);
    view.history = () =>
      R.history(
        chart,
        view.data,
        view.data.cases.findIndex(info => info.name === row.case),
        view.about,
      );
    return h("tr.detail-row", {id}, h("td", {colspan: COLUMNS.length}, host));
  }

  function draw() {
    const order = R.orderIn("by", COLUMNS, "case");
    const fits = view.rows.filter(row =>
      R.matches([row.case, row.backend, row.dtype, row.tier, row.status, row.world + "ranks"].join(" "), view.query),
    );
    const rows = R.inOrder(
      fits.filter(row => row.here || view.query || isOpen(row)),
      COLUMNS,
      order,
    );
    const table = document.getElementById("cases");
    view.history = null;
    R.drawHead(table, COLUMNS, "by", order, draw);
    table.tBodies[0].replaceChildren(...rows.flatMap(bodyRows));
    if (view.history) view.history();
    const left = fits.length - rows.length;
    document.getElementById("shown").textContent =
      `${rows.length} of ${view.rows.length} series` +
      (left ? `; ${left} never measured on this machine (filter: unsupported or skipped)` : "");
    document.getElementById("nothing").hidden = rows.length > 0;
  }

  function openRow(row) {
    const touched = view.rows.indexOf(row || view.open);
    view.open = row;
    go({case: row ? row.case : "", backend: row ? row.backend : "", from: "", to: "", event: ""});
    draw();
    document.querySelector(`[aria-controls="case-${touched}"]`)?.focus({preventScroll: true});
  }

  /** The row that the URL names; without one, the first. */
  function wanted(values) {
    return (
      view.rows.find(row => row.case === values.case && row.backend === values.backend) ||
      view.rows.find(row => row.case === values.case && row.here) ||
      view.rows.find(row => row.case === values.case) ||
      (values.case ? null : view.rows.find(row => row.here)) ||
      null
    );
  }

  async function show() {
    const values = R.state(),
      lane = R.lane(values),
      here = lane.kernels.includes(slug);
    R.header(lane, change => {
      go({machine: lane.machine, env: lane.env, ...change, from: "", to: "", event: ""});
      show().catch(fail);
    });
    R.verified(kernel, lane.machine).catch(fail);
    for (const link of document.querySelectorAll("a.home"))
      link.hash = R.hashOf({machine: lane.machine, env: lane.env});
    document.getElementById("over-shapes").hash = R.hashOf({machine: lane.machine, env: lane.env, kernel});
    document.getElementById("absent-here").hidden = here;
    document.getElementById("here").hidden = !here;
    if (!here) return;
    const loading = [R.timeline(`${lane.slug}/kernel-${slug}`), ...["views/history-" + slug, "views/events"].map(R.load)];
    const [data, record, {events}] = await Promise.all(loading);
    if (R.lane(R.state()) !== lane) return;
    view.query = values.q || "";
    document.getElementById("filter").value = view.query;
    view.about = {machine: lane.machine, arch: (lane.facts.find(([name]) => name === "arch") || [])[1], record, events};
    Object.assign(view, {data, commits: data.commits, rows: data.rows});
    view.open = wanted(values);
    const unknown = document.getElementById("unknown-case");
    unknown.hidden = !values.case || view.open !== null;
    unknown.textContent = `There is no case “${values.case}” of ${kernel} on this machine; choose one below.`;
    draw();
    R.downloads(`${lane.slug}/kernel-${slug}`);
    if (values.case && view.open) document.querySelector("tr.opened").scrollIntoView({block: "start"});
  }

  document.addEventListener("DOMContentLoaded", () => {
    R.filterKeys(document.getElementById("filter"), query => {
      view.query = query.trim();
      R.setState({q: view.query});
      draw();
    });
    window.addEventListener("hashchange", () => show().catch(fail));
    show().catch(fail);
  });
})();
