// How far the mesh is from the detector's training and from its own last week, and series that are measured badly.
import { metricName } from "./numbers.js";
import { capitalized, dateTime, plural, someOf } from "./words.js";

const MOST_NAMED = 3;

/**
 * Rows for the detector's status: name, text, and a class.
 * @param {any} drift the answer of the service; null: it gave none; undefined: it was not asked.
 * @returns {any[][]}
 */
export function driftFacts(drift) {
  if (drift === undefined) return [];
  if (drift === null) return [["drift", "unknown: the service does not answer", "unclear"]];
  const advice = drift.advice.map((one) => ["drift", `${one.text}. ${capitalized(one.purpose)}: ${one.command}`, "unclear"]);
  return [...(advice.length ? advice : [["drift", without(drift)]]), ...quality(drift.quality)];
}

function without(drift) {
  if (!drift.judged_until) return "not known yet: the mesh is compared with training after a day";
  const week = drift.measures.some((one) => one.reference === "week" && one.distance !== null);
  return `none until ${dateTime(drift.judged_until)}${week ? "" : ", compared with training only"}`;
}

function quality({ stale, constant }) {
  return [
    stale.length ? ["stale telemetry", `nothing changes at ${someOf(stale, MOST_NAMED)}`, "wrong"] : null,
    constant.length ? ["constant telemetry", constantText(constant)] : null,
  ].filter(Boolean);
}

/** "30 metrics never change, such as connections of shop/cart". This is no fault: some metrics are constant. */
function constantText([first, ...others]) {
  const name = `${metricName(first.metric)} of ${first.service}`;
  return others.length ? `${plural(others.length + 1, "metric")} never change, such as ${name}` : `${name} never changes`;
}
