// What is drawn above the graph: namespaces, the spread of an incident, its origin, missing services. Positions are pixels.
import { EVERYTHING, namespace } from "./words.js";

const SMALL = 14; // radius in pixels, below which a namespace has no circle

/** The circle around the services of each namespace, in units of the layout. */
export function circles({ name, x, y }) {
  const groups = new Map();
  name.forEach((one, i) => {
    if (one.endsWith(EVERYTHING)) return;
    if (!groups.has(namespace(one))) groups.set(namespace(one), []);
    groups.get(namespace(one)).push(i);
  });
  return [...groups].map(([of, members]) => {
    const mean = (values) => members.reduce((sum, i) => sum + values[i], 0) / members.length;
    const middle = { x: mean(x), y: mean(y) };
    return {
      name: of,
      ...middle,
      reach: members.reduce((most, i) => Math.max(most, Math.hypot(x[i] - middle.x, y[i] - middle.y)), 0) + 0.7,
    };
  });
}

export function namespaces(pen, renderer, circled, colours) {
  const { width, height } = renderer.getDimensions();
  pen.textAlign = "center";
  pen.lineWidth = 1;
  pen.strokeStyle = colours.rule;
  pen.font = "11px system-ui, sans-serif";
  for (const { name, x, y, reach } of circled) {
    const middle = renderer.graphToViewport({ x, y }),
      border = renderer.graphToViewport({ x: x + reach, y });
    const radius = Math.hypot(border.x - middle.x, border.y - middle.y);
    const [left, right, top, bottom] = [middle.x - radius, middle.x + radius, middle.y - radius, middle.y + radius];
    if (radius < SMALL || right < 0 || left > width || bottom < 0 || top > height) continue;
    pen.globalAlpha = 0.7;
    pen.beginPath();
    pen.arc(middle.x, middle.y, radius, 0, 2 * Math.PI);
    pen.stroke();
    pen.globalAlpha = 1;
    if (pen.measureText(name).width > 2.4 * radius) continue;
    const above = Math.min(height - 6, Math.max(12, top - 4));
    halo(pen, name, Math.min(width - 30, Math.max(30, middle.x)), above, colours.soft, colours);
    pen.lineWidth = 1;
    pen.strokeStyle = colours.rule;
  }
}

/**
 * An arrow from callee to caller, the way an incident spreads, with the number of its step if there is room.
 * @param {{x: number, y: number, radius: number}} from
 * @param {{x: number, y: number, radius: number}} to
 */
export function hop(pen, from, to, step, colours) {
  const length = Math.hypot(to.x - from.x, to.y - from.y);
  if (length < 12) return;
  const ux = (to.x - from.x) / length,
    uy = (to.y - from.y) / length,
    narrow = Math.min(1, (0.6 * length) / (from.radius + to.radius + 14)); // short arrows are drawn, too
  const out = narrow * (from.radius + 6),
    into = narrow * (to.radius + 8);
  const a = { x: from.x + ux * out, y: from.y + uy * out },
    b = { x: to.x - ux * into, y: to.y - uy * into };
  pen.strokeStyle = pen.fillStyle = colours.path;
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
  if (length > 80) badge(pen, (a.x + b.x) / 2, (a.y + b.y) / 2, step, colours);
}

function badge(pen, x, y, step, colours) {
  pen.beginPath();
  pen.arc(x, y, 8, 0, 2 * Math.PI);
  pen.fill();
  pen.fillStyle = colours.paper;
  pen.font = "bold 11px system-ui, sans-serif";
  pen.textAlign = "center";
  pen.fillText(String(step), x, y + 4);
}

export function ring(pen, { x, y, radius }, width, dashes, colours) {
  pen.strokeStyle = colours.path;
  pen.lineWidth = width;
  pen.setLineDash(dashes);
  pen.beginPath();
  pen.arc(x, y, radius + 5, 0, 2 * Math.PI);
  pen.stroke();
  pen.setLineDash([]);
}

/** The outlines of hollow services, in one stroke. */
export function outlines(pen, places, colours) {
  if (!places.length) return;
  pen.strokeStyle = colours.hollow;
  pen.lineWidth = 1.6;
  pen.setLineDash([]);
  pen.beginPath();
  for (const { x, y, radius } of places) {
    pen.moveTo(x + radius, y);
    pen.arc(x, y, radius, 0, 2 * Math.PI);
  }
  pen.stroke();
}

export function label(pen, node, settings, strong, colours) {
  if (!node.label) return;
  pen.font = `${strong ? "bold " : ""}${settings.labelSize + (strong ? 2 : 0)}px ${settings.labelFont}`;
  pen.textAlign = "left";
  const aside = node.size + (strong ? 9 : 4);
  halo(pen, node.label, node.x + aside, node.y + settings.labelSize / 3, colours.label, colours);
}

export function hover(pen, node, settings, colours) {
  const name = node.key ?? node.label;
  pen.font = `bold ${settings.labelSize + 1}px ${settings.labelFont}`;
  const wide = pen.measureText(name).width;
  pen.fillStyle = colours.paper;
  pen.strokeStyle = colours.accent;
  pen.lineWidth = 1.5;
  pen.beginPath();
  pen.roundRect(node.x + node.size + 3, node.y - 11, wide + 12, 22, 5);
  pen.fill();
  pen.stroke();
  pen.fillStyle = colours.label;
  pen.textAlign = "left";
  pen.fillText(name, node.x + node.size + 9, node.y + 4);
  pen.beginPath();
  pen.arc(node.x, node.y, node.size + 3, 0, 2 * Math.PI);
  pen.stroke();
}

/** Text with an outline, readable on any background. */
function halo(pen, text, x, y, ink, colours) {
  pen.lineJoin = "round";
  pen.lineWidth = 4;
  pen.strokeStyle = colours.paper;
  pen.strokeText(text, x, y);
  pen.fillStyle = ink;
  pen.fillText(text, x, y);
}
