// Formats the numbers that only the browser has, such as the points of a chart. The table of metrics and units comes with the page, and
// number_text.py has the same rules.
import { span } from "./words.js";

// units: factor to the unit, its text, and the maximum number of digits after the point. metrics: name, the unit of its values, and the kind of
// the incidents that follow from it.
const { units, metrics, likely_share } = JSON.parse(/** @type {HTMLMetaElement} */ (document.getElementById("numbers")).content);

/** Share of the score of all suspects, from which one is likely. */
export const LIKELY_SHARE = likely_share;

/** "1.2 s", "47%", "below 0.1/s": a value with two digits. */
function inUnit(x, unit) {
  const [factor, text, finest] = units[unit],
    scaled = factor * x,
    digits = (value) => (value >= 10 ? 0 : value >= 1 ? Math.min(finest, 1) : finest),
    shown = Number(scaled.toFixed(digits(scaled)));
  if (!shown && x > 0) return `below ${10 ** -finest}${text}`;
  const decimals = Number.isInteger(shown) ? 0 : digits(shown);
  return shown.toLocaleString("en", { minimumFractionDigits: decimals, maximumFractionDigits: decimals }) + text;
}

export const percent = (x) => inUnit(x, "percent");
export const seconds = (x) => inUnit(x, x >= 1 ? "seconds" : "milliseconds");

/** An anomaly score, in decades of improbability: "5.8". */
export const anomalyText = (x) => x.toFixed(1);

/** A probability, or a part of a whole, 0 to 1: "12%", "below 1%", "above 99%". Only all of it is 100%. */
export function shareText(x) {
  if (x > 0 && x < 0.01) return "below 1%";
  return x > 0.99 && x < 1 ? "above 99%" : `${Math.round(100 * x)}%`;
}

export const kindOf = (metric) => metrics[metric]?.[2];
export const metricName = (metric) => metrics[metric]?.[0] ?? metric.replaceAll("_", " ");

/** "84 ms", "not observed": a value of a metric. */
export function metricValue(metric, x) {
  if (x === null || x === undefined) return "not observed";
  const unit = metrics[metric]?.[1] ?? "count";
  return unit === "span" ? span(x) : unit === "seconds" ? seconds(x) : inUnit(x, unit);
}

/** Two significant digits: 1.2, 34, 1,230. */
export function figures(x) {
  const size = Math.abs(x),
    digits = size >= 10 || !size ? 0 : size >= 1 ? 1 : null;
  return digits === null ? String(Number(x.toPrecision(2))) : x.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
}

/** A number of requests: 312, 5, 0.4. */
export const count = (x) => (x < 1 ? figures(x) : Math.round(x).toLocaleString("en"));

/** A number of requests that is estimated: 4,100. */
export const about = (x) => count(Number(x.toPrecision(2)));

const MIN_ERRORS = 0.0005; // share that a label shows

/** "34/s", "34/s, 2.1% failed", or of a slow incident "34/s, p99 2.5 s": the label of a call. Empty: nothing was observed. */
export function callLabel({ requests_per_second: requests, error_rate: errors, p99_latency: latencies }, e, isSlow) {
  if (requests[e] === null) return "";
  const text = metricValue("requests_per_second", requests[e]);
  if (isSlow && latencies?.[e]) return `${text}, p99 ${seconds(latencies[e])}`;
  return errors?.[e] >= MIN_ERRORS ? `${text}, ${percent(errors[e])} failed` : text;
}
