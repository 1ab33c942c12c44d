// Formats numbers and times for people. All times are UTC.
import { isUnseen } from "./severity.js";

const METRICS = {
  request_rate: ["requests", (x) => `${figures(x)}/s`],
  requests_per_second: ["requests", (x) => `${figures(x)}/s`],
  error_rate: ["error rate", percent],
  p50_latency: ["p50 latency", seconds],
  p99_latency: ["p99 latency", seconds],
  cpu_utilization: ["CPU utilization", percent],
  memory_utilization: ["memory utilization", percent],
  active_connections: ["connections", (x) => figures(x)],
  cpu_throttling: ["CPU throttling", percent],
  oom_kills: ["OOM kills", (x) => figures(x)],
  restarts: ["restarts", (x) => figures(x)],
  disk_pressure: ["disk in use", percent],
  pending_pods: ["pending pods", (x) => figures(x)],
  overdue_work: ["regular work", span],
  queue_depth: ["queue depth", (x) => figures(x)],
  cancelled: ["cancelled requests", percent],
};

const LEAST_ERRORS = 0.0005; // share that a label shows

export const metricName = (metric) => METRICS[metric]?.[0] ?? metric.replaceAll("_", " ");
export const metricValue = (metric, x) =>
  x === null || x === undefined ? "not observed" : (METRICS[metric]?.[1] ?? figures)(x);

/** Two significant digits: 1.2, 34, 1,230. */
export function figures(x) {
  if (x === 0) return "0";
  const size = Math.abs(x);
  return size >= 100
    ? Math.round(x).toLocaleString("en")
    : size >= 10
      ? x.toFixed(0)
      : size >= 1
        ? x.toFixed(1)
        : String(Number(x.toPrecision(2)));
}

/** A number of requests: 312, 5, 0.4. */
export const count = (x) => (x < 1 ? figures(x) : Math.round(x).toLocaleString("en"));

function percent(x) {
  return `${figures(100 * x)}%`;
}

export function seconds(x) {
  return x >= 1 ? `${figures(x)} s` : `${figures(1000 * x)} ms`;
}

/** "34/s", or "34/s, 2.1% failed": the label of a call. Empty: nothing was observed. */
export function callLabel(rate, errors) {
  if (rate === null) return "";
  const text = metricValue("requests_per_second", rate);
  return errors >= LEAST_ERRORS ? `${text}, ${percent(errors)} failed` : text;
}

/** 03:12 or 03:12:15, from a time of the service; a text that is not a time stays unchanged. */
export function clock(at, exact = false) {
  const time = new Date(at);
  return Number.isNaN(time.getTime()) ? String(at) : time.toISOString().slice(11, exact ? 19 : 16);
}

/** 2026-03-01 03:12. */
export const day = (at) => at.slice(0, 16).replace("T", " ");

/** 03:12, or 2026-03-01 03:12 if it is not the day of `now`. Both are times of the service. */
export const clockOrDay = (at, now) => (at.slice(0, 10) === now.slice(0, 10) ? clock(at) : day(at));

export const ends = (at) => new Date(at).getTime() / 1000;

/** 12 s, 4 min, 2 h 10 min, 3 days. */
export function span(s) {
  if (s < 90) return `${Math.max(0, Math.round(s))} s`;
  if (s < 5400) return `${Math.round(s / 60)} min`;
  const minutes = Math.round(s / 60);
  if (s < 172800) return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
  return `${Math.round(s / 86400)} days`;
}

export const EVERYTHING = "/*"; // after a namespace: all its services, drawn as one node
export const kind = (text) => text.replaceAll("_", " ");
/** The name of a service to show, without its namespace. */
export const short = (service) => readable(service.slice(service.indexOf("/") + 1));
export const namespace = (service) => service.slice(0, service.indexOf("/"));

