// Elements without HTML as text: names come from strangers.

/** An element: `el("p", {class: "why"}, "text", child)`; properties that are functions are listeners. */
export function el(tag, properties = {}, ...children) {
  const made =
    tag === "svg" || SVG.has(tag)
      ? document.createElementNS("http://www.w3.org/2000/svg", tag)
      : document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") made.addEventListener(name, value);
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

const SVG = new Set(["path", "text", "rect", "title"]);

/** The element of an id, of whatever kind it is. */
export const by = (/** @type {string} */ id) => /** @type {any} */ (document.getElementById(id));

/** Show `children` in `place`, unless they read the same as what is there: a focused button stays focused. */
export function show(place, ...children) {
  const next = el("div", {}, ...children);
  if (place.innerHTML === next.innerHTML) return;
  const active = /** @type {HTMLElement} */ (document.activeElement);
  const focused = place.contains(active) ? active.dataset.key : null;
  place.replaceChildren(...next.childNodes);
  if (focused) place.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus();
}

/** The value of a colour of the style sheet, for canvases. */
export const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
