// Normal callers of an incident that have no part in it are one counted node, and so are callees. Else a hub fills the graph.

import { QUIET } from "./severity.js";
import { plural } from "./words.js";

const FROM = 12; // nodes, from which they are one

/**
 * The map with such nodes.
 * @param {any} map nodes and edges in columns.
 * @param {Set<number>} centre the services of the incident, and the selected one.
 * @returns {any} the map; its nodes also have `hub`, the service of the incident with most calls of a group; null: no group.
 */
export function groupNeighbours(map, centre) {
  const { nodes } = map,
    groups = Object.entries(sidesOf(map, centre)).filter(([, members]) => members.length >= FROM),
    into = nodes.name.map((_, i) => i);
  const added = groups.map(([side, members], k) => {
    for (const i of members) into[i] = nodes.name.length + k;
    return { members, name: title(nodes, members, side), hub: nodes.name[busiest(map.edges, new Set(members), centre)] };
  });
  const kept = [...nodes.name.keys()].filter((i) => into[i] === i),
    row = new Map([...kept, ...added.map((_, k) => nodes.name.length + k)].map((i, at) => [i, at]));
  return { ...map, nodes: mergeNodes(nodes, kept, added), edges: mergeEdges(map.edges, into.map((i) => row.get(i))) };
}

/** Normal nodes that only call services of the incident, and nodes that are only called by them. */
function sidesOf({ nodes, edges }, centre) {
  const calls = new Set(),
    isCalled = new Set(),
    unusual = new Set();
  edges.source.forEach((source, e) => {
    const destination = edges.destination[e];
    if (centre.has(destination)) calls.add(source);
    if (centre.has(source)) isCalled.add(destination);
    if (edges.deviation[e] > QUIET) unusual.add(source).add(destination);
  });
  const isPlain = (i) =>
    !centre.has(i) && !unusual.has(i) && !nodes.unusual[i] && !nodes.incident[i] && !nodes.gone[i] && !(nodes.deviation[i] > QUIET && nodes.services[i] === 1);
  return {
    callers: [...calls].filter((i) => isPlain(i) && !isCalled.has(i)),
    callees: [...isCalled].filter((i) => isPlain(i) && !calls.has(i)),
  };
}

/** "52 normal callees", or "52 normal callees, 9 namespaces". */
function title(nodes, members, side) {
  const folded = members.filter((i) => nodes.services[i] > 1).length,
    alone = members.length - folded;
  return [alone ? `${alone} normal ${side}` : "", folded ? `${plural(folded, "namespace")}` : ""].filter(Boolean).join(", ");
}

/** The service of the incident with most calls of a group. */
function busiest(edges, members, centre) {
  const count = new Map();
  edges.source.forEach((source, e) => {
    const destination = edges.destination[e];
    for (const [one, other] of [
      [source, destination],
      [destination, source],
    ])
      if (centre.has(one) && members.has(other)) count.set(one, (count.get(one) ?? 0) + 1);
  });
  return [...count].reduce((a, b) => (b[1] > a[1] ? b : a))[0];
}

function mergeNodes(nodes, kept, added) {
  const columns = Object.entries(nodes).map(([name, values]) => [
    name,
    [...kept.map((i) => values[i]), ...added.map(({ members }) => values[members[0]])],
  ]);
  const merged = Object.fromEntries(columns),
    of = (column, f) => merged[column].splice(kept.length, added.length, ...added.map(f));
  of("name", ({ name }) => name);
  of("services", ({ members }) => members.reduce((all, i) => all + nodes.services[i], 0));
  of("deviation", ({ members }) => largest(members.map((i) => nodes.deviation[i])));
  of("silent", ({ members }) => members.every((i) => nodes.silent[i]));
  return { ...merged, hub: [...kept.map(() => null), ...added.map(({ hub }) => hub)] };
}

/** Calls between the same two nodes become one: rates are added, errors weighted. Calls within a group are left out. */
function mergeEdges(edges, position) {
  const found = new Map();
  edges.source.forEach((from, e) => {
    const source = position[from],
      destination = position[edges.destination[e]];
    if (source === destination && from !== edges.destination[e]) return;
    const key = `${source} ${destination}`;
    if (!found.has(key)) found.set(key, { source, destination, calls: [] });
    found.get(key).calls.push(e);
  });
  const all = [...found.values()],
    column = (f) => all.map(({ calls }) => (calls.length === 1 ? null : f(calls)));
  const one = (name, merged) => all.map(({ calls }, k) => (calls.length === 1 ? (edges[name]?.[calls[0]] ?? null) : merged[k]));
  const rate = (e) => edges.requests_per_second[e];
  return {
    source: all.map(({ source }) => source),
    destination: all.map(({ destination }) => destination),
    requests_per_second: one("requests_per_second", column((calls) => sum(calls.map(rate)))),
    error_rate: one("error_rate", column((calls) => mean(calls.map((e) => edges.error_rate?.[e] ?? null), calls.map(rate)))),
    deviation: one("deviation", column((calls) => largest(calls.map((e) => edges.deviation[e])))),
  };
}

const isKnown = (x) => x !== null && x !== undefined;
const largest = (values) => (values.some(isKnown) ? Math.max(...values.filter(isKnown)) : null);
const sum = (values) => (values.some(isKnown) ? values.filter(isKnown).reduce((a, b) => a + b, 0) : null);

/** The mean of known shares, weighted; null: there is none. */
function mean(shares, weights) {
  const known = [...shares.keys()].filter((i) => isKnown(shares[i]) && weights[i] > 0),
    total = sum(known.map((i) => weights[i]));
  return total ? sum(known.map((i) => shares[i] * weights[i])) / total : null;
}
