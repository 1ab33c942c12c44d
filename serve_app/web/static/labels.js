// Names beside services, and labels on calls. They do not overlap: the more important ones are placed first, and those without
// room are left out. A strong name is always drawn.

const MOST = 140, // labels in view
  TRIED = 500, // services or calls in view that are tried
  SIZE = 12,
  ASIDE = 4,
  SHARES = [0.5, 0.35, 0.65], // of the length of a call, where its label may be
  FONT = "system-ui, sans-serif";
const widths = new Map(); // pixels of a text in a font
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
    half = SIZE / 2 + 1;
  let tried = 0,
    drawn = 0;
  pen.textAlign = "left";
  pen.textBaseline = "middle";
  for (const one of wanted) {
    if (drawn >= MOST || tried >= TRIED) break;
    if (one.x < 0 || one.y < 0 || one.x > width || one.y > height) continue;
    tried += 1;
    pen.font = `${one.strong ? "bold " : ""}${SIZE + (one.strong ? 2 : 0)}px ${FONT}`;
    const wide = textWidth(pen, one.text),
      spots = one.ends ? along(one, wide) : beside(one, wide, half);
    const fits = ([left, middle]) => isFree([left, middle - half, left + wide, middle + half], taken, width, height),
      free = spots.find(fits) ?? (one.strong ? spots[0] : null);
    if (!free) continue;
    drawn += 1;
    taken.push([free[0] - 2, free[1] - half, free[0] + wide + 2, free[1] + half]);
    halo(pen, one.text, free[0], free[1], colours.label, colours);
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

function isFree([left, top, right, bottom], taken, width, height) {
  if (left < 2 || top < 2 || right > width - 2 || bottom > height - 2) return false;
  return taken.every(([a, b, c, d]) => right <= a || left >= c || bottom <= b || top >= d);
}

function textWidth(pen, text) {
  const key = `${pen.font} ${text}`;
  let wide = widths.get(key);
  if (wide === undefined) {
    if (widths.size >= KEPT) widths.clear();
    wide = pen.measureText(text).width;
    widths.set(key, wide);
  }
  return wide;
}

/** Text with an outline, readable on any background. */
export function halo(pen, text, x, y, ink, colours) {
  pen.lineJoin = "round";
  pen.lineWidth = 4;
  pen.strokeStyle = colours.paper;
  pen.strokeText(text, x, y);
  pen.fillStyle = ink;
  pen.fillText(text, x, y);
}
