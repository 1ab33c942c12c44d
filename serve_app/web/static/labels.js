// Names beside services, and labels on calls, as plates. They do not overlap: the more important ones are placed first, and those
// without room are left out. A strong name is always drawn, inside the stage.

const MOST = 140, // labels in view
  TRIED = 500, // services or calls in view that are tried
  SIZE = 12,
  ASIDE = 6,
  PAD = 3, // pixels around a text on its plate
  SHARES = [0.5, 0.35, 0.65], // of the length of a call, where its label may be
  FONT = "system-ui, sans-serif";
const ruler = document.createElement("canvas").getContext("2d"),
  widths = new Map(); // pixels of a text in a font
const KEPT = 5000;

/**
 * Draw names beside services, or labels on calls.
 * @param {any} pen of a canvas.
 * @param {Iterable<{x: number, y: number, text: string, strong: boolean, radius?: number, ends?: {x: number, y: number}[]}>} wanted
 * the most important first. radius: of a service at x and y. ends: of a call around x and y.
 * @param {{width: number, height: number}} stage what is in view.
 * @param {number[][]} kept boxes that stay free: left, top, right, bottom.
 * @returns {number[][]} the boxes that stay free from now on, with the boxes of the new labels.
 */
export function drawLabels(pen, wanted, { width, height }, kept, colours) {
  const taken = [...kept],
    half = SIZE / 2 + 2;
  let tried = 0,
    drawn = 0;
  pen.textAlign = "left";
  pen.textBaseline = "middle";
  for (const one of wanted) {
    if (drawn >= MOST || tried >= TRIED) break;
    if (one.x < 0 || one.y < 0 || one.x > width || one.y > height) continue;
    tried += 1;
    const size = SIZE + (one.strong ? 1 : 0),
      wide = textWidth(one.text, one.strong, size),
      spots = one.ends ? along(one, wide) : beside(one, wide, half);
    const plate = (/** @type {number[]} */ [left, middle]) => [left - PAD, middle - half, left + wide + PAD, middle + half],
      free = spots.find((spot) => isFree(plate(spot), taken, width, height)) ?? (one.strong ? inside(spots[0], wide, half, width, height) : null);
    if (!free) continue;
    drawn += 1;
    taken.push(plate(free));
    drawPlate(pen, one.text, free[0], free[1], { size, bold: one.strong, half, wide, ink: colours.label }, colours);
  }
  pen.textBaseline = "alphabetic";
  return taken;
}

/** The left ends and middles that a name may have around a service. @param {any} service */
function beside({ x, y, radius, strong }, wide, half) {
  const near = radius + ASIDE + (strong ? 4 : 0);
  return [
    [x + near, y],
    [x - near - wide, y],
    [x - wide / 2, y + near + half],
    [x - wide / 2, y - near - half],
  ];
}

/** The same for a label on a call. @param {any} call */
function along({ ends: [a, b] }, wide) {
  return SHARES.map((share) => [a.x + share * (b.x - a.x) - wide / 2, a.y + share * (b.y - a.y)]);
}

/** The box around a service or a number. */
export const box = ({ x, y, radius }) => [x - radius, y - radius, x + radius, y + radius];

function isFree(/** @type {number[]} */ [left, top, right, bottom], taken, width, height) {
  if (left < 2 || top < 2 || right > width - 2 || bottom > height - 2) return false;
  return taken.every(([a, b, c, d]) => right <= a || left >= c || bottom <= b || top >= d);
}

/** The spot of a strong name, moved into the stage. */
const inside = (/** @type {number[]} */ [left, middle], wide, half, width, height) => [
  Math.max(PAD + 2, Math.min(width - PAD - 2 - wide, left)),
  Math.max(half + 2, Math.min(height - half - 2, middle)),
];

/** The width of a text in pixels. */
export function textWidth(text, bold = false, size = SIZE) {
  const font = `${bold ? "bold " : ""}${size}px ${FONT}`,
    key = `${font} ${text}`;
  let wide = widths.get(key);
  if (wide === undefined) {
    if (widths.size >= KEPT) widths.clear();
    ruler.font = font;
    wide = ruler.measureText(text).width;
    widths.set(key, wide);
  }
  return wide;
}

/** A text on a plate, readable on any background. x is its left end, y its middle. */
function drawPlate(pen, text, x, y, { size, bold, half, wide, ink }, colours) {
  pen.fillStyle = colours.paper;
  pen.globalAlpha = 0.88;
  pen.beginPath();
  pen.roundRect(x - PAD, y - half, wide + 2 * PAD, 2 * half, 4);
  pen.fill();
  pen.globalAlpha = 1;
  pen.fillStyle = ink;
  pen.font = `${bold ? "bold " : ""}${size}px ${FONT}`;
  pen.fillText(text, x, y);
}
