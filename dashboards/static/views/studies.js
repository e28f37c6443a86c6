/* Studies: declared experiments, each with its question, figures, rules, table and files. */
"use strict";

(() => {
  const R = Ridgeline,
    {h, foreign} = R;

  const columns = current => [
    {key: "study", value: row => row.name, cell: row => [opener(row, row === current), h("span.sub", foreign(row.title))]},
    {key: "question"},
    {key: "operators", value: row => row.operators.join(", ")},
    {key: "machine", cell: row => [foreign(row.device || row.machine), h("span.sub", foreign(row.machine))]},
    {key: "date", title: "measured", value: row => row.date.slice(0, 10), cell: row => [foreign(row.date.slice(0, 10) || "–"), h("span.sub", foreign(row.commit.slice(0, 8)))]},
    {key: "waits", title: "parts that wait", number: true},
  ];

  const opener = (row, pressed) => R.opener(row.name, pressed, () => choose({study: row.name, on: row.machine, order: "", off: ""}));

  /* ---- one study ---- */

  const texts = (title, entries) => (entries.length ? [h("h3", title), h("ul", entries.map(entry => h("li", entry)))] : []);

  function rule({rule: text, loses}) {
    const cost = loses === null ? null : h("span.sub", `loses ${(100 * loses).toFixed(1)} % against the best point`);
    return [foreign(text), cost];
  }

  const links = files => files.map(({name, href}, n) => [n ? ", " : "", h("a", {href: R.root + href, download: name}, name)]);

  function figure(host, {name, picture, foot, files}, study) {
    const section = h("section.figure", {"data-figure": name}, h("h3", foreign(picture.title)));
    host.append(section);
    R.picture(section, picture, `${study.name}-${name}`, ...choose.off());
    section.append(
      ...R.foot(foot),
      h("p.beside", "This figure: ", links(files)),
    );
  }

  const amount = value => (Number.isInteger(value) ? value.toLocaleString("en-US") : R.number(value, 5));

  function table(host, found, study, values) {
    if (!found.table.rows.length) return;
    const cells = found.table.columns.map(({key, title, number}, n) => ({
      key,
      title,
      number,
      value: row => row[n],
      cell: row => (number ? amount(row[n]) : foreign(row[n] === "" ? "–" : row[n])),
    }));
    const grid = R.grid({caption: study.title, columns: cells, rows: found.table.rows, ...choose.order("order"), file: `study-${study.name}`});
    host.append(h("h3", "Table"), grid, h("p.beside", "As recorded: ", links(found.files)));
  }

  function one(host, study, found, values) {
    host.append(
      h("h2", {id: "study"}, foreign(study.title), h("span.sub", foreign(`${study.device || study.machine}, ${study.versions}`))),
      h("p", foreign(study.question)),
      ...found.problems.map(text => h("p.notice.bad", foreign(text))),
    );
    for (const each of found.figures) figure(host, each, study);
    host.append(...texts("Rules that follow", found.guidance.map(rule)));
    table(host, found, study, values);
    host.append(...texts("What is not there yet", found.waits.map(foreign)));
    if (study.source) host.append(h("p.foot", "Source of the experiment: ", foreign(study.source)));
  }

  async function show(values) {
    const {studies, problems} = await R.load("views/studies"),
      study = R.experiment(studies, "name", values.study, values.on),
      found = study ? await R.data(study.path) : null;
    const list = [R.grid({caption: "studies", columns: columns(study), rows: studies, ...choose.order("sort"), file: "studies"})];
    return R.experiments(values, choose, problems, list, study && (host => one(host, study, found, values)));
  }

  const choose = R.view(show);
})();
