// The mesh as a graph: sigma draws services and calls, a canvas above it what they mean.
/* global Sigma, graphology */
import { by, colour } from "./dom.js";
import { namespace, plural, short } from "./words.js";
import { QUIET, spread } from "./spread.js";

const BAD = 6; // decades of improbability from which on a colour is at its worst
const MANY = 2000; // calls from which on they are not drawn while the picture moves
const EVERYTHING = "/*"; // after a namespace that is drawn as one

/** @param on {select(service), expand(namespace)} what a click asks for. */
export function graphView(on) {
  let renderer = null, graph = null, drawn = null, focus = null, colours = null, shape = "";
  const overlay = document.createElement("canvas");
  const place = by("canvas");

  const palette = () => Object.fromEntries(["node", "node-strange", "node-bad", "edge", "label", "path", "paper", "rule", "soft", "accent"].map((name) => [name, colour(name)]));

  function begin() {
    graph = new graphology.DirectedGraph();
    renderer = new Sigma(graph, place, {
      allowInvalidContainer: true, renderEdgeLabels: false, zIndex: true, labelFont: "system-ui, sans-serif", labelSize: 12, labelDensity: 0.6, labelGridCellSize: 110,
      labelRenderedSizeThreshold: 5, defaultEdgeType: "line", minCameraRatio: 0.01, maxCameraRatio: 2, stagePadding: 30,
      defaultDrawNodeLabel: label, defaultDrawNodeHover: hover, nodeReducer, edgeReducer,
    });
    overlay.className = "overlay";
    overlay.style.position = "absolute";
    overlay.style.inset = "0";
    overlay.style.pointerEvents = "none";
    place.append(overlay);
    renderer.on("afterRender", annotate);
    renderer.on("clickNode", ({ node }) => (node.endsWith(EVERYTHING) ? on.expand(node.slice(0, -EVERYTHING.length)) : on.select(node)));
    renderer.on("clickStage", () => on.select(null));
    renderer.on("enterNode", () => { place.style.cursor = "pointer"; });
    renderer.on("leaveNode", () => { place.style.cursor = ""; });
  }

  /** @param next {map, incident, service, near}: what to show. */
  function draw(next) {
    colours = palette();
    if (renderer === null) {
      try { begin(); } catch { by("no-graph").hidden = false; drawn = next; return; }
    }
    const before = drawn;
    drawn = { ...next, index: new Map(next.map.nodes.name.map((name, i) => [name, i])) };
    drawn.path = spread(next.incident, next.map, drawn.index);
    drawn.onPath = new Set(drawn.path.map(({ edge }) => edge));
    drawn.circles = circles(next.map.nodes);
    focus = neighbourhood(drawn);
    fill(drawn.map);
    const moved = !before || before.near !== drawn.near || before.incident?.id !== drawn.incident?.id || before.service !== drawn.service || before.mesh !== drawn.mesh || before.map.collapsed.length !== drawn.map.collapsed.length;
    renderer.refresh();
    if (moved) fit(before === null);
    describe();
  }

  function fill(map) {
    const { nodes, edges } = map;
    const size = Math.min(8, Math.max(2, 190 / Math.sqrt(nodes.name.length)));
    const looks = (i) => ({
      x: nodes.x[i], y: nodes.y[i], label: nodes.name[i].endsWith(EVERYTHING) ? nodes.name[i] : short(nodes.name[i]), at: i,
      size: size * (nodes.services[i] > 1 ? 1 + Math.log10(nodes.services[i]) : 1) * weight(nodes, i), color: shade(nodes, i), zIndex: nodes.incident[i] ? 2 : nodes.deviation[i] > QUIET ? 1 : 0,
    });
    const called = (i) => ({ size: edges.deviation[i] > QUIET ? 2.2 : Math.min(1.6, 0.5 + 0.15 * Math.log10(1 + (edges.requests_per_second[i] ?? 0))), color: edgeShade(edges, i), zIndex: edges.deviation[i] > QUIET ? 1 : 0, at: i });
    const now = `${nodes.name.join(" ")}|${edges.source.join()}|${edges.destination.join()}`;
    if (now === shape) {
      graph.updateEachNodeAttributes((name, node) => Object.assign(node, looks(node.at)), { attributes: ["color", "size", "zIndex"] });
      graph.updateEachEdgeAttributes((edge, call) => Object.assign(call, called(call.at)), { attributes: ["color", "size", "zIndex"] });
      return;
    }
    shape = now;
    graph.clear();
    nodes.name.forEach((name, i) => graph.addNode(name, looks(i)));
    edges.source.forEach((source, i) => graph.mergeEdge(nodes.name[source], nodes.name[edges.destination[i]], called(i)));
    frame(nodes);
    renderer.setSetting("hideEdgesOnMove", edges.source.length > MANY);
    renderer.setSetting("defaultEdgeType", edges.source.length > MANY ? "line" : "arrow");
    by("services").replaceChildren(...nodes.name.slice(0, 5000).map((name) => Object.assign(document.createElement("option"), { value: name })));
  }

  /** The picture's frame stays as it is while everybody has room in it, so that nothing jumps. */
  function frame({ x, y }) {
    const room = { x: extent(x), y: extent(y) };
    const old = renderer.getCustomBBox();
    const inside = old && old.mesh === drawn.mesh && ["x", "y"].every((axis) => old[axis][0] <= room[axis][0] && room[axis][1] <= old[axis][1] && room[axis][1] - room[axis][0] > 0.5 * (old[axis][1] - old[axis][0]));
    if (!inside) renderer.setCustomBBox({ ...room, mesh: drawn.mesh });
  }

  function weight(nodes, i) {
    if (isFirst(nodes.name[i])) return 2;
    return nodes.incident[i] ? 1.4 : 1;
  }

  const isFirst = (name) => drawn.incident?.suspects[0]?.service === name;

  function shade(nodes, i) {
    if (isFirst(nodes.name[i])) return colours["node-bad"];
    return mixed(nodes.incident[i] ? Math.max(nodes.deviation[i] ?? 0, 0.6 * (QUIET + BAD)) : nodes.deviation[i], colours.node);
  }

  const edgeShade = (edges, i) => mixed(edges.deviation[i], edges.source.length > MANY ? blend(colours.edge, colours.paper, 0.7) : colours.edge);

  function mixed(deviation, quiet) {
    if (deviation === null || deviation <= QUIET) return quiet;
    return blend(colours["node-strange"], colours["node-bad"], Math.min(1, (deviation - QUIET) / (BAD - QUIET)));
  }

  function nodeReducer(name, node) {
    if (focus === null || focus.has(name)) {
      const forced = drawn.service === name || isFirst(name) || Boolean(drawn.map.nodes.incident[node.at]);
      return { ...node, forceLabel: forced, highlighted: drawn.service === name };
    }
    return { ...node, color: colours.edge, size: 0.6 * node.size, label: "", zIndex: 0 };
  }

  function edgeReducer(edge, call) {
    if (drawn.onPath.has(call.at)) return { ...call, hidden: true }; // drawn above, the way trouble goes
    if (focus === null) return call;
    const [source, destination] = graph.extremities(edge);
    return focus.has(source) && focus.has(destination) ? { ...call, size: call.size + 0.6 } : { ...call, hidden: true };
  }

  /** Of a neighbourhood those of the namespaces it is about: who is far away is drawn, but need not be in sight. */
  function closeBy(names) {
    const centre = new Set(names.filter((name) => name === drawn.service || drawn.map.nodes.incident[drawn.index.get(name)] || isFirst(name)).map(namespace));
    return names.filter((name) => centre.has(namespace(name)));
  }

  function fit(atOnce) {
    const names = focus === null ? graph.nodes() : closeBy([...focus]);
    if (!names.length) return;
    const camera = renderer.getCamera(), state = camera.getState();
    const points = names.map((name) => renderer.getNodeDisplayData(name));
    const [x0, x1] = extent(points.map((p) => p.x)), [y0, y1] = extent(points.map((p) => p.y));
    const corner = (x, y) => renderer.framedGraphToViewport({ x, y });
    const a = corner(x0, y0), b = corner(x1, y1), { width, height } = renderer.getDimensions();
    const scale = Math.max(Math.abs(b.x - a.x) / (width - 160), Math.abs(b.y - a.y) / (height - 90));
    const to = { x: (x0 + x1) / 2, y: (y0 + y1) / 2, ratio: Math.max(0.05, scale * state.ratio), angle: 0 };
    if (atOnce || matchMedia("(prefers-reduced-motion: reduce)").matches) camera.setState(to);
    else camera.animate(to, { duration: 350 });
  }

  // Above the graph: namespaces, the way it spread, who it began with, who is gone.

  function annotate() {
    const { width, height } = renderer.getDimensions(), dense = window.devicePixelRatio || 1;
    if (overlay.width !== width * dense || overlay.height !== height * dense) {
      overlay.width = width * dense; overlay.height = height * dense;
      overlay.style.width = `${width}px`; overlay.style.height = `${height}px`;
    }
    const pen = overlay.getContext("2d");
    pen.setTransform(dense, 0, 0, dense, 0, 0);
    pen.clearRect(0, 0, width, height);
    if (drawn === null) return;
    namespaces(pen, width, height);
    for (const { edge, step } of drawn.path) hop(pen, drawn.map.edges, edge, step);
    for (const name of drawn.incident?.suspects.slice(0, 1).map((one) => one.service) ?? []) ring(pen, name, 3);
    drawn.map.nodes.gone.forEach((gone, i) => gone && ring(pen, drawn.map.nodes.name[i], 2, [4, 3]));
  }

  function at(i) {
    return renderer.graphToViewport({ x: drawn.map.nodes.x[i], y: drawn.map.nodes.y[i] });
  }

  function namespaces(pen, width, height) {
    pen.textAlign = "center"; pen.lineWidth = 1; pen.strokeStyle = colours.rule; pen.font = "11px system-ui, sans-serif";
    for (const { name, x, y, reach } of drawn.circles) {
      const middle = renderer.graphToViewport({ x, y }), border = renderer.graphToViewport({ x: x + reach, y });
      const radius = Math.hypot(border.x - middle.x, border.y - middle.y);
      if (radius < 14 || middle.x + radius < 0 || middle.x - radius > width || middle.y + radius < 0 || middle.y - radius > height) continue;
      pen.globalAlpha = 0.7;
      pen.beginPath(); pen.arc(middle.x, middle.y, radius, 0, 2 * Math.PI); pen.stroke();
      pen.globalAlpha = 1;
      const above = Math.min(height - 6, Math.max(12, middle.y - radius - 4));
      if (pen.measureText(name).width < 2.4 * radius) halo(pen, name, Math.min(width - 30, Math.max(30, middle.x)), above, colours.soft);
    }
  }

  function hop(pen, edges, edge, step) {
    const from = at(edges.destination[edge]), to = at(edges.source[edge]); // trouble goes from the callee to its callers
    const length = Math.hypot(to.x - from.x, to.y - from.y);
    if (length < 12) return;
    const ux = (to.x - from.x) / length, uy = (to.y - from.y) / length, clear = Math.min(14, length / 4);
    const a = { x: from.x + ux * clear, y: from.y + uy * clear }, b = { x: to.x - ux * clear, y: to.y - uy * clear };
    pen.strokeStyle = pen.fillStyle = colours.path; pen.lineWidth = 3; pen.setLineDash([]);
    pen.beginPath(); pen.moveTo(a.x, a.y); pen.lineTo(b.x, b.y); pen.stroke();
    pen.beginPath(); pen.moveTo(b.x + 5 * ux, b.y + 5 * uy); pen.lineTo(b.x - 6 * ux - 5 * uy, b.y - 6 * uy + 5 * ux); pen.lineTo(b.x - 6 * ux + 5 * uy, b.y - 6 * uy - 5 * ux); pen.fill();
    if (length > 60) {
      const x = (a.x + b.x) / 2, y = (a.y + b.y) / 2;
      pen.beginPath(); pen.arc(x, y, 8, 0, 2 * Math.PI); pen.fill();
      pen.fillStyle = colours.paper; pen.font = "bold 11px system-ui, sans-serif"; pen.textAlign = "center"; pen.fillText(String(step), x, y + 4);
    }
  }

  function ring(pen, name, width, dashes = []) {
    const i = drawn.index.get(name);
    if (i === undefined) return;
    const middle = at(i), size = renderer.getNodeDisplayData(name);
    pen.strokeStyle = colours.path; pen.lineWidth = width; pen.setLineDash(dashes);
    pen.beginPath(); pen.arc(middle.x, middle.y, renderer.scaleSize(size.size) + 5, 0, 2 * Math.PI); pen.stroke();
    pen.setLineDash([]);
  }

  function halo(pen, text, x, y, ink) {
    pen.lineJoin = "round"; pen.lineWidth = 4; pen.strokeStyle = colours.paper; pen.strokeText(text, x, y);
    pen.fillStyle = ink; pen.fillText(text, x, y);
    pen.strokeStyle = colours.rule; pen.lineWidth = 1;
  }

  function label(pen, node, settings) {
    if (!node.label) return;
    const strong = isFirst(node.key);
    pen.font = `${strong ? "bold " : ""}${settings.labelSize + (strong ? 2 : 0)}px ${settings.labelFont}`;
    pen.textAlign = "left";
    halo(pen, node.label, node.x + node.size + (strong ? 9 : 4), node.y + settings.labelSize / 3, colours.label);
  }

  function hover(pen, node, settings) {
    const name = node.key ?? node.label;
    pen.font = `bold ${settings.labelSize + 1}px ${settings.labelFont}`;
    const wide = pen.measureText(name).width;
    pen.fillStyle = colours.paper; pen.strokeStyle = colours.accent; pen.lineWidth = 1.5;
    pen.beginPath(); pen.roundRect(node.x + node.size + 3, node.y - 11, wide + 12, 22, 5); pen.fill(); pen.stroke();
    pen.fillStyle = colours.label; pen.textAlign = "left"; pen.fillText(name, node.x + node.size + 9, node.y + 4);
    pen.beginPath(); pen.arc(node.x, node.y, node.size + 3, 0, 2 * Math.PI); pen.stroke();
  }

  function describe() {
    const { map, incident, service } = drawn;
    const told = [`${plural(map.services, "service")} and ${plural(map.calls, "call")}`];
    if (incident) told.push(`it began with ${incident.suspects[0]?.service ?? "nobody known"} and reached ${plural(drawn.path.length, "call")}`);
    if (service) told.push(`${service} is selected`);
    if (map.collapsed.length) told.push(`${plural(map.collapsed.length, "namespace")} drawn as one each`);
    place.setAttribute("aria-label", `The mesh as a graph: ${told.join("; ")}`);
    by("graph-title").textContent = `${plural(map.services, "service")}, ${plural(map.calls, "call")}${map.collapsed.length ? `; ${plural(map.collapsed.length, "quiet namespace")} folded, click one to unfold` : ""}`;
  }

  return { draw, redraw: () => { if (drawn && renderer) { shape = ""; draw(drawn); } }, resize: () => renderer?.refresh() };
}

