// The mesh as a graph: sigma draws services and calls, a canvas above it the annotations.
/* global Sigma, graphology */
import { circles, hop, hover, label, namespaces, outlines, ring } from "./annotations.js";
import { by, colour } from "./dom.js";
import { EVERYTHING, namespace, plural, short } from "./words.js";
import { spread } from "./spread.js";

const QUIET = 3,
  BAD = 6; // anomaly scores (log10): below the first normal, from the second on in the strongest colour
const CROWD = 1000; // services, above which they are drawn as points: twice as fast without a GPU, but of limited size
const MANY = 2000; // calls, above which they are not drawn while the picture moves

/** @param {{select: (service: string) => void, expand: (namespace: string) => void}} on called by a click. */
export function graphView(on) {
  let renderer = null,
    graph = null,
    drawn = null,
    focus = null,
    colours = null,
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
      labelFont: "system-ui, sans-serif",
      labelSize: 12,
      labelDensity: 0.6,
      labelGridCellSize: 110,
      labelRenderedSizeThreshold: 5,
      defaultEdgeType: "line",
      nodeProgramClasses: { point: Sigma.rendering.NodePointProgram },
      minCameraRatio: 0.01,
      maxCameraRatio: 2,
      stagePadding: 30,
      zoomToSizeRatioFunction: (ratio) => ratio ** 0.3, // services grow more slowly than the space between them
      defaultDrawNodeLabel: (pen, node, settings) => label(pen, node, settings, isFirst(node.key), colours),
      defaultDrawNodeHover: (pen, node, settings) => hover(pen, node, settings, colours),
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
      node.endsWith(EVERYTHING) ? on.expand(node.slice(0, -EVERYTHING.length)) : on.select(node),
    );
    renderer.on("clickStage", () => on.select(null));
    renderer.on("enterNode", () => {
      place.style.cursor = "pointer";
    });
    renderer.on("leaveNode", () => {
      place.style.cursor = "";
    });
  }

  /** The WebGL context is lost when drivers restart or too many pages use it: the next picture starts over. */
  function lose() {
    renderer?.kill();
    renderer = drawn = null;
    shape = "";
  }

  /** @param {any} next `{map, incident, service, near}`: what to show. */
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
    drawn = { ...next, index: new Map(next.map.nodes.name.map((name, i) => [name, i])) };
    drawn.path = spread(next.incident, next.map.edges, drawn.index);
    drawn.onPath = new Set(drawn.path.map(({ edge }) => edge));
    drawn.circles = circles(next.map.nodes);
    focus = neighbourhood(drawn);
    fill(drawn.map);
    const moved =
      !before ||
      before.near !== drawn.near ||
      before.incident?.id !== drawn.incident?.id ||
      before.service !== drawn.service ||
      before.mesh !== drawn.mesh ||
      before.map.collapsed.length !== drawn.map.collapsed.length;
    renderer.refresh();
    if (moved) fit(before === null);
    describe();
  }

  function fill(map) {
    const { nodes, edges } = map;
    const size = Math.min(8, Math.max(2, 190 / Math.sqrt(nodes.name.length)));
    const looks = (i) => ({
      x: nodes.x[i],
      y: nodes.y[i],
      label: nodes.name[i].endsWith(EVERYTHING) ? nodes.name[i] : short(nodes.name[i]),
      at: i,
      type: nodes.name.length > CROWD ? "point" : "circle",
      size: size * (nodes.services[i] > 1 ? 1 + Math.log10(nodes.services[i]) : 1) * weight(nodes, i),
      color: shade(nodes, i),
      zIndex: nodes.incident[i] ? 2 : nodes.deviation[i] > QUIET ? 1 : 0,
    });
    const callLooks = (i) => ({
      size:
        edges.deviation[i] > QUIET
          ? 2.2
          : Math.min(1.6, 0.5 + 0.15 * Math.log10(1 + (edges.requests_per_second[i] ?? 0))),
      color: edgeShade(edges, i),
      zIndex: edges.deviation[i] > QUIET ? 1 : 0,
      at: i,
    });
    const now = `${nodes.name.join(" ")}|${edges.source.join()}|${edges.destination.join()}`;
    if (now === shape) {
      graph.updateEachNodeAttributes((name, node) => Object.assign(node, looks(node.at)), {
        attributes: ["color", "size", "zIndex"],
      });
      graph.updateEachEdgeAttributes((edge, call) => Object.assign(call, callLooks(call.at)), {
        attributes: ["color", "size", "zIndex"],
      });
      return;
    }
    shape = now;
    graph.clear();
    nodes.name.forEach((name, i) => graph.addNode(name, looks(i)));
    edges.source.forEach((source, i) =>
      graph.mergeEdge(nodes.name[source], nodes.name[edges.destination[i]], callLooks(i)),
    );
    frame(nodes);
    renderer.setSetting("hideEdgesOnMove", edges.source.length > MANY);
    renderer.setSetting("defaultEdgeType", edges.source.length > MANY ? "line" : "arrow");
    by("services").replaceChildren(
      ...nodes.name.slice(0, 5000).map((name) => Object.assign(document.createElement("option"), { value: name })),
    );
  }

  /** Keep the frame while all services fit, so that nothing jumps. */
  function frame({ x, y }) {
    const room = { x: extent(x), y: extent(y) };
    const old = renderer.getCustomBBox();
    const inside =
      old &&
      old.mesh === drawn.mesh &&
      ["x", "y"].every(
        (axis) =>
          old[axis][0] <= room[axis][0] &&
          room[axis][1] <= old[axis][1] &&
          room[axis][1] - room[axis][0] > 0.5 * (old[axis][1] - old[axis][0]),
      );
    if (!inside) renderer.setCustomBBox({ ...room, mesh: drawn.mesh });
  }

  function weight(nodes, i) {
    if (isFirst(nodes.name[i])) return 2;
    return nodes.incident[i] ? 1.4 : 1;
  }

  const isFirst = (name) => drawn.incident?.suspects[0]?.service === name;

  /** Whether it is unknown if a service is normal: it has no telemetry, or could not be scored. Then it is hollow. */
  function isUnknown(nodes, i) {
    if (isFirst(nodes.name[i]) || nodes.incident[i] || nodes.gone[i]) return false;
    return nodes.silent[i] || nodes.deviation[i] === null || drawn.map.status === "warming_up";
  }

  function shade(nodes, i) {
    if (isFirst(nodes.name[i])) return colours["node-bad"];
    if (isUnknown(nodes, i)) return colours.paper;
    const deviation = nodes.deviation[i];
    if (nodes.incident[i]) return mixWithQuiet(Math.max(deviation ?? 0, 0.6 * (QUIET + BAD)), colours.node);
    // The maximum over many services is higher by chance: by one (log10) for ten services.
    return mixWithQuiet(deviation === null ? null : deviation - Math.log10(nodes.services[i]), colours.node);
  }

  const edgeShade = (edges, i) =>
    mixWithQuiet(edges.deviation[i], edges.source.length > MANY ? blend(colours.edge, colours.paper, 0.7) : colours.edge);

  function mixWithQuiet(deviation, quiet) {
    if (deviation === null || deviation <= QUIET) return quiet;
    return blend(colours["node-unusual"], colours["node-bad"], Math.min(1, (deviation - QUIET) / (BAD - QUIET)));
  }

  function nodeReducer(name, node) {
    if (focus === null || focus.has(name)) {
      const forced = drawn.service === name || isFirst(name) || Boolean(drawn.map.nodes.incident[node.at]);
      return { ...node, forceLabel: forced, highlighted: drawn.service === name };
    }
    return { ...node, color: colours.edge, size: 0.6 * node.size, label: "", zIndex: 0 };
  }

  function edgeReducer(edge, call) {
    if (drawn.onPath.has(call.at)) return { ...call, hidden: true }; // the overlay draws them in the direction of the spread
    if (focus === null) return call;
    const [source, destination] = graph.extremities(edge);
    return focus.has(source) && focus.has(destination) ? { ...call, size: call.size + 0.6 } : { ...call, hidden: true };
  }

  /** The services of the namespaces in question; services farther away are drawn, but need not be in view. */
  function closeBy(names) {
    const centre = new Set(
      names
        .filter((name) => name === drawn.service || drawn.map.nodes.incident[drawn.index.get(name)] || isFirst(name))
        .map(namespace),
    );
    return names.filter((name) => centre.has(namespace(name)));
  }

  function fit(atOnce) {
    const names = focus === null ? graph.nodes() : closeBy([...focus]);
    if (!names.length) return;
    const camera = renderer.getCamera(),
      state = camera.getState();
    const points = names.map((name) => renderer.getNodeDisplayData(name));
    const [x0, x1] = extent(points.map((p) => p.x)),
      [y0, y1] = extent(points.map((p) => p.y));
    const corner = (x, y) => renderer.framedGraphToViewport({ x, y });
    const a = corner(x0, y0),
      b = corner(x1, y1),
      { width, height } = renderer.getDimensions();
    const scale = Math.max(Math.abs(b.x - a.x) / (width - 160), Math.abs(b.y - a.y) / (height - 90));
    const to = { x: (x0 + x1) / 2, y: (y0 + y1) / 2, ratio: Math.max(0.05, scale * state.ratio), angle: 0 };
    if (atOnce || matchMedia("(prefers-reduced-motion: reduce)").matches) camera.setState(to);
    else camera.animate(to, { duration: 350 });
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
    namespaces(pen, renderer, drawn.circles, colours);
    const { source, destination } = drawn.map.edges;
    for (const { edge, step } of drawn.path) hop(pen, at(destination[edge]), at(source[edge]), step, colours);
    const { nodes } = drawn.map,
      isNear = (i) => focus === null || focus.has(nodes.name[i]);
    outlines(pen, nodes.name.flatMap((_, i) => (isUnknown(nodes, i) && isNear(i) ? [at(i)] : [])), colours);
    const first = drawn.index.get(drawn.incident?.suspects[0]?.service);
    if (first !== undefined) ring(pen, at(first), 3, [], colours);
    drawn.map.nodes.gone.forEach((gone, i) => gone && ring(pen, at(i), 2, [4, 3], colours));
  }

  /** The position and radius of a service in pixels. */
  function at(i) {
    const { x, y, name } = drawn.map.nodes;
    const middle = renderer.graphToViewport({ x: x[i], y: y[i] });
    return { ...middle, radius: renderer.scaleSize(renderer.getNodeDisplayData(name[i]).size) };
  }

  function describe() {
    const { map, incident, service } = drawn;
    const parts = [`${plural(map.services, "service")} and ${plural(map.calls, "call")}`];
    if (incident)
      parts.push(
        `likely origin ${incident.suspects[0]?.service ?? "unknown"}, spread over ${plural(drawn.path.length, "call")}`,
      );
    if (service) parts.push(`${service} is selected`);
    const silent = map.nodes.silent.filter(Boolean).length;
    if (silent) parts.push(`no telemetry from ${silent}`);
    if (map.collapsed.length) parts.push(`${plural(map.collapsed.length, "namespace")} drawn as one node each`);
    place.setAttribute("aria-label", `The mesh as a graph: ${parts.join("; ")}`);
    by("graph-title").textContent =
      `${plural(map.services, "service")}, ${plural(map.calls, "call")}${map.collapsed.length ? `; ${plural(map.collapsed.length, "quiet namespace")} collapsed, click one to expand it` : ""}`;
  }

  return {
    draw,
    redraw: () => {
      if (drawn && renderer) {
        shape = "";
        draw(drawn);
      }
    },
    resize: () => renderer?.refresh(),
  };
}

/** The services of the incident and the selected one, with their callers and callees; null: all services. */
function neighbourhood({ map, near, incident, service, index }) {
  if (!near) return null;
  const centre = new Set(
    [
      ...(incident ? [...incident.affected, ...incident.suspects.slice(0, 1).map((one) => one.service)] : []),
      ...(service ? [service] : []),
    ]
      .filter((name) => index.has(name))
      .map((name) => index.get(name)),
  );
  if (!centre.size) return null;
  const found = new Set(centre);
  map.edges.source.forEach((source, i) => {
    const destination = map.edges.destination[i];
    if (centre.has(source)) found.add(destination);
    if (centre.has(destination)) found.add(source);
  });
  return new Set([...found].map((i) => map.nodes.name[i]));
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
