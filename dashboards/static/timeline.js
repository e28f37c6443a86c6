/* A kernel over time: its blocks joined, and the machine code beside the speed. */

/* The history of a kernel out of its blocks of commits (dashboards/overview.py): one line over all of them. */
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

  /* ---- the machine code beside the speed: both histories on one axis of commits ---- */

  /** Two lists of [hash, date, ...], each oldest first, as one: their own orders hold, else the dates decide. */
  function mergedCommits(timed, compiled) {
    const inTimed = new Set(timed.map(([hash]) => hash)),
      inCompiled = new Set(compiled.map(([hash]) => hash)),
      done = new Set(),
      found = [];
    let a = 0,
      b = 0;
    const take = commit => {
      if (!done.has(commit[0])) found.push(commit);
      done.add(commit[0]);
    };
    while (a < timed.length || b < compiled.length) {
      const [p, q] = [timed[a], compiled[b]];
      if (q && done.has(q[0])) b++;
      else if (p && done.has(p[0])) a++;
      else if (!q || (p && p[0] === q[0])) take(timed[a++]);
      else if (!p) take(compiled[b++]);
      else if (inTimed.has(q[0]) && !inCompiled.has(p[0])) take(timed[a++]);
      else if (inCompiled.has(p[0]) && !inTimed.has(q[0])) take(compiled[b++]);
      else if (p[1] <= q[1]) take(timed[a++]);
      else take(compiled[b++]);
    }
    return found;
  }

  /** A series at other commits.  spread: its values there; at(i): where a commit of its own is, or the next of them. */
  const placed = (series, spread, at) => ({
    ...series,
    ...Object.fromEntries(["us", "low", "high", "ratio"].filter(name => series[name]).map(name => [name, spread(series[name])])),
    ...Object.fromEntries(["samples", "trials", "cost"].map(name => [name, series[name].map(([i, value]) => [at(i), value])])),
    breaks: series.breaks.map(at).filter(i => i >= 0),
    bad: Object.fromEntries(Object.entries(series.bad).map(([i, why]) => [at(Number(i)), why])),
  });

  /** The data of a kernel with room for the commits that were only compiled: there every series has undefined. */
  function together(data, compiled) {
    const all = mergedCommits(data.commits, compiled);
    if (all.length === data.commits.length) return data;
    const place = new Map(all.map(([hash], i) => [hash, i])),
      at = data.commits.map(([hash]) => place.get(hash));
    const spread = values => {
      const wide = new Array(all.length).fill(undefined);
      values.forEach((value, i) => (wide[at[i]] = value));
      return wide;
    };
    let env = data.commits[0][2];
    const commits = all.map(([hash, date, own]) => [hash, date, (env = own ?? env)]);
    const series = data.series.map(one => placed(one, spread, i => at[i]));
    return {...data, commits, series};
  }

  /** Words of a metric: "loop_instructions" -> "loop instructions". */
  const words = name => name.replaceAll("_", " ");

  const matching = (code, name, backends, arch) =>
    code.series.filter(one => one.case === name && backends.has(one.backend) && (!arch || one.arch === arch));

  /** Architectures for which the code of a case was recorded. */
  function archesOf(code, name, backends) {
    return [...new Set(matching(code, name, backends).map(({arch}) => arch))].sort();
  }

  /** Lanes of a case on an architecture: the metrics that ever changed; and the others as [name, value] of now. */
  function codeLanes(code, commits, name, backends, arch) {
    const place = new Map(commits.map(([hash], i) => [hash, i])),
      lanes = [],
      constant = [];
    const found = matching(code, name, backends, arch),
      many = new Set(found.map(({backend}) => backend)).size > 1;
    for (const one of found) {
      const owner = [many ? one.backend : "", one.label || ""].filter(Boolean).join(" ");
      for (const [metric, changes] of Object.entries(one.metrics)) {
        const values = spreadChanges(changes, code.commits, place, commits.length),
          label = [owner, words(metric)].filter(Boolean).join(" "),
          last = values.findLast(value => value !== undefined);
        if (R.laneChanges(values).length)
          lanes.push({name: label, values, text: value => told(value, code.units[metric])});
        else if (last !== undefined) constant.push([label, told(last, code.units[metric])]);
      }
    }
    return {lanes, constant};
  }

  const told = (value, unit) =>
    value === null ? "failed" : value.toLocaleString("en-US") + (unit === "bytes" ? " B" : "");

  /** [[index among the compiled commits, value], ...] as values of all commits; "absent" starts a stretch without. */
  function spreadChanges(changes, compiled, place, count) {
    const values = new Array(count).fill(undefined);
    changes.forEach(([start, value], n) => {
      const end = n + 1 < changes.length ? changes[n + 1][0] : compiled.length;
      if (value === "absent") return;
      for (let i = start; i < end; i++) values[place.get(compiled[i][0])] = value;
    });
    return values;
  }

  /** {data, all, steps, code} of a case at the commits where it was measured; the code there is what was compiled last. */
  function whereMeasured(view) {
    const {data, all, steps, code} = view,
      known = value => value !== null && value !== undefined,
      at = data.commits.map((_, i) => i).filter(i => all.some(one => known(one.us[i]) || one.bad[i])),
      place = new Map(at.map((i, n) => [i, n])),
      behind = i => at.findIndex(one => one >= i),
      taken = values => at.map(i => values[i] ?? null);
    const series = all.map(one => placed(one, taken, behind));
    const lanes = code.lanes.map(lane => ({...lane, values: at.map(i => lane.values.findLast((value, n) => n <= i && value !== undefined))}));
    return {
      data: {...data, commits: taken(data.commits), series},
      all: series,
      steps: steps.filter(({i}) => place.has(i)).map(step => ({...step, i: place.get(step.i)})),
      code: {...code, lanes},
    };
  }

  Object.assign(R, {timeline, joined, together, whereMeasured, archesOf, codeLanes});
})();
