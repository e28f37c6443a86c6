/* What a shape is: the dimensions of a case, and the families of cases that differ in one of them alone. */
"use strict";

(() => {
  const R = Ridgeline;

  const AMOUNTS = [
    {
      key: "payload",
      title: "message bytes",
      of: row => row.cost.payload_bytes,
      text: value => R.quantity(value, "B", true),
    },
    {key: "bytes", title: "HBM bytes", of: row => row.cost.hbm_bytes, base: 10, text: value => R.quantity(value, "B")},
    {key: "flops", title: "FLOP", of: row => row.cost.flops, base: 10, text: value => R.quantity(value, "FLOP")},
  ].map(one => ({...one, amount: true}));

  const PREFERRED = ["M", "tokens", "MB", "S"]; // what people sweep comes first

  /** What may be the horizontal axis: dimensions that are numbers and differ, then amounts that differ. */
  function axesOf(rows) {
    const names = new Set(rows.flatMap(row => Object.keys(row.shape).filter(name => Number.isFinite(row.shape[name]))));
    const rank = name => (PREFERRED.indexOf(name) + PREFERRED.length + 1) % (PREFERRED.length + 1);
    const dimensions = [...names]
      .sort((a, b) => rank(a) - rank(b))
      .map(name => ({key: name, title: name, of: row => row.shape[name], text: value => R.tick(value)}));
    const differs = ({of}) => new Set(rows.map(of).filter(value => value > 0)).size > 1;
    return [...dimensions, ...AMOUNTS].filter(differs);
  }

  /** What stays the same along a line over `x`: the other dimensions where x is one, the kind of data, the ranks. */
  function familyOf(row, x) {
    const {shape} = row,
      names = Object.keys(shape),
      measured = names.filter(name => Number.isFinite(shape[name]));
    const fixed = x.amount ? names.filter(name => !measured.includes(name)) : names.filter(name => name !== x.key);
    const kind = x.amount ? measured.join(" × ") : "",
      ranks = row.world > 1 ? `${row.world} ranks` : "";
    return [...fixed.map(name => `${name} ${shape[name]}`), row.dtype, ranks, kind].filter(Boolean).join(", ") || "all";
  }

  function familiesOf(rows, x) {
    const found = new Map();
    for (const row of rows) {
      const name = familyOf(row, x);
      found.set(name, [...(found.get(name) || []), row]);
    }
    for (const members of found.values()) members.sort((a, b) => x.of(a) - x.of(b));
    return found;
  }

  /** The family with the most places on the axis. */
  const widest = (families, x) =>
    [...families].reduce(
      (best, [name, rows]) => {
        const size = new Set(rows.map(x.of)).size;
        return size > best.size ? {name, size} : best;
      },
      {name: "", size: 0},
    ).name;

  /** The axis along which most cases differ in nothing else; the first of several. */
  function longest(rows, axes) {
    const sizes = axes.map(x => {
      const families = familiesOf(
        rows.filter(row => x.of(row) > 0),
        x,
      );
      return Math.max(0, ...[...families.values()].map(members => new Set(members.map(x.of)).size));
    });
    return axes[sizes.indexOf(Math.max(...sizes))];
  }

  Object.assign(R, {shapes: {longest, AMOUNTS, axesOf, familyOf, familiesOf, widest}});
})();
