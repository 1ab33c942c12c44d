// Which call is under the pointer: the nearest line within reach.

/**
 * The position of the nearest call in the map; -1: none is within reach.
 * @param {any} edges of the map.
 * @param {any[]} places `{x, y}` of each service; null: it is not drawn.
 * @param {{x: number, y: number}} point in the units of the places.
 * @param {number} reach in the same units.
 * @param {(i: number) => boolean} isShown whether a call is drawn.
 */
export function nearestCall(edges, places, point, reach, isShown) {
  let best = -1,
    least = reach;
  for (let i = 0; i < edges.source.length; i++) {
    if (!isShown(i)) continue;
    const away = distance(point, places[edges.source[i]], places[edges.destination[i]]);
    if (away < least) {
      best = i;
      least = away;
    }
  }
  return best;
}

/** The distance of a point from the line between two places. */
function distance(point, a, b) {
  const dx = b.x - a.x,
    dy = b.y - a.y,
    length = dx * dx + dy * dy,
    along = length ? ((point.x - a.x) * dx + (point.y - a.y) * dy) / length : 0,
    share = Math.min(1, Math.max(0, along));
  return Math.hypot(point.x - a.x - share * dx, point.y - a.y - share * dy);
}
