// How an incident spreads: from the first suspect to who calls it, through services that it affects or that are strange.

export const QUIET = 3; // decades of improbability: up to here a service is as usual

/**
 * @param incident of a verdict.
 * @param map nodes and edges in columns.
 * @param index node position by name.
 * @returns steps in order: {edge, step}; step 1 are the callers of the suspect.
 */
export function spread(incident, { nodes, edges }, index) {
  const first = incident?.suspects[0]?.service;
  if (first === undefined || !index.has(first)) return [];
  const inside = new Set(
    [first, ...incident.affected].filter((name) => index.has(name)).map((name) => index.get(name)),
  );
  nodes.deviation.forEach((deviation, i) => {
    if (deviation > QUIET) inside.add(i);
  });
  const callers = new Map();
  edges.source.forEach((source, edge) => {
    const destination = edges.destination[edge];
    if (source === destination || !inside.has(source) || !inside.has(destination)) return;
    if (!callers.has(destination)) callers.set(destination, []);
    callers.get(destination).push([source, edge]);
  });
  const reached = new Map([[index.get(first), 0]]);
  const found = [];
  const queue = [index.get(first)];
  for (const node of queue) {
    for (const [caller, edge] of callers.get(node) ?? []) {
      if (reached.has(caller) && reached.get(caller) <= reached.get(node)) continue;
      if (!reached.has(caller)) {
        reached.set(caller, reached.get(node) + 1);
        queue.push(caller);
      }
      found.push({ edge, step: reached.get(caller) });
    }
  }
  return found;
}
