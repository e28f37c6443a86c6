/* Shared by all pages: elements, numbers with units, the state in the URL, data files, the head of the page.
 *
 * Pages must work from a folder, so there are no modules, no fetch and no server: a data file is a script that calls
 * Ridgeline.receive(path, value).  Text from records only ever becomes a text node or an attribute value, never markup.
 */
"use strict";

var Ridgeline = (() => {
  const waiting = new Map(),
    received = new Map();

  /* ---- elements ---- */

  const SVG = "http://www.w3.org/2000/svg";

  /** h("td.number", {title: "median"}, "1.5", child): an element with its classes.  The attributes may be left out; of
   * them, functions are listeners.  Children that are null are left out.
   */
  const h = (name, ...rest) => fill(document.createElement(name.split(".")[0]), name, rest);

  /** The same for SVG. */
  const s = (name, ...rest) => fill(document.createElementNS(SVG, name.split(".")[0]), name, rest);

  function fill(element, name, rest) {
    const [first, ...others] = rest,
      named = first !== null && first !== undefined && Object.getPrototypeOf(first) === Object.prototype,
      classes = name.split(".").slice(1).join(" ");
    if (classes) element.setAttribute("class", classes);
    for (const [key, value] of Object.entries(named ? first : {})) {
      if (value === null || value === undefined || value === false) continue;
      if (typeof value === "function") element.addEventListener(key, value);
      else element.setAttribute(key, value === true ? "" : value);
    }
    element.append(...(named ? others : rest).flat(Infinity).filter(child => child !== null && child !== undefined));
    return element;
  }

  /** A text from a record, on its own: what is written from right to left in it does not reorder what stands around. */
  const foreign = text => h("bdi", text);

  /** How something ended, and why. */
  const status = (name, why = null) => h("span", {class: "status " + name, title: why}, name);

  /** Choices as [value, text]; a text may stand for itself. */
  const choices = options => options.map(one => (Array.isArray(one) ? one : [one, one]));

  /** Redraw `host`; the control that had the focus (the n-th) keeps it. */
  function keepFocus(host, draw) {
    const controls = () => [...host.querySelectorAll("button, input, select, summary")];
    const focused = controls().indexOf(document.activeElement);
    draw();
    if (focused >= 0) controls()[focused]?.focus({preventScroll: true});
  }

  /** Buttons of which one is pressed; options: [[value, text]]. */
  function press(title, options, chosen, change) {
    const buttons = choices(options).map(([value, text]) =>
      h("button", {type: "button", "aria-pressed": String(value === chosen), click: () => change(value)}, text),
    );
    return h("div.choices", {role: "group", "aria-label": title}, buttons);
  }

  /** A piece of a line as a chart draws it; dash: lengths, as a text or a list. */
  function sample(color, dash) {
    const line = s("line", {x1: 1, x2: 29, y1: 6, y2: 6, "stroke-dasharray": Array.isArray(dash) ? dash.join(" ") : dash});
    const drawn = s("svg", {width: 30, height: 12, "aria-hidden": "true"}, line);
    drawn.style.setProperty("--line", color);
    return drawn;
  }

  /** Buttons of which each hides or shows a name; `off`: a set; changed(off).  Entries: {name, color, dash, baseline}. */
  function legend(entries, off, changed) {
    const item = ({name, color, baseline, dash}) => {
      const shown = !off.has(name),
        toggle = () => changed(new Set(shown ? [...off, name] : [...off].filter(one => one !== name)));
      return h(
        "button",
        {type: "button", "aria-pressed": String(shown), click: toggle, title: shown ? "hide" : "show"},
        sample(color, dash),
        " ",
        foreign(name),
        baseline ? h("span.sub", " baseline") : null,
      );
    };
    return h("div.legend", {role: "group", "aria-label": "lines"}, entries.map(item));
  }

  /** Drawings take longer than all else on a page: each is made when its element comes near the window, or `now`; `all`
   * of them before the page is printed.  An element that leaves the page is dropped.
   */
  function drawings() {
    const waiting = new Map();
    const near = new IntersectionObserver(
      found => found.filter(entry => entry.isIntersecting).forEach(entry => now(entry.target)),
      {rootMargin: "600px"},
    );

    function add(element, draw) {
      waiting.set(element, draw);
      near.observe(element);
    }

    function drop(element) {
      near.unobserve(element);
      waiting.delete(element);
    }

    function now(element) {
      const draw = waiting.get(element);
      drop(element);
      if (draw) draw();
    }

    const each = action => () => [...waiting.keys()].forEach(action);
    return {add, drop, now, all: each(now), clear: each(drop)};
  }

  /* ---- numbers with their units ---- */

  /** name: the usual name; unit: printed after the number; up: more is better. */
  const RATES = {
    tflops: {name: "TFLOPS", unit: "TFLOPS", up: true},
    gbs: {name: "HBM GB/s", unit: "GB/s", up: true},
    algbw: {name: "algbw", unit: "GB/s", up: true},
    busbw: {name: "busbw", unit: "GB/s", up: true},
    time: {name: "time", unit: "µs", up: false},
    ratio: {name: "ratio to baseline", unit: "×", up: true},
    peak_share: {name: "% of peak", unit: "%", up: true},
  };

  /** Formatters by their number of decimal places: making one takes longer than using it a hundred times. */
  const formatters = Array.from({length: 10}, (_, places) =>
    Intl.NumberFormat("en-US", {minimumFractionDigits: places, maximumFractionDigits: places}),
  );

  /** Four significant digits, thousands grouped; "–" where there is none. */
  function number(value, digits = 4) {
    if (value === null || value === undefined || !Number.isFinite(value)) return "–";
    if (value === 0) return "0";
    return formatters[Math.min(9, Math.max(0, digits - 1 - Math.floor(Math.log10(Math.abs(value)))))].format(value);
  }

  /** The label of a tick, without trailing zeros; whole numbers are sizes of a shape, and have all their digits. */
  const tick = value => (Number.isInteger(value) ? value : Number(value.toPrecision(4))).toLocaleString("en-US", {maximumFractionDigits: 6});

  function withUnit(value, rate) {
    if (value === null || value === undefined || !Number.isFinite(value)) return "–";
    if (rate === "peak_share") return percent(value);
    if (rate === "time") return duration(value);
    return number(value, rate === "ratio" ? 3 : 4) + " " + RATES[rate].unit;
  }

  /** Microseconds in µs, ms or s. */
  function duration(us) {
    const [scale, unit] = us >= 1e6 ? [1e6, "s"] : us >= 1e3 ? [1e3, "ms"] : [1, "µs"];
    return number(us / scale) + " " + unit;
  }

  function percent(share) {
    return share === null || share === undefined || !Number.isFinite(share) ? "–" : (100 * share).toFixed(1) + " %";
  }

  function signedPercent(share) {
    if (share === null || share === undefined || !Number.isFinite(share)) return "–";
    const text = (100 * Math.abs(share)).toFixed(1);
    return (Number(text) === 0 ? "±" : share < 0 ? "−" : "+") + text + " %";
  }

  const DECIMAL = [
    [1e15, "P"],
    [1e12, "T"],
    [1e9, "G"],
    [1e6, "M"],
    [1e3, "k"],
    [1, ""],
  ];
  const BINARY = [
    [2 ** 30, "Gi"],
    [2 ** 20, "Mi"],
    [2 ** 10, "Ki"],
    [1, ""],
  ];

  /** 137438953472, "FLOP" -> "137.4 GFLOP"; message sizes are binary: 1048576 -> "1 MiB". */
  function quantity(value, unit, binary = false) {
    const [scale, prefix] = (binary ? BINARY : DECIMAL).find(([size]) => Math.abs(value) >= size) || [1, ""];
    return Number((value / scale).toPrecision(4)).toLocaleString("en-US") + " " + prefix + unit;
  }

  /* ---- commits ---- */

  const short = hash => hash.slice(0, 8);

  /** A link to the commit in the repository, if one is configured and this is a commit's hash. */
  function commitLink(hash, text) {
    const label = h("code", text || short(hash));
    if (!Ridgeline.site.repo || !/^[0-9a-f]{7,40}$/.test(hash)) return h("span", {title: hash}, label);
    return h("a", {href: Ridgeline.site.repo + "/commit/" + hash, title: "commit " + hash, rel: "noopener"}, label);
  }

  /* ---- the state of a page is in the hash, so that a link shows what its sender saw ---- */

  function state() {
    return Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
  }

  /** The hash of a state; empty values are left out. */
  function hashOf(values) {
    const kept = Object.entries(values).filter(([, value]) => value !== null && value !== undefined && value !== "");
    return "#" + new URLSearchParams(kept).toString();
  }

  /** Change some values of the state without a new entry in the browser history. */
  function setState(changes) {
    history.replaceState(null, "", hashOf({...state(), ...changes}));
  }

  /** Change some values of the state with a new entry: the browser's Back returns to what was shown before. */
  function go(changes) {
    const hash = hashOf({...state(), ...changes});
    if (hash !== (location.hash || "#")) history.pushState(null, "", hash);
  }

  /** Names that are switched off, kept under one key of the state: "gluon,blas", each name encoded by itself. */
  const listed = key => new Set((state()[key] || "").split(",").filter(Boolean).map(unquoted));
  const listing = names => [...names].map(name => encodeURIComponent(name)).join(",");

  function unquoted(text) {
    try {
      return decodeURIComponent(text);
    } catch {
      return text; // an address that somebody typed
    }
  }

  /** The page of a kernel: of a case, with whatever else the state names. */
  function kernelPage(kernel, values = {}) {
    const known = Ridgeline.site.kernels.find(({name}) => name === kernel);
    return known ? Ridgeline.root + "kernels/" + known.slug + ".html" + hashOf(values) : null;
  }

  /** Map of what `key` says of each item to the items of which it says so, in their order. */
  function grouped(items, key) {
    const found = new Map();
    for (const item of items) {
      if (!found.has(key(item))) found.set(key(item), []);
      found.get(key(item)).push(item);
    }
    return found;
  }

  /* ---- time ---- */

  const DAY = 86_400_000;
  const day = ms => (Number.isFinite(ms) && ms > 0 ? new Date(ms).toISOString().slice(0, 10) : "no date");

  /** How long ago that was, by the reader's clock: pages do not know when they are read. */
  function ago(ms, now = Date.now()) {
    if (!Number.isFinite(ms) || ms <= 0) return "–";
    const days = Math.floor((now - ms) / DAY);
    return days < 1 ? "today" : days === 1 ? "1 day" : `${days.toLocaleString("en-US")} days`;
  }

  /* ---- data ---- */

  function receive(path, value) {
    received.set(path, value);
    if (waiting.has(path)) waiting.get(path)(value);
  }

  /** Digests of the data files that this page shows, by path: an address changes with its content. */
  const versions = new Map(Object.entries(JSON.parse(document.documentElement.dataset.versions || "{}")));

  /** Does the site have this data file?  Asked only of files that the page may show. */
  const has = path => versions.has(path);

  /** A promise of the value that data/<path>.js hands to `receive`. */
  function load(path) {
    if (received.has(path)) return Promise.resolve(received.get(path));
    return new Promise((resolve, reject) => {
      waiting.set(path, resolve);
      const source = Ridgeline.root + "data/" + path + ".js" + (versions.has(path) ? "?v=" + versions.get(path) : "");
      document.head.append(
        h("script", {
          src: source,
          error: () => reject(new Error("data/" + path + ".js could not be read; build the site again")),
        }),
      );
    });
  }

  /* ---- head of the page ---- */

  /** The lane that the state names, else the first; on a kernel's page, the first that has the kernel. */
  function lane(values) {
    const {lanes} = Ridgeline.site,
      slug = document.documentElement.dataset.kernel;
    return (
      lanes.find(one => one.machine === values.machine && (one.env === null || one.env === values.env)) ||
      lanes.find(one => one.machine === values.machine) ||
      lanes.find(one => one.kernels.includes(slug)) ||
      lanes[0]
    );
  }

  /** Fill the selectors and the fingerprint, and complete the address; `change` is called with the chosen {machine, env}. */
  function header(current, change) {
    const host = document.getElementById("selectors"),
      {lanes} = Ridgeline.site;
    const machines = [...new Set(lanes.map(one => one.machine))];
    const envs = lanes.filter(one => one.machine === current.machine && one.env !== null).map(one => one.env);
    const unknown = document.getElementById("unknown-machine") || h("p"),
      asked = state().machine;
    unknown.hidden = !asked || asked === current.machine;
    unknown.textContent = `There is no machine “${asked}” in these records; showing ${current.machine}.`;
    if (unknown.hidden) setState({machine: current.machine, env: current.env});
    const titled = machine => {
      const {title} = lanes.find(one => one.machine === machine);
      return [machine, title === machine ? machine : `${title} (${machine})`];
    };
    const selectors = [pick("machine", machines.map(titled), current.machine, machine => change({machine, env: null}))];
    if (envs.length > 1) selectors.push(pick("environment", envs, current.env, env => change({env})));
    keepFocus(host, () => host.replaceChildren(...selectors));
    for (const link of document.querySelectorAll("a.page"))
      link.hash = hashOf({machine: current.machine, env: current.env});
    document
      .getElementById("fingerprint")
      ?.replaceChildren(
        ...current.facts.flatMap(([name, value]) => h("div", h("dt", name), h("dd", value))),
      );
  }

  /** A labelled choice; options: [[value, text]]. */
  function pick(title, options, chosen, change) {
    const entries = choices(options).map(([value, text]) => h("option", {value, selected: value === chosen}, text));
    return h("label", title + " ", h("select", {change: event => change(event.target.value)}, entries));
  }

  /** Show on the page what went wrong, rather than leave it empty. */
  function fail(error) {
    document
      .querySelector("main")
      .prepend(h("p.notice.bad", {role: "alert"}, String(error.message || error)));
    throw error;
  }

  return {
    h,
    s,
    foreign,
    status,
    choices,
    keepFocus,
    RATES,
    number,
    tick,
    withUnit,
    duration,
    percent,
    signedPercent,
    quantity,
    short,
    commitLink,
    state,
    hashOf,
    setState,
    go,
    listed,
    listing,
    sample,
    drawings,
    legend,
    press,
    pick,
    kernelPage,
    grouped,
    day,
    ago,
    receive,
    load,
    has,
    lane,
    header,
    fail,
    root: document.documentElement.dataset.root || "",
    site: null,
  };
})();
