// The state of the watcher: how old, how complete, by which weights, how fast, and whether the page itself is up to date.
import { by, el, show } from "./dom.js";
import { day, figures, plural, span } from "./words.js";

const BUDGET_MS = 50;
const LATE_INTERVALS = 3; // without a verdict: something is wrong with the watcher

/** Seconds between snapshots as they came; 15 until that is known. */
export function interval(timeline) {
  const times = timeline?.observed_at.slice(-9).map((at) => new Date(at).getTime() / 1000) ?? [];
  const gaps = times
    .slice(1)
    .map((at, i) => at - times[i])
    .sort((a, b) => a - b);
  return gaps[Math.floor(gaps.length / 2)] ?? 15;
}

/** How it goes in the page's head. What changes each second is not read aloud. */
export function pulse(kind, state, age) {
  by("pulse").className = kind;
  if (by("state").textContent !== state) by("state").textContent = state;
  by("age").textContent = age;
}

/** Its `draw` takes `{verdict, timeline, heard, live, lost, health, source}`; heard: when the newest verdict came here, ms; live:
 * whether it was made since then. */
export function watcherView() {
  return {
    draw({ verdict, timeline, heard, live, lost, health, source }) {
      const silent = (Date.now() - heard) / 1000,
        every = interval(timeline),
        late = silent > LATE_INTERVALS * Math.max(every, 1),
        newest = `${day(verdict.observed_at)} UTC`; // how long ago it was made nobody knows who was not there
      if (lost)
        pulse("lost", "connection lost, trying again", `; what you see is ${live ? `${span(silent)} old` : `of ${newest}`}`);
      else if (late)
        pulse("lost", "no verdict", ` ${live ? `for ${span(silent)}` : `since ${newest}`}: is telemetry coming in?`);
      else if (live) pulse("", "live", `, last verdict ${span(silent)} ago`);
      else pulse("", "waiting for the next verdict", `; the newest is of ${newest}`);
      const took = (timeline?.milliseconds ?? []).filter((value) => value !== null).sort((a, b) => a - b);
      const inTime = took.filter((value) => value <= BUDGET_MS).length;
      const facts = [
        ["source", sourceText(source), Boolean(source?.problem)],
        ["snapshot every", span(every)],
        ["coverage", `${figures(100 * verdict.coverage)}%`, verdict.coverage < 1],
        verdict.missing_parts.length ? ["missing parts", verdict.missing_parts.join(", "), true] : null,
        took.length
          ? [
              `verdict within ${BUDGET_MS} ms`,
              `${Math.floor((100 * inTime) / took.length)}% of ${took.length}, median ${figures(took[Math.floor(took.length / 2)])} ms`,
              inTime < 0.5 * took.length,
            ]
          : null,
        ["weights", verdict.model.slice(0, 12)],
        health
          ? ["runs on", [health.device, health.kernels, `version ${health.version}`].filter(Boolean).join(", ")]
          : null,
        health?.refused ? ["weights refused", health.refused, true] : null,
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
  if (source === null) return "not known";
  if (!source.collected) return "pushed";
  if (source.problem) return source.problem;
  const stale = source.stale_seconds > 0 ? `, some values ${span(source.stale_seconds)} old` : "";
  return `Prometheus${stale}${source.masked.length ? `, without ${source.masked.join(", ")}` : ""}`;
}
