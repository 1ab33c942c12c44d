// A large mesh as areas: namespaces by their requests, or the services of one. Squarified as in Bruls, Huizing and van Wijk (2000).
import { WORDS, condition, ofScore, shape } from "./conditions.js";
import { el, show } from "./dom.js";
import { textWidth } from "./text.js";
import { nodeLabel } from "./scene.js";
import { metricValue } from "./numbers.js";
import { EVERYTHING, namespace, plural, readable, short } from "./words.js";

const MAX = 500, // areas; the rest is one
  MIN = 1 / 1500, // share of the whole that an area has at least
  READABLE = 1 / 30, // the same of one that is not normal, so that its name is read
  POWER = 0.6, // of the requests: without it, a few busy ones take all the room
  GAP = 2, // pixels between two areas
  LINE = 17, // pixels of a line of text
  INSET = 12, // pixels of an area beside its text
  WORDY = 56; // pixels of width, from which an area has text

/**
 * Rectangles with these areas that fill a rectangle, as square as can be.
 * @param {number[]} weights positive, largest first.
 * @returns {{x: number, y: number, width: number, height: number}[]}
 */
export function squarify(weights, { x, y, width, height }) {
  const scale = (width * height) / weights.reduce((sum, one) => sum + one, 0),
    found = [];
  for (let from = 0; from < weights.length;) {
    const side = Math.min(width, height);
    let to = from,
      sum = 0,
      ratio = Infinity;
    for (; to < weights.length; to++) {
      const more = sum + weights[to] * scale,
        // The longest and the shortest of the row, over its thickness.
        worst = Math.max((side * side * weights[from] * scale) / more ** 2, more ** 2 / (side * side * weights[to] * scale));
      if (worst > ratio) break;
      sum = more;
      ratio = worst;
    }
    const thick = sum / side;
    let along = 0;
    for (; from < to; from++) {
      const long = (weights[from] * scale) / thick;
      found.push(width < height ? { x: x + along, y, width: long, height: thick } : { x, y: y + along, width: thick, height: long });
      along += long;
    }
    if (width < height) [y, height] = [y + thick, height - thick];
    else [x, width] = [x + thick, width - thick];
  }
  return found;
}

/** The view. @param {HTMLElement} place @param {{select: (service: string | null) => void, enter: (namespace: string | null) => void}} on */
export function treemapView(place, on) {
  /** @param {any} scene of scene.js. @param {{width: number, height: number}} stage @returns {{count: number}} areas that are drawn. */
  function draw(scene, stage) {
    const all = (scene.space ? servicesOf(scene) : namespacesOf(scene))
        .filter((one) => !scene.unusual || one.unusual || one.incident || one.isSelected)
        .sort((a, b) => rank(b) - rank(a) || b.rate - a.rate),
      total = all.reduce((sum, one) => sum + one.rate ** POWER, 0) || 1,
      sized = all.slice(0, MAX).map((one) => ({ one, weight: Math.max(one.rate ** POWER / total, rank(one) ? READABLE : MIN) })),
      shown = sized.sort((a, b) => b.weight - a.weight).map(({ one }) => one),
      areas = squarify(
        sized.map(({ weight }) => weight),
        { x: 0, y: 0, ...stage },
      );
    show(
      place,
      shown.length
        ? el("div", { class: "areas" }, ...shown.map((one, k) => area(one, areas[k])))
        : el("p", { class: "no-areas" }, `No ${scene.space ? "service" : "namespace"} is unusual.`),
      all.length > MAX ? el("p", { class: "more-areas" }, `and ${plural(all.length - MAX, "more service")} that are as usual; find one by its name`) : null,
    );
    return { count: shown.length };
  }

  function area(one, { x, y, width, height }) {
    const [wide, tall] = [Math.max(1, width - GAP), Math.max(1, height - GAP)],
      fitting = wide < WORDY ? 0 : Math.floor((tall - 4) / LINE),
      button = el(
        "button",
        {
          type: "button",
          class: `area ${one.of}${one.incident ? " involved" : ""}${one.isSelected ? " selected" : ""}`,
          tabindex: "-1",
          "data-key": `area ${one.name}`,
          "aria-label": [one.name, ...one.lines, WORDS[one.of], one.incident ? "part of an incident" : ""].filter(Boolean).join(", "),
          title: [one.name, ...one.lines].join(", "),
          click: one.open,
        },
        one.of === "normal" || wide < 14 || tall < 14
          ? null
          : el("svg", { class: "mark", width: 14, height: 14, "aria-hidden": "true" }, el("path", { class: "shape", d: shape(one.of, 7, 7, 5) })),
        ...[one.label, ...one.lines.filter((line) => textWidth(line, false, 11) <= wide - INSET)]
          .slice(0, fitting)
          .map((line, k) => el("span", { class: k ? null : "name" }, line)),
      );
    Object.assign(button.style, { left: `${x + GAP / 2}px`, top: `${y + GAP / 2}px`, width: `${wide}px`, height: `${tall}px` });
    return button;
  }

  /** @returns {any[]} */
  function namespacesOf({ map, service, incident }) {
    const { name, services, unusual, silent, requests_per_second: rate, deviation, incident: involved } = map.namespaces,
      first = incident?.suspects[0]?.service;
    return name.map((one, i) => ({
      name: one,
      label: readable(one),
      lines: [
        plural(services[i], "service"),
        ...(first && namespace(first) === one ? [`likely origin ${short(first)}`] : []),
        ...(unusual[i] ? [`${unusual[i]} unusual`] : []),
        ...(silent[i] ? [`${silent[i]} without telemetry`] : []),
        metricValue("requests_per_second", rate[i]),
      ],
      of: stateOfNamespace(i),
      unusual: unusual[i],
      incident: involved[i],
      isSelected: Boolean(service) && namespace(service) === one,
      rate: rate[i],
      open: () => on.enter(one),
    }));

    function stateOfNamespace(i) {
      if (first && namespace(first) === name[i]) return "bad";
      if (silent[i] === services[i] || deviation[i] === null || map.status === "warming_up") return "unknown";
      const of = ofScore(deviation[i], services[i]);
      return involved[i] && of === "normal" ? "unusual" : of;
    }
  }

  /** @returns {any[]} */
  function servicesOf({ map, space, service, incident }) {
    const { nodes, status } = map;
    return [...nodes.name.keys()]
      .filter((i) => namespace(nodes.name[i]) === space)
      .map((i) => ({
        name: nodes.name[i],
        label: nodeLabel(nodes, i),
        lines: [...(incident?.suspects[0]?.service === nodes.name[i] ? ["likely origin"] : []), metricValue("requests_per_second", nodes.requests_per_second[i])],
        of: condition(nodes, i, status, incident),
        unusual: nodes.unusual[i],
        incident: nodes.incident[i],
        isSelected: service === nodes.name[i],
        rate: nodes.requests_per_second[i],
        open: () => on.select(nodes.name[i].endsWith(EVERYTHING) ? null : nodes.name[i]),
      }));
  }

  /** What must be seen, whether it is busy or not. */
  const rank = (one) => (one.incident || one.isSelected ? 2 : one.of === "normal" ? 0 : 1);

  return { draw };
}
