// One incident of the archive as it was at its highest score: facts, suspects with charts, the graph around it.
import { el } from "./dom.js";
import * as feed from "./feed.js";
import { feedbackView } from "./feedback.js";
import { runs } from "./series.js";
import { BAD, QUIET } from "./severity.js";
import { changeLine, nextStep, seenBefore } from "./incident_lines.js";
import { measuredMetric, reasonText, subjectOf } from "./reasons.js";
import { likelySuspects, originOf } from "./suspects.js";
import { between, clock, clockOrDay, date, ends, figures, incidentTitle, isOfScope, kind, lasted, metricName, metricValue, plural, scoreText, shareText, short, span, time } from "./words.js";

const CHARTED = 2; // suspects with charts
const CHARTS = 2; // of each of them
const MOST_DRAWN = 40; // services in the graph
const WIDTH = 360,
  HEIGHT = 64,
  LOW = 12; // of a chart, pixels
const COLUMN = 190,
  NARROWEST = 110, // a column on a phone
  BESIDE = 60, // the graph, on both sides together
  ROW = 34; // of the graph, pixels
const LETTER = 6.5; // pixels

/**
 * A part of the page that loads an incident once and draws it.
 * @param {{ask: (question: import("./decision.js").Question) => void, changed: () => void}} on ask: opens the dialog for a
 * decision. changed: called after feedback.
 */
export function archivedIncident(on) {
  const feedback = feedbackView(on.ask);
  let loaded = { key: "", answer: null, failed: null };

  /** Return the incident; `redraw` is called when more of it has been loaded. */
  function draw(mesh, id, canWrite, redraw) {
    const key = `${mesh} ${id}`;
    if (loaded.key !== key) load(mesh, id, key, redraw);
    if (loaded.failed) return el("p", { class: "failed", role: "alert" }, loaded.failed);
    if (!loaded.answer) return el("p", { role: "status" }, "Loading the incident");
    const { incident } = loaded.answer,
      at = {
        mesh,
        canWrite,
        given: incident.feedback,
        accepted: incident.accepted,
        isOpen: !incident.until,
        changed: () => reload(mesh, id, redraw),
      };
    return whole(mesh, loaded.answer, {
      row: feedback.row(incident, at),
      culpritButton: (service) => feedback.culpritButton(incident, service, at),
    });
  }

  /** Load the incident again after feedback; the rest of it stays the same. */
  async function reload(mesh, id, redraw) {
    const { key, answer } = loaded,
      incident = await feed.incidentDetail(mesh, id);
    if (loaded.key === key && answer) loaded = { key, answer: { ...answer, incident }, failed: null };
    on.changed();
    redraw();
  }

  async function load(mesh, id, key, redraw) {
    loaded = { key, answer: null, failed: null };
    try {
      const [incident, graph] = await Promise.all([feed.incidentDetail(mesh, id), feed.incidentGraph(mesh, id)]);
      const wanted = incident.suspects
        .slice(0, CHARTED)
        .flatMap((one) => one.reasons.slice(0, CHARTS).map((reason) => subjectOf(one.service, reason)));
      const answers = await Promise.all(
        wanted.map(([service, source]) => feed.incidentSeries(mesh, id, service, source).catch(() => null)),
      );
      const series = new Map(wanted.map((one, i) => [one.join(" "), answers[i]]));
      if (loaded.key === key) loaded = { key, answer: { incident, graph, series }, failed: null };
    } catch (error) {
      if (loaded.key === key) loaded = { key, answer: null, failed: error.message };
    }
    redraw();
  }

  return { draw };
}

/** @param {{row: any[], culpritButton: (service: string) => any}} feedback what people say about it, and buttons to say it. */
function whole(mesh, { incident, graph, series }, feedback) {
  const { scores } = incident;
  return el(
    "article",
    { class: `card ${incident.severity} whole` },
    el("h3", {}, incidentTitle(incident)),
    nextStep(incident),
    facts(incident),
    incident.seen_before ? seenBefore(incident.seen_before) : null,
    ...incident.changes.map((one) => changeLine(incident, one)),
    ...incident.events.map((one) => el("p", { class: "why" }, `Kubernetes: ${one.text}`)),
    el("h4", {}, "Scores"),
    chart(scores.observed_at, scores.mesh_score, {
      name: "anomaly score of the mesh (log10)",
      value: (x) => figures(x),
      expected: scores.threshold.at(-1),
      from: incident.since,
      until: incident.until,
    }),
    el("h4", {}, "Around it, at its highest score"),
    picture(incident, graph),
    el("h4", {}, "Suspects"),
    el("ol", { class: "archived" }, ...likelySuspects(incident).map((one) => suspect(one, incident, series, feedback))),
    el("p", { class: "affected" }, `Affected: ${incident.affected.join(", ") || "none"}`),
    el(
      "div",
      { class: "actions" },
      ...feedback.row,
      el("a", { href: feed.report(mesh, incident.id), target: "_blank", rel: "noopener" }, "Report"),
    ),
  );
}

