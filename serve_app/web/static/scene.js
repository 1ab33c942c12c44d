// What the views of the graph have in common: the map with the incident and the selection.
import { QUIET } from "./severity.js";
import { originOf } from "./suspects.js";
import { EVERYTHING, namespace, plural, readable, short } from "./words.js";

const NEW = ["new_calls", "moved_calls"]; // metrics of reasons about calls that were not made before

/**
 * @param {any} next `{mesh, map, incident, service, source, near, space, labels}`: what to show.
 * @returns {any} the same with `index`, positions of nodes by name; `centre`, the services of the incident and the selection;
 * `path`, the spread; `evidence`, the calls that the reasons of the first suspect are about ("caller callee"); `newCalls`, the same of
 * calls that were not made before; `originCall`, the position of the calls that are the likely origin; undefined: it is a service;
 * `shared`, names that several services around the suspects have, in different namespaces.
 */
export function sceneOf(next) {
  const scene = withIndex(next),
    { incident } = next,
    [first] = incident?.suspects ?? [];
  return {
    ...scene,
    path: hopsOf(scene.map.spread?.[incident?.id]),
    evidence: callsOf(first ? [first] : []),
    newCalls: callsOf(incident?.suspects ?? [], NEW),
    originCall: originCall(scene),
    shared: next.near ? sharedNames(scene) : new Set(), // the whole mesh shows its namespaces
  };
}

/** The calls along which an incident spread: `{edge, step, isDown}`. */
const hopsOf = ({ edge, step, is_down } = { edge: [], step: [], is_down: [] }) => edge.map((e, i) => ({ edge: e, step: step[i], isDown: is_down[i] }));

function withIndex(next) {
  const index = new Map(next.map.nodes.name.map((name, i) => [name, i])),
    { incident, service, source } = next,
    { name, incident: of } = next.map.nodes,
    names = [...originOf(incident).services, ...(incident?.affected ?? []), service, source],
    folded = [...name.keys()].filter((i) => incident && of[i] === incident.id && name[i].endsWith(EVERYTHING));
  return { ...next, index, centre: new Set([...names.map((one) => index.get(one)).filter((i) => i !== undefined), ...folded]) };
}

/** The calls that reasons of suspects are about, of all metrics or of these: "caller callee". */
function callsOf(suspects, metrics = null) {
  const calls = suspects.flatMap(({ service, reasons }) =>
    reasons
      .filter((one) => (one.source || one.destination) && (!metrics || metrics.includes(one.metric)))
      .map((one) => (one.source ? `${one.source} ${service}` : `${service} ${one.destination}`)),
  );
  return new Set(calls);
}

function originCall({ map: { edges }, index, incident }) {
  const { service, caller } = originOf(incident),
    [from, to] = [index.get(caller), index.get(service)],
    found = caller && from !== undefined ? edges.source.findIndex((source, e) => source === from && edges.destination[e] === to) : -1;
  return found < 0 ? undefined : found;
}

const isOneOf = (calls, { nodes, edges }, e) => calls.size > 0 && calls.has(`${nodes.name[edges.source[e]]} ${nodes.name[edges.destination[e]]}`);

/** Whether a reason of the first suspect is about a call. */
const isEvidence = ({ map, evidence }, e) => isOneOf(evidence, map, e);

/** Whether a call is unusual, or a reason of the first suspect is about it: new calls have no score yet. */
export const isUnusualCall = (scene, e) => (scene.map.status !== "warming_up" && scene.map.edges.deviation[e] > QUIET) || isEvidence(scene, e);

/** Whether a suspect makes or gets a call that was not made before. */
export const isNewCall = ({ map, newCalls }, e) => isOneOf(newCalls, map, e);

function sharedNames({ map: { nodes, edges }, centre }) {
  const isNear = (/** @type {number} */ e) => centre.has(edges.source[e]) || centre.has(edges.destination[e]),
    calls = [...edges.source.keys()].filter(isNear),
    around = new Set([...centre, ...calls.flatMap((e) => [edges.source[e], edges.destination[e]])]),
    names = [...around].map((i) => short(nodes.name[i]));
  return new Set(names.filter((one, k) => names.indexOf(one) !== k));
}

/** "cart", "shop/cart" if another namespace has one, "shop: 120 services, 3 unusual", or the label of a crowd. */
export function nodeLabel({ map: { nodes }, shared }, i) {
  const { name, services, unusual, label } = nodes;
  if (!name[i].endsWith(EVERYTHING)) return shared.has(short(name[i])) ? readable(name[i]) : short(name[i]);
  if (label?.[i]) return readable(label[i]);
  const inside = unusual[i] ? `, ${unusual[i]} unusual` : "";
  return `${readable(namespace(name[i]))}: ${plural(services[i], "service")}${inside}`;
}
