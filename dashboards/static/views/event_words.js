/* An event in words: its title, how sure it is, what to run to see it again; and the panel that says all of it. */
"use strict";

(() => {
  const R = Ridgeline,
    {h, foreign} = R;
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
      facts.subject ? h("span", {class: "subject"}, " ", foreign(facts.subject)) : null,
      about.length
        ? h(
            "span",
            {class: "sub"},
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
        ? [["See the code change", `ridgeline isa ${quoted(R.short(good))} ${quoted(R.short(bad))}${about}`]]
        : [];
    if (event.kind === "configuration") return [["Verify the table", `ridgeline tune ${quoted(kernel)} --verify`]];
    if (!good) return [];
    const one = `${about} --case ${quoted(glob(name))} --backend ${quoted(backend)} --tier nightly`;
    const ends = `${quoted(R.short(good))} ${quoted(R.short(bad))}`;
    const again = [["Measure both again, in turn", `ridgeline ab ${ends}${one}`]];
    const search = event.kind === "kernel" && event.between > 0;
    return search ? [...again, ["Find the commit among them", `ridgeline bisect ${ends}${one}`]] : again;
  }

  function ackCommand(event) {
    return ["Take it", `ridgeline events ack ${quoted(event.id)} --owner NAME --reason TEXT`];
  }

  /** A command in a box, with a button that copies it. */
  function command([purpose, text]) {
    const code = h("code", {}, text),
      button = h("button", {type: "button", class: "copy", "aria-label": "copy: " + purpose}, "copy");
    button.addEventListener("click", async () => {
      button.textContent = (await copied(text, code)) ? "copied" : "select and copy";
    });
    return h(
      "div",
      {class: "command"},
      h("span", {class: "purpose"}, purpose),
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

  const row = (name, ...value) => h("div", {}, h("dt", {}, name), h("dd", {}, ...value));

  /** Everything about an event.  chosen: the series that is looked at, for the commands; close: act of a close button. */
  function eventPanel(event, {chosen = null, close = null} = {}) {
    const series = event.moved.find(
      one => chosen && one[0] === chosen.kernel && one[1] === chosen.backend && one[2] === chosen.case,
    );
    return h(
      "section",
      {class: "event-panel", "data-event": event.id, "aria-label": "event " + event.id},
      h(
        "div",
        {class: "event-head"},
        h("h2", {}, h("span", {class: "change " + event.direction}, change(event)), " ", stateChip(event)),
        close && h("button", {type: "button", class: "close", click: close, "aria-label": "close the event"}, "×"),
      ),
      h("dl", {}, about(event)),
      R.why(event.explanations),
      h(
        "div",
        {class: "commands"},
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
      row("first bad", commit(event.first_bad), h("span", {class: "sub"}, R.day(event.first_bad.date_ms))),
      good
        ? row("last good", commit(event.last_good), h("span", {class: "sub"}, R.day(event.last_good.date_ms)))
        : null,
      row("range", range(event), diff ? " · " : null, diff),
      event.kind === "code" || !sure ? null : row("how sure", sure),
      row("where", event.kind === "code" ? "in what the compiler emits, whatever the machine" : foreign(event.machine)),
      row("likely cause", causes(event, Infinity)),
      row("owner", owner(event), event.reason ? h("span", {class: "sub"}, foreign(event.reason)) : null),
      event.link ? row("link", outside(event.link)) : null,
      event.ended_at ? row(event.state === "accepted" ? "accepted at" : "ended at", commit(event.ended_at)) : null,
      row("id", h("code", {}, event.id)),
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
      return h("span", {class: "muted"}, event.kind === "machine" ? "clocks or heat: nothing recorded" : "not known");
    const shown = event.causes
      .slice(0, most)
      .map(({kind, text}) => h("li", {}, h("span", {class: "kind"}, kind), " ", foreign(cut(text))));
    const more = event.causes.length - shown.length;
    return h("ul", {class: "causes"}, shown, more > 0 ? h("li", {class: "muted"}, `${more} more`) : null);
  }

  /** Each series that moved, with its own size and a link to its history. */
  function shapes(event) {
    if (event.moved.length === 0) return null;
    const items = event.moved.slice(0, SHAPES).map(one => {
      const [kernel, backend, name, ratio, , , by] = one;
      return h(
        "li",
        {},
        link(seriesPage(event, one), `${kernel} / ${name} / ${backend}`),
        event.kind === "code" || !Number.isFinite(ratio)
          ? null
          : h("span", {class: "sub"}, ` ${R.signedPercent(ratio - 1)} of the time, judged by ${by}`),
      );
    });
    const more = event.moved.length - items.length;
    return h(
      "details",
      {class: "shapes", open: event.moved.length <= 5},
      h("summary", {}, several(event.moved.length, "series", "series") + " moved"),
      h(
        "ul",
        {},
        items,
        more > 0 ? h("li", {class: "muted"}, `and ${several(more, "more", "more")}: in events.json`) : null,
      ),
    );
  }

  Object.assign(R, {
    events,
    event: {
      SIGN,
      isOpen,
      change,
      interval,
      kernelsOf,
      backendsOf,
      casesOf,
      several,
      seriesPage,
      link,
      outside,
      commit,
      range,
      commands,
      command,
      causes,
      owner,
      stateChip,
    },
    eventPanel,
  });
})();
