// The content of the graph as a table: services or folded namespaces with their state, score and calls, the worst first.
import { WORDS, condition } from "./conditions.js";
import { el } from "./dom.js";
import { nodeLabel } from "./scene.js";
import { originText } from "./suspects.js";
import { figures, metricValue } from "./numbers.js";
import { EVERYTHING, namespace, plural } from "./words.js";

const MOST_ROWS = 200,
  MOST_NAMED = 4; // callers or callees of a row that are named
const ORDER = ["gone", "bad", "unusual", "unknown", "normal"];

/** @param {any} scene of scene.js. @param {{select: (service: string) => void, expand: (namespace: string) => void}} on */
export function servicesTable(scene, on) {
  const { nodes, status } = scene.map,
    calls = callsOf(scene.map),
    isFirst = (i) => scene.incident?.suspects[0]?.service === nodes.name[i],
    rows = [...nodes.name.keys()]
      .filter((i) => !scene.space || namespace(nodes.name[i]) === scene.space)
      .map((i) => ({ i, of: condition(nodes, i, status, scene.incident) }))
      .sort((a, b) => Number(isFirst(b.i)) - Number(isFirst(a.i)) || ORDER.indexOf(a.of) - ORDER.indexOf(b.of) || (nodes.deviation[b.i] ?? 0) - (nodes.deviation[a.i] ?? 0)),
    head = ["Service", "State", "Score", "Requests", "Errors", "Called by", "Calls"].map((text) => el("th", { scope: "col" }, text)),
    more = rows.length - MOST_ROWS;
  return el(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": "Table of the graph" },
    el(
      "table",
      {},
      el("thead", {}, el("tr", {}, ...head)),
      el("tbody", {}, ...rows.slice(0, MOST_ROWS).map(row)),
    ),
    more > 0 ? el("p", { class: "affected" }, `and ${plural(more, "more service")} that are less unusual; find one by its name`) : null,
  );

  function row({ i, of }) {
    const name = nodes.name[i],
      isFolded = name.endsWith(EVERYTHING),
      { rate, errors, callers, callees } = calls.get(i) ?? { rate: null, errors: null, callers: [], callees: [] },
      open = el("button", { type: "button", class: "plain", "data-key": `table ${name}`, click: () => (isFolded ? on.expand(namespace(name)) : on.select(name)) }, isFolded ? nodeLabel(nodes, i) : name);
    const named = (list) =>
      list.length ? [...list.slice(0, MOST_NAMED).map((k) => nodeLabel(nodes, k)), ...(list.length > MOST_NAMED ? [`${list.length - MOST_NAMED} more`] : [])].join(", ") : "none";
    return el(
      "tr",
      {},
      el("th", { scope: "row" }, open),
      el("td", {}, [WORDS[of], originText(scene.incident, name)].filter(Boolean).join(", ")),
      el("td", { class: "n" }, nodes.deviation[i] === null ? "not scored" : figures(nodes.deviation[i])),
      el("td", { class: "n" }, metricValue("requests_per_second", rate)),
      el("td", { class: "n" }, metricValue("error_rate", errors)),
      el("td", {}, named(callers)),
      el("td", {}, named(callees)),
    );
  }
}

/** The calls of each node: rate and errors of those that it receives, its callers and callees. */
function callsOf({ edges }) {
  const found = new Map(),
    of = (i) => found.get(i) ?? found.set(i, { rate: null, failed: null, errors: null, callers: [], callees: [] }).get(i);
  edges.source.forEach((source, e) => {
    const destination = edges.destination[e],
      rate = edges.requests_per_second[e],
      errors = edges.error_rate?.[e],
      there = of(destination);
    if (source !== destination) {
      of(source).callees.push(destination);
      there.callers.push(source);
    }
    if (rate === null) return;
    there.rate = (there.rate ?? 0) + rate;
    if (errors !== null && errors !== undefined) there.failed = (there.failed ?? 0) + rate * errors;
  });
  for (const one of found.values()) if (one.failed !== null && one.rate) one.errors = one.failed / one.rate;
  return found;
}
