/* The first picture of the front page: the history of one headline case of each kernel, unit by unit. */
"use strict";

(() => {
  const R = Ridgeline,
    {h, foreign} = R;

  /** One picture for each unit: a line for a case of each kernel, and a dotted one for its baseline.
   *
   * history: as dashboards/overview.py gives it; commits: [[hash, date]]; page(kernel, values): address of its page.
   */
  function headlines(host, history, commits, page) {
    host.hidden = history.length === 0;
    host.replaceChildren(h("h2", {}, "History of the headline cases"), h("div", {class: "pictures"}, history.map(one => picture(one, commits, page))));
  }

  function picture({unit, lines}, commits, page) {
    const at = [...new Set(lines.flatMap(line => line.at))].sort((a, b) => a - b),
      colors = new Map([...new Set(lines.map(line => line.kernel))].map((kernel, n) => [kernel, n]));
    const drawn = lines.map(line => {
      const n = colors.get(line.kernel),
        values = new Map(line.at.map((i, k) => [i, line.values[k]]));
      return {
        ...line,
        name: `${line.kernel} ${line.case} ${line.backend}`,
        y: at.map(i => values.get(i)),
        color: `var(--series-${n % 6})`,
        dash: line.baseline ? "2 3" : n < 6 ? null : "7 4",
        quiet: line.baseline,
      };
    });
    const area = h("div", {class: "chart-area"}),
      words = `over ${at.length} ${at.length === 1 ? "commit" : "commits"}, one case of each kernel` + (drawn.some(line => line.baseline) ? "; dotted: its baseline" : ""),
      figure = h("figure", {}, h("figcaption", {}, unit, h("span", {class: "sub"}, words)), area, h("div", {class: "legend"}, drawn.map(line => legend(line, page))));
    R.chart(area, {
      lines: drawn,
      label: `${unit} over ${at.length} commits`,
      x: {kind: "commits", count: at.length, tick: i => [commits[at[i]][1].slice(0, 10), R.short(commits[at[i]][0])]},
      y: {title: unit, tick: R.tick, log: spread(drawn) > 20},
      tip: i => tip(drawn, i, commits[at[i]]),
    });
    return figure;
  }

  /** Largest value / smallest value of some lines. */
  function spread(lines) {
    const values = lines.flatMap(line => line.values).filter(value => value > 0);
    return Math.max(...values) / Math.min(...values);
  }

  function legend({kernel, case: name, backend, baseline, color, dash, rate}, page) {
    const words = baseline ? [foreign(backend)] : [h("a", {href: page(kernel, {case: name, backend})}, foreign(`${kernel} / ${name} / ${backend}`)), h("span", {class: "sub"}, " " + R.RATES[rate].name)];
    return h("span", {}, R.sample(color, dash), " ", words);
  }

  function tip(lines, i, [hash, date]) {
    const said = lines.filter(line => line.y[i] !== undefined).map(line => h("p", {}, h("strong", {}, R.withUnit(line.y[i], line.rate)), " ", foreign(line.name)));
    return [h("p", {class: "tip-head"}, h("code", {}, R.short(hash)), " ", date), ...said];
  }

  Object.assign(R, {headlines});
})();
