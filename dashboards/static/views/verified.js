/* On a kernel's page: when its backends were last verified on the machine that is shown. */
"use strict";

(() => {
  const R = Ridgeline,
    {h} = R,
    FAILED = ["wrong", "crash", "hang", "error"],
    header = R.header;

  // the page fills its head whenever another machine is chosen
  R.header = (lane, change) => {
    header(lane, change);
    show(lane.machine);
  };

  async function show(machine) {
    const slug = document.documentElement.dataset.kernel,
      kernel = R.site.kernels.find(one => one.slug === slug)?.name;
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
      h("strong", {class: "status wrong"}, R.foreign(backend), ": ", FAILED.filter(status => counts[status]).map(status => `${counts[status]} ${status}`).join(", ")),
    ]);
    const link = h("a", {href: R.root + "checks.html" + R.hashOf({q: rows[0].kernel, machine: rows[0].machine})}, "last verified");
    const text = ` ${newest.last.slice(0, 10)} at `;
    return h(
      "p",
      {id: "verified", class: "hint"},
      link,
      text,
      R.commitLink(newest.commit),
      `: ${right} results right on ${ranks} ${ranks === "1" ? "rank" : "ranks"}`,
      failed.length ? wrong : ", none wrong",
    );
  }
})();
