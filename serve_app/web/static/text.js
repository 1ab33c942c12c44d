// Texts in pictures: how wide they are, and where they have room.
const SIZE = 12,
  CACHED = 5000,
  FONT = "system-ui, sans-serif";
const ruler = document.createElement("canvas").getContext("2d"),
  widths = new Map(); // pixels of a text in a font

/** The width of a text in pixels. */
export function textWidth(text, bold = false, size = SIZE) {
  const font = `${bold ? "bold " : ""}${size}px ${FONT}`,
    key = `${font} ${text}`;
  let wide = widths.get(key);
  if (wide === undefined) {
    if (widths.size >= CACHED) widths.clear();
    ruler.font = font;
    wide = ruler.measureText(text).width;
    widths.set(key, wide);
  }
  return wide;
}

/** The text, or its beginning and end if it is too wide. */
export function fit(text, room, bold) {
  if (textWidth(text, bold) <= room) return text;
  const letters = [...text];
  for (let kept = letters.length - 1; kept > 1; kept--) {
    const begin = Math.ceil(0.6 * kept),
      cut = `${letters.slice(0, begin).join("")}…${letters.slice(letters.length - kept + begin).join("")}`;
    if (textWidth(cut, bold) <= room) return cut;
  }
  return "…";
}

/** The box around a point. */
export const boxAround = ({ x, y }, width, height) => ({ left: x - width / 2, top: y - height / 2, right: x + width / 2, bottom: y + height / 2 });

/** Whether a box overlaps none of the others. */
export const isFree = (box, others) =>
  others.every((one) => box.right < one.left || box.left > one.right || box.bottom < one.top || box.top > one.bottom);
