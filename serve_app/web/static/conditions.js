// The condition of a service, or the worst in a namespace: a class of the style sheet, a shape and words. No colour stands alone.
import { el } from "./dom.js";
import { BAD, QUIET, isUnseen } from "./severity.js";
import { originOf } from "./suspects.js";

/** What a condition is called, by its class. */
export const WORDS = { normal: "normal", unusual: "unusual", bad: "very unusual", unknown: "unknown", gone: "disappeared" };

const CALLS = {
  origin: "likely origin",
  spread: "spread from it, in steps with numbers",
  unusual: "unusual calls",
  new: "new calls",
};

/**
 * @param {any} nodes of a map, in columns.
 * @param {number} i position of a node.
 * @param {string} status of the map.
 * @param {any} incident in view; null: none.
 * @returns {"normal" | "unusual" | "bad" | "unknown" | "gone"}
 */
export function condition(nodes, i, status, incident) {
  if (nodes.gone[i]) return "gone";
  const { services, caller } = originOf(incident),
    isFirst = services.includes(nodes.name[i]),
    isOfIncident = isFirst || nodes.incident[i],
    score = nodes.deviation[i];
  if (isOfIncident) {
    if (nodes.silent[i] && incident && isUnseen(incident)) return "unknown";
    if (isFirst && caller) return "normal"; // only the calls from there are not
    return isFirst || score >= BAD ? "bad" : "unusual";
  }
  if (nodes.silent[i] || score === null || status === "warming_up") return "unknown";
  return ofScore(score, nodes.services[i]);
}

/** The condition of so many services by their highest anomaly score, which is higher by chance: by one (log10) for ten services. */
function ofScore(score, services) {
  const fair = score - Math.log10(services);
  return fair <= QUIET ? "normal" : fair < BAD ? "unusual" : "bad";
}

/** What the shapes and lines mean that are drawn in a place. */
export function legend(place) {
  const key = (content, text) => el("span", {}, el("svg", { class: "graph", width: 20, height: 14 }, content), text),
    services = Object.entries(WORDS).filter(([of]) => place.querySelector(`.service.${of}`)).map(([of, text]) => key(el("g", { class: `service ${of}` }, el("path", { class: "shape", d: shape(of, 10, 7, 5) })), text)),
    calls = Object.entries(CALLS).filter(([look]) => place.querySelector(look === "origin" ? ".origin, .first" : `.call.${look}`)).map(([look, text]) => key(el("g", { class: `call ${look}` }, el("path", { class: "line", d: "M1 7H19" })), text));
  return [...services, ...calls];
}

/** The outline of a condition as a path: a circle, a triangle for unusual, a diamond for very unusual. */
export function shape(of, x, y, radius) {
  if (of === "unusual") return `M${x} ${y - 1.15 * radius}l${1.15 * radius} ${2 * radius}h${-2.3 * radius}z`;
  if (of === "bad") return `M${x} ${y - 1.3 * radius}l${1.3 * radius} ${1.3 * radius} ${-1.3 * radius} ${1.3 * radius} ${-1.3 * radius} ${-1.3 * radius}z`;
  return `M${x - radius} ${y}a${radius} ${radius} 0 1 0 ${2 * radius} 0a${radius} ${radius} 0 1 0 ${-2 * radius} 0z`;
}
