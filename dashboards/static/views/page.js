/* The frame of a view: its state in the address, choices that the browser's Back undoes, and a table that can be sorted,
 * copied as Markdown and saved as CSV or JSON: all from one list of columns.
 */
"use strict";

(() => {
  const R = Ridgeline,
    {h} = R;
  const FIRST_ROWS = 400; // rows that a table shows at once: 0.1 s; a button shows the others

  /** Call show(state) now and whenever the address changes; what it throws is shown on the page.
   *
   * Returns choose(changes): takes them into the address with a new entry of the browser's history, and shows.
   */
  function view(show) {
    let wanted = 0;
    async function again() {
      const mine = ++wanted,
        main = document.querySelector("main");
      main.dataset.busy = "";
      for (const old of main.querySelectorAll(":scope > .notice.bad[data-failed]")) old.remove();
      try {
        await show(R.state(), () => mine === wanted);
      } catch (error) {
        main.prepend(h("p", {class: "notice bad", role: "alert", "data-failed": true}, String(error.message || error)));
        console.error(error);
      } finally {
        if (mine === wanted) delete main.dataset.busy;
      }
    }
    document.addEventListener("DOMContentLoaded", () => {
      if (!R.site.lanes.length && !document.querySelector("[data-alone]")) return; // no records: the page says so
      window.addEventListener("popstate", again);
      window.addEventListener("hashchange", again);
      again();
    });
    return changes => {
      R.go(changes);
      return again();
    };
  }

  const asked = new Map();

  /** The value of a data file, also for several who ask at once. */
  function data(path) {
    if (!asked.has(path)) asked.set(path, R.load(path));
    return asked.get(path);
  }

  /** A labelled choice; options: [[value, text]]. */
  function pick(title, options, chosen, change) {
    const entries = options.map(([value, text]) => h("option", {value, selected: value === chosen}, text));
    return h("label", {}, title + " ", h("select", {change: event => change(event.target.value)}, entries));
  }

  /** Links to the same numbers as files (dashboards/views/beside.py). */
  function besideLinks(path, what = "All numbers of this machine") {
    const link = kind => h("a", {href: R.root + "data/" + path + "." + kind, download: true}, kind.toUpperCase());
    return h("p", {class: "beside"}, what + ": ", link("json"), ", ", link("csv"));
  }

  /** Lines of the box at the cursor: what it is of, more about that, and [[name, text]]. */
  function box(title, facts, ...more) {
    const known = facts.filter(([, text]) => text !== null && text !== undefined && text !== "");
    return [
      h("p", {}, h("strong", {}, R.foreign(title)), more),
      h("dl", {}, known.map(([name, text]) => h("div", {}, h("dt", {}, R.foreign(name)), h("dd", {}, R.foreign(text))))),
    ];
  }

  /* ---- the table ---- */

  /** A table with its buttons.  Columns: {key, title, help, number, value(row), cell(row) -> text or nodes}.
   *
   * value: what is sorted and saved; cell: what is shown, by default the value.  sort: "key" or "-key", sorted(sort) is
   * called when another is chosen; without one the rows stay in their order.  file: name of what is saved.  What has no
   * title is in the saved files alone.
   */
  function grid({caption, columns: every, rows, sort, sorted, file, markdown}) {
    const columns = every.filter(({title}) => title);
    const body = h("tbody", {}),
      shown = R.inOrder(rows, columns, sort);
    const fill = count => body.replaceChildren(...shown.slice(0, count).map(row => line(row, columns)));
    const more = h("button", {type: "button", class: "more", click: all}, `Show all ${shown.length} rows`);
    function all() {
      fill(shown.length);
      more.remove();
    }
    fill(FIRST_ROWS);
    if (shown.length > FIRST_ROWS) window.addEventListener("beforeprint", all, {once: true});
    const reached = {tabindex: "0", role: "region", "aria-label": caption}; // a table without buttons can be scrolled by keys
    const table = h(
      "table",
      {},
      h("caption", {class: "visually-hidden"}, caption),
      h("thead", {}, h("tr", {}, R.headCells(columns, sort, sorted))),
      body,
    );
    return h(
      "div",
      {class: "grid", "data-table": file},
      buttons(shown, columns, every, file, markdown),
      h("div", {class: "scroll", ...(sorted ? {} : reached)}, table),
      shown.length > FIRST_ROWS ? more : null,
    );
  }

  function line(row, columns) {
    const cells = columns.map((column, n) => {
      const shown = column.cell ? column.cell(row) : R.foreign(String(R.valueOf(column, row) ?? "–"));
      const attributes = {
        class: [column.number ? "number" : "", column.look ? column.look(row) : ""].join(" ").trim() || null,
      };
      return n === 0 ? h("th", {scope: "row", ...attributes}, shown) : h("td", attributes, shown);
    });
    return h("tr", {}, cells);
  }

  function buttons(rows, columns, every, file, markdown) {
    const done = h("span", {class: "hint", "aria-live": "polite"});
    const button = (text, act) => h("button", {type: "button", click: act}, text);
    const copy = () => copied(markdown ? markdown(rows) : asMarkdown(rows, columns), done);
    return h(
      "div",
      {class: "controls"},
      button("Copy as Markdown", copy),
      button("Save as CSV", () => save(file + ".csv", "text/csv", asCsv(rows, every))),
      button("Save as JSON", () => save(file + ".json", "application/json", asJson(rows, every))),
      done,
    );
  }

  /* ---- the same rows elsewhere ---- */

  /** Into the clipboard, which a page from disk may only reach through a selection. */
  function copied(text, done) {
    const field = h("textarea", {class: "visually-hidden", "aria-hidden": "true"});
    field.value = text;
    document.body.append(field);
    field.select();
    const went = document.execCommand("copy");
    field.remove();
    done.textContent = went ? "copied" : "the browser did not let the page copy";
  }

  function save(name, type, text) {
    const url = URL.createObjectURL(new Blob([text], {type}));
    h("a", {href: url, download: name}).click();
    setTimeout(() => URL.revokeObjectURL(url), 1000);
  }

  /** A cell of a Markdown table: text as text, whatever it holds. */
  function escaped(value) {
    const text =
      value === null || value === undefined ? "" : typeof value === "number" ? R.number(value) : String(value);
    return text
      .replace(/[\s\u0000-\u001f]+/g, " ")
      .replace(/[\\`*_{}[\]<>()#+!|~@&-]/g, mark => (mark === "-" ? "-" : "\\" + mark));
  }

  function asMarkdown(rows, columns) {
    const row = cells => "| " + cells.join(" | ") + " |";
    const cell = (column, one) => escaped(column.plain ? column.plain(one) : R.valueOf(column, one));
    return (
      [
        row(columns.map(({title}) => escaped(title))),
        row(columns.map(({number}) => (number ? "--:" : "---"))),
        ...rows.map(one => row(columns.map(column => cell(column, one)))),
      ].join("\n") + "\n"
    );
  }

  /** A field; an apostrophe keeps a spreadsheet from running a text as a formula. */
  function field(value) {
    const text =
      value === null || value === undefined
        ? ""
        : typeof value === "string" && /^[=+\-@\t\r]/.test(value)
          ? "'" + value
          : String(value);
    return /[",\n\r]/.test(text) ? '"' + text.replaceAll('"', '""') + '"' : text;
  }

  function asCsv(rows, columns) {
    const lines = [columns.map(({key}) => key), ...rows.map(row => columns.map(column => R.valueOf(column, row)))];
    return lines.map(fields => fields.map(field).join(",")).join("\n") + "\n";
  }

  function asJson(rows, columns) {
    const plain = rows.map(row => Object.fromEntries(columns.map(column => [column.key, R.valueOf(column, row)])));
    return JSON.stringify(plain, null, 1) + "\n";
  }

  Object.assign(R, {
    view,
    data,
    pick,
    besideLinks,
    box,
    grid,
    asMarkdown,
    asCsv,
    asJson,
    markdownText: escaped,
  });
})();
