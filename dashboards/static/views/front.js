/* The front page's verdict: what is slower than it was, since when, by whom and how surely; then everything else. */
"use strict";

(() => {
  const R = Ridgeline,
    {h, foreign} = R,
    E = R.event;
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
    const counts = new Map();
    for (const {state} of events) counts.set(state, (counts.get(state) || 0) + 1);
    return [...counts].map(([state, count]) => `${count.toLocaleString("en-US")} ${state}`).join(", ");
  }

  function headline(open) {
    if (open.length === 0) return h("h1", {class: "verdict good"}, "No regression is open on main");
    const owned = open.filter(event => event.owner).length;
    return h(
      "h1",
      {class: "verdict bad"},
      `${E.several(open.length, "regression")} open on main`,
      h(
        "span",
        {class: "sub"},
        owned === open.length ? "each has an owner" : `${open.length - owned} without an owner`,
      ),
    );
  }

  function looked({machines, series, points, commits, newest}) {
    if (!newest) return h("p", {class: "looked"}, "No time has been measured yet.");
    return h(
      "p",
      {class: "looked"},
      `Looked at ${E.several(series, "series", "series")} with ${E.several(points, "point")} of ${E.several(commits, "commit")} on ${E.several(machines, "machine")}; newest commit `,
      R.commitLink(newest.hash),
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
        "details",
        {class: "fold", id: "fold-" + name, open: opened},
        h("summary", {}, title),
        opened ? content() : null,
      );
    element.addEventListener("toggle", () => {
      if (element.open && element.children.length === 1) element.append(content());
      const open = R.listed("open");
      if (open.has(name) === element.open) return;
      if (!open.delete(name)) open.add(name);
      R.go({open: R.listing(open)});
    });
    return element;
  }

  function undecidedList(rows) {
    const items = rows
      .slice(0, UNDECIDED)
      .map(row =>
        h(
          "li",
          {},
          E.link(
            R.kernelPage(row.kernel, {machine: row.machine, case: row.case, backend: row.backend}),
            `${row.kernel} / ${row.case} / ${row.backend}`,
          ),
          ` ${R.signedPercent(row.speed)} speed at `,
          R.commitLink(row.at),
          " on ",
          foreign(row.machine),
        ),
      );
    const more = rows.length - items.length;
    return h(
      "div",
      {},
      h(
        "p",
        {class: "muted"},
        "The newest point lies apart from the one before, and one point is no step: the next record decides.",
      ),
      h(
        "ul",
        {class: "undecided"},
        items,
        more > 0 ? h("li", {class: "muted"}, `and ${more.toLocaleString("en-US")} more`) : null,
      ),
    );
  }

  function draw(host, data) {
    const {events, undecided} = data,
      chosen = R.state().event || null;
    const toggle = event => {
      R.go({event: chosen === event.id ? "" : event.id});
      R.keepFocus(host, () => draw(host, data));
    };
    const table = (members, key, caption) => {
      const area = h("div", {});
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
      ...data.notes.map(text => h("p", {class: "looked"}, foreign(text + "."))),
      ...(open.length ? [table(open, "by", "open regressions")] : []),
      h("div", {class: "folds"}, folds),
    );
  }

  async function show() {
    const host = document.getElementById("events");
    if (!host) return;
    const [events, verdict] = await Promise.all([R.events(), R.load("views/verdict")]);
    draw(host, {...events, ...verdict});
    delete host.dataset.busy;
  }

  document.addEventListener("DOMContentLoaded", () => {
    if (R.site.lanes.length === 0) return;
    window.addEventListener("hashchange", () => show().catch(R.fail));
    show().catch(R.fail);
  });
})();
