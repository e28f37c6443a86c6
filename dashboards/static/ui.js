/* Shared by all pages: elements, the state in the address, data files.
 *
 * Pages must work from a folder, so there are no modules, no fetch and no server: a data file is a script that calls
 * Ridgeline.receive(path, value).  Text from records only ever becomes a text node or an attribute value, never markup.
 */
"use strict";

var Ridgeline = (() => {
  const waiting = new Map(),
    received = new Map(),
    {root, version} = document.documentElement.dataset;

  /** h("td.number", {title: "median"}, "1.5", child): an element with its classes.  The attributes may be left out; of
   * them, functions are listeners.  Children that are null are left out.
   */
  function h(name, ...rest) {
    const [tag, ...classes] = name.split("."),
      element = document.createElement(tag),
      named = rest[0]?.constructor === Object;
    if (classes.length) element.className = classes.join(" ");
    for (const [key, value] of Object.entries(named ? rest[0] : {})) {
      if (value === null || value === undefined || value === false) continue;
      if (typeof value === "function") element.addEventListener(key, value);
      else element.setAttribute(key, value === true ? "" : value);
    }
    const children = (named ? rest.slice(1) : rest).flat(Infinity);
    element.append(...children.filter(child => child !== null && child !== undefined));
    return element;
  }

  /** A text from a record: what is written from right to left in it does not reorder what stands around; a name breaks
   * behind its underscores.
   */
  const foreign = text => h("bdi", String(text).split(/(?<=_)/).flatMap((part, n) => (n ? [h("wbr"), part] : [part])));

  /** A text in which `...` is code. */
  const words = text => text.split("`").map((part, n) => (n % 2 ? h("code", part) : foreign(part)));

  /** An address within the site: "#case=x" is of this page, all else of its root. */
  const within = address => (address.startsWith("#") ? address : root + address);

  /** A link within the site; without an address, its text. */
  const link = (address, text, attributes = {}) =>
    address ? h("a", {href: within(address), ...attributes}, foreign(text)) : h("span", attributes, foreign(text));

  /** A commit as a link into the repository, if one is known and this is a commit's hash. */
  function commit(hash) {
    const {repo} = Ridgeline.site,
      label = h("code", hash.slice(0, 8));
    if (!repo || !/^[0-9a-f]{7,40}$/.test(hash)) return h("span", {title: hash}, label);
    return h("a", {href: `${repo}/commit/${hash}`, title: `commit ${hash}`, rel: "noopener"}, label);
  }

  /** Buttons of which one is pressed. */
  function press(title, names, chosen, change) {
    const buttons = names.map(name =>
      h("button", {type: "button", "aria-pressed": String(name === chosen), click: () => change(name)}, name),
    );
    return h("div.choices", {role: "group", "aria-label": title}, buttons);
  }

  /** A labelled choice; options: [[value, text]]. */
  function pick(title, options, chosen, change) {
    const entries = options.map(([value, text]) => h("option", {value, selected: value === chosen}, text));
    return h("label", `${title} `, h("select", {change: event => change(event.target.value)}, entries));
  }

  /** Put a text where it can be pasted from. */
  async function copy(text) {
    if (navigator.clipboard) return navigator.clipboard.writeText(text);
    const area = h("textarea", {"aria-hidden": "true"});
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    return area.remove();
  }

  /* ---- the state of a page is in the address, so that a link shows what its sender saw ---- */

  const state = () => Object.fromEntries(new URLSearchParams(location.hash.slice(1)));

  /** The address of a state; empty values are left out. */
  function hashOf(values) {
    const kept = Object.entries(values).filter(([, value]) => value !== null && value !== undefined && value !== "");
    return `#${new URLSearchParams(kept)}`;
  }

  /** Change some values of the state, with a new entry in the browser's history if `entry`. */
  function go(changes, entry = true) {
    const hash = hashOf({...state(), ...changes});
    if (hash !== location.hash) history[entry ? "pushState" : "replaceState"](null, "", hash);
  }

  /* ---- data ---- */

  function receive(path, value) {
    received.set(path, value);
    waiting.get(path)?.(value);
  }

  /** A promise of a script of the site. */
  function script(path) {
    return new Promise((resolve, reject) => {
      const failed = () => reject(new Error(`${path} could not be read; build the site again`));
      document.head.append(h("script", {src: `${root}${path}?v=${version}`, load: resolve, error: failed}));
    });
  }

  /** A promise of the value that data/<path>.js hands to `receive`. */
  function load(path) {
    if (!received.has(path) && !waiting.has(path)) {
      const value = new Promise((resolve, reject) => {
        waiting.set(path, resolve);
        script(`data/${path}.js`).catch(reject);
      });
      received.set(path, value);
    }
    return Promise.resolve(received.get(path));
  }

  /** Show on the page what went wrong, rather than leave it empty. */
  function fail(error) {
    document.getElementById("page").removeAttribute("data-busy");
    document.querySelector("main").prepend(h("p.problem", {role: "alert"}, String(error.message || error)));
    throw error;
  }

  return {h, foreign, words, within, link, commit, press, pick, copy, state, hashOf, go, receive, script, load, fail, root};
})();
