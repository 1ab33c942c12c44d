// The ways of calls between the plates of layers.js. A call leaves a plate at its side and runs in the gutters; it passes a column
// between two plates, and within a column it is a curve beside it. So no call crosses a plate.
import { PLATE } from "./layers.js";

const PORT = 5, // pixels between two calls at the side of a plate
  PORTS = 4, // calls, above which they end in one point
  OUTSIDE = 9, // pixels from the first and last plate to a call that passes the column there
  HEAD = 7, // pixels of the head of an arrow
  BESIDE = 3, // pixels around a column that a call passes straight
  SPOTS = [0.5, 0.38, 0.62, 0.28, 0.72]; // of a way through a gutter, where a label may be

/**
 * @typedef {{line: string, head: string, spots: {x: number, y: number, room: number}[]}} Route
 * line: a path. head: the arrow at the callee. spots: where its label may be, and the width of the gutter there.
 */

/**
 * @param {{source: number[], destination: number[]}} edges of the map.
 * @param {{at: Map<number, any>, columns: {left: number, right: number, ys: number[]}[]}} layered of layers.js.
 * @param {number} width of the stage.
 * @returns {Map<number, Route>} by the position of the call; calls of a service to itself have none.
 */
export function routes({ source, destination }, { at, columns }, width) {
  const calls = [...source.keys()]
    .filter((e) => source[e] !== destination[e] && at.has(source[e]) && at.has(destination[e]))
    .map((e) => {
      const from = at.get(source[e]),
        to = at.get(destination[e]),
        ahead = Math.sign(to.column - from.column), // 0: within a column
        side = ahead || (from.column < columns.length - 1 || columns.length === 1 ? 1 : -1);
      return { e, from, to, ahead, sides: [side, ahead ? -side : side], ys: [from.y, to.y] };
    });
  spreadPorts(calls, { source, destination });
  return new Map(calls.map((call) => [call.e, route(call, columns, width)]));
}

/** Calls at one side of a plate leave it one below the other, in the order of where they go. */
function spreadPorts(calls, { source, destination }) {
  const sides = new Map();
  for (const call of calls)
    [source[call.e], destination[call.e]].forEach((service, end) => {
      const key = `${service} ${call.sides[end]}`;
      sides.set(key, [...(sides.get(key) ?? []), { call, end, other: end ? call.from.y : call.to.y }]);
    });
  for (const ends of sides.values()) {
    ends.sort((a, b) => a.other - b.other || a.end - b.end);
    const apart = ends.length > PORTS ? 0 : PORT;
    ends.forEach(({ call, end }, k) => {
      call.ys[end] += (k - (ends.length - 1) / 2) * apart;
    });
  }
}

function route({ from, to, ahead, sides, ys }, columns, width) {
  const [x1, x2] = [from.x + (sides[0] * from.width) / 2, to.x + (sides[1] * to.width) / 2],
    [y1, y2] = ys,
    arrow = head({ x: x2, y: y2 }, -sides[1], 0);
  if (!ahead) {
    const beside = columns[from.column + sides[0]],
      room = beside ? Math.abs((sides[0] > 0 ? beside.left : beside.right) - x1) : sides[0] > 0 ? width - x1 : x1,
      out = sides[0] * Math.min(room - 6, 16 + 0.3 * Math.abs(y2 - y1));
    return {
      line: `M${x1} ${y1}C${x1 + out} ${y1} ${x2 + out} ${y2} ${x2} ${y2}`,
      head: arrow,
      spots: [{ x: x1 + (sides[0] * room) / 2, y: (y1 + y2) / 2, room }],
    };
  }
  const points = [{ x: x1, y: y1 }];
  for (let k = from.column + ahead; k !== to.column; k += ahead) {
    const { left, right } = columns[k],
      share = ((left + right) / 2 - x1) / (x2 - x1),
      y = passage(columns[k].ys, y1 + share * (y2 - y1)),
      sidesOf = ahead > 0 ? [left - BESIDE, right + BESIDE] : [right + BESIDE, left - BESIDE];
    points.push(...sidesOf.map((x) => ({ x, y })));
  }
  points.push({ x: x2, y: y2 });
  let line = `M${x1} ${y1}`;
  const spots = [];
  points.slice(1).forEach((b, k) => {
    const a = points[k];
    if (k % 2) {
      line += `L${b.x} ${b.y}`;
      return;
    }
    line += `C${(a.x + b.x) / 2} ${a.y} ${(a.x + b.x) / 2} ${b.y} ${b.x} ${b.y}`;
    spots.push(SPOTS.map((t) => ({ ...onCurve(a, b, t), room: Math.abs(b.x - a.x) })));
  });
  return { line, head: arrow, spots: (spots.length > 1 ? [spots[0], spots.at(-1)] : spots).flat() };
}

/** Where a call passes a column: between two plates, above or below all, nearest to a height. */
function passage(ys, wish) {
  const free = [ys[0] - PLATE / 2 - OUTSIDE, ys.at(-1) + PLATE / 2 + OUTSIDE];
  for (let k = 1; k < ys.length; k++) free.push((ys[k - 1] + ys[k]) / 2);
  return free.reduce((a, b) => (Math.abs(b - wish) < Math.abs(a - wish) ? b : a));
}

/** A point of the curve from a to b, which is level at both ends. */
function onCurve(a, b, t) {
  const s = 1 - t,
    mid = (a.x + b.x) / 2,
    ends = s * s * s + 3 * s * s * t;
  return { x: s ** 3 * a.x + 3 * s * t * mid + t ** 3 * b.x, y: ends * a.y + (1 - ends) * b.y };
}

/** The head of an arrow that arrives at a point in a direction, which is of length 1. */
export function head({ x, y }, right, down) {
  const [back, low] = [x - HEAD * right, y - HEAD * down],
    half = HEAD / 2;
  return `M${x} ${y}L${back - half * down} ${low + half * right}L${back + half * down} ${low - half * right}z`;
}
