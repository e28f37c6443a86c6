/* A page is a list of pieces (dashboards/table.py): texts, tables, charts, folds and choices of more pieces. */
"use strict";

(() => {
  const R = Ridgeline,
    {h, foreign, words} = R;

  const SHOW = {
    text: ({text, look}) => {
      const [first, kind] = look.split(" ");
      return first === "verdict" ? h("h1", {class: `verdict ${kind}`}, words(text)) : h("p", {class: look || null}, words(text));
    },
    heading: ({text}) => h("h2", foreign(text)),
    facts: ({rows}) => h("dl.facts", rows.map(([name, value]) => h("div", h("dt", name), h("dd", foreign(value))))),
    lines: ({lines}) =>
      h("ul.lines", lines.map(([text, address, look, about]) => h("li", {class: look || null}, address ? R.link(address, text) : foreign(text), about ? h("span.sub", foreign(about)) : null))),
    links: ({text, links}) => h("p.small", text, ": ", links.flatMap(([name, address], n) => [n ? ", " : null, R.link(address, name)]), "."),
    command: ({text, why}) => {
      const said = h("button", {type: "button", click: () => R.copy(text).then(() => (said.textContent = "Copied"))}, "Copy");
      return h("div.command", h("span.small", foreign(why)), h("pre", {tabindex: "0"}, h("code", text)), said);
    },
    image: ({source, text}) => h("p.picture", h("img", {src: R.within(source), alt: text, loading: "lazy"})),
    grid: ({pieces}, commits) => h("div.grid", R.pieces(pieces, commits)),
    table: R.table,
    chart: R.chart,
    legend: R.legend,
    compare: piece => R.compare(piece),
    part: ({path, part}) => later(R.load(path).then(value => R.pieces(value[part] || []))),
    fold,
    choice,
  };

  R.pieces = (list, commits) => list.map(piece => SHOW[piece.kind](piece, commits));

  /** A place for pieces that are loaded. */
  function later(promise) {
    const host = h("div", {"data-busy": "1"});
    promise
      .then(made => host.replaceChildren(...made))
      .catch(R.fail)
      .finally(() => host.removeAttribute("data-busy"));
    return host;
  }

  /** Its pieces are made when it is opened for the first time. */
  function fold({lines, pieces, look, name}, commits) {
    const inside = h("div.inside");
    const element = h("details", {class: `fold ${look}`.trim(), "data-name": name || null}, h("summary", lines.map((text, n) => h(n ? "span.sub" : "span.first", words(text)))), inside);
    element.addEventListener("toggle", () => {
      if (element.open && !inside.childElementCount) inside.append(...R.pieces(pieces, commits));
    });
    element.unfold = wanted => {
      const holds = name === wanted || pieces.some(piece => piece.name === wanted && piece.kind === "fold");
      if (holds) {
        inside.append(...(inside.childElementCount ? [] : R.pieces(pieces, commits)));
        element.open = true;
      }
      return name === wanted ? element : null;
    };
    return element;
  }

  /** One of several groups of pieces; which one is in the address. */
  function choice({key, label, options, pieces}, commits) {
    const host = h("section.choice"),
      shown = h("div");
    let current = null;

    function show() {
      const asked = R.state()[key],
        chosen = options.some(([value]) => value === asked) ? asked : options[0][0];
      if (chosen === current) return;
      current = chosen;
      const unknown = asked && asked !== chosen ? h("p.problem", {role: "alert"}, `There is no ${label} “${asked}” here; showing the first.`) : null;
      const picked = R.pick(label, options, chosen, value => {
        R.go({[key]: value});
        show();
      });
      const group = pieces[chosen];
      shown.replaceChildren(...(typeof group === "string" ? [later(R.load(group).then(value => R.pieces(value, commits)))] : R.pieces(group, commits)));
      host.replaceChildren(...[options.length > 1 ? h("div.tools", picked) : null, unknown, shown].filter(Boolean));
    }

    host.update = changes => {
      if (!(key in changes)) return;
      show();
      host.scrollIntoView({block: "start"});
    };
    host.classList.add("updates");
    show();
    return host;
  }

  /** A field that hides the folds whose texts lack a word. */
  R.foldFilter = host => {
    const search = h("input", {
      type: "search",
      placeholder: "Filter: operator author subject …   ( / )",
      "aria-label": "filter",
      input: () => {
        const query = search.value.toLowerCase().split(/\s+/).filter(Boolean);
        for (const one of host.querySelectorAll("details.fold")) {
          const {textContent} = one.querySelector("summary");
          one.hidden = !query.every(word => textContent.toLowerCase().includes(word));
        }
      },
    });
    return h("div.tools", search);
  };
})();
