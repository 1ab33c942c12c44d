// The layers of an incident: its origin in the middle, callers to the left, callees to the right. Positions are pixels.

const ROW = 26, // least pixels between two services of a column
  COLUMN = 150, // least pixels between two columns, with room for names
  LEFT = 36,
  RIGHT = 130, // room for the names of the last column
  TOP = 34,
  BOTTOM = 30,
  LOOSE = 64; // most pixels between two services of a column

/**
 * @param {any} map nodes and edges in columns.
 * @param {Set<number>} centre the services of the incident, and the selected one.
 * @param {number | undefined} root the origin of the incident, or the selected service.
 * @param {{width: number, height: number}} stage in pixels.
 * @returns {{at: Map<number, {x: number, y: number}>, rest: {x: number, y: number, text: string}[]}} at: positions of
 * services. rest: how many services of a column have no room.
 */
export function layers(map, centre, root, { width, height }) {
  const room = Math.max(2, Math.floor((width - LEFT - RIGHT) / COLUMN) + 1),
    rows = Math.max(3, Math.floor((height - TOP - BOTTOM) / ROW) + 1);
  const reach = Math.max(1, Math.floor((room - 1) / 2)),
    level = levels(map.edges, centre, root, reach),
    important = importance(map, centre, root);
  const columns = [...new Set(level.values())]
    .sort((a, b) => a - b)
    .map((of) => {
      const members = [...level.keys()].filter((i) => level.get(i) === of);
      return { of, members: members.sort((a, b) => important(b) - important(a)), shown: members, wide: 1, left: 0 };
    });
  widen(columns, room, rows);
  const total = columns.reduce((sum, one) => sum + one.wide, 0),
    pitch = (width - LEFT - RIGHT) / Math.max(1, total - 1);
  const at = new Map(),
    rest = [];
  let left = total === 1 ? width / 2 - COLUMN / 2 : LEFT;
  for (const column of columns) {
    const fits = column.wide * rows,
      hasRoom = column.members.length <= fits;
    column.shown = column.members.slice(0, hasRoom ? fits : fits - column.wide); // the last row is for the rest
    column.left = left;
    const hidden = column.members.length - column.shown.length;
    if (hidden) rest.push({ x: left, y: height - 10, text: `and ${hidden} more` });
    left += column.wide * pitch;
  }
  for (const column of columns.toSorted((a, b) => Math.abs(a.of) - Math.abs(b.of)))
    place(column, map.edges, at, root, { pitch, height, rows });
  return { at, rest };
}

/** The layer of each service: callers below 0, callees above. Services far away share the last layer. */
function levels(edges, centre, root, reach) {
  const out = new Map(),
    into = new Map();
  edges.source.forEach((source, i) => {
    const destination = edges.destination[i];
    if (source === destination) return;
    out.set(source, [...(out.get(source) ?? []), destination]);
    into.set(destination, [...(into.get(destination) ?? []), source]);
  });
  const level = new Map(root === undefined ? [...centre].map((i) => [i, 0]) : [[root, 0]]);
  const visit = (from, others, step, inside) => {
    for (const one of others.get(from) ?? []) {
      if (level.has(one) || centre.has(one) !== inside) continue;
      level.set(one, Math.max(-reach, Math.min(reach, level.get(from) + step)));
    }
  };
  for (const one of level.keys()) {
    // grows as services are reached
    visit(one, into, -1, true);
    visit(one, out, 1, true);
  }
  for (const one of centre) if (!level.has(one)) level.set(one, 0);
  for (const one of [...level.keys()]) {
    visit(one, into, -1, false);
    visit(one, out, 1, false);
  }
  return level;
}

/** What is shown first: the origin, services of the incident, then unusual ones, then busy ones. */
function importance({ nodes, edges }, centre, root) {
  const traffic = new Float64Array(nodes.name.length);
  edges.source.forEach((source, i) => {
    const rate = edges.requests_per_second[i] ?? 0;
    traffic[source] += rate;
    traffic[edges.destination[i]] += rate;
  });
  return (i) => (i === root ? 1e6 : 0) + (centre.has(i) ? 1e3 : 0) + 10 * (nodes.deviation[i] ?? 0) + Math.log1p(traffic[i]);
}

/** Give full columns a second and third one while there is room. */
function widen(columns, room, rows) {
  for (let free = room - columns.length; free > 0; free--) {
    const fullest = columns.reduce((a, b) => (b.members.length / b.wide > a.members.length / a.wide ? b : a));
    if (fullest.members.length <= rows * fullest.wide) return;
    fullest.wide += 1;
  }
}

/** Place a column: each service near the middle of those it calls or is called by in the columns before. */
function place({ shown, left, wide }, edges, at, root, { pitch, height, rows }) {
  const wish = new Map(shown.map((i) => [i, { sum: 0, count: 0 }]));
  edges.source.forEach((source, e) => {
    const destination = edges.destination[e];
    for (const [one, other] of [
      [source, destination],
      [destination, source],
    ]) {
      const own = wish.get(one),
        there = at.get(other);
      if (own && there) Object.assign(own, { sum: own.sum + there.y, count: own.count + 1 });
    }
  });
  const middle = (TOP + height - BOTTOM) / 2,
    target = (i) => (wish.get(i).count ? wish.get(i).sum / wish.get(i).count : middle);
  const ordered = shown.toSorted((a, b) => target(a) - target(b) || a - b);
  if (wish.has(root)) ordered.splice(Math.floor((ordered.length - 1) / 2), 0, ...ordered.splice(ordered.indexOf(root), 1));
  const tall = Math.min(rows, Math.ceil(ordered.length / wide)),
    step = Math.min(LOOSE, (height - TOP - BOTTOM) / Math.max(1, tall - 1)),
    top = middle - (step * (tall - 1)) / 2;
  ordered.forEach((i, k) => {
    const [row, column] = [Math.floor(k / wide), k % wide];
    at.set(i, { x: left + column * pitch, y: top + row * step + (column % 2 ? step / 2 : 0) });
  });
}
