// Before and after a deploy or another planned change: traffic, errors and latency of the service, its versions and its callers.
import { metricName, metricValue } from "./numbers.js";
import { capitalized, ends, plural } from "./words.js";

const PERIOD_SECONDS = 1800; // before it, and after it
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
