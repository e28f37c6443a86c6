/* Checks: the columns of their table, which two pages share, and a line on the page of a kernel. */
"use strict";

(() => {
  const R = Ridgeline,
    {h, foreign} = R;
  const FAILED = ["wrong", "crash", "hang", "error"];

  /** "5 right"; what failed comes first. */
  function result({counts}) {
    const failed = FAILED.filter(status => counts[status]).map(status => h("span", {class: "status " + status}, `${counts[status]} ${status}`));
    const others = Object.keys(counts)
      .filter(status => status !== "ok" && !FAILED.includes(status))
      .map(status => h("span.sub", `${counts[status]} ${status}`));
    return [...failed, counts.ok ? ` ${counts.ok} right` : failed.length ? "" : "none tried", ...others];
  }

  /** Columns of rows as dashboards/views/machines.py: verified_row gives them. */
  function checkColumns(machines = false) {
    const machine = {key: "machine"};
    return [
      {key: "kernel", title: "operator", cell: row => kernel(row)},
      {key: "backend"},
      ...(machines ? [machine] : []),
      {key: "world", title: "ranks", number: true},
      {key: "ok", title: "cases", number: true, value: row => row.counts.ok || 0, cell: result, look: row => (FAILED.some(status => row.counts[status]) ? "slower" : "")},
      {key: "worst", title: "largest error", help: "rms error / rms of the reference, of the cases that are right", number: true, cell: row => (row.worst === null ? "–" : row.worst.toExponential(1))},
      {key: "last", title: "last verified", cell: row => [row.last.slice(0, 10), " ", row.commit ? R.commitLink(row.commit) : null]},
    ];
  }

  function kernel({kernel: name, machine}) {
    const page = R.kernelPage(name, {machine});
    return page ? h("a", {href: page}, foreign(name)) : foreign(name);
  }

  /* ---- on a kernel's page: when its backends were last verified on the machine that is shown ---- */

  async function verified(kernel, machine) {
    const {rows} = await R.load("views/checks"),
      mine = rows.filter(row => row.kernel === kernel && row.machine === machine);
    document.getElementById("verified")?.remove();
    if (mine.length) document.querySelector("main h1").after(line(mine));
  }

  /** "Last verified 2026-11-21 at 52e34d2c: triton, gluon right in 27 cases; blas wrong in 2". */
  function line(rows) {
    const newest = rows.reduce((one, other) => (other.last > one.last ? other : one)),
      failed = rows.filter(({counts}) => FAILED.some(status => counts[status]));
    const right = rows.reduce((sum, {counts}) => sum + (counts.ok || 0), 0),
      ranks = [...new Set(rows.map(({world}) => world))].join(", ");
    const wrong = failed.flatMap(({backend, counts}) => [
      "; ",
      h("strong.status.wrong", foreign(backend), ": ", FAILED.filter(status => counts[status]).map(status => `${counts[status]} ${status}`).join(", ")),
    ]);
    const link = h("a", {href: R.root + "checks.html" + R.hashOf({q: rows[0].kernel, machine: rows[0].machine})}, "last verified");
    const text = ` ${newest.last.slice(0, 10)} at `;
    return h(
      "p.hint",
      {id: "verified"},
      link,
      text,
      R.commitLink(newest.commit),
      `: ${right} results right on ${ranks} ${ranks === "1" ? "rank" : "ranks"}`,
      failed.length ? wrong : ", none wrong",
    );
  }

  Object.assign(R, {checkColumns, verified});
})();
