// The status of the detector: age and coverage of its verdicts, weights, latency, and whether the page is up to date.
import { by, el, show } from "./dom.js";
import { clock, day, ends, figures, plural, span } from "./words.js";

const BUDGET_MS = 50;
const LATE_INTERVALS = 3; // without a verdict, after which the page warns

/** The median seconds between snapshots; 15 until it is known. */
export function interval(timeline) {
  const times = timeline?.observed_at.slice(-9).map((at) => new Date(at).getTime() / 1000) ?? [];
  const gaps = times
    .slice(1)
    .map((at, i) => at - times[i])
    .sort((a, b) => a - b);
  return gaps[Math.floor(gaps.length / 2)] ?? 15;
}

/** Show the connection in the header. The age changes every second and is not read aloud. */
export function pulse(kind, state, age) {
  by("pulse").className = kind;
  if (by("state").textContent !== state) by("state").textContent = state;
  by("age").textContent = age;
}

/** Its `draw` takes `{verdict, timeline, received, live, lost, health, source}`; received: when the newest verdict arrived, ms;
 * live: whether it was made while the page was open. */
export function detectorView() {
  return {
    draw({ verdict, timeline, received, live, lost, health, source }) {
      const silent = (Date.now() - received) / 1000,
        every = interval(timeline),
        late = silent > LATE_INTERVALS * Math.max(every, 1),
        age = Math.max(0, Date.now() / 1000 - ends(verdict.observed_at)), // wrong for simulated time, hence only if recent
        newest = `${age < 86400 ? clock(verdict.observed_at) : day(verdict.observed_at)} UTC${age < 86400 ? `, ${span(age)} ago` : ""}`;
      if (lost)
        pulse("lost", "connection lost, retrying", `; last verdict ${live ? `${span(silent)} ago` : newest}`);
      else if (late)
        pulse("lost", "no verdict", ` ${live ? `for ${span(silent)}` : `since ${newest}`}. Check the telemetry source.`);
      else if (live) pulse("", "live", `, last verdict ${span(silent)} ago`);
      else pulse("", "connected", `, last verdict ${newest}`);
      const took = (timeline?.milliseconds ?? []).filter((value) => value !== null).sort((a, b) => a - b);
      const inTime = took.filter((value) => value <= BUDGET_MS).length;
      const facts = [
        ["source", sourceText(source), Boolean(source?.problem)],
        ["snapshot interval", span(every)],
        ["coverage", `${figures(100 * verdict.coverage)}%`, verdict.coverage < 1],
        verdict.missing_parts.length ? ["missing parts", verdict.missing_parts.join(", "), true] : null,
        took.length
          ? [
              `verdicts within ${BUDGET_MS} ms`,
              `${Math.floor((100 * inTime) / took.length)}% of ${took.length}, median ${figures(took[Math.floor(took.length / 2)])} ms`,
              inTime < 0.5 * took.length,
            ]
          : null,
        ["weights", verdict.model.slice(0, 12)],
        health
          ? ["running on", [health.device, health.kernels, `version ${health.version}`].filter(Boolean).join(", ")]
          : null,
        health?.refused ? ["weights rejected", health.refused, true] : null,
        ...verdict.muted.map((one) => [
          "muted",
          `${one.services.join(", ") || "the whole mesh"}${one.until ? ` until ${day(one.until)} UTC` : ""}: ${one.reason}${one.hides.length ? `; hides ${plural(one.hides.length, "service")}` : ""}`,
        ]),
      ];
      show(
        by("facts"),
        ...facts
          .filter(Boolean)
          .map(([name, text, wrong]) =>
            el("div", { class: wrong ? "wrong" : null }, el("dt", {}, name), el("dd", {}, text)),
          ),
      );
    },
  };
}

function sourceText(source) {
  if (source === null) return "unknown";
  if (!source.collected) return "pushed";
  if (source.problem) return source.problem;
  const stale = source.stale_seconds > 0 ? `, some values ${span(source.stale_seconds)} old` : "";
  return `Prometheus${stale}${source.masked.length ? `, without ${source.masked.join(", ")}` : ""}`;
}
