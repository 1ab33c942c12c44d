// The mesh as a graph: sigma draws services and calls, a canvas above it the annotations. Around an incident or a selected
// service, the graph has layers (layers.js); the whole mesh has the positions of the service, stretched to the stage.
/* global Sigma, graphology */
import { arrows, circles, hover, hoverBox, namespaces, outlines, ring, steps } from "./annotations.js";
import { by, colour } from "./dom.js";
import { box, drawLabels, halo } from "./labels.js";
import { groupNeighbours } from "./hubs.js";
import { layers } from "./layers.js";
import { nearestCall } from "./picking.js";
import { BAD, QUIET, isUnseen } from "./severity.js";
import { callLabel, EVERYTHING, namespace, plural, readable, short } from "./words.js";
import { spread } from "./spread.js";

const CROWD = 1000; // services, above which they are drawn as points: twice as fast without a GPU, but of limited size
const MANY = 2000; // calls, above which they are not drawn while the picture moves
const MARGIN = 14, // pixels around the graph
  NAME_ROOM = 60; // pixels beside the whole mesh, for names
const CLOSEST = 90, // most pixels between nearest neighbours
  OBSTACLES = 200, // services that names do not cover
  MORE_OBSTACLES = 600, // that labels of calls do not cover
  REST_WIDTH = 90, // pixels of "and 12 more"
  ROOM = 48; // least pixels between the ends of a call with a label
const STRETCH = 3; // most that the positions are stretched in one direction, to use the whole stage

const REACH_PIXELS = 7; // from a call, within which a click selects it

