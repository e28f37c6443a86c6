/* From a kernel's data file (dashboards/overview.py) to values in a unit, and the looks of its series. */
"use strict";

(() => {
  /** Value at every index of a [[first index, value], ...] list. */
  function unfold(changes, count) {
    const values = new Array(count).fill(null);
    changes.forEach(([start, value], n) =>
      values.fill(value, start, n + 1 < changes.length ? changes[n + 1][0] : count),
    );
    return values;
  }

  /** The part of the cost that a rate divides by the time. */
  const AMOUNT = {
    tflops: "flops",
    gbs: "hbm_bytes",
    algbw: "payload_bytes",
    busbw: "link_bytes",
    peak_share: "roofline_seconds",
  };

  /** A rate from a cost (per rank) and seconds, by the formulas of ci/records/rates.py; null where it means nothing.
   *
   * tflops: TFLOP/s of all ranks.  gbs, algbw, busbw: GB/s (1e9 bytes) of one rank.  peak_share: 0 to 1.
   */
  function rateOf(rate, cost, seconds) {
    const amount = cost[AMOUNT[rate]];
    if (!(amount > 0 && seconds > 0)) return null;
    if (rate === "tflops") return (amount / seconds / 1e12) * cost.world;
    return rate === "peak_share" ? amount / seconds : amount / seconds / 1e9;
  }

  /** The value of a series at every commit: a rate, the microseconds, or the ratio to the baseline (without interval). */
  function inRate(data, series, rate, column = "us") {
    if (rate === "time") return series[column];
    if (rate === "ratio") return column === "us" && series.ratio ? series.ratio : series.us.map(() => null);
    const {costs} = data.cases[series.case],
      numbers = unfold(series.cost, series.us.length);
    return series[column].map((us, i) =>
      us ? rateOf(rate, costs[numbers[i]], us * 1e-6) : us === undefined ? us : null,
    );
  }

  /** [low, high] ends of the interval in a rate: the shortest time is the highest rate. */
  function interval(data, series, rate) {
    const ends = [inRate(data, series, rate, "low"), inRate(data, series, rate, "high")];
    return rate === "time" ? ends : ends.reverse();
  }

  const lastGood = values => values.findLastIndex(value => value !== null);

  /** The newest cost of a case. */
  const costOf = (data, number) => data.cases[number].costs.at(-1);

  const seriesOf = (data, number) => data.series.filter(series => series.case === number);

  /** Rates that at least one series of a case has. */
  function ratesOf(data, number) {
    const all = seriesOf(data, number),
      {costs} = data.cases[number];
    const used = new Set(all.flatMap(series => series.cost.map(([, n]) => costs[n])));
    const having = ["tflops", "gbs", "busbw", "algbw"].filter(rate => [...used].some(cost => cost[AMOUNT[rate]] > 0));
    return [...having, "time", ...(all.some(series => series.ratio && lastGood(series.ratio) >= 0) ? ["ratio"] : [])];
  }

  /** Looks by backend: our own in colour and solid, baselines grey and dashed. */
  function styles(data) {
    const names = baseline =>
      [...new Set(data.series.filter(series => series.baseline === baseline).map(series => series.backend))].sort();
    const own = names(false).map((name, n) => [name, {color: `var(--series-${n % 6})`, dash: n < 6 ? null : "1 4"}]);
    const baselines = names(true).map((name, n) => [
      name,
      {color: "var(--baseline)", dash: ["7 4", "2 3", "9 3 2 3", "14 4", "1 5"][n % 5]},
    ]);
    return Object.fromEntries([...own, ...baselines]);
  }

  function axisTitle(rate) {
    const {name, unit, up} = Ridgeline.RATES[rate];
    return (name.includes(unit) ? name : `${name}, ${unit}`) + (up ? "" : " (less is better)");
  }

  Object.assign(Ridgeline, {unfold, rateOf, inRate, interval, lastGood, costOf, seriesOf, ratesOf, styles, axisTitle});
})();
