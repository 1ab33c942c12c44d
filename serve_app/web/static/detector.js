// The status of the detector: age and coverage of its verdicts, weights, latency, and whether the page is up to date. It is one line
// that opens, and a line for each problem.
import { by, el, show } from "./dom.js";
import * as feed from "./feed.js";
import { interval, isLate, silentFor } from "./state.js";
import { figures, shareText } from "./numbers.js";
import { capitalized, dateTime, plural, span } from "./words.js";

const BUDGET_MS = 50;
const URGENCY = ["wrong", "unclear"]; // classes of facts that are problems, the most urgent first

/** Show the connection in the header. The age changes every second and is not read aloud. */
export function pulse(kind, state, age) {
  by("pulse").className = kind;
  if (by("state").textContent !== state) by("state").textContent = state;
  by("age").textContent = age;
}

/** Send a test alert to all receivers of notifications, and say which ones took it. */
async function sendTestAlert() {
  const say = (text) => (by("test-alert-sent").textContent = text);
  say("Sending");
  try {
    const { receivers } = await feed.testAlert();
    const told = receivers.map((one) => `${one.kind} ${one.name}: ${one.failed ? one.detail || one.failed : "sent"}`);
    say(told.join("; ") || "No receivers are set; add some to [notify] in the settings.");
  } catch (error) {
    say(error.message);
  }
}

by("test-alert").addEventListener("click", sendTestAlert);

/** Its `draw` takes `{verdict, timeline, received, live, lost, health, source, drift}`; received: when the newest verdict was
 * made, ms, as in `state.js`; live: whether it was made while the page was open; drift: the answer on it. */
export function detectorView() {
  return {
    draw({ verdict, timeline, received, live, lost, health, source, drift, scoring }) {
      const age = Number.isFinite(received) ? span(silentFor({ received })) : null;
      const last = age ? `last verdict ${age} ago` : received === null ? "" : "the age of the last verdict is unknown";
      const after = (mark) => (last ? `${mark} ${last}` : "");
      if (lost) pulse("lost", "connection lost, retrying", after(";"));
      else if (verdict.status === "warming_up" && source && !source.collected) pulse("", "learning", age ? `, last snapshot ${age} ago` : "");
      else if (received !== null && isLate({ received, timeline }))
        pulse("lost", "no verdict", age ? ` for ${age}` : "; the age of the last one is unknown");
      else pulse("", live ? "live" : "connected", after(","));
      const took = (timeline?.milliseconds ?? []).filter((value) => value !== null).sort((a, b) => a - b);
      const inTime = took.filter((value) => value <= BUDGET_MS).length;
      const facts = [
        ["source", sourceText(source), source?.problem || source?.incomplete ? "wrong" : null],
        ...(source?.remarks ?? []).map((text) => ["telemetry", text, "wrong"]),
        ["snapshot interval", span(interval(timeline))],
        ["probability of an incident", shareText(verdict.probability)],
        verdict.reconstruction ? ["mesh as a whole", verdict.reconstruction.text] : null,
        ["coverage", shareText(verdict.coverage), verdict.coverage < 1 ? "wrong" : null],
        verdict.missing_parts.length ? ["missing parts", verdict.missing_parts.join(", "), "wrong"] : null,
        took.length
          ? [
              `verdicts within ${BUDGET_MS} ms`,
              `${Math.floor((100 * inTime) / took.length)}% of ${took.length}, median ${figures(took[Math.floor(took.length / 2)])} ms`,
              inTime < 0.5 * took.length ? "wrong" : null,
            ]
          : null,
        scoring ? ["scored by", scoringText(scoring)] : null,
        ["weights", verdict.model.slice(0, 12)],
        health
          ? ["running on", [health.device, health.kernels, `version ${health.version}`].filter(Boolean).join(", ")]
          : null,
        health?.refused ? ["weights rejected", health.refused, "wrong"] : null,
        ...driftFacts(drift),
        ...verdict.muted.map((one) => [
          "muted",
          `${one.services.join(", ") || "the whole mesh"}${one.until ? ` until ${dateTime(one.until)}` : ""}: ${one.reason}${one.hides.length ? `; hides ${plural(one.hides.length, "service")}` : ""}`,
        ]),
      ].filter(Boolean);
      show(by("facts"), ...facts.map(([name, text, looks]) => el("div", { class: looks ?? null }, el("dt", {}, name), el("dd", {}, text))));
      drawProblems(facts);
    },
  };
}

/** How far the mesh is from training and from its last week: undefined: it was not asked; null: there was no answer. */
function driftFacts(drift) {
  if (drift === undefined) return [];
  if (drift === null) return [["drift", "unknown: the service does not answer", "unclear"]];
  const { advice, text, quality } = drift,
    drifts = advice.map((one) => ["drift", `${one.text}. ${capitalized(one.purpose)}: ${one.command}`, "unclear"]);
  return [
    ...(drifts.length ? drifts : [["drift", text, null]]),
    ["stale telemetry", quality.stale_text, "wrong"],
    ["constant telemetry", quality.constant_text, null],
  ].filter((fact) => fact[1]);
}

/** The heading, and a line for each fact that is a problem. */
function drawProblems(facts) {
  const problems = URGENCY.flatMap((looks) => facts.filter((one) => one[2] === looks)),
    wrong = problems.filter((one) => one[2] === "wrong").length;
  by("detector-title").textContent = `Detector: ${wrong ? plural(wrong, "problem") : problems.length ? plural(problems.length, "remark") : "fine"}`;
  show(by("faults"), ...problems.map(([name, text, looks]) => el("li", { class: looks }, `${capitalized(name)}: ${text}`)));
}

/** "the session", or "replicas: 3 parts on 2 scorers, joined by the meta-model". */
function scoringText({ place, parts }) {
  if (place === "session") return "the session";
  const count = Object.values(parts).reduce((sum, one) => sum + one, 0);
  return `replicas: ${plural(count, "part")} on ${plural(Object.keys(parts).length, "scorer")}${count > 1 ? ", joined by the meta-model" : ""}`;
}

function sourceText(source) {
  if (!source) return "unknown";
  if (!source.collected) return "pushed";
  if (source.problem) return source.problem;
  const stale = source.stale_seconds > 0 ? `, some values ${span(source.stale_seconds)} old` : "";
  const without = source.masked.length ? `, without ${source.masked.join(", ")}` : "";
  return `Prometheus${stale}${without}${source.incomplete ? `; incomplete answers: ${source.incomplete}` : ""}`;
}
