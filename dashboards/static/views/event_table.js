/* A table of events: one row each, sorted as the reader asks; a row opens into everything about its event. */
"use strict";

(() => {
  const R = Ridgeline,
    {h, foreign} = R,
    E = R.event;
  const CAUSE = 160; // letters of a cause in the table; the panel tells the rest

  const size = event => (Number.isFinite(event.ratio) && event.ratio > 0 ? Math.abs(Math.log(event.ratio)) : null);

  const COLUMNS = [
    {
      title: "change",
      most: true,
      value: size,
      help: "new time / old time, geometric mean over the shapes, with the widest 99 % interval",
    },
    {title: "operator", value: event => E.kernelsOf(event).join(" ")},
    {title: "machine", value: event => event.machine},
    {
      title: "first bad commit",
      value: event => event.first_bad.date_ms,
      help: "the first commit that was measured at the new level",
    },
    {
      title: "since",
      value: event => -event.first_bad.date_ms,
      help: "days since the date of that commit, by your clock",
    },
    {title: "owner", value: event => event.owner || null},
    {title: "likely cause", value: event => (event.causes[0] ? event.causes[0].kind : null)},
  ];

  /** The columns of changes of machine code: they have no size, no owner and no machine. */
  const CODE_COLUMNS = [
    COLUMNS[1],
    {...COLUMNS[3], title: "commit", help: "the commit that the compiler gives other code for"},
    COLUMNS[4],
    {...COLUMNS[6], title: "what changed"},
  ];

  function changeCell(event) {
    const sign = event.kind === "code" ? null : h("span", {"aria-hidden": "true"}, E.SIGN[event.direction] + " ");
    return h(
      "td",
      {class: "event-change"},
      h("strong", {class: event.kind === "code" ? null : event.direction}, sign, E.change(event)),
      event.kind === "code" ? null : h("span", {class: "sub"}, E.interval(event.ratio_low, event.ratio_high)),
      event.state === "open" ? null : E.stateChip(event),
    );
  }

  /** Operators, backends and shapes: names while they are few, then their number. */
  function whatCell(event, opened, toggle) {
    const kernels = E.kernelsOf(event),
      cases = E.casesOf(event),
      backends = E.backendsOf(event);
    const few = (names, most, noun) =>
      names.length <= most
        ? names.join(", ")
        : `${names.slice(0, most - 1).join(", ")} and ${names.length - most + 1} more ${noun}`;
    const name = h(
      "button",
      {type: "button", class: "opener", "aria-expanded": String(opened), click: toggle},
      foreign(kernels.length > 3 ? `${kernels.length} operators` : kernels.join(", ") || event.id),
    );
    return h(
      "th",
      {scope: "row"},
      name,
      h("span", {class: "sub"}, foreign(few(backends, 3, "backends")), ": ", foreign(few(cases, 2, "shapes"))),
    );
  }

  function historyLink(event) {
    const href = E.seriesPage(event);
    return href ? h("a", {class: "to-history", href}, "history") : null;
  }

  function titleOf(machine) {
    const lane = R.site.lanes.find(one => one.machine === machine);
    return lane && lane.title !== machine
      ? [foreign(lane.title), h("span", {class: "sub"}, foreign(machine))]
      : [foreign(machine)];
  }

  /** Rows of an event: its line, and its panel if it is open. */
  function bodyRows(event, columns, opened, toggle) {
    const compiled = columns === CODE_COLUMNS;
    const line = h(
      "tr",
      {class: ["event-row", opened ? "opened" : ""].join(" ").trim(), "data-event": event.id},
      compiled ? null : changeCell(event),
      whatCell(event, opened, () => toggle(event)),
      compiled
        ? null
        : h(
            "td",
            {class: "machine"},
            event.kind === "code" ? h("span", {class: "muted"}, "compiled") : titleOf(event.machine),
          ),
      h(
        "td",
        {class: "culprit"},
        E.commit(event.first_bad),
        event.between > 0 ? h("span", {class: "sub"}, E.range(event)) : null,
      ),
      h("td", {class: "since"}, R.ago(event.first_bad.date_ms), h("span", {class: "sub"}, historyLink(event))),
      compiled ? null : h("td", {class: "owner"}, E.owner(event)),
      h("td", {class: "cause"}, E.causes(event, 2, CAUSE)),
    );
    R.labelled(line, columns);
    return opened
      ? [
          line,
          h(
            "tr",
            {class: "detail-row"},
            h("td", {colspan: columns.length}, h("div", {class: "detail"}, R.eventPanel(event))),
          ),
        ]
      : [line];
  }

  /** Fill `host` with a table of events.  key: of its order in the state; chosen: id of the open event; toggle(event). */
  function eventTable(host, events, {caption, key, chosen, toggle}) {
    const columns = events.every(({kind}) => kind === "code") && events.length ? CODE_COLUMNS : COLUMNS,
      usual = columns === COLUMNS ? "-change" : "since";
    const table = h(
      "table",
      {class: "events"},
      h("caption", {class: "visually-hidden"}, caption),
      h("thead", {}),
      h("tbody", {}),
    );
    function draw() {
      const order = R.orderIn(key, columns, usual);
      const heads = R.headCells(columns, order, next => {
        R.go({[key]: next});
        R.keepFocus(table.tHead, draw);
      });
      table.tHead.replaceChildren(h("tr", {}, heads));
      table.tBodies[0].replaceChildren(
        ...R.inOrder(events, columns, order).flatMap(event => bodyRows(event, columns, event.id === chosen, toggle)),
      );
    }
    draw();
    host.replaceChildren(h("div", {class: "scroll"}, table));
  }

  Object.assign(R, {eventTable, eventColumns: COLUMNS});
})();
