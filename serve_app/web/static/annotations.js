// What is drawn above the graph: namespaces, the spread of an incident, its origin, missing services. Positions are pixels.
import { box } from "./labels.js";
import { EVERYTHING, namespace, readable } from "./words.js";

const SMALL = 18, // radius in pixels, below which a namespace has no circle
  NAME_HEIGHT = 10, // pixels above the line of its name
  NUMBER_RADIUS = 8, // pixels; of the number of a hop
  APART = 36, // least pixels between two numbers
  LEAST_NUMBERED = 80, // pixels of an arrow with a number
  ALONG = [0.5, 0.4, 0.3]; // where on an arrow its number is

/** The circle around the services of each namespace, in units of the layout; none around a namespace that is folded. */
export function circles({ name, x, y }, shown) {
  const groups = new Map();
  name.forEach((one, i) => {
    if (!shown[i]) return;
    if (!groups.has(namespace(one))) groups.set(namespace(one), []);
    groups.get(namespace(one)).push(i);
  });
  return [...groups]
    .filter(([, members]) => !members.some((i) => name[i].endsWith(EVERYTHING)))
    .map(([of, members]) => {
      const mean = (values) => members.reduce((sum, i) => sum + values[i], 0) / members.length;
      const middle = { x: mean(x), y: mean(y) };
      return {
        name: readable(of),
        ...middle,
        reach: members.reduce((most, i) => Math.max(most, Math.hypot(x[i] - middle.x, y[i] - middle.y)), 0) + 0.7,
      };
    });
}

/**
 * Draw namespaces as ellipses with their names. Sizes are pixels.
 * @returns {number[][]} the boxes of the names: left, top, right, bottom.
 */
export function namespaces(pen, { width, height }, circled, colours) {
  const boxes = [];
  pen.textAlign = "center";
  pen.lineWidth = 1;
  pen.strokeStyle = colours.rule;
  pen.font = "11px system-ui, sans-serif";
  for (const { name, x, y, across: wide, down: tall } of circled) {
    const middle = { x, y };
    const [left, right, top, bottom] = [middle.x - wide, middle.x + wide, middle.y - tall, middle.y + tall];
    if (Math.min(wide, tall) < SMALL || right < 0 || left > width || bottom < 0 || top > height) continue;
    pen.globalAlpha = 0.7;
    pen.beginPath();
    pen.ellipse(middle.x, middle.y, wide, tall, 0, 0, 2 * Math.PI);
    pen.stroke();
    pen.globalAlpha = 1;
    const half = pen.measureText(name).width / 2;
    if (half > 1.2 * wide) continue;
    const above = Math.min(height - 6, Math.max(12, top - 4)),
      centre = Math.min(width - 30, Math.max(30, middle.x));
    pen.fillStyle = colours.soft;
    pen.fillText(name, centre, above);
    boxes.push([centre - half, above - NAME_HEIGHT, centre + half, above + 3]);
    pen.lineWidth = 1;
    pen.strokeStyle = colours.rule;
  }
  return boxes;
}

/**
 * Draw the spread of an incident: an arrow for each hop.
 * @param {{from: any, to: any, ink: string}[]} hops position and radius of both services.
 */
export function arrows(pen, hops) {
  for (const { from, to, ink } of hops) arrow(pen, from, to, ink);
}

/**
 * Draw the numbers of the steps of the spread where there is room.
 * @param {{from: any, to: any, step: number, ink: string}[]} hops position and radius of both services.
 * @param {{x: number, y: number, radius: number}[]} services that no number covers.
 * @param {number[][]} names boxes that no number covers: left, top, right, bottom.
 * @returns {number[][]} the boxes of the numbers.
 */
