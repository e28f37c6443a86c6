/* Keys of every page: j and k move over the rows, ? tells the keys.  "/" goes into the filter. */
"use strict";

(() => {
  const R = Ridgeline,
    {h} = R;

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
      h("h2", {}, "Keys"),
      h(
        "dl",
        {class: "keys"},
        KEYS.map(([keys, what]) =>
          h(
            "div",
            {},
            h(
              "dt",
              {},
              keys.split(" ").flatMap((key, n) => [n ? " " : null, h("kbd", {}, key)]),
            ),
            h("dd", {}, what),
          ),
        ),
      ),
      h("form", {method: "dialog"}, h("button", {}, "close")),
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

  Object.assign(R, {dialog});
})();