function facts(incident) {
  const rows = [
    ["severity", incident.severity],
    ["kind", kind(incident.kind)],
    ["since", `${date(incident.since)} ${time(incident.since, true)}`],
    ["lasted", incident.until ? lasted(incident) : "still open"],
    ["reported after", incident.opened_at ? span(ends(incident.opened_at) - ends(incident.since)) : "unknown"],
    ["impact", incident.impact?.text ?? plural(incident.affected.length, "service")],
    ...(incident.error_budgets ?? []).map((one) => ["error budget", one.text.replace(" so far", "")]),
    ["probability", `${shareText(incident.probability)} at the highest score`],
    ["mesh", `${plural(incident.mesh_services, "service")}, ${plural(incident.mesh_calls, "call")}`],
  ];
  return el("dl", { class: "facts" }, ...rows.map(([name, text]) => el("div", {}, el("dt", {}, name), el("dd", {}, text))));
}

function suspect(one, incident, series, feedback) {
  const place = incident.suspects.indexOf(one);
  return el(
    "li",
    { class: "suspect" },
    el("h5", {}, `${place + 1}. ${one.service}, score ${scoreText(one.score)}`),
    ...one.reasons.flatMap((reason, i) => {
      const text = el("p", { class: "why" }, reasonText(reason, incident));
      if (place >= CHARTED || i >= CHARTS || isOfScope(incident, one.service)) return [text];
      const [service, source] = subjectOf(one.service, reason),
        answer = series.get([service, source].join(" ")),
        metric = measuredMetric(reason),
        values = answer?.metrics[metric];
      if (!values) return [text];
      const options = {
        name: metricName(metric),
        value: (x) => metricValue(metric, x),
        expected: reason.expected,
        from: incident.since,
        until: incident.until,
      };
      return [text, chart(answer.observed_at, values, options)];
    }),
    feedback.culpritButton(one.service),
  );
}

/** A line over time with the expected value dashed and the time of the incident shaded. */
function chart(times, values, { name, value, expected, from, until }) {
  const seen = values.filter((x) => x !== null);
  if (seen.length < 2) return null;
  const first = ends(times[0]),
    last = ends(times.at(-1)),
    top = 1.1 * Math.max(...seen, expected ?? 0) || 1;
  const x = (at) => Math.min(WIDTH, Math.max(0, (WIDTH * (ends(at) - first)) / Math.max(1, last - first))),
    y = (one) => HEIGHT - LOW - (HEIGHT - LOW - 4) * (one / top);
  const line = runs(times.map(ends), (i) => values[i] !== null)
    .map((run) => `M${run.map((i) => `${x(times[i]).toFixed(1)} ${y(values[i]).toFixed(1)}`).join("L")}`)
    .join("");
  const begin = x(from),
    end = until ? x(until) : WIDTH;
  return el(
    "svg",
    {
      class: "spark",
      viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
      preserveAspectRatio: "none",
      role: "img",
      "aria-label": `${name} from ${between(times[0], times.at(-1))}, up to ${value(Math.max(...seen))}`,
    },
    el("rect", { class: "after", x: begin, y: 0, width: Math.max(1, end - begin), height: HEIGHT - LOW }),
    expected === null || expected === undefined ? null : el("path", { class: "expected", d: `M0 ${y(expected).toFixed(1)}H${WIDTH}` }),
    el("path", { d: line }),
    el("text", { x: 0, y: HEIGHT - 1 }, clockOrDay(times[0], times.at(-1))),
    el("text", { x: WIDTH, y: HEIGHT - 1, "text-anchor": "end" }, clock(times.at(-1))),
    el("text", { x: 2, y: 9 }, value(top / 1.1)),
  );
}

