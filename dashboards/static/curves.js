/* Curves of a collective over the size of its message, from the newest record of every case. */
"use strict";

(() => {
  const R = Ridgeline,
    {h} = R;
  const RATES = ["busbw", "algbw", "time"];

  /** Cases that differ only in their payload: [{title, cases: case numbers by size}]; at least two sizes with a time.
   *
   * A machine of two GPUs has the cases of four ranks too, unmeasured: they make no chart.
   */
  function groupsOf(data) {
    const found = new Map(),
      size = number => R.costOf(data, number).payload_bytes;
    data.cases.forEach((info, number) => {
      const cost = R.costOf(data, number);
      if (!cost.payload_bytes || cost.flops || !R.seriesOf(data, number).some(({us}) => R.lastGood(us) >= 0)) return;
      const title = `${info.dtype}, ${info.world} ranks`;
      found.set(title, [...(found.get(title) || []), number]);
    });
    return [...found]
      .map(([title, cases]) => ({title, cases: cases.sort((a, b) => size(a) - size(b))}))
      .filter(({cases}) => new Set(cases.map(size)).size > 1);
  }

  /** Draw one panel per group into `host`; a click on a size calls select(case number). */
  function curves(host, data, select) {
    const found = groupsOf(data);
    host.hidden = found.length === 0;
    host.replaceChildren();
    for (const group of found) {
      host.append(h("h2", {}, "Over the message size ", h("span", {class: "sub"}, group.title + ", newest records")));
      curve(host, data, group, select);
    }
  }

  function curve(host, data, group, select) {
    const style = R.styles(data),
      asked = R.state().cunit,
      now = {rate: RATES.includes(asked) ? asked : RATES[0]},
      members = data.series.filter(series => group.cases.includes(series.case));
    const names = [...new Set(members.filter(({us}) => R.lastGood(us) >= 0).map(series => series.backend))];
    const entries = names.map(name => ({
      name,
      baseline: members.find(series => series.backend === name).baseline,
      ...style[name],
    }));
    R.panel(host, {
      rates: RATES,
      entries,
      now,
      legend: "chide",
      changed: () => R.setState({cunit: now.rate === RATES[0] ? "" : now.rate}),
      spec: (_, shown) =>
        picture(
          data,
          group,
          entries.filter(({name}) => shown.has(name)),
          now.rate,
          select,
        ),
      extra: () => [h("span", {class: "hint"}, "click a size for its history")],
    });
  }

  function picture(data, {title, cases}, entries, rate, select) {
    const sizes = cases.map(number => R.costOf(data, number).payload_bytes);
    const member = (name, n) => data.series.find(series => series.backend === name && series.case === cases[n]);
    const newest = (series, values) => (series ? (values(series)[R.lastGood(series.us)] ?? null) : null);
    const lines = entries.map(entry => {
      const all = cases.map((_, n) => member(entry.name, n)),
        take = values => all.map(series => newest(series, values));
      return {
        ...entry,
        quiet: entry.baseline,
        y: take(series => R.inRate(data, series, rate)),
        low: take(series => R.interval(data, series, rate)[0]),
        high: take(series => R.interval(data, series, rate)[1]),
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
