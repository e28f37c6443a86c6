/* Events on all pages: why something is slower, an event in words, a table of events. */

/* Why cases are slower: the cause, what putting each thing back left of the slow-down, and the machine code beside it. */
"use strict";

(() => {
  const R = Ridgeline,
    {h, foreign, short} = R;
  const NAMED = 6; // cases that are named; the rest is counted
  const LISTED = 40; // rows of what was put back, and differences of machine code, that are shown

  const HEADS = ["put back", "answer", "share", "left of the slow-down", "trials"];

  const known = value => value !== null && Number.isFinite(value);
  /** Two digits: what is left is compared with a smallest effect of 0.3 %. */
  const hundredths = ratio => (ratio < 1 ? "−" : "+") + (100 * Math.abs(ratio - 1)).toFixed(2);
  const percent = ratio => (known(ratio) ? hundredths(ratio) + " %" : "–");

  function cases(names) {
    const shown = names.slice(0, NAMED).join(", ");
    return names.length > NAMED ? `${shown} and ${names.length - NAMED} more` : shown;
  }

  function tried(one) {
    const range = known(one.low) && known(one.high) ? `${hundredths(one.low)} to ${hundredths(one.high)} %` : null;
    const cells = [
      [foreign(one.kind + " " + one.name), one.change ? h("span.sub", foreign(one.change)) : null],
      [foreign(one.answer), one.why ? h("span.sub", foreign(one.why)) : null],
      [known(one.share) ? `${Math.round(100 * one.share)} %` : "–"],
      [percent(one.ratio), range ? h("span.sub", range) : null],
      [String(one.trials ?? "–")],
    ];
    const explains = one.answer.startsWith("explains") ? "explains" : "";
    return h(
      "tr",
      {class: [explains, one.part_of ? "part" : ""].join(" ").trim()},
      cells.map((cell, n) => (n ? h("td", {"data-label": HEADS[n]}, cell) : h("th", {scope: "row"}, cell))),
    );
  }

  function proof(one) {
    const rows = one.tried.slice(0, LISTED);
    return h(
      "table.tried",
      h("caption.visually-hidden", "what was put back as it was in base, and what that left"),
      h("thead", h("tr", HEADS.map(text => h("th", {scope: "col"}, text)))),
      h("tbody", rows.map(tried)),
    );
  }

  function code(sentences) {
    const more = sentences.length - LISTED;
    return [
      h("p.sub", "machine code, base against head:"),
      h(
        "ul.code-differs",
        sentences.slice(0, LISTED).map(text => h("li", foreign(text))),
        more > 0 ? h("li.muted", `and ${more} more`) : null,
      ),
    ];
  }

  function explanation(one) {
    const spent = [several(one.experiments, "experiment"), several(one.trials, "trial")].join(", ");
    const more = one.tried.length - LISTED;
    return h(
      "section",
      {class: "why " + one.state.replaceAll(" ", "-"), "aria-label": "why " + cases(one.cases)},
      h("h3", "Why: ", foreign(cases(one.cases))),
      h("p.cause-sentence", h("span.chip", one.state), " ", foreign(one.sentence)),
      one.tried.length
        ? h("div.scroll", {tabindex: "0", role: "region", "aria-label": "what was put back"}, proof(one))
        : null,
      more > 0 ? h("p.muted", `and ${more} more`) : null,
      one.code.length ? code(one.code) : null,
      one.experiments ? h("p.sub", "measured on ", foreign(one.measured), `: ${spent}`) : null,
    );
  }

  /** A section for each explanation of a report, an event or a pair of commits; none where nothing is explained. */
  R.why = explanations => (explanations || []).map(explanation);

  /* An event in words: its title, how sure it is, what to run to see it again; and the panel that says all of it.
   */

  const SHAPES = 30; // rows of a panel's list of shapes; the rest is counted

  const NEEDS_SOMEBODY = new Set(["open", "acknowledged"]);
  const isOpen = event => NEEDS_SOMEBODY.has(event.state);

  /** All events, the newest first, with what was looked at. */
  const events = () => R.load("views/events");

  /* ---- words ---- */

  const SIGN = {slower: "▲", faster: "▼"}; // of the time: slower is up

  /** "8.1 % slower": new time / old time - 1. */
  function change({kind, ratio, direction}) {
    if (kind === "code") return "machine code changed";
    if (kind === "configuration")
      return Number.isFinite(ratio) ? `best configuration moved, by ${(100 * (ratio - 1)).toFixed(1)} %` : "moved";
    return Number.isFinite(ratio) ? `${(100 * Math.abs(ratio - 1)).toFixed(1)} % ${direction}` : direction;
  }

  function interval(low, high) {
    if (!Number.isFinite(low) || !Number.isFinite(high)) return null;
    const ends = [low, high]
      .map(ratio => 100 * (ratio - 1))
      .map(share => (share < 0 ? "−" : "+") + Math.abs(share).toFixed(1));
    return `${ends[0]} to ${ends[1]} %`;
  }

  const distinct = names => [...new Set(names)];
  const kernelsOf = event => distinct(event.moved.map(([kernel]) => kernel));
  const backendsOf = event => distinct(event.moved.map(([, backend]) => backend));
  const casesOf = event =>
    distinct(event.moved.map(([kernel, , name]) => JSON.stringify([kernel, name]))).map(text => JSON.parse(text)[1]);

  const several = (count, one, many = one + "s") => `${count.toLocaleString("en-US")} ${count === 1 ? one : many}`;

  /** The case of a compiled configuration: "m64 [stage 2]" -> "m64". */
  const caseOf = configuration => configuration.replace(/ \[.*\]$/, "");

  /** The address of the history of a series that moved, with the event chosen there. */
  function seriesPage(event, [kernel, backend, name] = event.moved[0] || []) {
    if (event.kind === "code") return R.kernelPage(kernel, {case: caseOf(name), backend, event: event.id});
    return R.kernelPage(kernel, {machine: event.machine, case: name, backend, event: event.id});
  }

  function link(href, text, attributes = {}) {
    return href ? h("a", {href, ...attributes}, foreign(text)) : h("span", attributes, foreign(text));
  }

  /** An address that somebody gave, as a link only if a browser opens it as a page. */
  function outside(address) {
    return /^https?:\/\//.test(address)
      ? h("a", {href: address, rel: "noopener noreferrer"}, foreign(address))
      : foreign(address);
  }

  /** A commit: its hash, subject, author and pull request, as far as they are known. */
  function commit(facts) {
    const {repo} = R.site,
      number = facts.pull_request;
    const request = number === null || number === undefined ? null : "#" + number;
    const about = [
      facts.author ? foreign(facts.author) : null,
      request && (repo ? h("a", {href: `${repo}/pull/${number}`, rel: "noopener"}, request) : request),
    ].filter(Boolean);
    return [
      R.commitLink(facts.hash),
      facts.subject ? h("span.subject", " ", foreign(facts.subject)) : null,
      about.length
        ? h(
            "span.sub",
            about.flatMap((part, n) => (n ? [" · ", part] : [part])),
          )
        : null,
    ];
  }

  function range(event) {
    if (!event.last_good.hash) return "no earlier commit was measured";
    if (event.between === 0) return "the commit right after the last good one";
    return several(event.between, "commit") + " between " + (event.between === 1 ? "was" : "were") + " not measured";
  }

  /* ---- commands to reproduce it ---- */

  /** A word of a shell command; quoted unless it is plain. */
  function quoted(word) {
    return /^[\w./:=@%+-]+$/.test(word) ? word : "'" + String(word).replaceAll("'", "'\\''") + "'";
  }

  /** A name as a pattern that only it matches. */
  const glob = name => name.replace(/[[*?]/g, "[$&]");

  /** [[what it is for, command]] for an event, about one of its series (the largest step comes first). */
  function commands(event, [kernel, backend, name] = event.moved[0] || []) {
    const [good, bad] = [event.last_good.hash, event.first_bad.hash];
    const about = kernel ? ` --kernel ${quoted(kernel)}` : "";
    if (event.kind === "code")
      return good
        ? [["See the code change", `ridgeline isa ${quoted(short(good))} ${quoted(short(bad))}${about}`]]
        : [];
    if (event.kind === "configuration") return [["Verify the table", `ridgeline tune ${quoted(kernel)} --verify`]];
    if (!good) return [];
    const one = `${about} --case ${quoted(glob(name))} --backend ${quoted(backend)} --tier nightly`;
    const ends = `${quoted(short(good))} ${quoted(short(bad))}`;
    const again = [["Measure both again, in turn", `ridgeline ab ${ends}${one}`]];
    const search = event.kind === "kernel" && event.between > 0;
    return search ? [...again, ["Find the commit among them", `ridgeline bisect ${ends}${one}`]] : again;
  }

  function ackCommand(event) {
    return ["Take it", `ridgeline events ack ${quoted(event.id)} --owner NAME --reason TEXT`];
  }

  /** A command in a box, with a button that copies it. */
  function command([purpose, text]) {
    const code = h("code", text),
      button = h("button.copy", {type: "button", "aria-label": "copy: " + purpose}, "copy");
    button.addEventListener("click", async () => {
      button.textContent = (await copied(text, code)) ? "copied" : "select and copy";
    });
    return h(
      "div.command",
      h("span.purpose", purpose),
      h("pre", {tabindex: "0"}, code),
      button,
    );
  }

  async function copied(text, element) {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch {
      getSelection().selectAllChildren(element); // no permission: at least it is selected
      return document.execCommand("copy");
    }
  }

  /* ---- the panel ---- */

  const row = (name, ...value) => h("div", h("dt", name), h("dd", ...value));

  /** Everything about an event.  chosen: the series that is looked at, for the commands; close: act of a close button. */
  function eventPanel(event, {chosen = null, close = null} = {}) {
    const series = event.moved.find(
      one => chosen && one[0] === chosen.kernel && one[1] === chosen.backend && one[2] === chosen.case,
    );
    return h(
      "section.event-panel",
      {"data-event": event.id, "aria-label": "event " + event.id},
      h(
        "div.event-head",
        h("h2", h("span", {class: "change " + event.direction}, change(event)), " ", stateChip(event)),
        close && h("button.close", {type: "button", click: close, "aria-label": "close the event"}, "×"),
      ),
      h("dl", about(event)),
      R.why(event.explanations),
      h(
        "div.commands",
        commands(event, series).map(command),
        isOpen(event) ? command(ackCommand(event)) : null,
      ),
      shapes(event),
    );
  }

  function about(event) {
    const {repo} = R.site,
      good = event.last_good.hash;
    const diff =
      repo && good
        ? h("a", {href: `${repo}/compare/${good}...${event.first_bad.hash}`, rel: "noopener"}, "diff")
        : null;
    const sure = [timed(event), probability(event.p_value)].filter(Boolean).join(", ");
    return [
      row("first bad", commit(event.first_bad), h("span.sub", R.day(event.first_bad.date_ms))),
      good
        ? row("last good", commit(event.last_good), h("span.sub", R.day(event.last_good.date_ms)))
        : null,
      row("range", range(event), diff ? " · " : null, diff),
      event.moved.some(one => one[6] === "pairs")
        ? row("verdict", "of trials of both commits: ", h("code", `ridgeline gate ${good} ${event.first_bad.hash}`))
        : null,
      event.kind === "code" || !sure ? null : row("how sure", sure),
      row("where", event.kind === "code" ? "in what the compiler emits, whatever the machine" : foreign(event.machine)),
      row("likely cause", causes(event, Infinity)),
      row("owner", owner(event), event.reason ? h("span.sub", foreign(event.reason)) : null),
      event.link ? row("link", outside(event.link)) : null,
      event.ended_at ? row(event.state === "accepted" ? "accepted at" : "ended at", commit(event.ended_at)) : null,
      row("id", h("code", event.id)),
    ].filter(Boolean);
  }

  function timed(event) {
    const text = interval(event.ratio_low, event.ratio_high);
    return text && `${text} of the time (99 %)`;
  }

  function probability(p) {
    if (!Number.isFinite(p)) return null;
    return p < 1e-6 ? "by chance in less than 1 of 10⁶" : `p = ${p.toPrecision(2)}`;
  }

  function stateChip({state}) {
    return h("span", {class: "chip " + state}, state);
  }

  function owner(event) {
    return event.owner ? foreign(event.owner) : h("span", {class: isOpen(event) ? "nobody" : "muted"}, "nobody");
  }

  /** Likely causes as a list.  most: how many of them; letters: of each. */
  function causes(event, most, letters = Infinity) {
    const cut = text => (text.length > letters ? text.slice(0, letters) + " …" : text);
    if (event.causes.length === 0)
      return h("span.muted", event.kind === "machine" ? "clocks or heat: nothing recorded" : "not known");
    const shown = event.causes
      .slice(0, most)
      .map(({kind, text}) => h("li", h("span.kind", kind), " ", foreign(cut(text))));
    const more = event.causes.length - shown.length;
    return h("ul.causes", shown, more > 0 ? h("li.muted", `${more} more`) : null);
  }

  const JUDGED_BY = {pairs: "trials of both commits"}; // by ci/history/series.py, Moved.judged_by; the others are words

  /** Each series that moved, with its own size and a link to its history. */
  function shapes(event) {
    if (event.moved.length === 0) return null;
    const items = event.moved.slice(0, SHAPES).map(one => {
      const [kernel, backend, name, ratio, , , by] = one;
      return h(
        "li",
        link(seriesPage(event, one), `${kernel} / ${name} / ${backend}`),
        event.kind === "code" || !Number.isFinite(ratio)
          ? null
          : h("span.sub", ` ${R.signedPercent(ratio - 1)} of the time, judged by ${JUDGED_BY[by] || by}`),
      );
    });
    const more = event.moved.length - items.length;
    return h(
      "details.shapes",
      {open: event.moved.length <= 5},
      h("summary", several(event.moved.length, "series", "series") + " moved"),
      h(
        "ul",
        items,
        more > 0 ? h("li.muted", `and ${several(more, "more", "more")}: in events.json`) : null,
      ),
    );
  }

  /* A table of events: one row each, sorted as the reader asks; a row opens into everything about its event.
   */

  const CAUSE = 160; // letters of a cause in the table; the panel tells the rest

  const size = event => (Number.isFinite(event.ratio) && event.ratio > 0 ? Math.abs(Math.log(event.ratio)) : null);

  const COLUMNS = [
    {
      title: "change",
      most: true,
      value: size,
      help: "new time / old time, geometric mean over the shapes, with the widest 99 % interval",
    },
    {title: "operator", value: event => kernelsOf(event).join(" ")},
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
    const sign = event.kind === "code" ? null : h("span", {"aria-hidden": "true"}, SIGN[event.direction] + " ");
    return h(
      "td.event-change",
      h("strong", {class: event.kind === "code" ? null : event.direction}, sign, change(event)),
      event.kind === "code" ? null : h("span.sub", interval(event.ratio_low, event.ratio_high)),
      event.state === "open" ? null : stateChip(event),
    );
  }

  /** Operators, backends and shapes: names while they are few, then their number. */
  function whatCell(event, opened, toggle) {
    const kernels = kernelsOf(event),
      cases = casesOf(event),
      backends = backendsOf(event);
    const few = (names, most, noun) =>
      names.length <= most
        ? names.join(", ")
        : `${names.slice(0, most - 1).join(", ")} and ${names.length - most + 1} more ${noun}`;
    const name = h(
      "button.opener",
      {type: "button", "aria-expanded": String(opened), click: toggle},
      foreign(kernels.length > 3 ? `${kernels.length} operators` : kernels.join(", ") || event.id),
    );
    return h(
      "th",
      {scope: "row"},
      name,
      h("span.sub", foreign(few(backends, 3, "backends")), ": ", foreign(few(cases, 2, "shapes"))),
    );
  }

  function historyLink(event) {
    const href = seriesPage(event);
    return href ? h("a.to-history", {href}, "history") : null;
  }

  function titleOf(machine) {
    const lane = R.site.lanes.find(one => one.machine === machine);
    return lane && lane.title !== machine
      ? [foreign(lane.title), h("span.sub", foreign(machine))]
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
            "td.machine",
            event.kind === "code" ? h("span.muted", "compiled") : titleOf(event.machine),
          ),
      h(
        "td.culprit",
        commit(event.first_bad),
        event.between > 0 ? h("span.sub", range(event)) : null,
      ),
      h("td.since", R.ago(event.first_bad.date_ms), h("span.sub", historyLink(event))),
      compiled ? null : h("td.owner", owner(event)),
      h("td.cause", causes(event, 2, CAUSE)),
    );
    R.labelled(line, columns);
    return opened
      ? [
          line,
          h(
            "tr.detail-row",
            h("td", {colspan: columns.length}, h("div.detail", eventPanel(event))),
          ),
        ]
      : [line];
  }

  /** Fill `host` with a table of events.  key: of its order in the state; chosen: id of the open event; toggle(event). */
  function eventTable(host, events, {caption, key, chosen, toggle}) {
    const columns = events.every(({kind}) => kind === "code") && events.length ? CODE_COLUMNS : COLUMNS,
      usual = columns === COLUMNS ? "-change" : "since";
    const table = h(
      "table.events",
      h("caption.visually-hidden", caption),
      h("thead"),
      h("tbody"),
    );
    function draw() {
      const order = R.orderIn(key, columns, usual);
      R.drawHead(table, columns, key, order, draw);
      table.tBodies[0].replaceChildren(
        ...R.inOrder(events, columns, order).flatMap(event => bodyRows(event, columns, event.id === chosen, toggle)),
      );
    }
    draw();
    host.replaceChildren(h("div.scroll", table));
  }

  Object.assign(R, {
    events,
    event: {SIGN, isOpen, change, interval, several, link, outside, commit, command},
    eventPanel,
    eventTable,
  });
})();
