// The view is in the address after the #, so that every view has a link.

const FIELDS = ["mesh", "at", "peak", "service", "source", "incident", "view", "expand", "space", "labels", "team", "first", "second", "history", "tz", "range", "focus"];

/** The view of the current address: texts by field, without empty ones. */
export function read() {
  const given = new URLSearchParams(location.hash.slice(1));
  return Object.fromEntries(FIELDS.filter((name) => given.get(name)).map((name) => [name, given.get(name)]));
}

function textOf(changes) {
  const view = { ...read(), ...changes };
  return new URLSearchParams(FIELDS.filter((name) => view[name]).map((name) => [name, view[name]])).toString();
}

/** The address of a view that differs from the current one in `changes`, for a link. */
export const address = (changes) => `#${textOf(changes)}`;

/** Go to a view that differs from the current one in `changes`; null removes a field. */
export function go(changes, { quietly = false } = {}) {
  const text = textOf(changes);
  if (text === location.hash.slice(1)) return;
  const url = text ? `#${text}` : location.pathname + location.search;
  if (quietly) history.replaceState(null, "", url);
  else history.pushState(null, "", url);
  dispatchEvent(new Event("view"));
}

const KEPT = ["tz", "team", "labels"]; // of the reader, whatever mesh is in view

/** Go to another mesh: nothing of the view of this one stays. */
export const visit = (view) => go({ ...Object.fromEntries(FIELDS.filter((name) => !KEPT.includes(name)).map((name) => [name, null])), ...view });

addEventListener("popstate", () => dispatchEvent(new Event("view")));
addEventListener("hashchange", () => dispatchEvent(new Event("view")));
