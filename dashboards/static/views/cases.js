/* What the pages of the newest numbers share: backends, their looks, one case in one backend as a row and as a box. */
"use strict";

(() => {
  const R = Ridgeline,
    {h} = R;

  /** Every backend that has a time in one of the cases: our own first, then the baselines. */
  function backendsOf(cases) {
    const found = new Map();
    for (const {arms} of cases)
      for (const {backend, baseline, us} of arms) if (us !== null) found.set(backend, {name: backend, baseline});
    return [...found.values()].sort((a, b) => a.baseline - b.baseline || a.name.localeCompare(b.name, "en"));
  }

  const armOf = (row, name) => row.arms.find(({backend}) => backend === name);

  /** Does the case run on this machine at all?  Not if every backend says that it cannot or need not. */
  const runsHere = row => row.arms.some(({status, us}) => us !== null || !["unsupported", "skipped"].includes(status));

  const costOf = row => ({world: row.world, ...row.cost});

  /** A rate of an arm, or its microseconds, or the ratio to the fastest baseline; null where it means nothing. */
  function valueOf(row, arm, rate, column = "us") {
    if (!arm || arm[column] === null) return null;
    if (rate === "time") return arm[column];
    if (rate === "ratio") return column === "us" ? ratioOf(row, arm) : null;
    return R.rateOf(rate, costOf(row), arm[column] * 1e-6);
  }

  /** Time of the fastest baseline / time of the arm: above 1 the arm is faster. */
  function ratioOf(row, arm) {
    const times = row.arms.filter(one => one.baseline && one.us !== null).map(one => one.us);
    return times.length && arm.us !== null && !arm.baseline ? Math.min(...times) / arm.us : null;
  }

  /** Rates that some case of these has. */
  function ratesOf(cases) {
    const some = rate => cases.some(row => row.arms.some(arm => valueOf(row, arm, rate) !== null));
    return ["tflops", "gbs", "busbw", "algbw", "time", "ratio"].filter(some);
  }

  /** The name of an own or a vendor's backend. */
  const named = ({backend, name, baseline}) => R.foreign((backend || name) + (baseline ? " (baseline)" : ""));

  const interval = arm =>
    arm.low === null || arm.high === null ? "" : ` (${R.number(arm.low)} to ${R.duration(arm.high)})`;

  /** The facts of a case in a backend, for the box. */
  function armFacts(row, arm, rate) {
    const share = valueOf(row, arm, "peak_share"),
      ratio = ratioOf(row, arm);
    return [
      ["backend", arm.backend + (arm.baseline ? " (baseline)" : "")],
      [R.RATES[rate].name, arm.us === null ? null : R.withUnit(valueOf(row, arm, rate), rate)],
      ["time", arm.us === null ? null : R.duration(arm.us) + interval(arm)],
      ["of peak", share === null ? null : R.percent(share)],
      ["vs baseline", ratio === null ? null : R.withUnit(ratio, "ratio")],
      ["status", arm.status === "ok" ? null : `${arm.status}: ${arm.why}`],
      ["measured at", `${R.short(row.commit)}, ${row.date}`],
    ];
  }

  /** The address of the history of a case. */
  function historyOf(row, backend) {
    const {machine, env} = R.lane(R.state());
    return R.kernelPage(row.kernel, {machine, env, case: row.case, backend});
  }

  const caseLink = row => h("a", {href: historyOf(row)}, R.foreign(row.case));

  const placeCell = row => [R.commitLink(row.commit), h("span.sub", row.date.slice(0, 10))];

  Object.assign(R, {
    cases: {
      backendsOf,
      armOf,
      runsHere,
      costOf,
      valueOf,
      ratioOf,
      ratesOf,
      named,
      armFacts,
      historyOf,
      caseLink,
      placeCell,
    },
  });
})();
