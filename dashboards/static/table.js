/* A table that can be sorted and filtered, and a small line for its cells. */
"use strict";

(() => {
  const {h, s, number, RATES} = Ridgeline;

  const {limits} = Ridgeline.site;

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
    if (known.length === 0) return h("span", {class: "muted"}, "–");
    const low = Math.min(...known),
      high = Math.max(...known);
    const span = Math.max(high - low, SPARK_SPAN * Math.abs(high)) || 1,
      middle = (low + high) / 2;
    const x = i => 3 + (width - 6) * (values.length === 1 ? 1 : i / (values.length - 1));
    const y = value => height / 2 - ((value - middle) / span) * (height - 8);
    const last = values.findLastIndex(value => value !== null);
    const text = `${known.length} commits, ${number(low)} to ${number(high)} ${RATES[rate].unit}`;
    return s(
      "svg",
      {class: "spark", width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": text},
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
    const value = column.value(row);
    return value === undefined || Number.isNaN(value) ? null : value;
  }

  /** The order that the state has under a key, if there is such a column. */
  function orderIn(key, columns, usual = "") {
    const asked = Ridgeline.state()[key] || "";
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
    const link = (kind, name) => h("a", {href: `${Ridgeline.root}data/${path}.${kind}`}, name);
    document.getElementById("downloads")?.replaceChildren("The same numbers as ", link("json", "JSON"), " and ", link("csv", "CSV"), " (", h("a", {href: Ridgeline.root + "data/README.txt"}, "columns"), ").");
  }

  /* ---- cells of both tables ---- */

  const ARROWS = {faster: "▲", slower: "▼"};

  function shareCell(share) {
    const bar = share === null || share === undefined ? null : h("span", {class: "bar", "aria-hidden": "true"});
    if (bar) bar.style.setProperty("--share", Math.min(100, 100 * share) + "%");
    return h("td", {class: "number share"}, Ridgeline.percent(share), bar);
  }

  function ratioCell(row) {
    if (row.ratio === null || row.ratio === undefined)
      return h("td", {class: "number muted"}, row.baseline ? "is the baseline" : "–");
    const side = row.ratio >= 1 ? "ahead" : "behind";
    const help = `${row.backend} is ${number(row.ratio >= 1 ? row.ratio : 1 / row.ratio, 3)} times ${row.ratio >= 1 ? "faster" : "slower"} than ${row.baseline_name}`;
    return h(
      "td",
      {class: "number", title: help},
      h("span", {class: side}, number(row.ratio, 3) + " ×"),
      h("span", {class: "sub"}, Ridgeline.foreign(row.baseline_name)),
    );
  }

  function stepCell(step) {
    if (!step) return h("td", {class: "number muted"}, "–");
    if (step.redefined) {
      const title = `the benchmark definition has changed since ${Ridgeline.short(step.from)}: not comparable`;
      return h("td", {class: "number muted", title}, "new definition");
    }
    const lines = [
      `speed ${Ridgeline.signedPercent(step.speed)} since ${Ridgeline.short(step.from)}`,
      step.ratio === null ? "no baseline was timed" : `ratio to the baseline ${Ridgeline.signedPercent(step.ratio)}`,
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
      Ridgeline.signedPercent(step.speed),
      step.env ? h("span", {class: "sub"}, "new environment") : null,
    );
  }

  function valueCell(row) {
    const text = Ridgeline.withUnit(row.value, row.rate),
      [amount, ...unit] = text.split(" ");
    const kind = row.rate === "busbw" || row.rate === "algbw" ? row.rate : row.rate === "gbs" ? "HBM" : null;
    const value = [h("strong", {}, amount), " " + unit.join(" "), kind ? h("span", {class: "sub"}, kind) : null];
    if (row.status === "ok")
      return h("td", {class: "number value", title: row.us === undefined ? null : Ridgeline.duration(row.us)}, value);
    return h(
      "td",
      {class: "number value", title: row.why},
      h("span", {class: "status " + row.status}, row.status),
      row.value === null ? null : h("span", {class: "sub"}, "last: " + text),
    );
  }

  /** Columns of both tables; cell: of a row. */
  const MEASURED = {
    newest: {title: "newest", number: true, value: row => row.value, help: HELP.value, cell: valueCell},
    share: {title: "% of peak", number: true, value: row => row.share, help: HELP.share, cell: row => shareCell(row.share)},
    ratio: {title: "vs baseline", number: true, value: row => row.ratio, help: HELP.ratio, cell: ratioCell},
    step: {title: "vs commit before", number: true, value: row => row.step?.speed, help: HELP.step, cell: row => stepCell(row.step)},
  };

  Object.assign(Ridgeline, {
    HELP,
    labelled,
    spark,
    path,
    valueOf,
    orderIn,
    inOrder,
    headCells,
    matches,
    filterKeys,
    downloads,
    MEASURED,
  });
})();