/** @param {{select: (service: string | null, source?: string | null) => void, expand: (namespace: string) => void}} on called by a click. */
export function graphView(on) {
  let renderer = null,
    graph = null,
    drawn = null,
    places = [], // of each service, in pixels of the stage before it is moved; null: not drawn
    rest = [], // how many services of a column have no room
    order = [], // services that are drawn, the most important first
    callOrder = [], // calls with labels, the most important first
    colours = null,
    isOverNode = false,
    shape = "";
  const overlay = document.createElement("canvas");
  const place = by("canvas");

  const palette = () =>
    Object.fromEntries(
      ["node", "node-unusual", "node-bad", "edge", "label", "path", "paper", "rule", "soft", "accent", "hollow"].map((name) => [
        name,
        colour(name),
      ]),
    );

  function begin() {
    graph = new graphology.DirectedGraph();
    renderer = new Sigma(graph, place, {
      allowInvalidContainer: true,
      renderEdgeLabels: false,
      zIndex: true,
      renderLabels: false, // labels.js draws them
      defaultEdgeType: "line",
      nodeProgramClasses: { point: Sigma.rendering.NodePointProgram },
      minCameraRatio: 0.01,
      maxCameraRatio: 2,
      stagePadding: 0, // the positions leave room
      zoomToSizeRatioFunction: (ratio) => ratio ** 0.3, // services grow more slowly than the space between them
      defaultDrawNodeHover: (pen, node) => hover(pen, node, colours),
      nodeReducer,
      edgeReducer,
    });
    place.addEventListener("webglcontextlost", lose, { capture: true, once: true });
    overlay.className = "overlay";
    overlay.style.position = "absolute";
    overlay.style.inset = "0";
    overlay.style.pointerEvents = "none";
    place.append(overlay);
    renderer.on("afterRender", annotate);
    renderer.on("clickNode", ({ node }) =>
      node.endsWith(EVERYTHING) ? on.expand(node.slice(0, -EVERYTHING.length)) : on.select(hubOf(node) ?? node),
    );
    renderer.on("clickStage", ({ event }) => {
      const call = callAt(event);
      if (call < 0) {
        on.select(null);
        return;
      }
      const { service, source } = endsOf(call);
      on.select(service, source);
    });
    renderer.on("moveBody", ({ event }) => {
      if (drawn && !isOverNode && drawn.map.edges.source.length <= MANY)
        place.style.cursor = callAt(event) < 0 ? "" : "pointer";
    });
    renderer.on("enterNode", () => {
      isOverNode = true;
      place.style.cursor = "pointer";
    });
    renderer.on("leaveNode", () => {
      isOverNode = false;
      place.style.cursor = "";
    });
  }

  /** The position of the call at a point in pixels; -1: there is none. Calls of collapsed namespaces have no panel. */
  function callAt({ x, y }) {
    if (!drawn) return -1;
    const { nodes, edges } = drawn.map,
      here = renderer.viewportToGraph({ x, y }),
      aside = renderer.viewportToGraph({ x: x + REACH_PIXELS, y }),
      isOne = (i) => Boolean(places[i]) && !nodes.name[i].endsWith(EVERYTHING) && !nodes.hub?.[i];
    const reach = Math.hypot(aside.x - here.x, aside.y - here.y),
      isDrawn = (i) => isOne(edges.source[i]) && isOne(edges.destination[i]);
    return nearestCall(edges, places, { x: here.x, y: -here.y }, reach, isDrawn);
  }

  /** The service that a group of callers or callees belongs to; null: the node is not a group. */
  const hubOf = (node) => drawn.map.nodes.hub?.[drawn.index.get(node)] ?? null;

  /** The service and the caller of a call. */
  function endsOf(i) {
    const { nodes, edges } = drawn.map;
    return { service: nodes.name[edges.destination[i]], source: nodes.name[edges.source[i]] };
  }

  function isSelectedCall(i) {
    const { service, source } = endsOf(i);
    return drawn.source === source && drawn.service === service;
  }

  /** The WebGL context is lost when drivers restart or too many pages use it: the next picture starts over. */
  function lose() {
    renderer?.kill();
    renderer = drawn = null;
    shape = "";
  }

  /** @param {any} next `{mesh, map, incident, service, source, near, space, unusual, labels}`: what to show. space: only this
   * namespace. unusual: only unusual services. labels: on calls. */
  function draw(next) {
    colours = palette();
    if (renderer === null) {
      if (document.visibilityState === "hidden") return; // a hidden page takes no WebGL context from others
      try {
        begin();
        by("no-graph").hidden = true;
      } catch {
        place.replaceChildren(); // remove what a failed start left behind
        by("no-graph").hidden = false;
        drawn = next;
        return;
      }
    }
    const before = drawn;
    drawn = next.near ? withHubs(withIndex(next)) : withIndex(next);
    drawn.path = spread(next.incident, drawn.map.edges, drawn.index);
    drawn.onPath = new Set(drawn.path.map(({ edge }) => edge));
    drawn.evidence = evidence(next.incident);
    const { width, height } = renderer.getDimensions();
    arrangeAll({ width, height });
    fill(drawn.map);
    const moved =
      !before ||
      before.mesh !== drawn.mesh ||
      ["near", "service", "source", "space", "unusual"].some((field) => before[field] !== drawn[field]) ||
      before.incident?.id !== drawn.incident?.id ||
      before.map.collapsed.length !== drawn.map.collapsed.length;
    renderer.refresh();
    if (moved) renderer.getCamera().setState({ x: 0.5, y: 0.5, ratio: 1, angle: 0 });
    describe();
  }

  /** Place all services that are drawn, in pixels of the stage. */
  function arrangeAll(stage) {
    const { map, index, incident, service, near } = drawn,
      { nodes } = map;
    const centre = near ? centreOf(drawn) : new Set(),
      root = index.get(incident?.suspects[0]?.service) ?? index.get(service);
    rest = [];
    drawn.isLayered = centre.size > 0;
    if (drawn.isLayered) {
      const layered = layers(map, centre, centre.has(root) ? root : undefined, stage);
      rest = layered.rest;
      places = nodes.name.map((_, i) => layered.at.get(i) ?? null);
      drawn.circles = [];
    } else {
      const shown = nodes.name.map((name, i) => isShown(name, i));
      ({ places, circled: drawn.circles } = stretch(nodes, shown, stage));
    }
    const weigh = (i) =>
      (isFirst(nodes.name[i]) ? 4e6 : 0) +
      (nodes.name[i] === service ? 2e6 : 0) +
      (nodes.incident[i] ? 1e6 : 0) +
      1e3 * Math.min(QUIET + BAD, nodes.deviation[i] ?? 0) * (nodes.services[i] > 1 ? 0.5 : 1) +
      nodes.services[i];
    order = places.flatMap((one, i) => (one ? [i] : [])).sort((a, b) => weigh(b) - weigh(a));
    callOrder = drawn.labels ? orderCalls() : [];
  }

  /** The calls that are drawn: calls of the spread first, then unusual ones, then busy ones. */
  function orderCalls() {
    const { source, destination, requests_per_second: rate } = drawn.map.edges,
      unusual = (i) => Number(isUnusualCall(i)),
      isDrawn = (i) => places[source[i]] && places[destination[i]] && source[i] !== destination[i];
    const weigh = (i) => 2e9 * Number(drawn.onPath.has(i)) + 1e9 * unusual(i) + Math.min(1e8, rate[i] ?? 0);
    return [...source.keys()].filter(isDrawn).sort((a, b) => weigh(b) - weigh(a));
  }

  /** Whether the filters let a service of the whole mesh through. */
  function isShown(name, i) {
    const { nodes } = drawn.map;
    if (drawn.space && namespace(name) !== drawn.space) return false;
    return !drawn.unusual || nodes.unusual[i] > 0 || Boolean(nodes.incident[i]) || name === drawn.service;
  }

  function fill(map) {
    const { nodes, edges } = map,
      count = order.length;
    const size = Math.min(8, Math.max(2, 190 / Math.sqrt(count)));
    const looks = (i) => ({
      x: places[i].x,
      y: -places[i].y,
      at: i,
      type: count > CROWD ? "point" : "circle",
      size: size * breadth(nodes.services[i]) * weight(nodes, i),
      color: shade(nodes, i),
      zIndex: nodes.incident[i] ? 2 : nodes.deviation[i] > QUIET ? 1 : 0,
    });
    const callLooks = (i) => ({
      size: isUnusualCall(i) ? 2.2 : Math.min(1.6, 0.5 + 0.15 * Math.log10(1 + (edges.requests_per_second[i] ?? 0))),
      color: edgeShade(edges, i),
      zIndex: isUnusualCall(i) ? 1 : 0,
      at: i,
    });
    const drawnNames = order.toSorted((a, b) => a - b).map((i) => nodes.name[i]);
    const now = `${drawnNames.join(" ")}|${edges.source.join()}|${edges.destination.join()}`;
    renderer.setCustomBBox(frame());
    if (now === shape) {
      graph.updateEachNodeAttributes((name, node) => Object.assign(node, looks(node.at)));
      graph.updateEachEdgeAttributes((edge, call) => Object.assign(call, callLooks(call.at)), {
        attributes: ["color", "size", "zIndex"],
      });
      return;
    }
    shape = now;
    graph.clear();
    nodes.name.forEach((name, i) => places[i] && graph.addNode(name, looks(i)));
    edges.source.forEach((source, i) => {
      const destination = edges.destination[i];
      if (places[source] && places[destination])
        graph.mergeEdge(nodes.name[source], nodes.name[destination], callLooks(i));
    });
    renderer.setSetting("hideEdgesOnMove", graph.size > MANY);
    renderer.setSetting("defaultEdgeType", graph.size > MANY ? "line" : "arrow");
  }

  /** The stage, in the units of the places. */
  function frame() {
    const { width, height } = renderer.getDimensions();
    return { x: [0, width], y: [-height, 0] };
  }

  /** How much larger the node of this many services is; in layers there is less room. */
  const breadth = (services) =>
    services > 1 ? Math.min(drawn.isLayered ? 1.4 : 3, 0.8 + 0.12 * Math.sqrt(services)) : 1;

  function weight(nodes, i) {
    if (isFirst(nodes.name[i])) return 2;
    return nodes.incident[i] ? 1.4 : 1;
  }

  const isFirst = (name) => drawn.incident?.suspects[0]?.service === name;

  /** Whether it is unknown if a service is normal: it has no telemetry, or could not be scored. Then it is hollow. */
  function isUnknown(nodes, i) {
    if (nodes.gone[i]) return false;
    const isOfIncident = isFirst(nodes.name[i]) || nodes.incident[i];
    if (isOfIncident) return nodes.silent[i] && Boolean(drawn.incident && isUnseen(drawn.incident));
    return nodes.silent[i] || nodes.deviation[i] === null || drawn.map.status === "warming_up";
  }

  function shade(nodes, i) {
    if (nodes.gone[i] || isUnknown(nodes, i)) return colours.paper;
    if (isFirst(nodes.name[i])) return colours["node-bad"];
    const deviation = nodes.deviation[i];
    if (nodes.incident[i]) return mixWithQuiet(Math.max(deviation ?? 0, 0.6 * (QUIET + BAD)), colours.node);
    // The maximum over many services is higher by chance: by one (log10) for ten services.
    return mixWithQuiet(deviation === null ? null : deviation - Math.log10(nodes.services[i]), colours.node);
  }

  /** Whether a call is unusual, or a reason of the first suspect is about it: new calls have no score yet. */
  const isUnusualCall = (i) => drawn.map.edges.deviation[i] > QUIET || isEvidence(i);

  function isEvidence(i) {
    if (!drawn.evidence.size) return false;
    const { service, source } = endsOf(i);
    return drawn.evidence.has(`${source} ${service}`);
  }

  function edgeShade(edges, i) {
    if (isEvidence(i)) return colours["node-bad"];
    return mixWithQuiet(edges.deviation[i], edges.source.length > MANY ? blend(colours.edge, colours.paper, 0.7) : colours.edge);
  }

  function mixWithQuiet(deviation, quiet) {
    if (deviation === null || deviation <= QUIET) return quiet;
    return blend(colours["node-unusual"], colours["node-bad"], Math.min(1, (deviation - QUIET) / (BAD - QUIET)));
  }

  const nodeReducer = (name, node) => ({ ...node, highlighted: drawn.service === name });

  function edgeReducer(edge, call) {
    if (drawn.source && isSelectedCall(call.at)) return { ...call, color: colours.accent, size: 4, zIndex: 3, hidden: false };
    // The overlay draws the calls of the spread, in the direction of the spread.
    return drawn.onPath.has(call.at) ? { ...call, hidden: true } : call;
  }

  function annotate() {
    const { width, height } = renderer.getDimensions(),
      dense = window.devicePixelRatio || 1;
    if (overlay.width !== width * dense || overlay.height !== height * dense) {
      overlay.width = width * dense;
      overlay.height = height * dense;
      overlay.style.width = `${width}px`;
      overlay.style.height = `${height}px`;
    }
    const pen = overlay.getContext("2d");
    pen.setTransform(dense, 0, 0, dense, 0, 0);
    pen.clearRect(0, 0, width, height);
    if (drawn === null) return;
    const named = namespaces(pen, renderer, drawn.circles, colours);
    const { source, destination } = drawn.map.edges,
      { nodes } = drawn.map;
    const inView = drawn.path.filter(({ edge }) => places[source[edge]] && places[destination[edge]]);
    const hops = inView.map(({ edge, step, isDown }) => ({
      from: at(isDown ? source[edge] : destination[edge]),
      to: at(isDown ? destination[edge] : source[edge]),
      step,
      ink: drawn.source && isSelectedCall(edge) ? colours.accent : colours.path,
    }));
    arrows(pen, hops);
    const those = (is) => order.filter(is).map(at);
    outlines(pen, those((i) => isUnknown(nodes, i)), colours.hollow, 1.6, []);
    outlines(pen, those((i) => nodes.gone[i]), colours.path, 2, [4, 3]);
    const first = drawn.index.get(drawn.incident?.suspects[0]?.service);
    if (first !== undefined && places[first]) ring(pen, at(first), colours);
    const obstacles = order.slice(0, OBSTACLES).map(at),
      circled = obstacles.map(box),
      taken = drawLabels(pen, names(), { width, height }, [...circled, ...named], colours),
      numbers = steps(pen, hops, obstacles, taken.slice(circled.length), colours),
      kept = [...taken, ...numbers];
    if (callOrder.length) drawLabels(pen, callLabels(), { width, height }, [...kept, ...callObstacles(pen)], colours);
    pen.font = "12px system-ui, sans-serif";
    for (const one of rest) {
      const { x, y } = renderer.graphToViewport({ x: one.x, y: -one.y });
      halo(pen, one.text, x - 10, y, colours.soft, colours);
    }
  }

  /** The names of services in view, the most important first. The name of the selected one is drawn with its box. */
  function* names() {
    const { nodes } = drawn.map;
    for (const i of order) {
      const name = nodes.name[i];
      if (name !== drawn.service) yield { ...at(i), text: nodeLabel(nodes, i), strong: isFirst(name) };
    }
  }

  /** The labels of calls in view, the most important first. Short calls have no room. */
  function* callLabels() {
    const { source, destination, requests_per_second: rate, error_rate: errors } = drawn.map.edges;
    for (const i of callOrder) {
      const text = callLabel(rate[i], errors[i]),
        ends = [middle(source[i]), middle(destination[i])],
        [a, b] = ends;
      if (text && Math.hypot(a.x - b.x, a.y - b.y) >= ROOM) yield { x: (a.x + b.x) / 2, y: (a.y + b.y) / 2, ends, text, strong: false };
    }
  }

  /** What labels of calls do not cover, besides what names leave free: more services, the name of the selection. */
  function callObstacles(pen) {
    const boxes = order.slice(OBSTACLES, MORE_OBSTACLES).map((i) => box(at(i))),
      selected = drawn.index.get(drawn.service);
    if (selected !== undefined && places[selected]) boxes.push(hoverBox(pen, { ...at(selected), name: drawn.service }));
    return [...boxes, ...rest.map(restBox)];
  }

  function restBox({ x, y }) {
    const one = renderer.graphToViewport({ x, y: -y });
    return [one.x - 10, one.y - 12, one.x + REST_WIDTH, one.y + 4];
  }

  const middle = (i) => renderer.graphToViewport({ x: places[i].x, y: -places[i].y });

  /** The position and radius of a service in pixels. */
  function at(i) {
    return { ...middle(i), radius: renderer.scaleSize(renderer.getNodeDisplayData(drawn.map.nodes.name[i]).size) };
  }

  function describe() {
    const { map, incident, service } = drawn;
    const parts = [`${plural(map.services, "service")} and ${plural(map.calls, "call")}`];
    if (incident)
      parts.push(
        `likely origin ${incident.suspects[0]?.service ?? "unknown"}, spread over ${plural(drawn.path.length, "call")}`,
      );
    if (service) parts.push(`${drawn.source ? `the calls ${drawn.source} → ${service} are` : `${service} is`} selected`);
    const silent = map.nodes.silent.filter(Boolean).length;
    if (silent) parts.push(`no telemetry from ${silent}`);
    if (map.collapsed.length) parts.push(`${plural(map.collapsed.length, "namespace")} drawn as one node each`);
    if (order.length < map.nodes.name.length) parts.push(`${order.length} of ${map.nodes.name.length} nodes in view`);
    place.setAttribute("aria-label", readable(`The mesh as a graph: ${parts.join("; ")}`));
    const folded = order.filter((i) => map.nodes.name[i].endsWith(EVERYTHING)).length,
      isPart = drawn.isLayered || order.length < map.nodes.name.length,
      inView = isPart ? `; ${order.length.toLocaleString("en")} in view` : "",
      hint = folded ? `; ${plural(folded, "namespace")} folded, click one to open it` : inView;
    by("graph-title").textContent = `${plural(map.services, "service")}, ${plural(map.calls, "call")}${hint}`;
  }

  return {
    draw,
    redraw: () => {
      if (drawn && renderer) {
        shape = "";
        draw(drawn);
      }
    },
    resize: () => {
      renderer?.resize();
      if (drawn && renderer) draw(drawn);
    },
  };
}

