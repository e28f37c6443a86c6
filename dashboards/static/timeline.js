/* The history of a kernel out of its blocks of commits (dashboards/kernel_page.py): one line over all of them. */
"use strict";

(() => {
  const R = Ridgeline,
    asked = new Map();

  /** The kernel's data with all its commits, as a block of all of them would be, and the rows of its table. */
  function timeline(path) {
    if (!asked.has(path)) asked.set(path, R.load(path).then(whole));
    return asked.get(path);
  }

  const whole = async head => joined(head, await Promise.all(head.blocks.map(R.load)));

  const unique = values => [...new Set(values)].sort();
  const stated = cost => Boolean(cost.flops || cost.hbm_bytes || cost.link_bytes || cost.payload_bytes);

  function joined(head, blocks) {
    const named = blocks.flatMap(({commits, envs}) => commits.map(([hash, date, env]) => [hash, date, envs[env]])),
      envs = unique(named.map(([, , env]) => env)),
      envAt = new Map(envs.map((env, n) => [env, n])),
      whys = unique(blocks.flatMap(block => block.whys)),
      place = new Map(named.map(([hash], i) => [hash, i]));
    const commits = named.map(([hash, date, env]) => [hash, date, envAt.get(env)]),
      cases = casesOf(head, blocks);
    return {
      kernel: head.kernel,
      envs,
      commits,
      whys,
      cases: cases.map(({keys, ...info}) => info),
      series: seriesOf(head, blocks, cases, commits.length, new Map(whys.map((why, n) => [why, n]))),
      rows: head.rows.map(row => moved(row, head.commits, place)),
    };
  }

  /** A row of the table, counting all commits. */
  function moved(row, commits, place) {
    const at = n => place.get(commits[n][0]);
    return {...row, at: at(row.at), ...(row.good_at === undefined ? {} : {good_at: at(row.good_at)})};
  }

  /** What the newest block says of each case, and all its costs: those stated last, the newest of them at the end. */
  function casesOf(head, blocks) {
    const found = new Map(head.cases.map(name => [name, {keys: [], costs: [], rate: "time"}]));
    for (const info of blocks.flatMap(block => block.cases)) {
      const before = found.get(info.name),
        keys = info.costs.map(cost => JSON.stringify(cost)),
        older = before.keys.map((key, n) => [key, before.costs[n]]).filter(([key]) => !keys.includes(key)),
        all = [...older, ...keys.map((key, n) => [key, info.costs[n]])],
        ordered = [...all.filter(([, cost]) => !stated(cost)), ...all.filter(([, cost]) => stated(cost))];
      found.set(info.name, {
        ...info,
        rate: stated(info.costs.at(-1)) ? info.rate : before.rate,
        keys: ordered.map(([key]) => key),
        costs: ordered.map(([, cost]) => cost),
      });
    }
    return head.cases.map(name => found.get(name));
  }

  function seriesOf(head, blocks, cases, count, whyAt) {
    const places = new Map(head.series.map(([number, backend], n) => [JSON.stringify([number, backend]), n])),
      caseAt = new Map(head.cases.map((name, n) => [name, n])),
      last = head.series.map(() => null),
      found = head.series.map(([number, backend, baseline]) => emptySeries(number, backend, baseline, count));
    let begin = 0;
    for (const block of blocks) {
      const numbers = block.cases.map(({name}) => caseAt.get(name));
      for (const part of block.series) {
        const number = numbers[part.case],
          n = places.get(JSON.stringify([number, part.backend])),
          keys = block.cases[part.case].costs.map(cost => cases[number].keys.indexOf(JSON.stringify(cost)));
        append(found[n], part, begin, keys, block.whys, whyAt);
        last[n] = follow(found[n], part, begin, block.definitions, last[n]);
      }
      begin += block.commits.length;
    }
    return found;
  }

  function emptySeries(number, backend, baseline, count) {
    const line = () => new Array(count).fill(null);
    const lines = {us: line(), low: line(), high: line(), ...(baseline ? {} : {ratio: line()})};
    return {case: number, backend, baseline, ...lines, samples: [], trials: [], cost: [], breaks: [], bad: {}};
  }

  /** A block's part of a series behind what there is; costs: for each of its numbers the one that counts here. */
  function append(series, part, begin, costs, whys, whyAt) {
    for (const name of ["us", "low", "high", "ratio"])
      if (series[name] && part[name]) part[name].forEach((value, i) => (series[name][begin + i] = value));
    for (const name of ["samples", "trials", "cost"])
      for (const [i, value] of part[name]) {
        const now = name === "cost" ? costs[value] : value;
        if (!series[name].length || series[name].at(-1)[1] !== now) series[name].push([begin + i, now]);
      }
    for (const [i, [status, why]] of Object.entries(part.bad))
      series.bad[begin + Number(i)] = [status, whyAt.get(whys[why])];
  }

  /** Mark where a block begins under another benchmark definition (`dashboards.lanes.alike`); the definition it ends with. */
  function follow(series, part, begin, definitions, before) {
    if (part.defined) {
      const [at, first, last] = part.defined,
        [kernel, own] = definitions[first];
      const same = before && (before[1] && own ? before[1] === own : before[0] === kernel);
      if (before && !same) series.breaks.push(begin + at);
      before = definitions[last];
    }
    series.breaks.push(...part.breaks.map(i => begin + i));
    return before;
  }

  Object.assign(R, {timeline, joined});
})();
