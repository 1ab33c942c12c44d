// The front door: the requests of users, now and usually.
import { chart } from "./chart.js";
import { by, show } from "./dom.js";

/**
 * @param {any} door `{times, metrics}` of a map; none: a past moment has none.
 * @param {boolean} isBelow whether it is below the timeline, because the suspects of an incident come first at the side.
 */
export function drawFrontDoor(door, isBelow) {
  const section = by("front-door"),
    place = isBelow ? by("time") : by("panel");
  section.hidden = !door;
  if (place.nextElementSibling !== section) place.after(section);
  if (!door) return;
  const { times, metrics } = door,
    view = { at: times.length - 1, cursor: null };
  show(by("front-door-charts"), ...metrics.map((one) => chart({ ...one, times, incidents: [], changes: [] }, view)));
}
