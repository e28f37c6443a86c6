/* A page that lists experiments and shows one of them: what studies.js and sweeps.js share. */
"use strict";

(() => {
  const R = Ridgeline,
    {h, foreign} = R;

  /** The row that an address names by a key and its machine; else one of that key, else the first. */
  R.experiment = (rows, key, name, machine) => rows.find(row => row[key] === name && row.machine === machine) || rows.find(row => row[key] === name) || rows[0];

  /** The name of a row as the button that shows it. */
  R.opener = (name, pressed, open) => h("button.plain", {type: "button", "aria-pressed": String(pressed), click: open}, foreign(name));

  /** The caption below a figure: machine, versions, commit. */
  R.foot = texts => texts.map(text => h("p.foot", foreign(text)));

  /** What draws the page: header of the lane, problems, `list`; then `one(host)` draws the chosen row, if there is any. */
  R.experiments = (values, choose, problems, list, one) => {
    if (R.site.lanes.length) R.laneOf(values, choose);
    return host => {
      host.replaceChildren(...problems.map(text => h("p.notice.bad", foreign(text))), ...list);
      if (one) one(host);
    };
  };
})();
