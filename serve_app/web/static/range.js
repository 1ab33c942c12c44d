// The range of the timeline: the live window, the last hours or days, or a period of the past.
import { by, el, failure, show } from "./dom.js";
import * as feed from "./feed.js";
import { latest } from "./answers.js";
import { ends, fromZone, inZone } from "./words.js";

const LASTS = { "1h": 3600, "6h": 21600, "24h": 86400, "7d": 604800, "30d": 2592000, "90d": 7776000 }; // s
const LIVE = "live"; // the window of snapshots that the service keeps
const POINTS = 600; // of a range
const AROUND_SECONDS = 3 * 3600; // before and after a moment that is looked up
const MIN_SECONDS = 60; // of a period

const iso = (s) => new Date(1000 * s).toISOString();

/**
 * The period of a range of the link: "24h", or "FROM~TO".
 * @returns {{start: string, end: string, isLast: boolean} | null} isLast: it ends now. null: the text is no range.
 */
export function bounds(/** @type {string} */ range, /** @type {string} */ newest) {
  const length = LASTS[range];
  if (length) {
    const step = length / POINTS / 4, // a new end only when it can be seen
      end = step * Math.ceil(ends(newest) / step);
    return { start: iso(end - length), end: iso(end), isLast: true };
  }
  const [from, to] = range.split("~").map(ends);
  return to > from ? { start: iso(from), end: iso(to), isLast: false } : null;
}

/** The text of a range for a link, with a least length. */
export function rangeText(/** @type {number} */ from, /** @type {number} */ to) {
  const missing = Math.max(0, MIN_SECONDS - (to - from)) / 2;
  return `${iso(from - missing)}~${iso(to + missing)}`;
}

/** A range with a moment in its middle. */
export const rangeAround = (/** @type {string} */ at) => rangeText(ends(at) - AROUND_SECONDS, ends(at) + AROUND_SECONDS);

/** The range that a view needs: the one of its link, or one around a moment from before the live window; null: the live window. */
export function rangeOf({ range, at }, keptFrom) {
  const isPast = at && keptFrom && ends(at) < ends(keptFrom);
  if (range) return range;
  return isPast ? rangeAround(at) : null;
}

/** Loads the timeline of a range. @param {() => void} redraw called when it has been loaded. */
export function rangeLoader(redraw) {
  const answers = latest(redraw);
  return {
    /** @returns what is known of a range: `{name, start, end, isLast, answer, failed, isLoading, retry}`, answer: its timeline. */
    load(mesh, name, newest) {
      const period = bounds(name, newest);
      if (!period) return null;
      const { start, end } = period,
        state = answers.ask([mesh, start, end].join(" "), async (signal) => asTimeline(await feed.range(mesh, { start, end, points: POINTS }, signal)));
      return { name, ...period, ...state, retry: answers.retry };
    },
    forget: answers.forget,
  };
}

/** The document of a range in the form of a timeline. */
function asTimeline({ observed_at, mesh, incidents, changes, source, step_seconds, complete_from }) {
  return {
    observed_at,
    mesh_score: mesh.score,
    highest: mesh.highest_score,
    threshold: mesh.threshold,
    status: mesh.status,
    incidents: incidents.map((one) => ({ ...one, since: one.first })).reverse(), // the newest last
    changes,
    source,
    step: step_seconds,
    complete_from,
  };
}

/**
 * The buttons of the ranges and the field for a date.
 * @param {{choose: (range: string | null) => void, jump: (at: string) => void}} on called by clicks; null: the live window.
 */
export function rangeBar(on) {
  by("ranges").append(
    ...[LIVE, ...Object.keys(LASTS)].map((name) =>
      el(
        "button",
        { type: "button", "data-key": `range ${name}`, click: () => on.choose(name === LIVE ? null : name) },
        name === LIVE ? "Live" : name.replace(/\D/, " $&"),
      ),
    ),
  );
  by("jump").addEventListener("change", () => {
    const { value } = by("jump");
    if (value) on.jump(fromZone(value.length === 16 ? `${value}:00` : value));
  });
  return {
    draw(/** @type {string | null} */ range, /** @type {string} */ at) {
      for (const button of by("ranges").children) button.setAttribute("aria-pressed", String(button.dataset.key === `range ${range ?? LIVE}`));
      if (document.activeElement !== by("jump")) by("jump").value = at ? inZone(at).slice(0, 16) : "";
    },
  };
}

/** A failed or a first request for a range, in the place of the plot. */
export function drawRangeState(range) {
  const place = by("range-state");
  place.hidden = !range || !(range.failed || (range.isLoading && !range.answer));
  if (range?.failed)
    show(place, failure(`This range could not be loaded: ${range.failed}`, "range", range.retry));
  else show(place, el("div", { class: "skeleton" }, el("span", { class: "sr", role: "status" }, "Loading the range")));
  by("time").setAttribute("aria-busy", String(Boolean(range?.isLoading)));
}
