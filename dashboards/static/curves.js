/* Curves of a collective over the size of its message, from the newest record of every case. */
"use strict";

(() => {
  const R = Ridgeline,
    {h} = R;

  /** Cases that differ in nothing but their payload: [{title, cases: case numbers by size}]; two sizes at least. */
  function families(data) {
    const found = new Map(),
      size = number => data.cases[number].costs.payload_bytes;
    data.cases.forEach((info, number) => {
      if (!info.costs.payload_bytes || info.costs.flops) return;
      const title = `${info.dtype}, ${info.world} ranks`;
      found.set(title, [...(found.get(title) || []), number]);
    });
    return [...found]
      .map(([title, cases]) => ({title, cases: cases.sort((a, b) => size(a) - size(b))}))
      .filter(({cases}) => new Set(cases.map(size)).size > 1);
  }

  /** Draw one panel per family into `host`; a click on a size calls select(case number). */
  function curves(host, data, select) {
    const found = families(data);
    host.hidden = found.length === 0;
    host.replaceChildren();
    for (const family of found) {
      host.append(h("h2", {}, "Over the message size ", h("span", {class: "sub"}, family.title + ", newest records")));
      curve(host, data, family, select);
    }
  }

  function curve(host, data, family, select) {
    const style = R.styles(data),
      now = {rate: "busbw"},
      members = data.series.filter(series => family.cases.includes(series.case));
    const names = [...new Set(members.map(series => series.backend))];
    const entries = names.map(name => ({
      name,
      baseline: members.find(series => series.backend === name).baseline,
      ...style[name],
    }));
    R.panel(host, {
      rates: ["busbw", "algbw", "time"],
      entries,
      now,
      changed: () => {},
      spec: (_, shown) =>
        picture(
          data,
          family,
          entries.filter(({name}) => shown.has(name)),
          now.rate,
          select,
        ),
      extra: () => [h("span", {class: "hint"}, "click a size for its history")],
    });
  }

  function picture(data, {title, cases}, entries, rate, select) {
    const sizes = cases.map(number => data.cases[number].costs.payload_bytes);
    const member = (name, n) => data.series.find(series => series.backend === name && series.case === cases[n]);
    const newest = (series, values) => (series ? (values(series)[R.lastGood(series.us)] ?? null) : null);
    const lines = entries.map(entry => {
      const all = cases.map((_, n) => member(entry.name, n)),
        take = values => all.map(series => newest(series, values));
      return {
        ...entry,
        quiet: entry.baseline,
        y: take(series => R.inRate(series, rate)),
        low: take(series => R.interval(series, rate)[0]),
        high: take(series => R.interval(series, rate)[1]),
      };
    });
    return {
      lines,
      label: `${data.kernel}: ${R.RATES[rate].name} over the message size, ${title}`,
      x: {kind: "log", values: sizes, tick: size => R.quantity(size, "B", true)},
      y: {title: R.axisTitle(rate), tick: R.tick, zero: rate !== "time", log: rate === "time"},
      right: null,
      picked: n => select(cases[n]),
      tip: n => [
        h(
          "p",
          {class: "tip-head"},
          R.quantity(sizes[n], "B", true),
          h("span", {class: "sub"}, data.cases[cases[n]].name),
        ),
        ...entries
          .map(({name}) => member(name, n))
          .map(series => series && R.tipLine(data, series, newestIndex(series), rate))
          .filter(Boolean),
      ],
    };
  }

  /** Index of the newest record of a series: a time, else the newest reason why there is none. */
  function newestIndex(series) {
    return Math.max(
      R.lastGood(series.us),
      R.lastGood(series.us) >= 0 ? -1 : Math.max(-1, ...Object.keys(series.bad).map(Number)),
    );
  }

  Object.assign(R, {curves});
})();
