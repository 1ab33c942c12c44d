// The layers of an incident: its origin in the middle, callers to the left, callees to the right. Each service is a plate in a
// column; calls run in the gutters between columns (routes.js). Sizes are pixels.
import { QUIET } from "./severity.js";
import { textWidth } from "./text.js";

export const PLATE = 24; // height
const GUTTER = 88, // least width between two columns, with room for the label of a call
  BARE_GUTTER = 34, // the same without labels, or on a narrow stage
  NARROW = 600, // width of a stage, below which it is narrow
  MIN = 84, // width of a plate
  FAIR = 102, // the same where there is room
  MAX = 240,
  ROOT = 1.25, // times an equal share, that the column of the root may have
  MAX_GUTTER = 170,
  SIDE = 8, // left and right of the columns
  EDGE = 22, // above and below them, with room for calls
  ROW = 40, // most between the middles of two plates of a column
  DENSE_ROW = 31,
  MAX_NORMAL = 11, // services of a layer that are normal and no part of the incident; of more, so that a hub does not fill the graph,
  FEW = 3, // are shown
  SWEEPS = 3; // over all columns, until plates are near those they call

/**
 * @param {any} map nodes and edges in columns.
 * @param {Set<number>} centre the services of the incident, and the selected one.
 * @param {number | undefined} root the origin of the incident, or the selected service.
 * @param {{width: number, height: number}} stage the height is the most that may be used.
 * @param {(i: number) => number} widthOf a service's plate, to show its whole name.
 * @param {boolean} labels whether calls have labels everywhere, not only around the root.
 * @returns {{at: Map<number, {x: number, y: number, width: number, column: number}>, rest: {x: number, y: number, width: number,
 * text: string}[], columns: {left: number, right: number, ys: number[]}[], height: number}} at: middles of plates. rest: how many
 * services of a layer have no room. columns: from left to right, with the middles of their plates. height: what is used.
 */
export function layers(map, centre, root, { width, height }, widthOf = () => MIN, labels = false) {
  const [gutter, least, between] = width < NARROW ? [BARE_GUTTER, MIN, BARE_GUTTER] : [GUTTER, FAIR, labels ? GUTTER : BARE_GUTTER],
    // The two gutters beside the root have labels.
    room = Math.max(2, Math.floor((width - 2 * SIDE - 2 * (gutter - between) + between) / (least + between))),
    rows = Math.max(3, Math.floor((height - 2 * EDGE - PLATE) / DENSE_ROW) + 1),
    level = levels(map.edges, centre, root, Math.max(1, Math.floor((room - 1) / 2))),
    isPlain = (/** @type {number} */ i) => !centre.has(i) && i !== root && !(map.nodes.deviation[i] > QUIET),
    columns = columnsOf(level, importance(map, centre, root), isPlain, room, rows);
  const tallest = Math.max(...columns.map((one) => one.members.length + Number(one.hidden.length > 0))),
    row = Math.min(ROW, (height - 2 * EDGE - PLATE) / Math.max(1, tallest - 1)),
    used = 2 * EDGE + PLATE + row * (tallest - 1),
    at = new Map();
  const isAtRoot = (k) => columns[k].level === 0 || columns[k + 1].level === 0,
    gutters = columns.slice(1).map((_, k) => (isAtRoot(k) ? gutter : between));
  widen(columns, width, gutters, widthOf);
  const ends = neighbours(map.edges, level),
    inward = columns.toSorted((a, b) => Math.abs(a.level) - Math.abs(b.level));
  for (let sweep = 0; sweep < SWEEPS; sweep++) for (const column of inward) place(column, ends, at, root, row, used);
  return {
    at,
    rest: columns
      .filter(({ hidden }) => hidden.length)
      .map(({ hidden, left, right, ys }) => ({ x: (left + right) / 2, y: ys.at(-1), width: right - left, text: restText(map.nodes, hidden, right - left) })),
    columns: columns.map(({ left, right, ys }) => ({ left, right, ys })),
    height: used,
  };
}

