// Before and after a deploy or another planned change: traffic, errors and latency of the service, its versions and its callers.
import { el } from "./dom.js";
import { metricName, metricValue } from "./numbers.js";
import { capitalized, ends, plural } from "./words.js";

const PERIOD_SECONDS = 1800; // before it, and after it
const COLUMNS = { traffic: ["request_rate", "requests_per_second"], errors: ["error_rate"], "p50 latency": ["p50_latency"], "p99 latency": ["p99_latency"] };
const MAX_ROWS = 16;
const MAX_NAMED = 3; // differences in the sentence

const iso = (s) => new Date(1000 * s).toISOString();

/** The changes of a link that compare a service before and after a planned change. */
export function beforeAndAfter({ at, service }) {
  const s = ends(at);
  return { first: `${iso(s - PERIOD_SECONDS)}~${iso(s - 1)}`, second: `${iso(s)}~${iso(s + PERIOD_SECONDS)}`, focus: service };
}

/** What is different, as a sentence. */
export function difference(service, { rows, days, versions }) {
  const significant = rows.filter((one) => one.significant),
    own = significant.filter((one) => one.source === null && versions.includes(one.service)),
    named = (own.length ? own : significant).slice(0, MAX_NAMED).map(changed),
    rest = significant.length - named.length,
    judged = days ? `more than on ${plural(days, "earlier day")}` : "more than within the periods";
  if (!significant.length) return `No metric of ${service} or its callers changed ${judged}.`;
  return `${capitalized(named.join("; "))}${rest ? `; and ${plural(rest, "other difference")}` : ""}. All of these changed ${judged}.`;
}

/** "error rate of shop/cart rose from 0.1% to 12%". */
function changed({ service, source, metric, first, second, strength }) {
  const of = source ? `the calls ${source} → ${service}` : service,
    verb = strength > 0 ? "rose" : "fell";
  return `${metricName(metric)} of ${of} ${verb} from ${metricValue(metric, first)} to ${metricValue(metric, second)}`;
}

/** A table with a line for the service, each of its versions, each caller, and the calls between them. */
export function beforeAndAfterTable(service, { rows, versions }, select) {
  const subjects = new Map();
  for (const row of rows) {
    const key = `${row.source ?? ""} ${row.service}`;
    if (!subjects.has(key)) subjects.set(key, []);
    subjects.get(key).push(row);
  }
  const rank = ([{ service: name, source }]) => (name === service && !source ? 0 : versions.includes(name) && !source ? 1 : source ? 2 : 3),
    ordered = [...subjects.values()].sort((a, b) => rank(a) - rank(b)),
    more = ordered.length - MAX_ROWS;
  const line = (group) => {
    const [{ service: name, source }] = group;
    return el(
      "tr",
      {},
      el(
        "th",
        { scope: "row" },
        el("button", { type: "button", class: "plain", "data-key": `${source} ${name}`, click: () => select(name, source) }, source ? `${source} → ${name}` : name),
        name === service && !source ? "" : el("small", {}, ` ${source ? "calls" : versions.includes(name) ? "version" : "caller"}`),
      ),
      ...Object.entries(COLUMNS).map(([title, metrics]) => cell(title, group.find((row) => metrics.includes(row.metric)))),
    );
  };
  return el(
    "table",
    { class: "before-after" },
    el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "Service or call"), ...Object.keys(COLUMNS).map((title) => el("th", { scope: "col" }, capitalized(title))))),
    el("tbody", {}, ...ordered.slice(0, MAX_ROWS).map(line)),
    more > 0 ? el("caption", { class: "affected" }, `and ${more} more`) : null,
  );
}

function cell(title, row) {
  if (!row) return el("td", { "data-label": title }, "–");
  const { metric, first, second, strength, significant } = row,
    text = `${metricValue(metric, first)} → ${metricValue(metric, second)}`;
  return el("td", { "data-label": title, class: significant ? (strength > 0 ? "up" : "down") : null }, significant ? el("b", {}, `${strength > 0 ? "▲" : "▼"} ${text}`) : text);
}
