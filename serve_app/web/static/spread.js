// How an incident spreads: from its first suspect to its callers, and on; then to callees. The same as graph/propagation.py.

/**
 * Breadth first through affected services only: against the direction of calls, then along it to the remaining ones. Each
 * service is reached by the shortest path; of several, by the busiest call.
 * @param {any} incident of a verdict.
 * @param {any} edges of a map: columns.
 * @param {Map<string, number>} index node position by name.
 * @returns {{edge: number, step: number, isDown: boolean}[]} callers in order, from the callers of the suspect (step 1); then callees.
 */
export function spread(incident, edges, index) {
  const first = index.get(incident?.suspects[0]?.service);
  if (first === undefined) return [];
  const inside = new Set([first, ...incident.affected.map((name) => index.get(name))]);
  const callers = new Map(),
    callees = new Map();
  edges.source.forEach((source, edge) => {
    const destination = edges.destination[edge];
    if (!inside.has(source) || !inside.has(destination)) return;
    callers.set(destination, [...(callers.get(destination) ?? []), edge]);
    callees.set(source, [...(callees.get(source) ?? []), edge]);
  });
  const rate = (edge) => edges.requests_per_second[edge] ?? 0;
  const step = new Map([[first, 0]]);
  const found = [];
  const walk = (calls, ends, isDown) => {
    for (let at = 0, front = [first]; front.length; at++, front = [...step.keys()].filter((one) => step.get(one) === at))
      for (const from of front)
        for (const edge of (calls.get(from) ?? []).sort((a, b) => rate(b) - rate(a))) {
          if (step.has(ends[edge])) continue;
          step.set(ends[edge], at + 1);
          found.push({ edge, step: at + 1, isDown });
        }
  };
  walk(callers, edges.source, false);
  walk(callees, edges.destination, true);
  return found;
}
