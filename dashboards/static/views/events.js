/* The page of all events: every state and kind, filtered by words and by state; an address names one of them. */
"use strict";

(() => {
  const R = Ridgeline,
    {h, fail} = R,
    E = R.event;
  const STATES = ["open", "acknowledged", "accepted", "recovered", "fixed"],
    KINDS = ["kernel", "library", "machine", "code", "configuration"];

  /** All that the filter looks at. */
  function text(event) {
    const {first_bad: bad, causes, moved} = event;
    return [
      ...[event.id, event.kind, event.state, event.direction, event.machine, event.owner, bad.hash, bad.author, bad.subject],
      ...causes.flatMap(({kind, text}) => [kind, text]),
      ...moved.flatMap(row => row.slice(0, 3)),
    ].join(" ");
  }

  async function show() {
    const {events} = await R.events(),
      values = R.state(),
      host = document.getElementById("event-list"),
      controls = document.getElementById("event-choices"),
      go = changes => {
        R.go(changes);
        show().catch(fail);
      };
    const input = document.getElementById("filter");
    if (input !== document.activeElement) input.value = values.q || "";
    R.keepFocus(controls, () =>
      controls.replaceChildren(
        ...Object.entries({state: STATES, kind: KINDS}).map(([key, names]) =>
          R.press(key, [["", "all"], ...names], values[key] || "", name => go({[key]: name})),
        ),
      ),
    );
    const found = events.filter(
      event =>
        event.id === values.event ||
        ((!values.state || event.state === values.state) &&
          (!values.kind || event.kind === values.kind) &&
          R.matches(text(event), values.q || "")),
    );
    R.keepFocus(host, () =>
      R.eventTable(host, found, {
        caption: "events",
        key: "by",
        chosen: values.event || null,
        toggle: ({id}) => go({event: values.event === id ? "" : id}),
      }),
    );
    const unknown = document.getElementById("unknown-event");
    unknown.hidden = !values.event || events.some(event => event.id === values.event);
    unknown.textContent = `There is no event “${values.event}” in these records.`;
    document.getElementById("shown").textContent = `${found.length} of ${E.several(events.length, "event")}`;
    document.getElementById("nothing").hidden = found.length > 0;
  }

  document.addEventListener("DOMContentLoaded", () => {
    if (R.site.lanes.length === 0) return;
    R.header(R.lane(R.state()), change => R.go(change));
    R.filterKeys(document.getElementById("filter"), query => {
      R.setState({q: query.trim()});
      show().catch(fail);
    });
    window.addEventListener("hashchange", () => show().catch(fail));
    show().catch(fail);
  });
})();
