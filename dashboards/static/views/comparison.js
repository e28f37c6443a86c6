/* Two records of one series compared: by how much, how surely, or why they cannot be.  Pure; tests run it without a page. */
"use strict";

(() => {
  /** Half of the width of a 99 % interval, as a logarithm; null without one. */
  const half = ({low, high}) => (low > 0 && high >= low ? Math.log(high / low) / 2 : null);

  /** Numbers are compared under one benchmark definition: that of the case, or of the kernel where one side lacks it. */
  const sameDefinition = (a, b) => (a[1] && b[1] ? a[1] === b[1] : a[0] === b[0]);

  /** How far apart two independent estimates may be by chance: the root of the sum of the squared half-widths, the drift
   * between separate runs among them (Zou and Donner, Statistics in Medicine 27(10), 2008); null if one is not known.
   */
  const reach = (halves, drift) => (halves.includes(null) ? null : Math.hypot(...halves, Math.log(1 + drift)));

  /** Both sides beside the same baseline: by the ratios of rounds that both ran in (`paired`, a speed relative to the
   * baseline with its 99 % interval), where both have them; else by the times of the baseline at each side; null without.
   */
  function besideBaseline(a, b, alone) {
    const [p, q] = [a.paired, b.paired];
    if (p && q && p.with === q.with)
      return {kind: "paired", with: p.with, value: Math.log(q.ratio / p.ratio), halves: [p, q].map(half)};
    if (!a.baseline || !b.baseline) return null;
    const value = alone - Math.log(a.baseline.us / b.baseline.us);
    return {kind: "separate", with: b.baseline.name, value, halves: [a, b, a.baseline, b.baseline].map(half)};
  }

  /** Two times of a series, each {us, low, high, baseline: {name, us, low, high} or null, paired: {with, ratio, low, high}
   * or null}; limits: {beside, alone}, the drift between separate runs that 1 % of unchanged pairs exceed
   * (dashboards/overview.py).
   *
   * All changes are logarithms of speeds, above 0: b is faster.  alone: of the time; beside: of the ratio to the same
   * baseline, null without one.  change is the one that decides, known to +- reach; least: how much of it is sure, which is
   * its size times the share of it that no interval explains.  verdict: faster, slower, same or unsure (no interval).
   * kind: how it is known: "paired" (rounds of both with the baseline), "separate" (intervals of each time) or "alone".
   */
  function change(a, b, limits) {
    const alone = Math.log(a.us / b.us),
      found = besideBaseline(a, b, alone),
      beside = found ? found.value : null;
    const decides = found ? beside : alone,
      around = found ? reach(found.halves, limits.beside) : reach([a, b].map(half), limits.alone);
    const least = around === null ? null : Math.max(0, Math.abs(decides) - around);
    const both = !found || (alone * beside > 0 && Math.abs(alone) >= Math.log(1 + limits.beside));
    const moved = least > 0 && both ? (decides > 0 ? "faster" : "slower") : "same";
    return {
      alone,
      beside,
      change: decides,
      reach: around,
      least: both ? least : 0,
      verdict: around === null ? "unsure" : moved,
      kind: found ? found.kind : "alone",
      with: found ? found.with : null,
    };
  }

  /** What became of a series from side a to side b; each side {status, why, us, low, high, baseline, definition} or null. */
  function compared(a, b, limits) {
    const timed = side => side !== null && side.us !== null,
      failed = side => side !== null && side.us === null && !["unsupported", "skipped"].includes(side.status);
    if (timed(a) && timed(b)) {
      if (!sameDefinition(a.definition, b.definition)) return {verdict: "not comparable"};
      return change(a, b, limits);
    }
    if (timed(a)) return {verdict: failed(b) ? "broken" : "only before"};
    if (timed(b)) return {verdict: failed(a) ? "mended" : "only after"};
    return {verdict: failed(a) || failed(b) ? "no time" : "not run"};
  }

  const mean = values => (values.length ? values.reduce((sum, value) => sum + value, 0) / values.length : null);

  /** Geometric means of the speed over comparable pairs, by what `group` says of a row: [{name, pairs, faster, slower, alone, beside}]. */
  function means(rows, group) {
    const found = new Map();
    for (const row of rows.filter(({alone}) => alone !== undefined)) found.set(group(row), [...(found.get(group(row)) || []), row]);
    const count = (members, word) => members.filter(({verdict}) => verdict === word).length;
    return [...found].map(([name, members]) => ({
      name,
      pairs: members.length,
      faster: count(members, "faster"),
      slower: count(members, "slower"),
      alone: mean(members.map(({alone}) => alone)),
      beside: mean(members.map(({beside}) => beside).filter(value => value !== null)),
    }));
  }

  Object.assign(Ridgeline, {comparison: {change, compared, means, sameDefinition}});
})();
