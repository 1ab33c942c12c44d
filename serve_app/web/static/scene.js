// What the views of the graph have in common: the map with the incident and the selection.
import { groupNeighbours } from "./hubs.js";
import { QUIET } from "./severity.js";
import { spread } from "./spread.js";
import { EVERYTHING, namespace, plural, readable, short } from "./words.js";

/**
 * @param {any} next `{mesh, map, incident, service, source, near, space, unusual, labels}`: what to show.
 * @returns {any} the same with `index`, positions of nodes by name; `centre`, the services of the incident and the selection;
 * `path`, the spread; `evidence`, the calls that the reasons of the first suspect are about ("caller callee"). Near an incident, the
 * neighbours of hubs are grouped.
 */
export function sceneOf(next) {
  const whole = withIndex(next),
    scene = next.near && whole.centre.size ? withIndex({ ...next, map: groupNeighbours(next.map, whole.centre) }) : whole;
  return { ...scene, path: spread(next.incident, scene.map.edges, scene.index), evidence: evidence(next.incident) };
}

function withIndex(next) {
  const index = new Map(next.map.nodes.name.map((name, i) => [name, i])),
    { incident, service, source } = next,
    names = [...(incident ? [...incident.suspects.slice(0, 1).map((one) => one.service), ...incident.affected] : []), service, source];
  return { ...next, index, centre: new Set(names.filter((name) => index.has(name)).map((name) => index.get(name))) };
}

function evidence(incident) {
  const [first] = incident?.suspects ?? [];
  const calls = (first?.reasons ?? []).filter((one) => one.source || one.destination);
  return new Set(calls.map((one) => (one.source ? `${one.source} ${first.service}` : `${first.service} ${one.destination}`)));
}

/** Whether a call is unusual, or a reason of the first suspect is about it: new calls have no score yet. */
export function isUnusualCall({ map: { nodes, edges }, evidence: known }, e) {
  return edges.deviation[e] > QUIET || (known.size > 0 && known.has(`${nodes.name[edges.source[e]]} ${nodes.name[edges.destination[e]]}`));
}

/** "cart", "34 normal callers", or "shop: 120 services, 3 unusual". */
export function nodeLabel({ name, services, unusual, hub }, i) {
  if (hub?.[i]) return readable(name[i]);
  if (!name[i].endsWith(EVERYTHING)) return short(name[i]);
  const inside = unusual[i] ? `, ${unusual[i]} unusual` : "";
  return `${readable(namespace(name[i]))}: ${plural(services[i], "service")}${inside}`;
}
