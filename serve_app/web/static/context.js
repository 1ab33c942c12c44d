// What people look up first about a suspect, beside its reasons: its last change, restarts, the newest error lines of its logs, and a
// failing trace. The service reads logs and traces when the page asks, which may take seconds: nothing else waits for that answer. For a
// past moment there are the links only.
import { el } from "./dom.js";
import * as feed from "./feed.js";
import { seconds } from "./numbers.js";
import { ago, kind, moment, plural, time } from "./words.js";

const PAUSE_MS = 15000; // between two requests about a service
const KEPT = 20; // cached answers

/**
 * Loads the details of suspects with logs and traces, again with new snapshots.
 * @param {() => void} redraw called when an answer has arrived.
 */
export function contextLoader(redraw) {
  const known = new Map(); // by mesh, moment and service: {newest, due, details}

  /** The details of a service, `at` null: now; null: not loaded. */
  return (/** @type {{mesh: string, at: string | null, newest: string}} */ { mesh, at, newest }, /** @type {string} */ service) => {
    const key = [mesh, at, service].join(" "),
      before = known.get(key);
    if (before && (at || before.newest === newest || Date.now() < before.due)) return before.details;
    const next = { newest, due: Date.now() + PAUSE_MS, details: before?.details ?? null };
    known.delete(key);
    known.set(key, next);
    while (known.size > KEPT) known.delete(known.keys().next().value);
    feed.details(mesh, service, null, at, at ? null : true).then(
      (details) => {
        next.details = details;
        redraw();
      },
      () => {}, // the card is complete without it, and the next snapshot asks again
    );
    return next.details;
  };
}

/** A text that leads to another tool, if there is a link to it. */
export const toolLink = (text, href, key) => (href ? el("a", { href, target: "_blank", rel: "noopener noreferrer", "data-key": `tool ${key}` }, text) : text);

const exactly = (text) => document.createTextNode(text); // as the tool has it: not what looks like an id or a time in it
const line = (...children) => el("p", { class: "why" }, ...children);

/** Lines of the card about a suspect. @param {any} details null: not loaded. */
export function contextLines(details, suspect, incident) {
  if (!details) return [];
  return [lastChange(details, incident), restarts(details, suspect), ...logLines(details), traceLine(details)].filter(Boolean);
}

/** The last change of the service in the kept snapshots, unless the card has a later one. */
function lastChange({ service, changes: [last], observed_at: at }, incident) {
  if (!last || incident.changes.some((one) => one.service === service)) return null;
  return el("p", { class: "why planned" }, `▲ Last change: ${kind(last.kind)}${last.reason ? ` (${last.reason})` : ""}, ${ago(last.at, at)}`);
}

/** Restarts of its containers, unless they are a reason: one restart alone is none. */
function restarts({ signals, times, observed_at: at }, { reasons }) {
  const until = times.indexOf(at) + 1,
    sum = (/** @type {string} */ name) => (signals[name] ?? []).slice(0, until).reduce((all, one) => all + (one ?? 0), 0),
    last = (signals.restarts ?? []).slice(0, until).findLastIndex((one) => one > 0),
    killed = sum("oom_kills");
  if (last < 0 || reasons.some(({ metric }) => metric === "restarts" || metric === "oom_kills")) return null;
  return line(`${plural(sum("restarts"), "container")} restarted${killed ? `, ${killed} of them killed for memory` : ""}; last at ${time(times[last])}`);
}

/** The newest error lines; else why there are none, or only the link. */
function logLines({ logs, links, observed_at: now }) {
  const link = toolLink("Logs", links.logs, "logs");
  if (!logs) return links.logs ? [line(link)] : [];
  if (logs.failed) return [line(link, `: ${logs.tool} ${logs.failed}`)];
  if (!logs.lines.length) return [line(link, `: no error lines in ${logs.tool}`)];
  const rows = logs.lines.map(({ at, text, count }) => el("li", {}, `${moment(at, now)} `, exactly(text), count > 1 ? el("b", {}, ` ×${count}`) : null));
  return [line(link, `: newest error lines in ${logs.tool}`), el("ul", { class: "log" }, ...rows)];
}

/** A failing trace in one line; else why there is none, or only the link. */
function traceLine({ trace, links }) {
  const link = toolLink("Traces", links.traces, "traces");
  if (!trace) return links.traces ? line(link) : null;
  if (trace.failed) return line(link, `: ${trace.tool} ${trace.failed}`);
  if (!trace.failing) return line(link, `: no failing trace in ${trace.tool}`);
  const { name, seconds: lasted, service, reason, url } = trace.failing,
    text = exactly(`${name}, ${seconds(lasted)}, failed in ${service}${reason ? `: ${reason}` : ""}`);
  return line(link, ": ", toolLink(text, url, "trace"));
}
