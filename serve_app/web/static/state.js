// The state of a mesh: calm, incident, recovering, learning or unknown. Without recent and almost complete data it is unknown.
import { usualStep } from "./series.js";
import { alerts, isUnseen, notices } from "./severity.js";
import { ends } from "./words.js";

const LATE_INTERVALS = 3; // without a verdict, after which the state is unknown
const SIMULATED_SECONDS = 600; // between the time of a snapshot and of its verdict, from which the time is simulated or replayed

/** The median seconds between snapshots; 15 until it is known. */
export function interval(timeline) {
  const step = usualStep(timeline?.observed_at.slice(-9).map(ends) ?? []);
  return Number.isFinite(step) ? step : 15;
}

/** Seconds since the newest verdict was made; Infinity if that is unknown. */
export const silentFor = ({ received }) => (Date.now() - received) / 1000;

/** Whether the time of a verdict is not the time of its arrival. */
export const isSimulated = ({ observed_at: at }, received) => Number.isFinite(received) && Math.abs(ends(at) - received / 1000) > SIMULATED_SECONDS;

export const isLate = (data) => silentFor(data) > LATE_INTERVALS * Math.max(data.interval ?? interval(data.timeline), 1);

/**
 * The state of a verdict.
 * @param {any} verdict of the service.
 * @param {any} [data] `{received, source, timeline, interval, lost, problem}` of the newest verdict; none for a past one,
 * whose age does not matter. interval: seconds between snapshots; none: of the timeline. received: when it was made, ms by the clock of this page; -Infinity: unknown, null: not known yet.
 * source: null: unknown, undefined: not known yet.
 * @returns {{name: string, why: string, stopped: boolean, isOpen: boolean, isUnusual: boolean}} name: empty while it is not
 * known yet. why: why it is unknown, or why it learns nothing more. stopped: whether the verdict is only the last known one. isOpen: whether it has an
 * incident. isUnusual: whether services are watched,
 * the mesh as a whole is above the usual range, or a resource is running out.
 */
export function stateOf(verdict, data) {
  const open = alerts(verdict.incidents),
    state = { name: "unknown", why: "", stopped: false, isOpen: open.length > 0, isUnusual: isUnusual(verdict) },
    why = data ? obstacle(data) : "";
  if (data && verdict.replayed && (!why || why === "asking")) return { ...state, name: "learning", why };
  if (verdict.status === "warming_up" && (!why || isPushPaused(why, data))) return { ...state, name: "learning", why };
  if (why && why !== "asking") return { ...state, why, stopped: true };
  if (open.length) return { ...state, ...openState(open) };
  if (why) return { ...state, name: "" };
  const gap = missing(verdict);
  return gap ? { ...state, why: gap } : { ...state, name: "calm" };
}

/** The state of open incidents: recovering if all are, but unknown if one of them cannot be seen. */
function openState(open) {
  if (!open.every((one) => one.recovering)) return { name: "incident" };
  return open.some(isUnseen) ? { name: "unknown", why: "silent" } : { name: "recovering" };
}

/** Why the newest verdict is not current; empty if it is. */
function obstacle(data) {
  if (data.received === null || data.source === undefined) return "asking";
  // The interval decides what is late, and the timeline has it.
  if (data.timeline === null && data.interval === undefined && !data.lost && !data.problem) return "asking";
  if (isLate(data)) return "stopped";
  return data.source?.problem ? "failing" : "";
}

/** Whether a mesh that a program pushes only waits for its next snapshot. While it is learned, that hides no incident. */
const isPushPaused = (why, { source, lost }) => why === "stopped" && !lost && source !== null && !source.collected;

/** What a verdict without an incident lacks to call a mesh calm; empty if nothing. */
function missing({ status, coverage, muted }) {
  if (muted.some((one) => one.hides.length)) return "muted";
  if (status === "partial") return coverage < 1 ? "unscored" : "silent";
  return "";
}

const isUnusual = ({ watching, reconstruction, incidents }) =>
  Boolean(watching?.length) || Boolean(reconstruction?.exceeded) || notices(incidents).some((one) => !one.recovering);
