/* Checks: what was verified on which machine, and everything that failed. */
"use strict";

(() => {
  const R = Ridgeline,
    {h, foreign} = R;

  async function show(values) {
    const {rows, failures, problems} = await R.load("views/checks");
    R.laneOf(values, choose);
    return host => draw(host, values, {rows, failures, problems});
  }

  function draw(host, values, {rows, failures, problems}) {
    const query = values.q || "";
    const shown = rows.filter(row => R.matches([row.kernel, row.backend, row.machine, `${row.world} ranks`].join(" "), query));
    const tried = shown.filter(({counts}) => Object.keys(counts).some(status => status !== "unsupported" && status !== "skipped")),
      others = shown.filter(row => !tried.includes(row));
    const right = rows.reduce((sum, {counts}) => sum + (counts.ok || 0), 0);
    const tiles = [
      [right.toLocaleString("en-US"), "checks right"],
      [String(failures.length), "failed"],
      [rows.map(({last}) => last).sort().at(-1)?.slice(0, 10) || "never", "newest"],
    ];
    host.replaceChildren(
      h("p.hint", "Every trial compares what it times with the reference, and so does ", h("code", "ridgeline verify"), " without timing; the newest comparison of a case counts."),
      h("div", {id: "tiles"}, tiles.map(([value, text]) => h("div.tile", h("strong", value), h("span", text)))),
      problems.length ? h("ul.notice.bad", problems.map(text => h("li", foreign(text)))) : "",
      failures.length ? h("ul.findings", failures.map(failure)) : "",
      h("div.tools", R.filterBox(query, "Filter operators, backends, machines … ( / )", q => choose({q})), R.shownCount(shown.length, rows.length, "rows")),
      rows.length
        ? R.grid({caption: "what was verified", columns: R.checkColumns(true), rows: tried, ...choose.order("sort"), file: "checks"})
        : h("p.notice", "Nothing was compared with its reference yet: ", h("code", "ridgeline verify"), "."),
      others.length ? h("details", h("summary", `${others.length} that cannot run there`), notTried(others)) : "",
      rows.length ? R.besideLinks("views/checks", "All checks") : "",
    );
  }

  const notTried = rows => R.grid({caption: "backends that cannot run", columns: R.checkColumns(true), rows, file: "unsupported"});

  const failure = ({machine, kernel, backend, case: name, status, why, at}) =>
    h("li.standing", foreign([kernel, backend, name].join("/")), " on ", foreign(machine), ": ", status, ", ", foreign(why), ` (${at.slice(0, 10)})`);

  const choose = R.view(show);
})();
