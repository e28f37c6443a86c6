/* Tables of all pages, and the frame of a view. */

/* A table that can be sorted and filtered, and a small line for its cells. */
"use strict";

(() => {
  const R = Ridgeline,
    {h, s, number, RATES} = R;
  const {limits} = R.site;

  /** What the columns of numbers mean. */
  const HELP = {
    value: "median of the newest record, in the unit in which the case is quoted",
    time: "median of the newest record",
    share: "least possible time (roofline of this device) / measured time",
    ratio: "time of the fastest vendor library / our time: above 1, ours is faster",
    step:
      "change of speed; marked if the intervals are apart and both the speed and its ratio to the baseline moved by " +
      `${Math.round(100 * limits.beside)} % or more (without a baseline: the speed by ${Math.round(100 * limits.alone)} %)`,
  };

  /** Least height of a sparkline as a share of its values: noise of 1 % must not fill the cell. */
  const SPARK_SPAN = 0.05;

  HELP.history = `last ${limits.spark} records; the axis spans the values (${100 * SPARK_SPAN} % at least) and does not start at 0`;

  /** The recent line of a series.  Its axis spans the values (at least 5 % of them) and does not start at zero. */
  function spark(values, rate, width = 132, height = 30) {
    const known = values.filter(value => value !== null);
    if (known.length === 0) return h("span.muted", "–");
    const low = Math.min(...known),
      high = Math.max(...known);
    const span = Math.max(high - low, SPARK_SPAN * Math.abs(high)) || 1,
      middle = (low + high) / 2;
    const x = i => 3 + (width - 6) * (values.length === 1 ? 1 : i / (values.length - 1));
    const y = value => height / 2 - ((value - middle) / span) * (height - 8);
    const last = values.findLastIndex(value => value !== null);
    const text = `${known.length} commits, ${number(low)} to ${number(high)} ${RATES[rate].unit}`;
    return s(
      "svg.spark",
      {width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": text},
      s("path", {d: path(values, x, y)}),
      s("circle", {cx: x(last).toFixed(1), cy: y(values[last]).toFixed(1), r: 2.5}),
    );
  }

  /** SVG path through the values that exist; a hole (null) lifts the pen, and so does an index in `breaks`.  A place
   * without any value (undefined) is passed over.
   */
  function path(values, x, y, breaks = new Set()) {
    let pen = "M",
      text = "";
    values.forEach((value, i) => {
      if (breaks.has(i)) pen = "M";
      if (value === undefined) return;
      if (value === null) {
        pen = "M";
        return;
      }
      text += pen + x(i).toFixed(1) + " " + y(value).toFixed(1);
      pen = "L";
    });
    return text;
  }

  /* ---- order: "KEY" of a column, or "-KEY" from its end ---- */

  const keyOf = ({key, title}) => key ?? title;
  const collator = new Intl.Collator("en", {numeric: true}); // k2 before k10

  /** What a column sorts and saves of a row; null where there is nothing. */
  function valueOf(column, row) {
    const value = column.value ? column.value(row) : null;
    return value === undefined || Number.isNaN(value) ? null : value;
  }

  /** The order that the state has under a key, if there is such a column. */
  function orderIn(key, columns, usual = "") {
    const asked = R.state()[key] || "";
    return columns.some(column => column.value && keyOf(column) === asked.replace(/^-/, "")) ? asked : usual;
  }

  /** Rows in an order; holes stay last in both directions, equal rows keep their order. */
  function inOrder(rows, columns, order) {
    const column = columns.find(one => keyOf(one) === (order || "").replace(/^-/, ""));
    if (!column) return rows;
    const down = order.startsWith("-") ? -1 : 1;
    return [...rows].sort((a, b) => {
      const [x, y] = [valueOf(column, a), valueOf(column, b)];
      if (x === null || y === null) return (x === null) - (y === null);
      return down * (typeof x === "number" && typeof y === "number" ? x - y : collator.compare(String(x), String(y)));
    });
  }

  /** Header cells with buttons; columns are {title, key, help, value(row), number, most}, sorted(order) is called for another.
   *
   * most: the largest come first, as of numbers; a column without a value has no button, nor has a table that keeps its order.
   */
  function headCells(columns, order, sorted) {
    return columns.map(column => {
      const {title, help, number, most} = column,
        key = keyOf(column),
        active = (order || "").replace(/^-/, "") === key,
        down = active && order.startsWith("-"),
        next = active ? (down ? key : "-" + key) : (number || most ? "-" : "") + key;
      const label = column.value && sorted
        ? h("button", {type: "button", title: help, click: () => sorted(next)}, title, active ? h("span", {"aria-hidden": "true"}, down ? " ▾" : " ▴") : null)
        : h("span", {title: help}, title);
      const direction = active ? (down ? "descending" : "ascending") : null;
      return h("th", {scope: "col", class: number ? "number" : null, "aria-sort": direction}, label);
    });
  }

  /** The head of a table; another order goes into the state under a key, and draw() draws the table again. */
  function drawHead(table, columns, key, order, draw) {
    const sorted = next => {
      R.go({[key]: next});
      R.keepFocus(table.tHead, draw);
    };
    table.tHead.replaceChildren(h("tr", headCells(columns, order, sorted)));
  }

  /** Does a row's text hold every word that was typed? */
  function matches(text, query) {
    if (!query) return true;
    const low = text.toLowerCase();
    return query
      .toLowerCase()
      .split(/\s+/)
      .every(word => low.includes(word));
  }

  /** Typing changes the filter, Escape empties it. */
  function filterKeys(input, changed) {
    input.addEventListener("input", () => changed(input.value));
    input.addEventListener("keydown", event => {
      if (event.key === "Escape" && input.value) {
        input.value = "";
        changed("");
      }
    });
  }

  /** Name the column in each cell: a narrow page shows rows as cards, without a header. */
  function labelled(row, columns) {
    [...row.children].forEach((cell, i) => {
      cell.dataset.label = columns[i].title;
    });
    return row;
  }

  /** Links to the same numbers for other programs: data/PATH.json and data/PATH.csv. */
  function downloads(path) {
    const link = (kind, name) => h("a", {href: `${R.root}data/${path}.${kind}`}, name);
    document.getElementById("downloads")?.replaceChildren("The same numbers as ", link("json", "JSON"), " and ", link("csv", "CSV"), " (", h("a", {href: R.root + "data/README.txt"}, "columns"), ").");
  }

  /* ---- cells of both tables ---- */

  const ARROWS = {faster: "▲", slower: "▼"};

  function shareCell(share) {
    const bar = share === null || share === undefined ? null : h("span.bar", {"aria-hidden": "true"});
    if (bar) bar.style.setProperty("--share", Math.min(100, 100 * share) + "%");
    return h("td.number.share", R.percent(share), bar);
  }

  function ratioCell(row) {
    if (row.ratio === null || row.ratio === undefined)
      return h("td.number.muted", row.baseline ? "is the baseline" : "–");
    const side = row.ratio >= 1 ? "ahead" : "behind";
    const help = `${row.backend} is ${number(row.ratio >= 1 ? row.ratio : 1 / row.ratio, 3)} times ${row.ratio >= 1 ? "faster" : "slower"} than ${row.baseline_name}`;
    return h(
      "td.number",
      {title: help},
      h("span", {class: side}, number(row.ratio, 3) + " ×"),
      h("span.sub", R.foreign(row.baseline_name)),
    );
  }

  function stepCell(step) {
    if (!step) return h("td.number.muted", "–");
    if (step.redefined) {
      const title = `the benchmark definition has changed since ${R.short(step.from)}: not comparable`;
      return h("td.number.muted", {title}, "new definition");
    }
    const lines = [
      `speed ${R.signedPercent(step.speed)} since ${R.short(step.from)}`,
      step.ratio === null ? "no baseline was timed" : `ratio to the baseline ${R.signedPercent(step.ratio)}`,
      step.moved
        ? `${step.moved}: the intervals are apart, and the change is large enough to be marked`
        : "within the drift between separate runs",
      step.env ? "the environment changed too" : "",
    ]
      .filter(Boolean)
      .join("\n");
    return h(
      "td",
      {class: "number " + (step.moved || "muted"), title: lines},
      step.moved ? h("span", {"aria-label": step.moved}, ARROWS[step.moved] + " ") : null,
      R.signedPercent(step.speed),
      step.env ? h("span.sub", "new environment") : null,
    );
  }

  function valueCell(row) {
    const text = R.withUnit(row.value, row.rate),
      [amount, ...unit] = text.split(" ");
    const kind = row.rate === "busbw" || row.rate === "algbw" ? row.rate : row.rate === "gbs" ? "HBM" : null;
    const value = [h("strong", amount), " " + unit.join(" "), kind ? h("span.sub", kind) : null];
    if (row.status === "ok")
      return h("td.number.value", {title: row.us === undefined ? null : R.duration(row.us)}, value);
    return h(
      "td.number.value",
      {title: row.why},
      R.status(row.status),
      row.value === null ? null : h("span.sub", "last: " + text),
    );
  }

  /** Columns of both tables; cell: of a row. */
  const MEASURED = {
    newest: {title: "newest", number: true, value: row => row.value, help: HELP.value, cell: valueCell},
    share: {title: "% of peak", number: true, value: row => row.share, help: HELP.share, cell: row => shareCell(row.share)},
    ratio: {title: "vs baseline", number: true, value: row => row.ratio, help: HELP.ratio, cell: ratioCell},
    step: {title: "vs commit before", number: true, value: row => row.step?.speed, help: HELP.step, cell: row => stepCell(row.step)},
  };

  /* The frame of a view: its state in the address, choices that the browser's Back undoes, and a table that can be sorted,
   * copied as Markdown and saved as CSV or JSON: all from one list of columns.
   */

  const FIRST_ROWS = 400; // rows that a table shows at once: 0.1 s; a button shows the others

  /** Call show(state) now and whenever the address changes; what it throws is shown on the page.
   *
   * It gives draw(host), which is called unless the address has changed again; the control that had the focus keeps it.
   * Returns choose(changes): takes them into the address with a new entry of the browser's history, and shows.
   * choose.order(key): the order of a grid that the address keeps under a key; choose.off(): the hidden names of a chart.
   */
  function view(show) {
    let wanted = 0;
    async function again() {
      const mine = ++wanted,
        main = document.querySelector("main");
      main.dataset.busy = "";
      for (const old of main.querySelectorAll(":scope > .notice.bad[data-failed]")) old.remove();
      try {
        const draw = await show(R.state()),
          host = document.getElementById("view");
        if (mine === wanted) R.keepFocus(host, () => draw(host));
      } catch (error) {
        main.prepend(h("p.notice.bad", {role: "alert", "data-failed": true}, String(error.message || error)));
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
    const choose = changes => {
      R.go(changes);
      return again();
    };
    return Object.assign(choose, {
      order: key => ({sort: R.state()[key], sorted: sort => choose({[key]: sort})}),
      off: () => [R.listed("off"), off => choose({off: R.listing(off)})],
    });
  }

  /** The lane that the state names, in the head of the page; `choose` is asked for another. */
  function laneOf(values, choose) {
    const lane = R.lane(values);
    R.header(lane, change => choose({machine: lane.machine, env: lane.env, ...change}));
    return lane;
  }

  const asked = new Map();

  /** The value of a data file, also for several who ask at once. */
  function data(path) {
    if (!asked.has(path)) asked.set(path, R.load(path));
    return asked.get(path);
  }

  /** Links to the same numbers as files (dashboards/views/__init__.py). */
  function besideLinks(path, what = "All numbers of this machine") {
    const link = kind => h("a", {href: R.root + "data/" + path + "." + kind, download: true}, kind.toUpperCase());
    return h("p.beside", what + ": ", link("json"), ", ", link("csv"));
  }

  /** Lines of the box at the cursor: what it is of, more about that, and [[name, text]]. */
  function box(title, facts, ...more) {
    const known = facts.filter(([, text]) => text !== null && text !== undefined && text !== "");
    return [
      h("p", h("strong", R.foreign(title)), more),
      h("dl", known.map(([name, text]) => h("div", h("dt", R.foreign(name)), h("dd", R.foreign(text))))),
    ];
  }

  /** A filter that the address keeps. */
  function filterBox(query, placeholder, changed) {
    const input = h("input", {type: "search", id: "filter", placeholder, value: query, autocomplete: "off", spellcheck: "false"});
    input.addEventListener("change", () => changed(input.value.trim()));
    return [h("label.visually-hidden", {for: "filter"}, "filter"), input];
  }

  const shownCount = (count, all, noun) =>
    h("span.count", {id: "shown", "aria-live": "polite"}, `${count} of ${all} ${noun}`);

  /* ---- the table ---- */

  /** Columns with what is usual of them: the key is the title, and what a row has under it is the value. */
  const columnsOf = every => every.map(column => ({title: column.key, value: row => row[column.key], ...column}));

  /** A table with its buttons.  Columns: {key, title, help, number, value(row), text(value), cell(row), hidden}.
   *
   * value: what is sorted and saved; cell: nodes of a row, or text: of a value that is there; by default the value.
   * sort: "key" or "-key", sorted(sort) is called when another is chosen; without one the rows stay in their order.
   * file: name of what is saved.  What is hidden is in the saved files alone.
   */
  function grid({caption, columns: every, rows, sort, sorted, file, markdown}) {
    const columns = columnsOf(every).filter(({hidden}) => !hidden);
    const body = h("tbody"),
      shown = inOrder(rows, columns, sort);
    const fill = count => body.replaceChildren(...shown.slice(0, count).map(row => line(row, columns)));
    const more = h("button.more", {type: "button", click: all}, `Show all ${shown.length} rows`);
    function all() {
      fill(shown.length);
      more.remove();
    }
    fill(FIRST_ROWS);
    if (shown.length > FIRST_ROWS) window.addEventListener("beforeprint", all, {once: true});
    const reached = {tabindex: "0", role: "region", "aria-label": caption}; // a table without buttons can be scrolled by keys
    const table = h(
      "table",
      h("caption.visually-hidden", caption),
      h("thead", h("tr", headCells(columns, sort, sorted))),
      body,
    );
    return h(
      "div.grid",
      {"data-table": file},
      buttons(shown, columns, every, file, markdown),
      h("div.scroll", {...(sorted ? {} : reached)}, table),
      shown.length > FIRST_ROWS ? more : null,
    );
  }

  function line(row, columns) {
    const cells = columns.map((column, n) => {
      const value = valueOf(column, row);
      const shown = column.cell ? column.cell(row) : value === null || !column.text ? R.foreign(String(value ?? "–")) : column.text(value);
      const attributes = {
        class: [column.number ? "number" : "", column.look ? column.look(row) : ""].join(" ").trim() || null,
      };
      return n === 0 ? h("th", {scope: "row", ...attributes}, shown) : h("td", attributes, shown);
    });
    return h("tr", cells);
  }

  function buttons(rows, columns, every, file, markdown) {
    const done = h("span.hint", {"aria-live": "polite"});
    const button = (text, act) => h("button", {type: "button", click: act}, text);
    const copy = () => copied(markdown ? markdown(rows) : asMarkdown(rows, columns), done);
    return h(
      "div.controls",
      button("Copy as Markdown", copy),
      button("Save as CSV", () => save(file + ".csv", "text/csv", asCsv(rows, every))),
      button("Save as JSON", () => save(file + ".json", "application/json", asJson(rows, every))),
      done,
    );
  }

  /* ---- the same rows elsewhere ---- */

  /** Into the clipboard, which a page from disk may only reach through a selection. */
  function copied(text, done) {
    const field = h("textarea.visually-hidden", {"aria-hidden": "true"});
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

  function asMarkdown(rows, every) {
    const columns = columnsOf(every);
    const row = cells => "| " + cells.join(" | ") + " |";
    const cell = (column, one) => escaped(column.plain ? column.plain(one) : valueOf(column, one));
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

  function asCsv(rows, every) {
    const columns = columnsOf(every);
    const lines = [columns.map(({key}) => key), ...rows.map(row => columns.map(column => valueOf(column, row)))];
    return lines.map(fields => fields.map(field).join(",")).join("\n") + "\n";
  }

  function asJson(rows, every) {
    const columns = columnsOf(every),
      plain = rows.map(row => Object.fromEntries(columns.map(column => [column.key, valueOf(column, row)])));
    return JSON.stringify(plain, null, 1) + "\n";
  }

  Object.assign(R, {
    HELP,
    labelled,
    spark,
    path,
    valueOf,
    orderIn,
    inOrder,
    drawHead,
    matches,
    filterKeys,
    downloads,
    MEASURED,
    view,
    laneOf,
    filterBox,
    shownCount,
    data,
    besideLinks,
    box,
    grid,
    asMarkdown,
    asCsv,
    asJson,
    markdownText: escaped,
  });
})();
