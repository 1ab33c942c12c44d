// Services with their positions of the layout, and their calls, on a canvas: a small mesh, or one namespace of a large one.
import { arrows, circles, hover, hoverBox, namespaces, ring, steps } from "./annotations.js";
import { cameraOf } from "./camera.js";
import { INKS, condition, shape } from "./conditions.js";
import { colour } from "./dom.js";
import { box, drawLabels } from "./labels.js";
import { nearestCall } from "./picking.js";
import { isNewCall, isUnusualCall, nodeLabel } from "./scene.js";
import { BAD, QUIET } from "./severity.js";
import { originOf } from "./suspects.js";
import { EVERYTHING, callLabel, namespace } from "./words.js";

const MARGIN = 14, // pixels around the graph
  NAME_ROOM = 60; // pixels beside it, for names
const CLOSEST = 90, // most pixels between nearest neighbours
  OBSTACLES = 200, // services that names do not cover
  MORE_OBSTACLES = 600, // that labels of calls do not cover
  ROOM = 48; // least pixels between the ends of a call with a label
const STRETCH = 3; // most that the positions are stretched in one direction, to use the whole stage
const REACH = 7, // pixels from a call, within which a click selects it
  HEAD = 6; // pixels of the head of an arrow
const INK_NAMES = ["node", "node-unusual", "node-bad", "edge", "label", "path", "paper", "rule", "soft", "accent", "hollow", "new-call"];

