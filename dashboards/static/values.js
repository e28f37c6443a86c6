/* From a kernel's data file (dashboards/series.py: kernel_data) to values in a unit, and the looks of its series. */
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

  /** A series in a rate: numerator / microseconds; the microseconds; or the ratio to the baseline (it has no interval). */
  function inRate(series, rate, column = "us") {
    if (rate === "time") return series[column];
    if (rate === "ratio") return column === "us" && series.ratio ? series.ratio : series.us.map(() => null);
    series.costs ??= unfold(series.numerators, series.us.length);
    return series[column].map((us, i) =>
      us && series.costs[i] && series.costs[i][rate] ? series.costs[i][rate] / us : null,
    );
  }

  /** [low, high] ends of the interval in a rate: the shortest time is the highest rate. */
  function interval(series, rate) {
    const ends = [inRate(series, rate, "low"), inRate(series, rate, "high")];
    return rate === "time" ? ends : ends.reverse();
  }

  const lastGood = values => values.findLastIndex(value => value !== null);

  const seriesOf = (data, number) => data.series.filter(series => series.case === number);

  /** Rates that at least one series of a case has. */
  function ratesOf(data, number) {
    const all = seriesOf(data, number);
    const having = ["tflops", "gbs", "busbw", "algbw"].filter(rate =>
      all.some(series => series.numerators.some(([, costs]) => costs[rate])),
    );
    return [...having, "time", ...(all.some(series => series.ratio && lastGood(series.ratio) >= 0) ? ["ratio"] : [])];
  }

  /** Looks by backend: own ones in colour and solid, baselines grey and dashed. */
  function styles(data) {
    const names = baseline =>
      [...new Set(data.series.filter(series => series.baseline === baseline).map(series => series.backend))].sort();
    const own = names(false).map((name, n) => [name, {color: `var(--series-${n % 6})`, dash: n < 6 ? null : "1 4"}]);
    const rivals = names(true).map((name, n) => [
      name,
      {color: "var(--baseline)", dash: ["7 4", "2 3", "9 3 2 3"][n % 3]},
    ]);
    return Object.fromEntries([...own, ...rivals]);
  }

  function axisTitle(rate) {
    const {name, unit, up} = Ridgeline.RATES[rate];
    return (name.includes(unit) ? name : `${name}, ${unit}`) + (up ? "" : " (less is better)");
  }

  Object.assign(Ridgeline, {unfold, inRate, interval, lastGood, seriesOf, ratesOf, styles, axisTitle});
})();
