// The service level: each target, its value, and what is left of its error budget. Not knowing is never shown as fulfilled.
import { figures, metricValue, seconds } from "./numbers.js";
import { span, timeOrDateTime } from "./words.js";

const LEAST_KNOWN = 0.9; // share of the window, as in the service

/** Rounded down: 99.99% of the time is not all of it. */
const available = (x) => `${Math.floor(1e4 * x) / 100}%`;
const errors = (x) => metricValue("error_rate", x);
const pushes = (x) => `${figures(x)}/s`;

/** Violations that ended are shown for the newest of them. */
const MOST_ENDED = 3;

const CAUSES = {
  shed: "pushes were refused",
  deadline: "verdicts missed the deadline",
  failed: "requests failed",
  slow_store: "the store was slow",
  slow_scorer: "scoring was slow",
  slow_decode: "decoding was slow",
  slow_pipeline: "the steps around scoring were slow",
  queue: "pushes waited for their turn",
};

const OBJECTIVES = {
  p95: ["95% of the verdicts", seconds, "within"],
  p99: ["99% of the verdicts", seconds, "within"],
  requests_per_second: ["pushes", pushes, "up to"],
  error_rate: ["errors", errors, "at most"],
  availability: ["available", available, "at least"],
};

/**
 * Rows for the detector's status: name, text, and a class.
 * @param {any} level the answer of the service; null: it gave none; undefined: it was not asked.
 * @returns {any[][]}
 */
export function levelFacts(level) {
  if (level === undefined) return [];
  if (level === null) return [["service level", "unknown: the service does not answer", "unclear"]];
  return [...objectiveFacts(level), ...endedFacts(level)];
}

/** @returns {any[][]} */
function objectiveFacts(level) {
  return level.objectives
    .filter(({ status }) => status !== "no_target")
    .map((one) => {
      const [name, format, bound] = OBJECTIVES[one.name];
      const parts = [state(one, level), lastingCause(one, level), one.current === null ? null : format(one.current), budget(one)].filter(Boolean);
      const isEarly = one.status === "unknown" && level.known < LEAST_KNOWN,
        looks = isEarly ? null : ({ violated: "wrong", unknown: "unclear" }[one.status] ?? null);
      return [`${name} ${bound} ${format(one.target)}`, parts.join(", "), looks];
    });
}

/** @returns {any[][]} */
function endedFacts({ violations }) {
  return (violations ?? [])
    .filter(({ until }) => until !== null)
    .slice(0, MOST_ENDED)
    .map(({ objective, since, seconds: lasted, worst, cause }) => {
      const [subject, format] = OBJECTIVES[objective];
      const parts = [`from ${at(since)} for ${span(lasted)}`, worst === null ? null : `at worst ${format(worst)}`, CAUSES[cause]];
      return [`target missed: ${subject}`, parts.filter(Boolean).join(", "), null];
    });
}

const at = (instant) => timeOrDateTime(instant, new Date().toISOString());

function lastingCause({ name }, { violations }) {
  const one = (violations ?? []).find(({ objective, until }) => objective === name && until === null);
  return one ? (CAUSES[one.cause] ?? null) : null;
}

function state(one, level) {
  if (one.status === "violated") return `violated since ${at(one.violated_since)}`;
  if (one.status !== "unknown") return "fulfilled";
  if (level.known < LEAST_KNOWN)
    return `not judged yet: ${Math.floor(100 * level.known)}% of the last ${span(level.window_seconds)} is measured`;
  return `unknown: too few requests in the last ${span(level.window_seconds)}`;
}

function budget({ status, budget_left: left }) {
  if (left === null || status === "unknown") return null;
  return left < 0 ? "error budget overspent" : `${Math.floor(100 * left)}% of the error budget left`;
}
