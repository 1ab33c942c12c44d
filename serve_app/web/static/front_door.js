// The front door: the requests of users, now and usually.
import { chart } from "./chart.js";
import { by, show } from "./dom.js";

/** @param {any} door `{times, metrics}` of a map; none: a past moment has none. */
export function drawFrontDoor(door) {
  by("front-door").hidden = !door;
  if (!door) return;
  const { times, metrics } = door,
    view = { at: times.length - 1, cursor: null };
  show(by("front-door-charts"), ...metrics.map((one) => chart({ ...one, times, incidents: [], changes: [] }, view)));
}
