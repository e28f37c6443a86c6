/* Why cases are slower: the cause, what putting each thing back left of the slow-down, and the machine code beside it. */
"use strict";

(() => {
  const R = Ridgeline,
    {h, foreign} = R;
  const NAMED = 6; // cases that are named; the rest is counted
  const LISTED = 40; // rows of what was put back, and differences of machine code, that are shown

  const HEADS = ["put back", "answer", "share", "left of the slow-down", "trials"];

  const several = (count, one) => `${count.toLocaleString("en-US")} ${one}${count === 1 ? "" : "s"}`;
  const known = value => value !== null && Number.isFinite(value);
  /** Two digits: what is left is compared with a smallest effect of 0.3 %. */
  const hundredths = ratio => (ratio < 1 ? "−" : "+") + (100 * Math.abs(ratio - 1)).toFixed(2);
  const percent = ratio => (known(ratio) ? hundredths(ratio) + " %" : "–");

  function cases(names) {
    const shown = names.slice(0, NAMED).join(", ");
    return names.length > NAMED ? `${shown} and ${names.length - NAMED} more` : shown;
  }

  function row(one) {
    const range = known(one.low) && known(one.high) ? `${hundredths(one.low)} to ${hundredths(one.high)} %` : null;
    const cells = [
      [foreign(one.kind + " " + one.name), one.change ? h("span", {class: "sub"}, foreign(one.change)) : null],
      [foreign(one.answer), one.why ? h("span", {class: "sub"}, foreign(one.why)) : null],
      [known(one.share) ? `${Math.round(100 * one.share)} %` : "–"],
      [percent(one.ratio), range ? h("span", {class: "sub"}, range) : null],
      [String(one.trials ?? "–")],
    ];
    const explains = one.answer.startsWith("explains") ? "explains" : "";
    return h(
      "tr",
      {class: [explains, one.part_of ? "part" : ""].join(" ").trim()},
      cells.map((cell, n) => (n ? h("td", {"data-label": HEADS[n]}, cell) : h("th", {scope: "row"}, cell))),
    );
  }

  function proof(one) {
    const rows = one.tried.slice(0, LISTED);
    return h(
      "table",
      {class: "tried"},
      h("caption", {class: "visually-hidden"}, "what was put back as it was in base, and what that left"),
      h("thead", {}, h("tr", {}, HEADS.map(text => h("th", {scope: "col"}, text)))),
      h("tbody", {}, rows.map(row)),
    );
  }

  function code(sentences) {
    const more = sentences.length - LISTED;
    return [
      h("p", {class: "sub"}, "machine code, base against head:"),
      h(
        "ul",
        {class: "code-differs"},
        sentences.slice(0, LISTED).map(text => h("li", {}, foreign(text))),
        more > 0 ? h("li", {class: "muted"}, `and ${more} more`) : null,
      ),
    ];
  }

  function explanation(one) {
    const spent = [several(one.experiments, "experiment"), several(one.trials, "trial")].join(", ");
    const more = one.tried.length - LISTED;
    return h(
      "section",
      {class: "why " + one.state.replaceAll(" ", "-"), "aria-label": "why " + cases(one.cases)},
      h("h3", {}, "Why: ", foreign(cases(one.cases))),
      h("p", {class: "cause-sentence"}, h("span", {class: "chip"}, one.state), " ", foreign(one.sentence)),
      one.tried.length
        ? h("div", {class: "scroll", tabindex: "0", role: "region", "aria-label": "what was put back"}, proof(one))
        : null,
      more > 0 ? h("p", {class: "muted"}, `and ${more} more`) : null,
      one.code.length ? code(one.code) : null,
      one.experiments ? h("p", {class: "sub"}, "measured on ", foreign(one.measured), `: ${spent}`) : null,
    );
  }

  /** A section for each explanation of a report, an event or a pair of commits; none where nothing is explained. */
  R.why = explanations => (explanations || []).map(explanation);
})();
