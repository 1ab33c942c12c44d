// Builds elements without HTML as text, because names come from other systems. People see original names instead of ids.
import { readable } from "./words.js";

const READ = new Set(["title", "aria-label", "aria-description", "alt", "placeholder"]); // properties that people read

/** An element: `el("p", {class: "why"}, "text", child)`; properties that are functions are listeners. */
export function el(tag, properties = {}, ...children) {
  const element =
    tag === "svg" || SVG.has(tag)
      ? document.createElementNS("http://www.w3.org/2000/svg", tag)
      : document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") element.addEventListener(name, value);
    else element.setAttribute(name, value === true ? "" : READ.has(name) ? readable(String(value)) : value);
  }
  const shown = children.filter((child) => child !== null && child !== undefined);
  element.append(...shown.map((child) => (typeof child === "string" ? readable(child) : child)));
  return element;
}

const SVG = new Set(["circle", "g", "path", "rect", "text", "title"]);

/** The element with an id, untyped. */
export const by = (/** @type {string} */ id) => /** @type {any} */ (document.getElementById(id));

/** Show `children` in `place`. Nothing changes if they are equal, so that a focused button stays focused. */
export function show(place, ...children) {
  const next = el("div", {}, ...children);
  if (place.innerHTML === next.innerHTML) return;
  const active = /** @type {HTMLElement} */ (document.activeElement);
  const focused = place.contains(active) ? active.dataset.key : null;
  place.replaceChildren(...next.childNodes);
  if (focused) place.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus();
}

/** A colour of the style sheet, for canvases. */
export const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