/** The view. @param {HTMLElement} place @param {{select: (service: string | null, source?: string | null) => void, open: (i: number) => void}} on */
export function wholeView(place, on) {
  const canvas = document.createElement("canvas");
  let scene,
    places = [], // of each service, in pixels of the stage before it is moved; null: not drawn
    circled = [], // the same of namespaces
    order = [], // services that are drawn, the most important first
    conditions = [],
    colours = null,
    stage = { width: 0, height: 0 },
    pointed = -1, // the service under the pointer or the keyboard; -1: none
    frame = 0;
  const camera = cameraOf(place, {
    isOn: () => canvas.isConnected,
    moved: later,
    click: (point) => {
      const i = serviceAt(point),
        call = i < 0 ? callAt(point) : -1,
        { source, destination } = scene.map.edges;
      if (i >= 0) on.open(i);
      else if (call >= 0) on.select(nameOf(destination[call]), nameOf(source[call]));
      else on.select(null);
    },
  });
  place.addEventListener("pointermove", (event) => {
    if (!canvas.isConnected || camera.isDragged()) return;
    const point = camera.pointOf(event),
      i = serviceAt(point);
    place.style.cursor = i >= 0 || callAt(point) >= 0 ? "pointer" : "";
    if (i !== pointed) mark(i);
  });

  const nameOf = (i) => scene.map.nodes.name[i];
  const isFirst = (i) => scene.incident?.suspects[0]?.service === nameOf(i);
  /** Calls with an arrow of the spread. New calls have a look of their own. */
  const spreadCalls = () => scene.path.filter(({ edge }) => !isNewCall(scene, edge));
  const pathCalls = () => new Set(spreadCalls().map(({ edge }) => edge));
  const isDrawnCall = (e) => Boolean(places[scene.map.edges.source[e]] && places[scene.map.edges.destination[e]]);
  const isSelectedCall = (e) =>
    scene.source === nameOf(scene.map.edges.source[e]) && scene.service === nameOf(scene.map.edges.destination[e]);

  /** @returns {{at: Map<number, {x: number, y: number}>, height: number}} the services that are drawn. */
  function draw(next, size, isNew) {
    scene = next;
    stage = size;
    colours = Object.fromEntries(INK_NAMES.map((name) => [name, colour(name)]));
    const { nodes, status } = scene.map,
      shown = nodes.name.map((name, i) => isShown(name, i));
    ({ places, circled } = stretch(nodes, shown, stage));
    conditions = nodes.name.map((_, i) => condition(nodes, i, status, scene.incident));
    const weigh = (i) =>
      (isFirst(i) ? 4e6 : 0) +
      (nodes.name[i] === scene.service ? 2e6 : 0) +
      (nodes.incident[i] ? 1e6 : 0) +
      1e3 * Math.min(QUIET + BAD, nodes.deviation[i] ?? 0) +
      nodes.services[i];
    order = places.flatMap((one, i) => (one ? [i] : [])).sort((a, b) => weigh(b) - weigh(a));
    if (pointed >= nodes.name.length) pointed = -1;
    if (isNew) camera.reset();
    if (canvas.parentNode !== place) place.replaceChildren(canvas);
    paint();
    return { at: new Map(order.map((i) => [i, places[i]])), height: stage.height };
  }

  /** Whether the filters let a service through. */
  function isShown(name, i) {
    const { nodes } = scene.map;
    if (scene.space && namespace(name) !== scene.space) return false;
    return !scene.unusual || nodes.unusual[i] > 0 || Boolean(nodes.incident[i]) || name === scene.service;
  }

  function later() {
    frame ||= requestAnimationFrame(() => {
      frame = 0;
      paint();
    });
  }

  function paint() {
    const { width, height } = stage,
      dense = window.devicePixelRatio || 1;
    if (canvas.width !== Math.round(width * dense) || canvas.height !== Math.round(height * dense)) {
      canvas.width = Math.round(width * dense);
      canvas.height = Math.round(height * dense);
      canvas.style.width = `${width}px`;
      canvas.style.height = `${height}px`;
    }
    const pen = canvas.getContext("2d");
    pen.setTransform(dense, 0, 0, dense, 0, 0);
    pen.clearRect(0, 0, width, height);
    pen.direction = "ltr";
    const zoom = camera.zoom(),
      moved = circled.map((one) => ({ ...one, ...camera.to(one), across: zoom * one.across, down: zoom * one.down })),
      named = namespaces(pen, stage, moved, colours);
    drawCalls(pen);
    const { source, destination } = scene.map.edges;
    const hops = spreadCalls()
      .filter(({ edge }) => isDrawnCall(edge))
      .map(({ edge, step, isDown }) => ({ edge, step, isAlong: isDown || edge === scene.originCall }))
      .map(({ edge, step, isAlong }) => ({
        from: at(isAlong ? source[edge] : destination[edge]),
        to: at(isAlong ? destination[edge] : source[edge]),
        step,
        ink: isSelectedCall(edge) ? colours.accent : colours.path,
      }));
    arrows(pen, hops);
    drawOriginCall(pen);
    for (const i of order.toReversed()) drawService(pen, i);
    const selected = scene.index.get(scene.service),
      boxed = [selected, pointed].filter((i) => places[i]).map((i) => ({ ...at(i), name: nameOf(i) })),
      obstacles = order.slice(0, OBSTACLES).map(at),
      around = obstacles.map(box),
      kept = [...around, ...named, ...boxed.map((one) => hoverBox(pen, one))],
      taken = drawLabels(pen, names(), stage, kept, colours),
      numbers = steps(pen, hops, obstacles, taken.slice(around.length), colours);
    drawLabels(pen, callLabels(), stage, [...taken, ...numbers, ...order.slice(OBSTACLES, MORE_OBSTACLES).map((i) => box(at(i)))], colours);
    for (const one of boxed) hover(pen, one, colours);
  }

  /** The mark of an origin, on the calls that are it. */
  function drawOriginCall(pen) {
    const e = scene.originCall;
    if (e === undefined || !isDrawnCall(e)) return;
    const [a, b] = [at(scene.map.edges.source[e]), at(scene.map.edges.destination[e])];
    ring(pen, { x: (a.x + b.x) / 2, y: (a.y + b.y) / 2, radius: 1 }, colours);
  }

  function drawCalls(pen) {
    const { source, destination, deviation } = scene.map.edges,
      path = pathCalls();
    for (const e of source.keys()) {
      if (!isDrawnCall(e) || source[e] === destination[e] || path.has(e)) continue; // arrows are drawn for the spread
      const isLit = pointed === source[e] || pointed === destination[e],
        isNew = isNewCall(scene, e),
        isUnusual = isNew || isUnusualCall(scene, e),
        a = at(source[e]),
        b = at(destination[e]),
        length = Math.hypot(b.x - a.x, b.y - a.y) || 1,
        [ux, uy] = [(b.x - a.x) / length, (b.y - a.y) / length],
        end = { x: b.x - ux * (b.radius + 2), y: b.y - uy * (b.radius + 2) };
      const ink = isSelectedCall(e) ? "accent" : isNew ? "new-call" : isUnusual ? (deviation[e] < BAD ? "node-unusual" : "node-bad") : isLit ? "soft" : "edge";
      pen.globalAlpha = isLit || isUnusual || pointed < 0 ? 1 : 0.3;
      pen.strokeStyle = pen.fillStyle = colours[ink];
      pen.lineWidth = isSelectedCall(e) ? 4 : isUnusual ? 2.2 : isLit ? 1.6 : 0.8;
      pen.setLineDash(isNew ? [6, 4] : []);
      pen.beginPath();
      pen.moveTo(a.x, a.y);
      pen.lineTo(end.x, end.y);
      pen.stroke();
      pen.setLineDash([]);
      pen.beginPath();
      pen.moveTo(end.x, end.y);
      pen.lineTo(end.x - HEAD * ux - 0.5 * HEAD * uy, end.y - HEAD * uy + 0.5 * HEAD * ux);
      pen.lineTo(end.x - HEAD * ux + 0.5 * HEAD * uy, end.y - HEAD * uy - 0.5 * HEAD * ux);
      pen.fill();
    }
    pen.globalAlpha = 1;
  }

  function drawService(pen, i) {
    const { x, y, radius } = at(i);
    if (x < -radius || y < -radius || x > stage.width + radius || y > stage.height + radius) return;
    const of = conditions[i],
      outline = new Path2D(shape(of, x, y, radius));
    pen.fillStyle = colours[INKS[of] ?? "paper"];
    pen.fill(outline);
    if (!INKS[of]) {
      pen.strokeStyle = of === "gone" ? colours.path : colours.hollow;
      pen.lineWidth = of === "gone" ? 2 : 1.6;
      pen.setLineDash(of === "gone" ? [4, 3] : []);
      pen.stroke(outline);
      pen.setLineDash([]);
    }
    if (isFirst(i) && !originOf(scene.incident).caller) ring(pen, { x, y, radius }, colours);
  }

  /** The names of services in view, the most important first. The selected one and the one under the pointer have a box. */
  function* names() {
    for (const i of order)
      if (nameOf(i) !== scene.service && i !== pointed) yield { ...at(i), text: nodeLabel(scene.map.nodes, i), strong: isFirst(i) };
  }

  /** The labels of calls in view, the most important first. Short calls have no room. */
  function* callLabels() {
    if (!scene.labels) return;
    const { source, destination, requests_per_second: rate, error_rate: errors } = scene.map.edges,
      path = pathCalls(),
      weigh = (e) => 2e9 * Number(path.has(e)) + 1e9 * Number(isUnusualCall(scene, e)) + Math.min(1e8, rate[e] ?? 0),
      calls = [...source.keys()].filter((e) => isDrawnCall(e) && source[e] !== destination[e]);
    for (const e of calls.sort((a, b) => weigh(b) - weigh(a))) {
      const text = callLabel(rate[e], errors?.[e]),
        ends = [camera.to(places[source[e]]), camera.to(places[destination[e]])],
        [a, b] = ends;
      if (text && Math.hypot(a.x - b.x, a.y - b.y) >= ROOM) yield { x: (a.x + b.x) / 2, y: (a.y + b.y) / 2, ends, text, strong: false };
    }
  }

  /** The position and radius of a service in pixels. Services grow more slowly than the space between them. */
  function at(i) {
    const { services } = scene.map.nodes,
      size = Math.min(8, Math.max(3, 75 / Math.sqrt(order.length))),
      breadth = services[i] > 1 ? Math.min(3, 0.8 + 0.12 * Math.sqrt(services[i])) : 1,
      weight = isFirst(i) ? 1.5 : conditions[i] === "normal" ? 1 : 1.25;
    return { ...camera.to(places[i]), radius: size * breadth * weight * camera.zoom() ** 0.3 };
  }

  function serviceAt({ x, y }) {
    return order.find((i) => {
      const one = at(i);
      return Math.hypot(one.x - x, one.y - y) <= one.radius + 2;
    }) ?? -1;
  }

  /** The position of the call at a point; -1: there is none. Calls of folded namespaces have no panel. */
  function callAt(point) {
    const { nodes, edges } = scene.map,
      isOne = (i) => Boolean(places[i]) && !nodes.name[i].endsWith(EVERYTHING);
    return nearestCall(edges, places, camera.from(point), REACH / camera.zoom(), (e) => isOne(edges.source[e]) && isOne(edges.destination[e]));
  }

  /** Show a service and its calls; -1 or undefined: none. */
  function mark(i = -1) {
    pointed = i;
    if (canvas.isConnected) later();
  }

  return { draw, mark };
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