/** What is drawn, with the position of each node by name. */
const withIndex = (next) => ({ ...next, index: new Map(next.map.nodes.name.map((name, i) => [name, i])) });

/** The same with the neighbours of hubs grouped. */
function withHubs(next) {
  const centre = centreOf(next);
  return centre.size ? withIndex({ ...next, map: groupNeighbours(next.map, centre) }) : next;
}

/** The calls that the reasons of the first suspect are about: "caller callee". */
function evidence(incident) {
  const [first] = incident?.suspects ?? [];
  const calls = (first?.reasons ?? []).filter((one) => one.source || one.destination);
  return new Set(calls.map((one) => (one.source ? `${one.source} ${first.service}` : `${first.service} ${one.destination}`)));
}

/** The services of the incident, and the selected one, by position. */
function centreOf({ incident, service, source, index }) {
  const names = [
    ...(incident ? [...incident.suspects.slice(0, 1).map((one) => one.service), ...incident.affected] : []),
    ...(service ? [service] : []),
    ...(source ? [source] : []),
  ];
  return new Set(names.filter((name) => index.has(name)).map((name) => index.get(name)));
}

/** "cart", "34 normal callers", or "shop: 120 services, 3 unusual". */
function nodeLabel({ name, services, unusual, hub }, i) {
  if (hub?.[i]) return readable(name[i]);
  if (!name[i].endsWith(EVERYTHING)) return short(name[i]);
  const inside = unusual[i] ? `, ${unusual[i]} unusual` : "";
  return `${readable(namespace(name[i]))}: ${plural(services[i], "service")}${inside}`;
}

