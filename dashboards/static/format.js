/* Numbers with their units, as people read them. */
"use strict";

(() => {
  const NONE = "–",
    known = value => typeof value === "number" && Number.isFinite(value);

  /** Formatters by their number of decimal places: making one takes longer than using it a hundred times. */
  const formatters = Array.from({length: 10}, (_, places) =>
    Intl.NumberFormat("en-US", {minimumFractionDigits: places, maximumFractionDigits: places}),
  );

  /** Four significant digits, thousands grouped; whole numbers have all theirs. */
  function number(value, digits = 4) {
    if (!known(value)) return NONE;
    if (value === 0) return "0";
    if (Number.isInteger(value) && Math.abs(value) < 1e15) return value.toLocaleString("en-US");
    if (Math.abs(value) < 1e-4 || Math.abs(value) >= 1e12) return value.toPrecision(digits);
    return formatters[Math.min(9, Math.max(0, digits - 1 - Math.floor(Math.log10(Math.abs(value)))))].format(value);
  }

  const scaled = (value, sizes, unit) => {
    const [size, prefix] = sizes.find(([least]) => Math.abs(value) >= least) || sizes.at(-1);
    return `${number(Number((value / size).toPrecision(4)))} ${prefix}${unit}`;
  };
  const TIME = [[1, ""], [1e-3, "m"], [1e-6, "µ"], [1e-9, "n"]];
  const BINARY = [[2 ** 30, "Gi"], [2 ** 20, "Mi"], [2 ** 10, "Ki"], [1, ""]];
  const DECIMAL = [[1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""]];

  /* A change and its interval in the digits of every report (ci.report.words): two decimals below 10 %, one below 100 %. */
  const decimals = percents => (Math.abs(percents) < 10 ? 2 : Math.abs(percents) < 100 ? 1 : 0);
  const sign = (percents, places) => `${percents < 0 ? "" : "+"}${percents.toFixed(places)}`;

  /** "+3.96 %" of 0.0396. */
  const signed = share => (known(share) ? `${sign(100 * share, decimals(100 * share))} %` : NONE);

  /** "[+2.55, +5.55]" of two changes. */
  function interval(low, high) {
    const ends = [100 * low, 100 * high],
      places = Math.min(...ends.map(decimals));
    return `[${ends.map(end => sign(end, places)).join(", ")}]`;
  }

  const percent = share => (known(share) ? `${(100 * share).toFixed(1)} %` : NONE);

  /** A value with its unit: "s" and "B" get a prefix. */
  function withUnit(value, unit, digits = 4) {
    if (!known(value)) return NONE;
    if (unit === "s") return scaled(value, TIME, "s");
    if (unit === "B") return scaled(value, BINARY, "B");
    if (unit === "×") return `${formatters[value < 10 ? 3 : 1].format(value)} ×`;
    return unit ? `${number(value, digits)} ${unit}` : number(value, digits);
  }

  /** The label of a tick, without trailing zeros. */
  function tick(value, unit) {
    if (unit === "s" || unit === "B") return withUnit(value, unit);
    if (unit === "×") return Number(value.toPrecision(4)).toString();
    return Math.abs(value) >= 1e5 ? scaled(value, DECIMAL, "") : Number(value.toPrecision(6)).toLocaleString("en-US", {maximumFractionDigits: 6});
  }

  Object.assign(Ridgeline, {NONE, known, number, signed, interval, percent, withUnit, tick});
})();
