// A crowd: many affected services would fill the graph of an incident, so services of one namespace at the same distance from the origin
// are drawn as one node; of many namespaces, the smaller ones together. The origin, the way from the front door, suspects and what the
// reader selected stay apart.
import { likelySuspects } from "./suspects.js";
import { EVERYTHING, namespace, plural } from "./words.js";

const CROWD = 20, // affected services, up to which each is drawn
  LEAST = 3, // services of a node
  SPACES = 10; // nodes of one namespace each, and services that are drawn one by one beside them

export const MIXED = `*${EVERYTHING}`; // the name of a node of several namespaces

/**
 * @param {any} map nodes and edges in columns.
 * @param {any} incident null: there is none.
 * @param {(string | null)[]} selected names of services that stay apart, too.
 * @returns {any} the map with such nodes, which have a `label`; null: of other nodes.
 */
export function foldCrowd(map, incident, selected) {
  const { nodes } = map;
  if (!incident || incident.affected.length <= CROWD) return map;
  const apart = new Set([...selected, incident.caller, ...likelySuspects(incident).map((one) => one.service), ...(map.ways[incident.id] ?? [])]),
    affected = new Set(incident.affected.filter((name) => !apart.has(name))),
    distance = distances(map, incident),
    crowd = [...nodes.name.keys()].filter((i) => affected.has(nodes.name[i]) && !nodes.gone[i]),
    spaces = grouped(crowd, (i) => `${namespace(nodes.name[i])} ${distance.get(i)}`).filter(isLarge).sort((a, b) => b.length - a.length).slice(0, SPACES),
    others = crowd.filter((i) => !spaces.some((members) => members.includes(i))),
    folded = [...spaces, ...(others.length > SPACES ? grouped(others, (i) => distance.get(i)).filter(isLarge) : [])],
    isFolded = new Set(folded.flat()),
    groups = [...folded, ...[...nodes.name.keys()].filter((i) => !isFolded.has(i)).map((i) => [i])],
    place = []; // in the new map
  groups.forEach((members, k) => members.forEach((i) => (place[i] = k)));
  return { ...map, nodes: joinNodes(nodes, groups, incident.id), ...joinCalls(map, place) };
}

const isLarge = ({ length }) => length >= LEAST;

/** By node, over how many calls an incident spread to it, and in which direction. */
function distances({ edges, spread }, { id }) {
  const { edge, step, is_down: isDown } = spread[id] ?? { edge: [] }; // the archive may have another incident
  return new Map(edge.map((e, k) => [edges[isDown[k] ? "destination" : "source"][e], `${step[k]} ${isDown[k]}`]));
}

/** The columns of nodes that stand for these groups; what the graph does not show of a group is of its first member. */
function joinNodes(nodes, groups, incident) {
  const column = (values, join) => groups.map((members) => (members.length > 1 ? join(members.map((i) => values[i])) : values[members[0]]));
  return {
    ...Object.fromEntries(Object.entries(nodes).map(([name, values]) => [name, column(values, ([first]) => first)])),
    name: column(nodes.name, (names) => (isOneSpace(names) ? namespace(names[0]) + EVERYTHING : MIXED)),
    services: column(nodes.services, sum),
    deviation: column(nodes.deviation, highest),
    incident: groups.map((members) => (members.length > 1 ? incident : nodes.incident[members[0]])), // another one may be worse
    label: groups.map((members) => (members.length > 1 ? labelOf(members.map((i) => nodes.name[i])) : null)),
  };
}

const spacesOf = (names) => [...new Set(names.map(namespace))];
const isOneSpace = (names) => spacesOf(names).length === 1;

/** "17 in shop", "40 in 12 namespaces". */
const labelOf = (names) => `${names.length} in ${isOneSpace(names) ? namespace(names[0]) : plural(spacesOf(names).length, "namespace")}`;

/** The calls between new nodes without those inside of one, and the spread along them. */
function joinCalls({ edges, spread }, place) {
  const { source, destination, requests_per_second: rates, error_rate: errors, deviation } = edges,
    isInside = (e) => place[source[e]] === place[destination[e]] && source[e] !== destination[e],
    groups = grouped([...source.keys()].filter((e) => !isInside(e)), (e) => `${place[source[e]]} ${place[destination[e]]}`),
    at = new Map(groups.flatMap((calls, k) => calls.map((e) => [e, k]))),
    column = (join) => groups.map(join),
    of = (values) => (calls) => calls.map((e) => values[e]);
  return {
    edges: {
      source: column(([e]) => place[source[e]]),
      destination: column(([e]) => place[destination[e]]),
      requests_per_second: column((calls) => sum(of(rates)(calls))),
      error_rate: column((calls) => mean(of(errors)(calls), of(rates)(calls))),
      deviation: column((calls) => highest(of(deviation)(calls))),
    },
    spread: Object.fromEntries(Object.entries(spread).map(([id, one]) => [id, joinSpread(one, at)])),
  };
}

/** The spread along new calls: of several that are one now, the first. */
function joinSpread({ edge, step, is_down: isDown }, at) {
  const hops = [...new Map([...edge.keys()].filter((k) => at.has(edge[k])).reverse().map((k) => [at.get(edge[k]), k]))];
  return { edge: hops.map(([e]) => e), step: hops.map(([, k]) => step[k]), is_down: hops.map(([, k]) => isDown[k]) };
}

/** @param {Iterable<number>} items @param {(one: number) => any} keyOf @returns {number[][]} items of the same key. */
function grouped(items, keyOf) {
  const found = new Map();
  for (const one of items) {
    const key = keyOf(one);
    if (found.has(key)) found.get(key).push(one);
    else found.set(key, [one]);
  }
  return [...found.values()];
}

const known = (values) => values.filter((one) => one !== null);
const sum = (values) => (known(values).length ? known(values).reduce((all, one) => all + one, 0) : null);
const highest = (values) => (known(values).length ? Math.max(...known(values)) : null);

/** The mean of the shares that are known, by their weights; null: none is. */
function mean(shares, weights) {
  const seen = [...shares.keys()].filter((i) => shares[i] !== null && weights[i]);
  return seen.length ? sum(seen.map((i) => shares[i] * weights[i])) / sum(seen.map((i) => weights[i])) : null;
}
