// Before and after a deploy or another planned change: traffic, errors and latency of the service, its versions and its callers.
import { metricName, metricValue } from "./numbers.js";
import { capitalized, ends, plural, span } from "./words.js";

const PERIOD_SECONDS = 1800; // before it, and after it
const FULL = 0.9; // of a period, from which it counts as full
const MAX_NAMED = 3; // differences in the sentence

const iso = (s) => new Date(1000 * s).toISOString();

/** The changes of a link that compare a service before and after a planned change. */
export function beforeAndAfter({ at, service }) {
  const s = ends(at);
  return { first: `${iso(s - PERIOD_SECONDS)}~${iso(s - 1)}`, second: `${iso(s)}~${iso(s + PERIOD_SECONDS)}`, focus: service };
}

/** What is different, as a sentence, after how much data there is if a period is not full. */
export function difference(service, answer) {
  const { rows, days, versions } = answer,
    significant = rows.filter((one) => one.significant),
    own = significant.filter((one) => one.source === null && versions.includes(one.service)),
    named = (own.length ? own : significant).slice(0, MAX_NAMED).map(changed),
    rest = significant.length - named.length,
    judged = days ? `more than on ${plural(days, "earlier day")}` : "more than within the periods";
  if (!significant.length) return `${shortage(answer)}No metric of ${service} or its callers changed ${judged}.`;
  return `${shortage(answer)}${capitalized(named.join("; "))}${rest ? `; and ${plural(rest, "other difference")}` : ""}. All of these changed ${judged}.`;
}

/** "Only 75 s of data after the change. " */
function shortage({ first_snapshots, first_step_seconds, second_snapshots, second_step_seconds }) {
  const short = [
    { seconds: first_snapshots * first_step_seconds, side: "before" },
    { seconds: second_snapshots * second_step_seconds, side: "after" },
  ].filter(({ seconds }) => seconds < FULL * PERIOD_SECONDS);
  return short.length ? `Only ${short.map(({ seconds, side }) => `${span(seconds)} of data ${side}`).join(" and ")} the change. ` : "";
}

/** "error rate of shop/cart rose from 0.1% to 12%". */
function changed({ service, source, metric, first, second, strength }) {
  const of = source ? `the calls ${source} → ${service}` : service,
    verb = strength > 0 ? "rose" : "fell";
  return `${metricName(metric)} of ${of} ${verb} from ${metricValue(metric, first)} to ${metricValue(metric, second)}`;
}
