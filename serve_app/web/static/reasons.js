// The reasons of suspects: as text, and as charts of the metrics that they are about.
import { chart } from "./chart.js";
import * as feed from "./feed.js";
import { nearest } from "./series.js";
import { kindOf, metricValue } from "./numbers.js";
import { ends } from "./words.js";

const KEPT = 60; // cached series
const SAME_SECONDS = 180; // between the beginnings of a reason and of its incident, up to which the one of the incident is enough
const SINCE = /, since (?:\d{4}-\d\d-\d\d )?\d\d:\d\d UTC/; // as the service writes it
const RETRIES = "sends_too_many_calls"; // what the first suspect may suffer from, if another one does it
const OF_REQUESTS = ["request_rate", "new_calls", "moved_calls", "lost_calls", "dropped_calls"]; // metrics of reasons about calls

/**
 * The text of a reason. Its numbers are from the peak of the incident, so the value at the moment follows where it differs. The time when
 * it began is left out where the incident's own is shown.
 * @param {any} reason
 * @param {{since: string} | null} [incident] null: there is none.
 * @param {string} [now] of `valueNow`.
 */
export function reasonText(reason, incident = null, now = "") {
  const isSame = incident && Math.abs(ends(reason.since) - ends(incident.since)) <= SAME_SECONDS,
    text = isSame ? reason.text.replace(SINCE, "") : reason.text;
  return now ? `${text}; ${now}` : text;
}

/** The reasons and the context of a suspect, those that the headline of the incident begins with first. */
export function factsOf({ reasons, context = [] }, incident) {
  const rank = ({ metric, forecast }) => (forecast || kindOf(metric) === RETRIES ? 0 : kindOf(metric) === incident?.kind ? 1 : 2),
    isSame = (a, b) => a.metric === b.metric && a.source === b.source && a.destination === b.destination,
    more = context.filter((one) => !reasons.some((reason) => isSame(one, reason))); // of a later snapshot than the peak
  return [...reasons, ...more].sort((a, b) => rank(a) - rank(b));
}

/** The measured metric that a reason is about. */
export const measuredMetric = ({ metric, source, destination }) => ((source || destination) && OF_REQUESTS.includes(metric) ? "requests_per_second" : metric);

/** "now 60%", or "60% at this moment"; empty if nothing else than at the peak is known. */
export function valueNow(reason, series, at, isLive) {
  const value = series?.observed[nearest(series.times, ends(at))] ?? null,
    metric = measuredMetric(reason),
    text = metricValue(metric, value);
  if (value === null || reason.observed === null || text === metricValue(metric, reason.observed)) return "";
  return isLive ? `now ${text}` : `${text} at this moment`;
}

/** The service and, if a reason is about calls to it, their caller. */
function subjectOf(service, { source, destination }) {
  if (source) return [service, source];
  return destination ? [destination, service] : [service, null];
}

/**
 * Loads the metrics that reasons are about, and keeps them while the newest snapshot is the same.
 * @param {() => void} redraw called when more are loaded.
 */
export function reasonSeries(redraw) {
  const known = new Map(); // by mesh, service and caller: {until, answer}

  /** The metric over time for a chart, `{metric, times, observed, expected, low, high}`; undefined: not loaded, null: not measured. */
  return ({ mesh, newest }, service, reason) => {
    const [to, source] = subjectOf(service, reason),
      key = [mesh, to, source].join(" "),
      before = known.get(key);
    if (before?.until !== newest) {
      known.set(key, { until: newest, answer: before?.answer });
      while (known.size > KEPT) known.delete(known.keys().next().value);
      feed.details(mesh, to, source).then(
        (answer) => {
          known.set(key, { until: known.get(key)?.until, answer });
          redraw();
        },
        () => {},
      );
    }
    if (!before?.answer) return undefined;
    const { metrics, signals = {}, times } = before.answer,
      metric = measuredMetric(reason),
      found = metrics.find((one) => one.metric === metric);
    if (found) return { ...found, times };
    const unknown = times?.map(() => null);
    return signals[metric] ? { metric, times, observed: signals[metric], expected: unknown, low: unknown, high: unknown } : null;
  };
}

/** A chart of a reason's metric below its text, with the time since the deviation began shaded. What was usual then stays, as in the text: the
 * detector gets used to a deviation. Of calls that are new, nothing was. @param {string} at the moment that is marked. */
export function reasonChart(series, reason, at) {
  const { times, expected, low, high } = series,
    first = reason.since < times[0] ? times[0] : reason.since,
    before = times.findLastIndex((time) => time < first),
    isNew = series.observed.slice(0, before + 1).every((one) => one === null),
    kept = (values) => values.map((one, i) => (isNew ? null : i > before ? (values[before] ?? one) : one)),
    usual = { expected: kept(expected), low: kept(low), high: kept(high) },
    figure = chart({ ...series, ...usual, incidents: [{ first, last: times.at(-1) }], changes: [] }, { at: nearest(times, ends(at)), cursor: null });
  figure.querySelector("figcaption").remove(); // the text has it
  return figure;
}
