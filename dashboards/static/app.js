/* A page: which machine it is of, its data, its pieces; the menu; keys. */
"use strict";

(() => {
  const R = Ridgeline,
    {h} = R,
    {page, path} = document.documentElement.dataset,
    host = document.getElementById("page"),
    kernel = page.startsWith("kernels/") ? page.slice("kernels/".length) : null;

  /** The lane that the address names, else the first; on an operator's page, the first that has it. */
  function lane(values) {
    const {lanes} = R.site;
    return (
      lanes.find(one => one.machine === values.machine && (!one.env || one.env === values.env)) ||
      lanes.find(one => one.machine === values.machine) ||
      lanes.find(one => !kernel || one.kernels.includes(kernel)) ||
      null
    );
  }

  /** Machine and operator to choose from; links of the menu keep the machine. */
  function head(current) {
    const {lanes, kernels} = R.site,
      chosen = current ? {machine: current.machine, env: current.env} : {};
    const selectors = [];
    if (path.includes("{lane}") && lanes.length)
      selectors.push(
        R.pick("machine", lanes.map(one => [one.slug, one.env ? `${one.machine}, ${one.env}` : one.machine]), current.slug, slug => {
          const {machine, env} = lanes.find(one => one.slug === slug);
          R.go({machine, env});
          show();
        }),
      );
    const entries = [["", "choose …"], ...kernels.map(([name, slug]) => [slug, name])];
    if (kernels.length) selectors.push(R.pick("operator", entries, kernel || "", slug => slug && location.assign(`${R.root}kernels/${slug}.html${R.hashOf(chosen)}`)));
    document.getElementById("selectors").replaceChildren(...selectors);
    for (const link of document.querySelectorAll("[data-page-link]")) if (current) link.hash = R.hashOf(chosen);
  }

  function missing(current) {
    const asked = R.state().machine,
      notices = [];
    if (asked && !R.site.lanes.some(one => one.machine === asked)) notices.push(`There is no machine “${asked}” in these records; showing ${current?.machine ?? "none"}.`);
    if (kernel && !current?.kernels.includes(kernel)) notices.push("This operator has no record on this machine; choose another machine above.");
    return notices.map(text => h("p.problem", {role: "alert"}, text));
  }

  async function show() {
    const values = R.state(),
      current = lane(values);
    head(current);
    host.dataset.busy = "1";
    const notices = missing(current);
    if (kernel && !current?.kernels.includes(kernel)) host.replaceChildren(...notices);
    else {
      const data = await R.load(path.replace("{lane}", current?.slug));
      const made = R.pieces(data.pieces, data.commits);
      host.replaceChildren(...[data.title ? h("h1", R.foreign(data.title)) : null, data.filter ? R.foldFilter(host) : null, ...notices, ...made].filter(Boolean));
    }
    if (values.event && page === "events") unfold(values.event);
    host.removeAttribute("data-busy");
  }

  /** Open the fold of an event, and those around it. */
  function unfold(name) {
    const opened = () => [...host.querySelectorAll("details.fold")].map(one => one.unfold(name)).find(Boolean);
    const target = opened() || opened();
    if (target) target.scrollIntoView({block: "center"});
    else host.prepend(h("p.problem", {role: "alert"}, `There is no event “${name}”.`));
  }

  /** Go to an address within the site; "#case=x" changes that of this page alone. */
  R.follow = address => {
    if (!address.startsWith("#")) location.assign(R.root + address);
    else {
      const changes = Object.fromEntries(new URLSearchParams(address.slice(1)));
      R.go(changes);
      document.querySelectorAll(".updates").forEach(one => one.update(changes));
    }
  };

  document.addEventListener("click", event => {
    const address = event.target.closest("a")?.getAttribute("href");
    if (!address?.startsWith("#") || address === "#main") return;
    event.preventDefault();
    R.follow(address);
  });
  document.addEventListener("keydown", event => {
    if (event.key !== "/" || event.target.closest("input, select, textarea")) return;
    event.preventDefault();
    document.querySelector('#page input[type="search"]')?.focus();
  });
  window.addEventListener("popstate", () => show().catch(R.fail));
  document.addEventListener("DOMContentLoaded", () => show().catch(R.fail));
})();
