// What the page knows: of all meshes, and of the mesh in view. Only the events below change it. All panels read it, and none writes to it.
import { read } from "./link.js";
import { alerts, worst } from "./severity.js";
import { stateOf } from "./state.js";
import { ends } from "./words.js";

const NOTHING = {
  mesh: null,
  absent: null, // why there is no verdict: "meshes": there is no mesh, "mesh": it is unknown, "verdict": it has none yet, "service": it starts,
  // "token": it is needed; null: it is on its way
  newest: null, // verdict
  verdict: null, // in view
  timeline: null,
  map: null,
  mapOf: "", // mesh, time and open namespaces of the map
  pace: null, // seconds between two snapshots that arrived while the page was open; null: fewer did
  arrived: null, // when the last of them did, ms
  received: null, // when the newest verdict was made: see state.js
  dated: null, // sequence of the newest verdict whose age is known, from a list that came with the stream or later; null: none came
  live: false, // whether a verdict came while the page was open
  lost: false, // whether the service does not answer
  missed: null, // the time of a link, if it is not kept
  problem: null, // the message of a failed request
  source: undefined, // see state.js
  drift: undefined, // see detector.js
  scoring: null, // how the newest snapshot was scored
}; // of a mesh at first

export let known = {
  ...NOTHING,
  meshes: [], // as the service lists them
  listed: 0, // when it did, ms
  needed: undefined, // snapshots from which the mesh is learned, see learning.js
  health: null,
};

/** By event: what changes. The second argument is what happened. @type {Record<string, (now: any, what: any) => any>} */
const EVENTS = {
  /** A mesh is in view, and nothing is known of it. */
  entered: (_, mesh) => ({ ...NOTHING, mesh }),

  /** The service needs a token. */
  signedOut: () => ({ ...NOTHING, meshes: [], absent: "token" }),

  /** Facts about a mesh came, or of all meshes (`of` is undefined). */
  facts: ({ mesh }, { of = mesh, ...facts }) => (of === mesh ? facts : {}),

  /** The service listed its meshes. */
  meshes: (_, meshes) => ({ meshes, listed: Date.now(), lost: false }),

  /** The list has the mesh in view, so the age of its newest verdict is known. */
  dated({ newest, dated, received }, { sequence, age_seconds: age, warm_up_snapshots: needed }) {
    const isNewest = sequence >= (newest?.sequence ?? 0),
      made = isNewest ? (age === null ? -Infinity : Date.now() - 1000 * age) : dated === null ? Date.now() : received; // after the list
    return { received: made, dated: sequence, needed };
  },

  /** The stream is back. If the list is old, so may be its first verdict. */
  back: ({ dated }, isListed) => ({ lost: false, dated: isListed ? dated : null }),

  /** The stream sent a verdict; it was made just now if it is newer than all that have an age. */
  streamed({ newest, dated, received }, { sequence }) {
    const isNew = dated !== null && sequence > Math.max(dated, newest?.sequence ?? 0);
    return { received: isNew ? Date.now() : received };
  },

  /** A verdict came. A stream that restarts repeats the last one. */
  verdict({ newest, verdict: shown, arrived, pace }, verdict) {
    if (verdict.sequence <= newest?.sequence) return { lost: false };
    const now = Date.now(),
      paced = newest && arrived ? (now - arrived) / 1000 / (verdict.sequence - newest.sequence) : pace;
    return {
      lost: false,
      problem: null,
      live: newest !== null, // the first one may be old
      newest: verdict,
      verdict: read().at ? shown : verdict,
      arrived: newest ? now : arrived,
      pace: paced,
    };
  },

  /** News of the timeline came, after `before`. */
  timeline: ({ mesh, timeline }, { of, before, news }) => (of === mesh && before === timeline ? { timeline: append(before, news) } : {}),

  /** The map of a moment came, and its verdict unless it is the newest. */
  map: ({ mesh, newest }, { of, at, map, verdict, key }) =>
    of === mesh && (read().at ?? null) === at ? { map, mapOf: key, verdict: verdict ?? newest, problem: null } : {},

  /** The address has another view. */
  view: ({ newest, verdict }) => ({ missed: null, verdict: read().at || !newest ? verdict : newest }),

  /** A request failed. */
  failed: (_, { status, message }) => (status === 0 ? { lost: true } : { problem: message }), // shown until the next success
};

/** Apply an event. */
export function dispatch(/** @type {string} */ event, /** @type {any} */ what = null) {
  known = { ...known, ...EVENTS[event](known, what) };
}

/** The state of the mesh now. */
export const stateNow = () => stateOf(known.newest, known);

/** The state of the verdict in view. The age of a past one does not matter. */
export const stateShown = () => (read().at ? stateOf(known.verdict) : stateNow());

/** Whether a moment is from before the live window, so that only the archive has it. */
export const isPast = (/** @type {string | null} */ at) => Boolean(at && known.timeline && ends(at) < ends(known.timeline.kept_from));

/** The incident of the view: the one in the link, else the worst. */
export function shownIncident() {
  const open = alerts(known.verdict?.incidents ?? []);
  return open.find((one) => one.id === read().incident) ?? worst(open);
}

const COLUMNS = [
  "observed_at",
  "sequence",
  "status",
  "mesh_score",
  "threshold",
  "probability",
  "coverage",
  "missing_parts",
  "milliseconds",
];

/** A timeline with its news, without snapshots that are no longer kept. */
export function append(before, news) {
  if (!before) return news;
  const first = news.kept_from,
    times = [...before.observed_at, ...news.observed_at];
  const timeline = Object.fromEntries(
    COLUMNS.map((name) => [name, [...before[name], ...news[name]].filter((_, i) => times[i] >= first)]),
  );
  timeline.kept_from = first;
  const incidents = new Map(before.incidents.map((one) => [one.id, one]));
  for (const one of news.incidents) {
    const old = incidents.get(one.id) ?? one,
      strongest = old.score > one.score ? old : one;
    incidents.set(one.id, { ...one, first: old.first, service: strongest.service, score: strongest.score });
  }
  timeline.incidents = [...incidents.values()].filter((one) => one.last >= first);
  timeline.changes = [...before.changes, ...news.changes].filter((one) => one.at >= first);
  return timeline;
}
