/* Any two commits beside each other.  The quotient of two ratios is computed here, because there are as many pairs as
 * commits squared; dashboards.frame.change is the same.
 */
"use strict";

(() => {
  const R = Ridgeline,
    {h} = R;

  /** How much longer a call takes: [new / old - 1, low, high] from two ratios to one library. */
  function change(old, now) {
    const middle = Math.log(old[0] / now[0]),
      half = [old, now].map(([, low, high]) => Math.log(high / low) / 2),
      width = R.known(half[0]) && R.known(half[1]) ? Math.hypot(...half) : null;
    const ends = width === null ? [null, null] : [middle - width, middle + width];
    return [middle, ...ends].map(end => (end === null ? null : Math.expm1(end)));
  }

  /** The rows of a commit by the name of their series: [series, value, ratio, low, high, library, definition]. */
  function byName({lane, columns}) {
    const rows = columns[0].map((_, n) => columns.map(column => column[n]));
    const named = rows.map(row => [...row.slice(0, 5), lane.library[row[5]], lane.definition[row[6]]]);
    return new Map(named.map(row => [nameOf(lane.series[row[0]]), row]));
  }

  const nameOf = series => series.slice(0, 3).join("\0");

  function verdict(before, after, moved, words) {
    if (!before || !after) return words.one;
    if (before[6] !== after[6]) return words.definition;
    if (!R.known(before[2]) || !R.known(after[2])) return words.alone;
    if (before[5] !== after[5]) return words.library;
    if (moved[1] === null) return words.unsure;
    return moved[1] > 0 ? words.slower : moved[2] < 0 ? words.faster : words.within;
  }

  /** Rows of the table, what changed most first; sides: {lane, columns}. */
  function rowsOf(a, b, words) {
    const sides = [a, b].map(byName);
    const about = new Map([a, b].flatMap(({lane}) => lane.series.map(one => [nameOf(one), one])));
    const found = [...new Set([...sides[0].keys(), ...sides[1].keys()])].map(key => {
      const [kernel, name, backend, unit, slug] = about.get(key),
        [before, after] = sides.map(side => side.get(key) || null);
      const same = before && after && before[6] === after[6] && before[5] === after[5] && R.known(before[2]) && R.known(after[2]);
      const moved = same ? change(before.slice(2, 5), after.slice(2, 5)) : null;
      const speeds = [before, after].map(one => (one ? [one[1], unit] : null)),
        ratios = [before, after].map(one => (one && R.known(one[2]) ? one.slice(2, 5) : null));
      const address = `kernels/${slug}.html#${new URLSearchParams({machine: b.lane.machine, case: name})}`;
      return [kernel, [name, address], backend, moved, [verdict(before, after, moved, words), ""], ...ratios, ...speeds];
    });
    return found.sort((x, y) => x[0].localeCompare(y[0]) || (y[3]?.[0] ?? -9) - (x[3]?.[0] ?? -9));
  }

  R.change = change;

  R.compare = ({lanes, table, words, said}) => {
    const host = h("div"),
      controls = h("div"),
      shown = h("div", {"data-busy": "1"});
    const laneOf = name => lanes.find(one => one.slug === name || one.machine === name);

    /** What the address asks for: {lane, at} of both sides. */
    function sides() {
      const values = R.state(),
        later = laneOf(values.machine) || lanes[0],
        earlier = laneOf(values.from_machine) || later,
        place = (lane, start) => (start ? lane.commits.findIndex(([hash]) => hash.startsWith(start)) : -1);
      const usual = later.usual || [0, later.commits.length - 1],
        at = [place(earlier, values.from), place(later, values.commit)];
      return [
        {lane: earlier, at: at[0] >= 0 ? at[0] : earlier === later ? usual[0] : earlier.commits.length - 1},
        {lane: later, at: at[1] >= 0 ? at[1] : usual[1]},
      ];
    }

    const options = lane => lane.commits.map(([hash, date, count], n) => [String(n), `${date.slice(0, 10)} ${hash.slice(0, 8)}, ${count} series`]).reverse();
    const machines = lanes.map(lane => [lane.slug, lane.machine]);

    async function show() {
      const [before, after] = sides();
      const choose = changes => {
        R.go(changes);
        show().catch(R.fail);
      };
      controls.replaceChildren(
        h("div.tools", R.pick("before: machine", machines, before.lane.slug, slug => choose({from_machine: slug, from: ""})),
        R.pick("commit", options(before.lane), String(before.at), at => choose({from: before.lane.commits[at][0].slice(0, 8)}))),
        h("div.tools", R.pick("after: machine", machines, after.lane.slug, slug => choose({machine: slug, commit: "", from: "", from_machine: ""})),
        R.pick("commit", options(after.lane), String(after.at), at => choose({commit: after.lane.commits[at][0].slice(0, 8)}))),
      );
      const [a, b] = await Promise.all([before, after].map(async side => ({...side, columns: await R.load(`${side.lane.slug}/at-${side.at}`)})));
      const rows = rowsOf(a, b, words);
      const having = word => rows.filter(row => row[4][0] === word);
      const [moved, others] = [["slower", "faster", "definition"], ["within", "unsure", "library", "alone", "one"]].map(names => names.map(name => words[name]));
      const counts = [words.slower, words.faster, words.within].map(word => `${having(word).length} ${word}`);
      const folds = others.map(word => [word, having(word)]).filter(([, own]) => own.length);
      const ends = [before, after].map(side => side.lane.commits[side.at][0].slice(0, 8)).join(" ");
      shown.replaceChildren(
        h("p", h("strong", counts.join(", ")), `, of ${rows.length} series. ${said}`),
        ...R.pieces([{kind: "command", text: `ridgeline gate ${ends}${after.lane === before.lane ? ` --machine ${after.lane.machine}` : ""}`, why: "The verdict on the two, if they ran in lock-step:"}]),
        ...[rows.filter(row => moved.includes(row[4][0]))].filter(own => own.length).map(own => R.table({...table, rows: own})),
        ...R.pieces(folds.map(([word, own]) => ({kind: "fold", look: "", lines: [`${own.length} series: ${word}`], pieces: [{...table, rows: own}]}))),
      );
      shown.removeAttribute("data-busy");
    }

    host.append(controls, shown);
    show().catch(R.fail);
    return host;
  };
})();
