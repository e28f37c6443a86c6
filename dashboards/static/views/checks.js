/* The columns of the table of checks, which the pages of machines and of checks share. */
"use strict";

(() => {
  const R = Ridgeline,
    {h} = R;
  const FAILED = ["wrong", "crash", "hang", "error"];

  /** "5 right"; what failed comes first. */
  function result({counts}) {
    const failed = FAILED.filter(status => counts[status]).map(status => h("span", {class: "status " + status}, `${counts[status]} ${status}`));
    const others = Object.keys(counts)
      .filter(status => status !== "ok" && !FAILED.includes(status))
      .map(status => h("span", {class: "sub"}, `${counts[status]} ${status}`));
    return [...failed, counts.ok ? ` ${counts.ok} right` : failed.length ? "" : "none tried", ...others];
  }

  /** Columns of rows as dashboards/views/machines.py: verified_row gives them. */
  function checkColumns(machines = false) {
    const machine = {key: "machine", title: "machine", value: row => row.machine};
    return [
      {key: "kernel", title: "operator", value: row => row.kernel, cell: row => kernel(row)},
      {key: "backend", title: "backend", value: row => row.backend},
      ...(machines ? [machine] : []),
      {key: "world", title: "ranks", number: true, value: row => row.world},
      {key: "ok", title: "cases", number: true, value: row => row.counts.ok || 0, cell: result, look: row => (FAILED.some(status => row.counts[status]) ? "slower" : "")},
      {key: "worst", title: "largest error", help: "rms error / rms of the reference, of the cases that are right", number: true, value: row => row.worst, cell: row => (row.worst === null ? "–" : row.worst.toExponential(1))},
      {key: "last", title: "last verified", value: row => row.last, cell: row => [row.last.slice(0, 10), " ", row.commit ? R.commitLink(row.commit) : null]},
    ];
  }

  function kernel({kernel: name, machine}) {
    const page = R.kernelPage(name, {machine});
    return page ? h("a", {href: page}, R.foreign(name)) : R.foreign(name);
  }

  Object.assign(R, {checkColumns});
})();
