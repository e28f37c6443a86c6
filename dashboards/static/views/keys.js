/* Keys of every page and the command palette. */

/* Keys of every page: j and k move over the rows, ? tells the keys.  "/" goes into the filter. */
"use strict";

(() => {
  const R = Ridgeline,
    {h, foreign, state, hashOf} = R;
  const KEYS = [
    ["j, k", "next and previous row"],
    ["Enter", "open the row, or follow its link"],
    ["/", "into the filter; Escape empties it"],
    ["Ctrl K or ⌘ K", "go to a kernel, case, machine, page or event"],
    ["← → Home End", "in a chart: along its points; Enter opens what is there, Escape shows all"],
    ["?", "these keys"],
  ];

  const typing = element => element instanceof Element && element.closest("input, select, textarea, [contenteditable]");

  /** Rows that one can go to: the visible ones with something to press. */
  function rows() {
    const found = [...document.querySelectorAll("main tbody tr:not(.group):not(.detail-row)")];
    return found.filter(row => row.getClientRects().length && !row.closest(".numbers, .beneath") && target(row));
  }

  const target = row => row.querySelector("th :is(a, button), :is(a, button)");

  /** Move to the next (1) or previous (-1) row; from elsewhere on the page to the first row that is in sight. */
  function move(by) {
    const all = rows(),
      now = document.activeElement.closest("tr");
    const at = all.indexOf(now?.classList.contains("detail-row") ? now.previousElementSibling : now);
    const inSight = all.findIndex(row => row.getBoundingClientRect().bottom > 60);
    const next = at >= 0 ? all[at + by] : all[Math.max(0, inSight)];
    if (!next) return;
    target(next).focus({preventScroll: true});
    next.scrollIntoView({block: "nearest"});
  }

  /** A dialog with this content; the element is made once and shown again. */
  function dialog(label, ...content) {
    const element = h("dialog", {"aria-label": label}, content);
    element.addEventListener("click", event => {
      if (event.target === element) element.close(); // beside it
    });
    document.body.append(element);
    return element;
  }

  let help = null;

  function showHelp() {
    help ??= dialog(
      "keys",
      h("h2", "Keys"),
      h(
        "dl.keys",
        KEYS.map(([keys, what]) =>
          h(
            "div",
            h(
              "dt",
              keys.split(" ").flatMap((key, n) => [n ? " " : null, h("kbd", key)]),
            ),
            h("dd", what),
          ),
        ),
      ),
      h("form", {method: "dialog"}, h("button", "close")),
    );
    if (!help.open) help.showModal();
  }

  document.addEventListener("keydown", event => {
    if (
      event.ctrlKey ||
      event.metaKey ||
      event.altKey ||
      typing(event.target) ||
      document.querySelector("dialog[open]")
    )
      return;
    if (event.key === "j") move(1);
    else if (event.key === "k") move(-1);
    else if (event.key === "?") {
      event.preventDefault();
      showHelp();
    } else if (event.key === "/" && document.getElementById("filter")) {
      event.preventDefault();
      document.getElementById("filter").focus();
    }
  });
  document.addEventListener("DOMContentLoaded", () =>
    document.getElementById("show-keys")?.addEventListener("click", showHelp),
  );

  /* The command palette (Ctrl K, ⌘ K): type some letters of a page, kernel, case, machine or event, and go there.
   */

  const MOST = 40; // entries shown; more words find the rest

  let palette = null;

  /* ---- what one can go to: {kind, text, href} ---- */

  function pages() {
    const {machine, env} = state();
    const links = [...document.querySelectorAll("header a.page")].map(link => ({
      kind: "page",
      text: link.textContent,
      href: link.href,
    }));
    return [{kind: "page", text: "Front page", href: R.root + "index.html" + hashOf({machine, env})}, ...links];
  }

  function kernels({machine, env}) {
    return R.site.kernels.map(({name}) => ({kind: "kernel", text: name, href: R.kernelPage(name, {machine, env})}));
  }

  function machines() {
    const here = location.pathname;
    return R.site.lanes.map(({machine, env, title}) => ({
      kind: "machine",
      text: [title, title === machine ? "" : machine, env || ""].filter(Boolean).join(" "),
      href: here + hashOf({...state(), machine, env, case: "", backend: "", from: "", to: ""}),
    }));
  }

  async function cases({machine, env, slug}) {
    const {rows} = await R.load(slug + "/overview");
    const seen = new Set();
    return rows
      .filter(row => !seen.has(row.kernel + "\n" + row.case) && seen.add(row.kernel + "\n" + row.case))
      .map(row => ({
        kind: "case",
        text: `${row.kernel} / ${row.case}`,
        href: R.kernelPage(row.kernel, {machine, env, case: row.case}),
      }));
  }

  async function events() {
    const {events} = await R.load("views/events");
    return events.map(event => {
      const kernels = [...new Set(event.moved.map(([kernel]) => kernel))].slice(0, 3).join(", ");
      const text = [
        kernels,
        event.kind,
        event.direction,
        event.state,
        event.machine,
        R.short(event.first_bad.hash),
        event.first_bad.subject,
        event.first_bad.author,
      ];
      return {
        kind: "event",
        text: text.filter(Boolean).join(" "),
        href: R.root + "events.html" + hashOf({event: event.id}),
      };
    });
  }

  /** Everything; what cannot be read is left out. */
  async function everything() {
    const lane = R.lane(state());
    if (!lane) return pages();
    const late = await Promise.all([cases(lane), events()].map(found => found.catch(() => [])));
    return [...pages(), ...kernels(lane), ...machines(), ...late.flat()];
  }

  /** Entries that have every word, those that begin with the first word first. */
  function found(entries, query) {
    const fits = entries.filter(({kind, text}) => R.matches(kind + " " + text, query)),
      begins = ({text}) => text.toLowerCase().startsWith(query.toLowerCase().trim());
    return [...fits.filter(begins), ...fits.filter(entry => !begins(entry))];
  }

  /* ---- the dialog ---- */

  function build() {
    const input = h("input", {
      type: "text", // Escape closes the dialog; a search field would only be emptied
      role: "combobox",
      "aria-label": "go to",
      "aria-expanded": "true",
      "aria-controls": "palette-list",
      "aria-autocomplete": "list",
      autocomplete: "off",
      spellcheck: "false",
      placeholder: "Kernel, case, machine, page or event …",
    });
    const list = h("ul", {id: "palette-list", role: "listbox", "aria-label": "matches"}),
      said = h("p.muted", {"aria-live": "polite"});
    const element = dialog("go to", input, list, said);
    element.classList.add("palette");
    const now = {entries: [], shown: [], at: 0};

    function draw() {
      const all = found(now.entries, input.value);
      now.shown = all.slice(0, MOST);
      now.at = Math.max(0, Math.min(now.at, now.shown.length - 1));
      list.replaceChildren(
        ...now.shown.map(({kind, text}, n) =>
          h(
            "li",
            {role: "option", id: "palette-" + n, "aria-selected": String(n === now.at), click: () => go(n)},
            h("span.kind", kind),
            " ",
            foreign(text),
          ),
        ),
      );
      if (now.shown.length) input.setAttribute("aria-activedescendant", "palette-" + now.at);
      else input.removeAttribute("aria-activedescendant");
      list.hidden = now.shown.length === 0;
      said.textContent =
        all.length > MOST ? `${all.length - MOST} more: type more letters` : all.length ? "" : "nothing matches";
      list.children[now.at]?.scrollIntoView({block: "nearest"});
    }

    function go(n) {
      const entry = now.shown[n];
      if (!entry) return;
      element.close();
      location.href = entry.href;
    }

    input.addEventListener("input", () => {
      now.at = 0;
      draw();
    });
    input.addEventListener("keydown", event => {
      const moves = {ArrowDown: 1, ArrowUp: -1};
      if (event.key in moves && now.shown.length) {
        event.preventDefault();
        now.at = (now.at + moves[event.key] + now.shown.length) % now.shown.length;
        draw();
      } else if (event.key === "Enter") {
        event.preventDefault();
        go(now.at);
      }
    });
    return {
      async open() {
        if (element.open) return element.close();
        input.value = "";
        element.showModal();
        input.focus();
        now.at = 0;
        now.entries = pages();
        draw();
        now.entries = await everything();
        draw();
      },
    };
  }

  function show() {
    palette ??= build();
    palette.open().catch(R.fail);
  }

  document.addEventListener("keydown", event => {
    if (event.key.toLowerCase() === "k" && (event.ctrlKey || event.metaKey) && !event.altKey && !event.shiftKey) {
      event.preventDefault();
      show();
    }
  });
  document.addEventListener("DOMContentLoaded", () =>
    document.getElementById("show-palette")?.addEventListener("click", show),
  );
})();