/** "28 more, normal", "28 more, 3 unusual": the services without room; without their state if that is too wide. */
function restText({ deviation, services }, hidden, width) {
  const total = (some) => some.reduce((sum, i) => sum + services[i], 0),
    unusual = total(hidden.filter((i) => deviation[i] > QUIET)),
    text = `${total(hidden)} more, ${unusual ? `${unusual} unusual` : "normal"}`;
  return textWidth(text) <= width + 2 * SIDE ? text : `${total(hidden)} more`;
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

/** One column for each layer; full layers have several while there is room. The most important services are nearest to the root. */
function columnsOf(level, important, isPlain, room, rows) {
  const layered = [...new Set(level.values())]
    .sort((a, b) => a - b)
    .map((of) => {
      const all = [...level.keys()].filter((i) => level.get(i) === of).sort((a, b) => important(b) - important(a)),
        plain = all.filter(isPlain),
        others = plain.length > MAX_NORMAL ? plain.slice(FEW) : [],
        members = all.filter((i) => !others.includes(i));
      return { of, members, others, wide: 1 };
    });
  for (let free = room - layered.length; free > 0; free--) {
    const fullest = layered.reduce((a, b) => (b.members.length / b.wide > a.members.length / a.wide ? b : a));
    if (fullest.members.length > rows * fullest.wide) fullest.wide += 1;
  }
  return layered.flatMap(({ of, members, others, wide }) => {
    const fits = members.length + Number(others.length > 0) <= wide * rows,
      shown = fits ? members : members.slice(0, wide * rows - 1), // the last row is for the rest
      each = Math.ceil(shown.length / wide),
      split = Array.from({ length: wide }, (_, k) => ({
        level: of,
        members: shown.slice(k * each, (k + 1) * each),
        hidden: /** @type {number[]} */ ([]),
        left: 0,
        right: 0,
        index: 0,
        ys: /** @type {number[]} */ ([]),
      })).filter((one) => one.members.length);
    split.at(-1).hidden = [...members.slice(shown.length), ...others];
    return of < 0 ? split.toReversed() : split;
  });
}

/** Give columns their width: what their names need, or an equal share of the stage. Gutters get the room that is left. */
function widen(columns, width, gutters, widthOf) {
  const count = columns.length,
    total = (values) => values.reduce((sum, one) => sum + one, 0),
    all = width - 2 * SIDE - total(gutters),
    widths = columns.map(() => 0),
    needs = columns.map(({ members }) => Math.min(MAX, Math.max(MIN, ...members.map(widthOf)))),
    isRoot = (k) => columns[k].level === 0; // the last one whose name is cut
  let free = all,
    left = count;
  for (const k of [...needs.keys()].sort((a, b) => Number(isRoot(b)) - Number(isRoot(a)) || needs[a] - needs[b])) {
    widths[k] = Math.min(needs[k], free, (isRoot(k) ? ROOT : 1) * (free / left--));
    free -= widths[k];
  }
  const more = free / Math.max(1, count - 1),
    between = gutters.map((one) => Math.max(one, Math.min(MAX_GUTTER, one + more)));
  let x = (width - total(widths) - total(between)) / 2;
  columns.forEach((column, k) => {
    Object.assign(column, { left: x, right: x + widths[k], index: k });
    x += widths[k] + (between[k] ?? 0);
  });
}

function neighbours({ source, destination }, level) {
  const found = new Map([...level.keys()].map((i) => [i, []]));
  source.forEach((one, e) => {
    found.get(one)?.push(destination[e]);
    found.get(destination[e])?.push(one);
  });
  return found;
}

/** Place a column: each service near the middle of those it calls or is called by, and the root in the middle. */
function place({ members, hidden, left, right, index, ys }, ends, at, root, row, height) {
  const middle = height / 2,
    wish = new Map(
      members.map((i) => {
        const others = ends.get(i).filter((one) => one !== i && at.has(one) && at.get(one).column !== index);
        return [i, others.length ? others.reduce((sum, one) => sum + at.get(one).y, 0) / others.length : middle];
      }),
    ),
    ordered = members.toSorted((a, b) => wish.get(a) - wish.get(b) || a - b);
  if (wish.has(root)) {
    wish.set(root, middle);
    ordered.splice(Math.floor((ordered.length - 1) / 2), 0, ...ordered.splice(ordered.indexOf(root), 1));
  }
  const count = ordered.length + Number(hidden.length > 0),
    top = EDGE + PLATE / 2,
    // Each is at least a row below the one before: the mean of the wishes, less the rows above, is where the column begins.
    begin = ordered.reduce((sum, i, k) => sum + wish.get(i) - k * row, 0) / ordered.length,
    first = Math.max(top, Math.min(height - top - row * (count - 1), wish.has(root) ? middle - row * ordered.indexOf(root) : begin));
  ys.length = 0;
  ordered.forEach((i, k) => {
    ys.push(first + k * row);
    at.set(i, { x: (left + right) / 2, y: first + k * row, width: right - left, column: index });
  });
  if (hidden.length) ys.push(first + ordered.length * row);
}
