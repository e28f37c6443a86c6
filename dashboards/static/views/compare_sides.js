/* The two sides of a comparison: which records they are, and their series side by side. */
"use strict";

(() => {
  const R = Ridgeline,
    {compared} = R.comparison;

  const key = (...names) => JSON.stringify(names);

  /** {lane, data, place}: what a side of the state names, else the usual one; place: index of its commit. */
  function chosen(lane, data, hash, usual) {
    const found = data.commits.findIndex(([commit]) => hash && commit.startsWith(hash));
    return {lane, data, place: found >= 0 ? found : usual, unknown: Boolean(hash) && found < 0};
  }

  async function sides(values) {
    const later = R.lane(values),
      earlier = values.from_machine ? R.lane({machine: values.from_machine, env: values.from_env}) : later;
    const [a, b] = await Promise.all([earlier, later].map(lane => R.data(lane.slug + "/compare")));
    const newest = data => data.commits.length - 1;
    const [from, to] = b.usual || [Math.max(0, newest(b) - 1), newest(b)];
    const after = chosen(later, b, values.commit, to);
    const usual = earlier === later ? (after.place === to ? from : Math.max(0, after.place - 1)) : newest(a);
    return {before: chosen(earlier, a, values.from, usual), after};
  }

  /** The kernels that are measured in one of these lanes: [{name, slug}]. */
  const kernelsIn = (...lanes) => R.site.kernels.filter(({slug}) => lanes.some(lane => lane.kernels.includes(slug)));

  /** {files, paired}: of each kernel the block of the history that has the commit of a side, and its paired ratios. */
  async function filesOf(side, wanted) {
    const {lane, data, place} = side;
    const paths = kernelsIn(lane)
      .filter(({name}) => wanted === "*" || name === wanted)
      .map(({slug}) => `${lane.slug}/${data.commits[place][4]}/kernel-${slug}`)
      .filter(R.has);
    const [paired, ...files] = await Promise.all([pairedAt(side), ...paths.map(R.data)]);
    return {files, paired};
  }

  /** Map of [kernel, case, backend] to the ratio to a baseline that was timed in the same rounds, at the commit of a side. */
  async function pairedAt({lane, data, place}) {
    const [hash, , , , block] = data.commits[place],
      path = `${lane.slug}/${block}/paired`,
      {commits, baselines, series} = R.has(path) ? await R.data(path) : {commits: [], baselines: [], series: []},
      here = commits.indexOf(hash),
      found = new Map();
    for (const [kernel, name, backend, points] of series) {
      const point = points.find(([at]) => at === here);
      if (!point) continue;
      const [, number, ratio, low, high] = point;
      found.set(key(kernel, name, backend), {with: baselines[number], ratio, low, high});
    }
    return found;
  }

  /** Everything measured at the commit of a side: Map of [kernel, case, backend] to what R.comparison compares. */
  function measuredAt({data, place}, {files, paired}) {
    const [hash] = data.commits[place],
      found = new Map(),
      definitions = new Map(data.definitions.map(([kernel, name, changes]) => [key(kernel, name), changes]));
    const definition = (kernel, name) => {
      const number = (definitions.get(key(kernel, name)) || []).findLast(([from]) => from <= place);
      return number ? data.digests[number[1]] : ["", ""];
    };
    for (const file of files) {
      const {kernel} = file;
      const at = file.commits.findIndex(([commit]) => commit === hash);
      if (at < 0) continue;
      for (const series of file.series) {
        const info = file.cases[series.case],
          side = sideOf(file, series, at);
        if (side)
          found.set(key(kernel, info.name, series.backend), {
            ...side,
            kernel,
            info,
            series,
            file,
            definition: definition(kernel, info.name),
            paired: paired.get(key(kernel, info.name, series.backend)) || null,
          });
      }
    }
    return found;
  }

  function sideOf(file, series, at) {
    const [status, why] = series.bad[at] || ["ok", null];
    if (status === "ok" && series.us[at] === null) return null;
    return {
      status,
      why: why === null ? "" : file.whys[why],
      at,
      us: series.us[at],
      low: series.low[at],
      high: series.high[at],
    };
  }

  /** The baseline that both sides timed in the case, the fastest on side b; null on another machine, whose baseline is another. */
  function baselines(a, b) {
    if (!a || !b || b.series.baseline) return [null, null];
    const timed = one =>
      new Map(
        one.file.series
          .filter(({case: number, baseline, us}) => baseline && number === one.series.case && us[one.at] !== null)
          .map(({backend, us, low, high}) => [
            backend,
            {name: backend, us: us[one.at], low: low[one.at], high: high[one.at]},
          ]),
      );
    const [mine, theirs] = [timed(a), timed(b)];
    const common = [...theirs].filter(([name]) => mine.has(name)).sort(([, x], [, y]) => x.us - y.us)[0];
    return common ? [mine.get(common[0]), common[1]] : [null, null];
  }

  function rowsOf({before, after}, files) {
    const a = measuredAt(before, files[0]),
      b = measuredAt(after, files[1]),
      oneMachine = before.lane.machine === after.lane.machine;
    return [...new Set([...a.keys(), ...b.keys()])].map(name => {
      const [x, y] = [a.get(name) || null, b.get(name) || null],
        [from, to] = oneMachine ? baselines(x, y) : [null, null],
        one = y || x;
      return {
        kernel: one.kernel,
        case: one.info.name,
        backend: one.series.backend,
        baseline: one.series.baseline,
        rate: one.info.rate,
        before: x,
        after: y,
        ...compared(
          x && {...x, baseline: from, paired: oneMachine ? x.paired : null},
          y && {...y, baseline: to, paired: oneMachine ? y.paired : null},
          R.site.limits,
        ),
      };
    });
  }

  /** Sureness times size first, then what cannot be timed, then the rest by name. */
  function ordered(rows) {
    const rank = row => (["broken", "mended"].includes(row.verdict) ? Infinity : (row.least ?? -1));
    return [...rows].sort(
      (x, y) => (rank(y) > rank(x)) - (rank(y) < rank(x)) || Math.abs(y.change ?? 0) - Math.abs(x.change ?? 0),
    );
  }

  Object.assign(R, {sides: {sides, kernelsIn, filesOf, rowsOf, ordered}});
})();