/** The services around the first suspect in columns: callers to the left, services that it calls to the right. */
function picture(incident, graph) {
  const column = layers(incident, graph),
    rows = new Map(),
    place = new Map();
  for (const [name, at] of column) {
    const row = rows.get(at) ?? 0;
    rows.set(at, row + 1);
    place.set(name, [at, row]);
  }
  const columns = [...rows.keys()].sort((a, b) => a - b),
    tallest = Math.max(...rows.values()),
    wide = Math.max(NARROWEST, Math.min(COLUMN, (innerWidth - BESIDE) / columns.length)),
    width = wide * columns.length,
    height = ROW * tallest + 10;
  const spot = (name) => {
    const [at, row] = place.get(name);
    return [wide * (columns.indexOf(at) + 0.5), ROW * (row + 0.5) + (ROW * (tallest - rows.get(at))) / 2];
  };
  const deviation = new Map(graph.services.map((one) => [`${one.namespace}/${one.name}`, one.deviation])),
    { service: first, caller } = originOf(incident),
    affected = new Set(incident.affected);
  const calls = graph.calls.filter((one) => place.has(one.source) && place.has(one.destination)).map((one) => {
    const [x1, y1] = spot(one.source),
      [x2, y2] = spot(one.destination),
      bend = x1 === x2 ? wide / 3 : 0;
    return el("path", {
      class: caller && one.source === caller && one.destination === first ? "call origin" : affected.has(one.source) && (affected.has(one.destination) || one.destination === first) ? "call spread" : "call",
      d: `M${x1} ${y1}Q${(x1 + x2) / 2 + bend} ${(y1 + y2) / 2} ${x2} ${y2}`,
    });
  });
  const services = [...place.keys()].flatMap((name) => {
    const [x, y] = spot(name),
      score = deviation.get(name),
      role = name === first && !caller ? "first" : affected.has(name) ? "touched" : "near",
      unusual = graph.vanished.includes(name) ? "gone" : score === null || score === undefined ? "hollow" : score >= BAD ? "bad" : score > QUIET ? "unusual" : "quiet";
    const r = role === "first" ? 8 : 5;
    return [
      el("path", { class: `node ${role} ${unusual}`, d: `M${x - r} ${y}a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0` }),
      el("text", { x, y: y + 17, "text-anchor": "middle", class: role }, cut(short(name), Math.floor(wide / LETTER))),
    ];
  });
  const text = `${caller ? `The calls ${caller} → ${first}` : (first ?? "No suspect")} with ${plural(place.size - 1, "service")} around it; the list of suspects and affected services has the same as text.`;
  return el(
    "div",
    { class: "around", tabindex: "0", role: "region", "aria-label": "Graph around the incident" },
    el("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": text }, ...calls, ...services),
  );
}

/** A name of at most so many letters, without its middle. */
function cut(name, most) {
  const half = Math.floor(Math.min(most, 24) / 2) - 1;
  return name.length > 2 * half + 2 ? `${name.slice(0, half)}…${name.slice(-half)}` : name;
}

/**
 * The first suspect, its callers and callees, and the affected services, each with its column: calls away from the first
 * suspect, below zero for callers. Affected ones come first.
 */
function layers(incident, graph) {
  const affected = new Set(incident.affected),
    names = [...new Set([...graph.services.map((one) => `${one.namespace}/${one.name}`), ...graph.vanished])],
    first = incident.suspects[0]?.service ?? names[0],
    column = new Map([[first, 0]]);
  const walk = (from, to, step) => {
    let front = [first];
    while (front.length) {
      const next = [];
      for (const name of front)
        for (const call of graph.calls)
          if (call[from] === name && !column.has(call[to])) {
            column.set(call[to], column.get(name) + step);
            next.push(call[to]);
          }
      front = next;
    }
  };
  walk("destination", "source", -1);
  walk("source", "destination", 1);
  for (const name of names) if (!column.has(name)) column.set(name, 1);
  const near = new Set(graph.calls.filter((one) => one.source === first || one.destination === first).flatMap((one) => [one.source, one.destination])),
    order = [...column].filter(([name]) => name === first || near.has(name) || affected.has(name)).sort((a, b) => Number(affected.has(b[0])) - Number(affected.has(a[0])));
  return new Map(order.slice(0, MOST_DRAWN));
}