/** The services to look at: those of the incident and what is selected, with who calls them and whom they call; null: all. */
function neighbourhood({ map, near, incident, service, index }) {
  if (!near) return null;
  const centre = new Set([...(incident ? [...incident.affected, ...incident.suspects.slice(0, 1).map((one) => one.service)] : []), ...(service ? [service] : [])].filter((name) => index.has(name)).map((name) => index.get(name)));
  if (!centre.size) return null;
  const found = new Set(centre);
  map.edges.source.forEach((source, i) => {
    const destination = map.edges.destination[i];
    if (centre.has(source)) found.add(destination);
    if (centre.has(destination)) found.add(source);
  });
  return new Set([...found].map((i) => map.nodes.name[i]));
}

/** The circle around the services of each namespace. */
function circles({ name, x, y }) {
  const groups = new Map();
  name.forEach((one, i) => {
    if (one.endsWith(EVERYTHING)) return;
    if (!groups.has(namespace(one))) groups.set(namespace(one), []);
    groups.get(namespace(one)).push(i);
  });
  return [...groups].map(([of, members]) => {
    const mean = (values) => members.reduce((sum, i) => sum + values[i], 0) / members.length;
    const middle = { x: mean(x), y: mean(y) };
    return { name: of, ...middle, reach: members.reduce((most, i) => Math.max(most, Math.hypot(x[i] - middle.x, y[i] - middle.y)), 0) + 0.7 };
  });
}

function extent(values) {
  let low = Infinity, high = -Infinity;
  for (const value of values) { if (value < low) low = value; if (value > high) high = value; }
  return [low, high];
}

/** Between two colours of the form #rrggbb. */
function blend(from, to, share) {
  const parts = [1, 3, 5].map((i) => Math.round(parseInt(from.slice(i, i + 2), 16) * (1 - share) + parseInt(to.slice(i, i + 2), 16) * share));
  return `#${parts.map((part) => part.toString(16).padStart(2, "0")).join("")}`;
}