const ESCAPED = /~([0-9A-F]{2,6})~/g, // a character that ids may not contain, as its code point
  SHORTENED = /~([0-9a-f]{6})[0-9a-f]{26}~/g, // the end of a name that was too long
  SHOWN = /^(?![/~\u2800]|\p{Default_Ignorable_Code_Point})[\p{L}\p{M}\p{N}\p{P}\p{S} ]$/u;

/** A text for people with original names instead of ids: "shop/bank gateway" for "shop/bank~20~gateway". Characters that
 * print nothing or change the direction of writing stay escaped, since they could make a name look like another one. */
export function readable(text) {
  if (!text?.includes("~")) return text;
  const character = (written, code) => {
    const point = parseInt(code, 16),
      found = point <= 0x10ffff ? String.fromCodePoint(point) : "";
    return SHOWN.test(found) ? found : written;
  };
  return text.replace(ESCAPED, character).replace(SHORTENED, "…$1");
}

export const capitalized = (text) => text[0].toUpperCase() + text.slice(1);
export const plural = (n, word) => `${n.toLocaleString("en")} ${word}${n === 1 ? "" : "s"}`;

/** What a recovering incident shows. */
export function recovery(incident) {
  const at = incident.suspects_at ? `, ${clock(incident.suspects_at)} UTC` : "",
    state = isUnseen(incident) ? "Its telemetry stopped" : "Recovering: normal in the last snapshots";
  return `${state}; suspects at the peak${at}.`;
}

/** The headline that the server made; verdicts of earlier versions have none. */
export const incidentTitle = ({ headline, suspects, affected }) => headline || `${suspects[0]?.service ?? affected[0]} deviates.`;

/** "checkout (#checkout)": who owns a service or an incident; empty if no one is known. */
export const owner = ({ team, contact }) => (team && contact ? `${team} (${contact})` : team || contact || "");

/** What an incident is about: its first suspect, or "the requests to the mesh". */
export function subject({ scope, suspects, affected, id }) {
  if (!scope) return suspects[0]?.service ?? affected[0] ?? id;
  if (scope === "*") return "the requests to the mesh";
  return `the requests to ${scope.endsWith(EVERYTHING) ? `namespace ${namespace(scope)}` : scope}`;
}

/** Whether the reasons of a suspect have the numbers of the whole scope, which the metrics of no service show. */
export const isOfScope = ({ scope, suspects }, service) => Boolean(scope) && scope !== service && suspects[0]?.service === service;

/** "The incident at shop/cart", "The incident of the requests to the mesh". */
export const namedIncident = (incident) => `The incident ${incident.scope ? "of" : "at"} ${subject(incident)}`;

/** "5 min", or "at least 5 min; ended, unknown how" if nothing was seen of its end. */
export function lasted({ since, until, ended_unseen: isUnseenEnd }) {
  const text = span(ends(until) - ends(since));
  return isUnseenEnd ? `at least ${text}; ended, unknown how` : text;
}

/** "Accepted as normal by alice. Note: the new release", and before the next snapshot that the incident will end. */
export function acceptedText({ accepted_by: by, note }, isOpen = false) {
  const end = isOpen ? " The incident ends with the next snapshot." : "";
  return `Accepted as normal${by ? ` by ${by}` : ""}.${end}${note ? ` Note: ${note}` : ""}`;
}

/** "Confirmed by alice: shop/cart. Note: the new release." */
export function feedbackText({ was_incident, culprit, note, given_by, effect }) {
  const who = given_by ? ` by ${given_by}` : "",
    text = !was_incident ? `Marked as a false alarm${who}.` : culprit ? `Confirmed${who}: ${culprit}.` : `Confirmed${who}.`;
  const old = effect === "recorded" ? " The incident is old, so this changes no alerts." : "";
  return `${text}${note ? ` Note: ${note}` : ""}${old}`;
}

/** Services without repetition: the suspects of a verdict by rank, then the others. */
export const suspectsFirst = (services, { suspects }) => [
  ...new Set([...suspects.map((one) => one.service).filter((one) => services.includes(one)), ...services]),
];
