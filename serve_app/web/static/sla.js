// The service level: each target, its value, and what is left of its error budget. Not knowing is never shown as fulfilled.
import { figures, metricValue, seconds, span, timeOrDateTime } from "./words.js";

const LEAST_KNOWN = 0.9; // share of the window, as in the service

/** Rounded down: 99.99% of the time is not all of it. */
const available = (x) => `${Math.floor(1e4 * x) / 100}%`;
const errors = (x) => metricValue("error_rate", x);
const pushes = (x) => `${figures(x)}/s`;

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
  return level.objectives
    .filter(({ status }) => status !== "no_target")
    .map((one) => {
      const [name, format, bound] = OBJECTIVES[one.name];
      const parts = [state(one, level), one.current === null ? null : format(one.current), budget(one)].filter(Boolean);
      const isEarly = one.status === "unknown" && level.known < LEAST_KNOWN,
        looks = isEarly ? null : ({ violated: "wrong", unknown: "unclear" }[one.status] ?? null);
      return [`${name} ${bound} ${format(one.target)}`, parts.join(", "), looks];
    });
}

function state(one, level) {
  if (one.status === "violated") return `violated since ${timeOrDateTime(one.violated_since, new Date().toISOString())}`;
  if (one.status !== "unknown") return "fulfilled";
  if (level.known < LEAST_KNOWN)
    return `not judged yet: ${Math.floor(100 * level.known)}% of the last ${span(level.window_seconds)} is measured`;
  return `unknown: too few requests in the last ${span(level.window_seconds)}`;
}

function budget({ status, budget_left: left }) {
  if (left === null || status === "unknown") return null;
  return left < 0 ? "error budget overspent" : `${Math.floor(100 * left)}% of the error budget left`;
}
