/* Machine health: the list of machines, one machine over time, and what the gate said of changes that were known. */
"use strict";

(() => {
  const R = Ridgeline,
    {h, foreign, number, commitLink, day, grid} = R;
  const FIELD = {clock: 0, power: 1, temperature: 2, capped: 3, throttled: 4, link: 5, pace: 6};
  const share = value => R.percent(value);
  const MEASURES = [
    {key: "clock", title: "clock at work", unit: "MHz"},
    {key: "power", title: "power at work", unit: "W"},
    {key: "temperature", title: "highest temperature", unit: "°C"},
    {key: "capped", title: "at the power cap", unit: "% of readings", scale: 100},
    {key: "throttled", title: "held back by heat or a fault", unit: "% of readings", scale: 100},
    {key: "link", title: "slowest link", unit: "GB/s"},
    {key: "pace", title: "time beside other ranks", unit: "× of the median rank"},
    {key: "noise", title: "noise between trials", unit: "%", scale: 100},
  ];
  const GOOD = ["found", "right"],
    BAD = ["false", "missed"];

  const planted = amount => (amount ? `${number(100 * amount, 2)} % more work` : "nothing (A/A)");
  const total = counts => Object.values(counts).reduce((sum, count) => sum + count, 0);
  const of = (counts, names) => names.reduce((sum, name) => sum + (counts[name] || 0), 0);

  /* ---- all machines ---- */

  /** "2 of 2 right" for each planted share, "1 false" first where there is one. */
  function gateText({planted: amount, counts}) {
    const bad = BAD.filter(name => counts[name]).map(name => `${counts[name]} ${name}`),
      word = amount ? "found" : "right";
    return `${planted(amount)}: ${[...bad, `${of(counts, GOOD)} of ${total(counts)} ${word}`].join(", ")}`;
  }

  function seen({last, behind_days, unseen}) {
    if (last === null) return h("span.muted", "no notes");
    const behind = unseen ? h("span.sub", `${number(behind_days, 2)} days behind the others`) : null;
    return [day(last), h("span.sub", R.ago(last) === "today" ? "today" : R.ago(last) + " ago"), behind];
  }

  const trouble = row => row.standing.length + (row.unseen ? 1 : 0) + row.gate.reduce((sum, {counts}) => sum + of(counts, BAD), 0);

  function state(row) {
    if (!row.standing.length && !row.unseen) return row.last === null ? "–" : "nothing apart";
    const texts = [...row.standing, ...(row.unseen ? ["not seen while others were measured"] : [])];
    return h("ul.findings", texts.map(text => h("li", text)));
  }

  const columns = current => [
    {
      key: "machine",
      cell: row => machineButton(row, row.machine === current),
    },
    {key: "state", help: "what is apart from its peers now", value: trouble, cell: state, look: row => (row.standing.length || row.unseen ? "slower" : "")},
    {key: "last", title: "last seen", number: true, cell: seen},
    {
      key: "noise",
      help: "typical deviation of a baseline between two trials of the newest session",
      number: true,
      cell: row => (row.noise === null ? "–" : number(100 * row.noise, 2) + " %"),
    },
    {
      key: "gate",
      title: "the gate on known changes",
      value: row => row.gate.reduce((sum, {counts}) => sum + of(counts, GOOD), 0),
      plain: row => row.gate.map(gateText).join("; "),
      cell: row => (row.gate.length ? row.gate.map(one => h("span.line", gateText(one))) : "–"),
    },
  ];

  function machineButton({machine, product}, pressed) {
    const open = () => choose({machine, env: "", measure: ""});
    const button = h("button.plain", {type: "button", "aria-pressed": String(pressed), click: open}, foreign(machine));
    return [button, h("span.sub", foreign(product))];
  }

  /* ---- one machine over time ---- */

  /** {names, lines: [[value per session]]}: one line per GPU, or one of the machine. */
  function linesOf(data, measure) {
    const scaled = value => (value === null || value === undefined ? null : value * (measure.scale || 1));
    if (measure.key === "noise") return {names: ["machine"], lines: [data.sessions.map(session => scaled(session[3]))]};
    const devices = [...Array(data.devices).keys()];
    return {
      names: devices.map(n => "GPU " + n),
      lines: devices.map(n => data.sessions.map(session => scaled(session[4][n]?.[FIELD[measure.key]]))),
    };
  }

  /** A line for each GPU over the sessions. */
  function overSessions(data, measure, {names, lines}) {
    const marks = lines.map((line, n) => ({
      name: names[n],
      kind: "line",
      look: n,
      x: line.map((_, at) => at),
      y: line,
      rows: line.map((value, at) => ({value, session: data.sessions[at]})),
    }));
    return {
      label: `${measure.title} of ${data.machine} over ${data.sessions.length} sessions`,
      x: {names: data.sessions.map(([at]) => day(at))},
      y: {title: measure.unit, zero: measure.scale === 100},
      marks,
      tip: ({value, session: [at, commit, trials]}, {name}) =>
        R.box(name, [
          [measure.title, `${number(value)} ${measure.unit}`],
          ["session", `${day(at)}, ${trials} trials`],
          ["commit", R.short(commit)],
        ]),
    };
  }

  function overTime(data, values, host) {
    const offered = MEASURES.filter(measure => linesOf(data, measure).lines.some(line => line.some(value => value !== null)));
    if (!offered.length) {
      host.append(h("p.notice", "The notes of this machine hold no readings of its devices."));
      return;
    }
    const measure = offered.find(({key}) => key === values.measure) || offered[0];
    host.append(h("div.tools", R.pick("show", offered.map(({key, title}) => [key, title]), measure.key, key => choose({measure: key}))));
    R.panelChart(host, overSessions(data, measure, linesOf(data, measure)), ...choose.off());
    host.append(sessionTable(data));
  }

  function sessionTable(data) {
    const rows = data.sessions.flatMap(([at, commit, trials, noise, devices]) =>
      (devices.length ? devices : [[]]).map((values, gpu) => ({at, commit, trials, noise, gpu, values})),
    );
    const column = (key, title, text = number) => ({
      key,
      title,
      number: true,
      value: row => row.values[FIELD[key]] ?? null,
      cell: row => (row.values[FIELD[key]] ?? null) === null ? "–" : text(row.values[FIELD[key]]),
    });
    const body = grid({
      caption: "each session, GPU by GPU",
      columns: [
        {key: "at", title: "session", cell: row => [day(row.at), " ", commitLink(row.commit)]},
        {key: "gpu", title: "GPU", number: true},
        column("clock", "clock, MHz"),
        column("power", "power, W"),
        column("temperature", "highest, °C", value => number(value, 2)),
        column("capped", "at the cap", share),
        column("throttled", "held back", share),
        column("link", "slowest link, GB/s"),
        column("pace", "time, × of the median rank", value => number(value, 4)),
        {key: "noise", number: true, cell: row => (row.noise === null ? "–" : number(100 * row.noise, 2) + " %")},
        {key: "trials", number: true},
      ],
      rows: rows.reverse(),
      file: "sessions-" + data.machine,
    });
    return h("details", h("summary", `The ${data.sessions.length} sessions as a table`), body);
  }

  /* ---- what was found, asked and verified ---- */

  function findings(data) {
    if (!data.sessions.length) return h("p", "The records hold no notes of this machine.");
    if (!data.findings.length) return h("p", "Nothing was apart from its peers in the recorded sessions.");
    const item = ({text, ended, slower, commit}) =>
      h(
        "li",
        {class: ended === null ? "standing" : "muted"},
        foreign(text),
        " from ",
        commitLink(commit),
        slower ? `; times are ${R.signedPercent(slower)} by it` : "",
        ended === null ? "" : `; over since ${day(ended)}`,
      );
    return h("ul.findings", [...data.findings].reverse().map(item));
  }

  const ratio = value => (value === null ? "–" : R.signedPercent(value - 1));

  /** Measured changes over the nights, by what was planted: a line where each should lie. */
  function gateChart(data) {
    const nights = [...new Set(data.canary.map(({at}) => day(at)))].sort(),
      amounts = [...new Set(data.canary.map(row => row.planted))].sort((a, b) => a - b);
    const marks = amounts.flatMap((amount, look) => {
      const rows = data.canary.filter(row => row.planted === amount && row.ratio !== null);
      const dots = (outcomes, changes) => {
        const some = rows.filter(({outcome}) => outcomes(outcome));
        return {name: "planted: " + planted(amount), look, rows: some, x: some.map(({at}) => nights.indexOf(day(at))), y: some.map(row => 100 * (row.ratio - 1)), ...changes};
      };
      return [
        dots(outcome => GOOD.includes(outcome), {}),
        dots(outcome => !GOOD.includes(outcome), {hollow: true}),
        dots(outcome => BAD.includes(outcome), {kind: "ring"}),
        {name: "planted: " + planted(amount), look, kind: "rule", dashed: 1, x: [null], y: [100 * amount]},
      ];
    });
    return {
      label: `measured changes of ${data.machine} over ${nights.length} nights, by what was planted`,
      x: {names: nights},
      y: {title: "measured change of time, %"},
      marks,
      tip: row => [
        h("p", h("strong", planted(row.planted)), ": ", row.outcome),
        h("p", foreign(row.case), ` ${ratio(row.ratio)} (${ratio(row.low)} to ${ratio(row.high)}), ${day(row.at)}`),
      ],
    };
  }

  function gate(data, host) {
    if (!data.canary.length) {
      host.append(h("p.notice", "The gate was never tested with known changes on this machine: ", h("code", "ridgeline ci canary"), "."));
      return;
    }
    host.append(
      h(
        "p.hint",
        "Trees with a known difference, judged as a pull request is. “False” is a verdict on a change that was not there; “missed” says SAME of one that the policy promises to find. ",
        "Filled: right; hollow: not decided; in a ring: false or missed; dashed: what was planted.",
      ),
    );
    R.panelChart(host, gateChart(data));
    host.append(
      grid({
        caption: "how the gate judged known changes",
        columns: [
          {key: "at", title: "night", cell: row => [day(row.at), " ", commitLink(row.commit)]},
          {key: "planted", number: true, text: planted},
          {key: "case"},
          {key: "outcome", look: row => (BAD.includes(row.outcome) ? "slower" : "")},
          {key: "verdict"},
          {
            key: "ratio",
            title: "measured",
            help: "head / base with its 99 % interval",
            number: true,
            cell: row => [ratio(row.ratio), h("span.sub", row.low === null ? "" : `${ratio(row.low)} to ${ratio(row.high)}`)],
          },
          {key: "trials", number: true},
        ],
        rows: [...data.canary].reverse(),
        file: "gate-" + data.machine,
      }),
    );
  }

  function verified(data) {
    if (!data.verified.length) return h("p.notice", "No check of this machine is kept: ", h("code", "ridgeline verify"), ".");
    return grid({caption: "last verified", columns: R.checkColumns(), rows: data.verified, file: "checks-" + data.machine});
  }

  async function show(values) {
    const lane = R.lane(values),
      {machines} = await R.load("views/machines");
    const asked = machines.find(({machine}) => machine === values.machine) || machines.find(({machine}) => machine === lane.machine);
    document.getElementById("fingerprint").hidden = asked.machine !== lane.machine;
    if (asked.machine === lane.machine) R.laneOf(values, choose);
    const data = await R.load(asked.path);
    return host => draw(host, values, machines, data);
  }

  function draw(host, values, machines, data) {
    host.replaceChildren(
      grid({
        caption: "every machine",
        columns: columns(data.machine),
        rows: machines,
        ...choose.order("sort"),
        file: "machines",
      }),
      h("h2", {id: "machine"}, foreign(data.machine)),
      findings(data),
    );
    if (data.sessions.length) overTime(data, values, host);
    host.append(h("h2", {id: "gate"}, "The gate on known changes"));
    gate(data, host);
    host.append(h("h2", {id: "verified"}, "Last verified"), verified(data));
    if (data.sessions.length && data.devices) host.append(R.besideLinks(machines.find(({machine}) => machine === data.machine).path));
  }

  const choose = R.view(show);
})();
