/* The machine code beside the speed: both histories on one axis of commits. */
"use strict";

(() => {
  const R = Ridgeline;

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
    const moved = changes => changes.map(([i, value]) => [at[i], value]);
    let env = data.commits[0][2];
    const commits = all.map(([hash, date, own]) => [hash, date, (env = own ?? env)]);
    const series = data.series.map(one => ({
      ...one,
      ...Object.fromEntries(
        ["us", "low", "high", "ratio"].filter(name => one[name]).map(name => [name, spread(one[name])]),
      ),
      ...Object.fromEntries(["samples", "trials", "cost"].map(name => [name, moved(one[name])])),
      breaks: one.breaks.map(i => at[i]),
      bad: Object.fromEntries(Object.entries(one.bad).map(([i, why]) => [at[i], why])),
    }));
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
    const series = all.map(one => ({
      ...one,
      ...Object.fromEntries(["us", "low", "high", "ratio"].filter(name => one[name]).map(name => [name, taken(one[name])])),
      ...Object.fromEntries(["samples", "trials", "cost"].map(name => [name, one[name].map(([i, value]) => [behind(i), value])])),
      breaks: one.breaks.map(behind).filter(n => n >= 0),
      bad: Object.fromEntries(Object.entries(one.bad).map(([i, why]) => [place.get(Number(i)), why])),
    }));
    const lanes = code.lanes.map(lane => ({...lane, values: at.map(i => lane.values.findLast((value, n) => n <= i && value !== undefined))}));
    return {
      data: {...data, commits: taken(data.commits), series},
      all: series,
      steps: steps.filter(({i}) => place.has(i)).map(step => ({...step, i: place.get(step.i)})),
      code: {...code, lanes},
    };
  }

  Object.assign(R, {together, whereMeasured, archesOf, codeLanes, mergedCommits});
})();
