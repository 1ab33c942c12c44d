// How an incident spreads: from its first suspect to its callers, and on; as graph/propagation.py does for reports.

/**
 * Breadth first against the direction of calls, through affected services only. Each service is reached by the shortest
 * path; of several, by the busiest call.
 * @param {any} incident of a verdict.
 * @param {any} edges of a map: columns.
 * @param {Map<string, number>} index node position by name.
 * @returns {{edge: number, step: number}[]} steps in order; step 1 are the callers of the suspect.
 */
export function spread(incident, edges, index) {
  const first = index.get(incident?.suspects[0]?.service);
  if (first === undefined) return [];
  const inside = new Set([first, ...incident.affected.map((name) => index.get(name))]);
  const callers = new Map();
  edges.source.forEach((source, edge) => {
    const destination = edges.destination[edge];
    if (!inside.has(source) || !inside.has(destination)) return;
    callers.set(destination, [...(callers.get(destination) ?? []), edge]);
  });
  const rate = (edge) => edges.requests_per_second[edge] ?? 0;
  const step = new Map([[first, 0]]);
  const found = [];
  for (const callee of step.keys()) {
    // grows as callers are reached
    for (const edge of (callers.get(callee) ?? []).sort((a, b) => rate(b) - rate(a))) {
      const caller = edges.source[edge];
      if (step.has(caller)) continue;
      step.set(caller, step.get(callee) + 1);
      found.push({ edge, step: step.get(caller) });
    }
  }
  return found;
}
