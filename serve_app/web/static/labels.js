// Names beside services. They do not overlap: the more important ones are placed first, and those without room are left out.
// A strong name is always drawn.

const MOST = 140, // names in view
  TRIED = 500, // services in view that are tried
  SIZE = 12,
  ASIDE = 4,
  FONT = "system-ui, sans-serif";
const widths = new Map(); // pixels of a text in a font
const KEPT = 5000;

/**
 * Draw names.
 * @param {any} pen of a canvas.
 * @param {Iterable<{x: number, y: number, radius: number, text: string, strong: boolean}>} wanted the most important first.
 * @param {{width: number, height: number}} stage what is in view.
 * @param {number[][]} kept boxes that stay free: left, top, right, bottom.
 * @returns {number} how many were drawn.
 */
export function drawLabels(pen, wanted, { width, height }, kept, colours) {
  const taken = [...kept];
  let tried = 0,
    drawn = 0;
  pen.textAlign = "left";
  pen.textBaseline = "middle";
  for (const { x, y, radius, text, strong } of wanted) {
    if (drawn >= MOST || tried >= TRIED) break;
    if (x < 0 || y < 0 || x > width || y > height) continue;
    tried += 1;
    pen.font = `${strong ? "bold " : ""}${SIZE + (strong ? 2 : 0)}px ${FONT}`;
    const wide = textWidth(pen, text),
      half = SIZE / 2 + 1,
      near = radius + ASIDE + (strong ? 4 : 0);
    const places = [
      [x + near, y],
      [x - near - wide, y],
      [x - wide / 2, y + near + half],
      [x - wide / 2, y - near - half],
    ];
    const fits = ([left, middle]) => isFree([left, middle - half, left + wide, middle + half], taken, width, height),
      free = places.find(fits) ?? (strong ? places[0] : null);
    if (!free) continue;
    drawn += 1;
    taken.push([free[0] - 2, free[1] - half, free[0] + wide + 2, free[1] + half]);
    halo(pen, text, free[0], free[1], colours.label, colours);
  }
  pen.textBaseline = "alphabetic";
  return drawn;
}

/** The box around a service. */
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
