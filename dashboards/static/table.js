/* The one table: it knows kinds of columns (dashboards/table.py), not pages.  Every row is in the document, so that the
 * browser's own search, print and copy work.
 */
"use strict";

(() => {
  const R = Ridgeline,
    {h, foreign, NONE} = R;
  const LONG = 12; // rows from which on a table has its tools

  const ends = (low, high, text) => (R.known(low) && R.known(high) ? h("span.sub", `${text(low)} to ${text(high)}`) : null);
  const plain = ratio => R.number(ratio, 4);

  /** A cell's content by the kind of its column. */
  const CELLS = {
    text: value => foreign(String(value)),
    date: value => String(value),
    number: value => R.number(value),
    share: value => R.percent(value),
    duration: value => R.withUnit(value, "s"),
    rate: ([value, unit, other]) => [
      h("strong", R.withUnit(value, unit === "s" ? "s" : "")),
      unit === "s" ? null : h("span.unit", ` ${unit}`),
      other ? h("span.sub", foreign(other[0]), ` ${R.withUnit(other[1], unit === "s" ? "s" : "")}`) : null,
    ],
    interval: ([low, high]) => `${R.number(low)} to ${R.number(high)}`,
    ratio: ([value, low, high]) => [h("strong", R.withUnit(value, "×")), ends(low, high, plain)],
    change: ([value, low, high]) => [
      h("strong", {class: direction(value, low, high)}, R.signed(value)),
      R.known(low) && R.known(high) ? h("span.sub", R.interval(low, high)) : null,
    ],
    commit: ([hash, date]) => [R.commit(hash), date ? h("span.sub", date.slice(0, 10)) : null],
    case: ([name, address, about]) => [R.link(address, name), about ? h("span.sub", foreign(about)) : null],
    status: ([status, why]) => [h("span", {class: `status ${status.replaceAll(" ", "-")}`}, status), why ? h("span.sub", foreign(why)) : null],
    lines: ([first, ...rest]) => [foreign(first), rest.map(one => h("span.sub", foreign(one)))],
    chart: (value, commits) => R.chart(value, commits),
  };
  const NUMBERS = new Set(["number", "share", "duration", "rate", "interval", "ratio", "change"]);

  /** A change is one where its interval leaves 0 out. */
  const direction = (value, low, high) => (low > 0 ? "slower" : high < 0 ? "faster" : null);

  const main = cell => (Array.isArray(cell) ? cell[0] : cell);
  const empty = cell => cell === null || cell === undefined || (Array.isArray(cell) && (main(cell) === null || main(cell) === undefined));

  /** What a cell is sorted by; a case as people count, m64 before m512. */
  function order(a, b) {
    const [x, y] = [main(a), main(b)];
    if (typeof x === "number" && typeof y === "number") return x - y;
    return String(x).localeCompare(String(y), "en", {numeric: true});
  }

  const textOf = row => row.map(cell => (typeof cell === "object" ? JSON.stringify(cell) : String(cell))).join(" ").toLowerCase();

  /* ---- for other programs ---- */

  const FORMULA = /^[=+\-@\t\r]/;
  const field = value => (typeof value === "string" && FORMULA.test(value) ? `'${value}` : value ?? "");
  const quoted = text => (/[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
  const partsOf = (column, cell) => column.parts.map((_, n) => field(Array.isArray(cell) ? cell[n] : n ? "" : cell));

  /** Head and rows as lists of fields. */
  const fields = (columns, rows) => [columns.flatMap(({parts}) => parts), ...rows.map(row => columns.flatMap((column, n) => partsOf(column, row[n])))];

  function save(name, text) {
    const address = URL.createObjectURL(new Blob([text], {type: "text/csv"}));
    h("a", {href: address, download: name}).click();
    URL.revokeObjectURL(address);
  }

  /** A table of a page; commits: the list of the page. */
  R.table = (piece, commits = []) => {
    const {rows, group} = piece,
      columns = piece.columns.map(column => ({kind: "text", parts: [column.key], ...column})),
      grouped = columns.findIndex(({key}) => key === group),
      shownColumns = columns.filter((_, n) => n !== grouped);
    let sorted = null,
      down = false,
      query = [];
    const body = h("tbody"),
      count = h("span.count", {"aria-live": "polite"});
    const heads = shownColumns.map(column => {
      const sortable = column.kind !== "chart",
        title = sortable ? h("button", {type: "button", click: () => sort(column)}, column.title) : column.title;
      return h("th", {scope: "col", class: NUMBERS.has(column.kind) ? "number" : null, title: column.help}, column.title ? title : h("span.visually-hidden", column.key));
    });
    const table = h("table", {class: piece.look || null}, h("caption.visually-hidden", piece.caption), h("thead", h("tr", heads)), body);

    function sort(column) {
      down = sorted === column ? !down : NUMBERS.has(column.kind);
      sorted = column;
      draw();
    }

    function chosen() {
      const fits = rows.filter(row => query.every(word => textOf(row).includes(word)));
      if (!sorted) return fits;
      const at = columns.indexOf(sorted),
        side = down ? -1 : 1;
      const there = fits.filter(row => !empty(row[at])).sort((a, b) => side * order(a[at], b[at]));
      const whole = [...there, ...fits.filter(row => empty(row[at]))];
      if (grouped < 0) return whole;
      const names = [...new Set(fits.map(row => main(row[grouped])))];
      return names.flatMap(name => whole.filter(row => main(row[grouped]) === name));
    }

    function line(row) {
      const cells = columns.map((column, n) => {
        if (n === grouped) return null;
        const content = empty(row[n]) || row[n] === "" ? NONE : CELLS[column.kind](row[n], commits);
        const look = {class: [NUMBERS.has(column.kind) ? "number" : "", column.kind].join(" ").trim(), "data-label": column.title};
        return n === (grouped === 0 ? 1 : 0) ? h("th", {scope: "row", ...look}, content) : h("td", look, content);
      });
      return h("tr", cells);
    }

    function draw() {
      const found = chosen(),
        lines = [];
      let last = null;
      for (const row of found) {
        if (grouped >= 0 && main(row[grouped]) !== last) {
          last = main(row[grouped]);
          lines.push(h("tr.group", h("th", {colspan: shownColumns.length, scope: "rowgroup"}, foreign(last))));
        }
        lines.push(line(row));
      }
      body.replaceChildren(...lines);
      heads.forEach((head, n) => {
        if (shownColumns[n] === sorted) head.setAttribute("aria-sort", down ? "descending" : "ascending");
        else head.removeAttribute("aria-sort");
      });
      const every = rows.length === 1 ? "1 row" : `${rows.length} rows`;
      count.textContent = found.length === rows.length ? every : `${found.length} of ${every}`;
    }

    const copied = () => R.copy(fields(columns, chosen()).map(row => row.join("\t")).join("\n")).then(() => (count.textContent = "copied"));
    const csv = () => save(`${piece.name}.csv`, `${fields(columns, chosen()).map(row => row.map(one => quoted(String(one))).join(",")).join("\n")}\n`);
    const search = h("input", {
      type: "search",
      placeholder: "Filter   ( / )",
      "aria-label": `filter ${piece.caption}`,
      autocomplete: "off",
      spellcheck: "false",
      input: () => {
        query = search.value.toLowerCase().split(/\s+/).filter(Boolean);
        draw();
      },
    });
    const tools = h("div.tools", piece.filter && rows.length > LONG ? search : null, count, h("button", {type: "button", click: copied}, "Copy"), h("button", {type: "button", click: csv}, "CSV"));
    draw();
    const long = rows.length > LONG || piece.filter;
    return h("div.table", long ? tools : null, h("div.scroll", {tabindex: "0", role: "region", "aria-label": piece.caption}, table), long ? null : h("div.tools.below", h("button", {type: "button", click: csv}, "CSV")));
  };
})();