export function steps(pen, hops, services, names, colours) {
  const taken = services.map(({ x, y, radius }) => ({ x, y, reach: radius + NUMBER_RADIUS + 1 })),
    boxes = [],
    isClear = (one) => names.every((name) => one[2] <= name[0] || one[0] >= name[2] || one[3] <= name[1] || one[1] >= name[3]);
  for (const { from, to, step, ink } of hops) {
    if (Math.hypot(to.x - from.x, to.y - from.y) <= LEAST_NUMBERED) continue;
    const spots = ALONG.map((share) => ({ x: from.x + share * (to.x - from.x), y: from.y + share * (to.y - from.y) })),
      free = spots.find(
        ({ x, y }) =>
          taken.every((one) => Math.hypot(one.x - x, one.y - y) > one.reach) && isClear(box({ x, y, radius: NUMBER_RADIUS })),
      );
    if (!free) continue;
    taken.push({ ...free, reach: APART });
    boxes.push(box({ ...free, radius: NUMBER_RADIUS + 1 }));
    number(pen, free, step, ink, colours.paper);
  }
  return boxes;
}

function arrow(pen, from, to, ink) {
  const length = Math.hypot(to.x - from.x, to.y - from.y);
  if (length < 12) return;
  const ux = (to.x - from.x) / length,
    uy = (to.y - from.y) / length,
    narrow = Math.min(1, (0.6 * length) / (from.radius + to.radius + 14)); // short arrows are drawn, too
  const out = narrow * (from.radius + 6),
    into = narrow * (to.radius + 8);
  const a = { x: from.x + ux * out, y: from.y + uy * out },
    b = { x: to.x - ux * into, y: to.y - uy * into };
  pen.strokeStyle = pen.fillStyle = ink;
  pen.lineWidth = 3;
  pen.setLineDash([]);
  pen.beginPath();
  pen.moveTo(a.x, a.y);
  pen.lineTo(b.x, b.y);
  pen.stroke();
  pen.beginPath();
  pen.moveTo(b.x + 5 * ux, b.y + 5 * uy);
  pen.lineTo(b.x - 6 * ux - 5 * uy, b.y - 6 * uy + 5 * ux);
  pen.lineTo(b.x - 6 * ux + 5 * uy, b.y - 6 * uy - 5 * ux);
  pen.fill();
}

function number(pen, { x, y }, step, ink, paper) {
  pen.fillStyle = ink;
  pen.beginPath();
  pen.arc(x, y, NUMBER_RADIUS, 0, 2 * Math.PI);
  pen.fill();
  pen.fillStyle = paper;
  pen.font = "bold 11px system-ui, sans-serif";
  pen.textAlign = "center";
  pen.fillText(String(step), x, y + 4);
}

/** A ring around the likely origin. */
export function ring(pen, { x, y, radius }, colours) {
  pen.strokeStyle = colours.path;
  pen.lineWidth = 3;
  pen.setLineDash([]);
  pen.beginPath();
  pen.arc(x, y, radius + 5, 0, 2 * Math.PI);
  pen.stroke();
}

/** The box of the name of a selected service: left, top, right, bottom. */
export function hoverBox(pen, { x, y, radius, name }) {
  pen.font = "bold 13px system-ui, sans-serif";
  const wide = pen.measureText(readable(name)).width + 12,
    width = pen.canvas.clientWidth,
    left = x + radius + 6 + wide <= width ? x + radius + 6 : Math.max(2, x - radius - 6 - wide);
  return [left, y - 11, left + wide, y + 11];
}

/** The name of a service beside it, in a box, and a ring around the service. */
export function hover(pen, { x, y, radius, name }, colours) {
  const [left, top, right, bottom] = hoverBox(pen, { x, y, radius, name });
  pen.fillStyle = colours.paper;
  pen.strokeStyle = colours.accent;
  pen.lineWidth = 1.5;
  pen.beginPath();
  pen.roundRect(left, top, right - left, bottom - top, 5);
  pen.fill();
  pen.stroke();
  pen.fillStyle = colours.label;
  pen.textAlign = "left";
  pen.fillText(readable(name), left + 6, (top + bottom) / 2 + 4);
  pen.beginPath();
  pen.arc(x, y, radius + 3, 0, 2 * Math.PI);
  pen.stroke();
}
