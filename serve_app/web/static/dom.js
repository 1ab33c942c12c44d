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
    if (typeof value === "function") listen(element, name, value);
    else element.setAttribute(name, value === true ? "" : READ.has(name) ? readable(String(value)) : value);
  }
  const shown = children.filter((child) => child !== null && child !== undefined);
  element.append(...shown.map((child) => (typeof child === "string" ? readable(child) : child)));
  return element;
}

/** What failed, and a button that tries again. */
export const failure = (text, key, retry) =>
  el("p", { class: "failed", role: "alert" }, `${text} `, el("button", { type: "button", "data-key": `retry ${key}`, click: retry }, "Try again"));

const actions = new WeakMap(); // of elements with listeners: what each kind of event does

/** Do something at a kind of event, instead of what was done before. */
function listen(element, name, action) {
  const known = actions.get(element) ?? {};
  actions.set(element, known);
  if (!(name in known)) element.addEventListener(name, (event) => known[name](event));
  known[name] = action;
}

const SVG = new Set(["circle", "ellipse", "g", "path", "rect", "text", "title"]);

/** The element with an id, untyped. */
export const by = (/** @type {string} */ id) => /** @type {any} */ (document.getElementById(id));

/** Show `children` in `place`. Equal elements stay, so that a focused button stays focused; they do what the new ones do. */
export function show(place, ...children) {
  const next = el("div", {}, ...children);
  if (place.innerHTML === next.innerHTML) {
    adopt([...place.querySelectorAll("*")], [...next.querySelectorAll("*")]);
    return;
  }
  const active = /** @type {HTMLElement} */ (document.activeElement);
  const focused = place.contains(active) ? active.dataset.key : null;
  place.replaceChildren(...next.childNodes);
  if (focused) place.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus();
}

/** Let elements do what equal new ones do: the data behind a button may be newer than its text. */
function adopt(shown, next) {
  next.forEach((one, i) => {
    for (const [name, action] of Object.entries(actions.get(one) ?? {})) listen(shown[i], name, action);
  });
}

/** A colour of the style sheet, for canvases. */
export const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
