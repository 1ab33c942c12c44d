// The reasons of suspects: as text, and as small charts of the metrics that they are about.
import { el } from "./dom.js";
import * as feed from "./feed.js";
import { nearest } from "./series.js";
import { metricName, metricValue } from "./numbers.js";
import { clock, clockOrDay, ends } from "./words.js";

const KEPT = 60; // cached series
const SAME_SECONDS = 180; // between the beginnings of a reason and of its incident, up to which the one of the incident is enough
const SINCE = /, since (?:\d{4}-\d\d-\d\d )?\d\d:\d\d UTC/; // as the service writes it
const OF_REQUESTS = ["request_rate", "new_calls", "moved_calls", "lost_calls", "dropped_calls"]; // metrics of reasons about calls
const WIDTH = 360,
  HEIGHT = 64,
  LOW = 12; // of a chart, pixels

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

/** The measured metric that a reason is about. */
export const measuredMetric = ({ metric, source, destination }) => ((source || destination) && OF_REQUESTS.includes(metric) ? "requests_per_second" : metric);

/** "now 60%", or "60% at this moment"; empty if nothing else than at the peak is known. */
export function valueNow(reason, series, at, isLive) {
  const value = series?.values[nearest(series.times, ends(at))] ?? null,
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

  /** The metric over time, `{times, values}`; null: not loaded, or not measured. */
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
    const { metrics = [], signals = {}, times } = before?.answer ?? {},
      metric = measuredMetric(reason),
      values = metrics.find((one) => one.metric === metric)?.observed ?? signals[metric];
    return values ? { times, values } : null;
  };
}

/**
 * A chart of a reason's metric, with the time since the deviation began shaded; null: there are too few values.
 * @param {{times: string[], values: (number | null)[]}} series
 * @param {any} reason
 * @param {string | null} at a past moment, which is marked.
 */
export function reasonChart({ times, values }, reason, at) {
  const seen = /** @type {number[]} */ (values.filter((value) => value !== null));
  if (seen.length < 2) return null;
  const first = ends(times[0]),
    last = ends(times.at(-1)),
    top = 1.1 * Math.max(...seen, reason.expected ?? 0) || 1;
  const x = (time) => (WIDTH * (ends(time) - first)) / Math.max(1, last - first),
    y = (value) => HEIGHT - LOW - (HEIGHT - LOW - 4) * (value / top);
  let line = "",
    pen = "M";
  values.forEach((value, i) => {
    if (value === null) {
      pen = "M";
      return;
    }
    line += `${pen}${x(times[i]).toFixed(1)} ${y(value).toFixed(1)}`;
    pen = "L";
  });
  const since = Math.min(WIDTH, Math.max(0, x(reason.since))); // the series may be one snapshot behind
  return el(
    "svg",
    {
      class: "spark",
      viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
      preserveAspectRatio: "none",
      role: "img",
      "aria-label": `${metricName(measuredMetric(reason))} over time: ${reason.text}`,
    },
    el("rect", { class: "after", x: since, y: 0, width: WIDTH - since, height: HEIGHT - LOW }),
    reason.expected === null ? null : el("path", { class: "expected", d: `M0 ${y(reason.expected).toFixed(1)}H${WIDTH}` }),
    el("path", { d: line }),
    at ? el("path", { class: "at", d: `M${x(at).toFixed(1)} 0V${HEIGHT - LOW}` }) : null,
    el("text", { x: 0, y: HEIGHT - 1 }, clockOrDay(times[0], times.at(-1))),
    el("text", { x: WIDTH, y: HEIGHT - 1, "text-anchor": "end" }, clock(times.at(-1))),
    el("text", { x: 2, y: 9 }, metricValue(measuredMetric(reason), top / 1.1)),
  );
}