/** Stretch the positions of the service, so that the services and the circles of their namespaces fill the stage. */
function stretch(nodes, shown, { width, height }) {
  const circled = circles(nodes, shown);
  const xs = nodes.x.filter((_, i) => shown[i]),
    ys = nodes.y.filter((_, i) => shown[i]);
  for (const { x, y, reach } of circled) {
    xs.push(x - reach, x + reach);
    ys.push(y - reach, y + reach);
  }
  const [left, right] = extent(xs),
    [top, bottom] = extent(ys);
  const scale = {
    x: (width - 2 * (MARGIN + (circled.length ? 0 : NAME_ROOM))) / Math.max(right - left, 1e-3),
    y: (height - 2 * (MARGIN + (circled.length ? 8 : 0))) / Math.max(bottom - top, 1e-3),
  };
  const least = Math.min(scale.x, scale.y, CLOSEST);
  for (const axis of ["x", "y"]) scale[axis] = Math.min(scale[axis], STRETCH * least);
  const to = (x, y) => ({
    x: width / 2 + (x - (left + right) / 2) * scale.x,
    y: height / 2 - (y - (top + bottom) / 2) * scale.y,
  });
  return {
    places: nodes.name.map((_, i) => (shown[i] ? to(nodes.x[i], nodes.y[i]) : null)),
    circled: circled.map(({ name, x, y, reach }) => ({ name, ...to(x, y), across: reach * scale.x, down: reach * scale.y })),
  };
}

function extent(values) {
  let low = Infinity,
    high = -Infinity;
  for (const value of values) {
    if (value < low) low = value;
    if (value > high) high = value;
  }
  return [low, high];
}

/** A mix of two colours #rrggbb. */
function blend(from, to, share) {
  const parts = [1, 3, 5].map((i) =>
    Math.round(parseInt(from.slice(i, i + 2), 16) * (1 - share) + parseInt(to.slice(i, i + 2), 16) * share),
  );
  return `#${parts.map((part) => part.toString(16).padStart(2, "0")).join("")}`;
}
