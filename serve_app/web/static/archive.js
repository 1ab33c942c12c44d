// A moment from before the live window, from the archive: the graph, what was known of the mesh, and a service around it.
import * as feed from "./feed.js";
import { nearest } from "./series.js";
import { ends } from "./words.js";

const MAX_INCIDENTS = 5; // that are loaded with a moment
const POINTS = 360; // of a chart
const WITHIN_SECONDS = 600; // a moment is a mean of at most this
const SERVICE_METRICS = ["request_rate", "error_rate"];

const iso = (s) => new Date(1000 * s).toISOString();

/** "1-minute means": how coarse the archive is at a moment. */
export const coarseness = (/** @type {number} */ step) => (step < 60 ? `${step}-second means` : `${Math.round(step / 60)}-minute means`);

/** The map of a past moment, and a verdict with what the archive holds; `archived`: the seconds that its means cover. An
 * incident that was open in some of these seconds is in it. */
export async function archivedMoment(mesh, at, expand) {
  const map = await feed.rangeGraph(mesh, at, expand),
    s = ends(map.observed_at),
    until = s + map.step_seconds,
    around = await feed.range(mesh, { start: iso(s - WITHIN_SECONDS), end: iso(until + WITHIN_SECONDS), points: 2 }),
    open = around.incidents.filter((one) => ends(one.first) < until && s <= ends(one.last)),
    incidents = await Promise.all(open.slice(0, MAX_INCIDENTS).map((one) => feed.incidentDetail(mesh, one.id).catch(() => withoutDetail(one))));
  const suspects = incidents[0]?.suspects ?? [];
  const verdict = {
    observed_at: map.observed_at,
    status: map.status,
    coverage: null, // the archive does not say
    silence: null,
    reconstruction: null,
    muted: [],
    suspects,
    incidents: incidents.map((one) => ({ ...one, recovering: false })),
    archived: map.step_seconds,
  };
  return [map, verdict];
}

/** An incident of which the archive keeps only that it was open. */
function withoutDetail({ id, kind, severity, service, first }) {
  const title = service ?? id;
  return { id, kind, severity, since: first, title, headline: `${title} deviates.`, suspects: [], affected: service ? [service] : [], changes: [], events: [], impact: null };
}

/** The metrics of a service, or of the calls to it, over a range, in the form of the charts of a panel. */
export async function chartsOf(mesh, service, source, { start, end }) {
  const answer = await feed.range(mesh, { start, end, points: POINTS, service, source }),
    unknown = answer.observed_at.map(() => null);
  return {
    times: answer.observed_at,
    step: answer.step_seconds,
    score: answer.service?.score ?? unknown,
    metrics: Object.entries(answer.service?.metrics ?? {}).map(([metric, { values, expected: usual }]) => ({
      metric,
      observed: values,
      expected: unknown,
      low: usual?.low ?? unknown,
      high: usual?.high ?? unknown,
    })),
    incidents: answer.incidents.filter((one) => one.service === service).map((one) => ({ ...one, since: one.first })),
    changes: answer.changes.filter((one) => [service, source].includes(one.service)),
  };
}

/** A past moment of a service in the form of its details, from its charts and the map of the moment. */
export function archivedDetails(service, source, map, charts) {
  const { times, step, metrics, score } = charts,
    at = ends(map.observed_at),
    i = nearest(times, at),
    value = (metric) => metrics.find((one) => one.metric === metric)?.observed[i] ?? null,
    rate = value(source ? "requests_per_second" : SERVICE_METRICS[0]),
    isKnown = metrics.some(({ observed }) => observed[i] !== null),
    row = map.nodes.name.indexOf(service),
    measured = times.findLast((_, t) => t <= i && metrics.some(({ observed }) => observed[t] !== null)) ?? null;
  return {
    service,
    source,
    observed_at: times[i] ?? map.observed_at,
    interval_seconds: step,
    state: isKnown ? "scored" : row < 0 ? "absent" : "silent",
    measured_at: measured,
    requests: rate === null ? null : rate * step,
    deviation: score[i] ?? map.nodes.deviation[row] ?? null,
    times,
    metrics,
    signals: {},
    neighbours_at: map.observed_at,
    ...neighbours(map, row, step, source),
    changes: charts.changes,
    events: [],
    incidents: charts.incidents.map((one) => ({ ...one, headline: "", role: "first_suspect", open: ends(one.first) <= at && at <= ends(one.last) })),
    muted: [],
    links: {},
  };
}

/** Callers and callees of a node of the map. */
function neighbours({ nodes, edges }, row, step, source) {
  const side = (mine, theirs) =>
    source
      ? []
      : edges[mine].flatMap((node, i) =>
          node === row
            ? [
                {
                  service: nodes.name[edges[theirs][i]],
                  requests_per_second: edges.requests_per_second[i],
                  requests: (edges.requests_per_second[i] ?? 0) * step,
                  error_rate: edges.error_rate[i],
                  p99_latency: null,
                  deviation: edges.deviation[i],
                },
              ]
            : [],
        );
  const callers = side("destination", "source"),
    callees = side("source", "destination");
  return { callers, callers_total: callers.length, callees, callees_total: callees.length };
}
