// The whole mesh, or one namespace: services, or folded namespaces, where the layout of the service has them, and their calls as straight lines. Dragging moves
// the picture, and the wheel zooms.
import { BAD, QUIET } from "./severity.js";
import { head } from "./routes.js";
import { isNewCall, isUnusualCall, nodeLabel } from "./scene.js";
import { originOf } from "./suspects.js";
import { boxAround, isFree, textWidth } from "./text.js";
import { EVERYTHING, namespace } from "./words.js";

const MARGIN = 14, // pixels around the graph
  NAME_ROOM = 60, // pixels beside it, for names
  CLOSEST = 90, // maximum pixels between nearest neighbours
  STRETCH = 3, // maximum factor between the two directions, so that the picture uses the whole stage
  ASIDE = 6, // pixels from a service to its name
  HEIGHT = 16, // pixels of a name
  MAX_NAMED = 3, // unusual services that always have a name
  SPOTS = [0.5, 0.35, 0.65]; // of the length of a call, where its label may be
const CROWDED = 300; // services in view, above which only calls that matter are drawn
const MAX_ZOOM = 60,
  MIN_ZOOM = 0.5,
  STEP = 0.0016, // of the logarithm of the zoom, by a pixel of the wheel
  STILL = 4; // pixels that the pointer may move in a click

/** What part of the picture is in view. @param {HTMLElement} place @param {() => void} moved */
export function cameraOf(place, moved) {
  let view = { zoom: 1, x: 0, y: 0 },
    drawn = view,
    from = null; // where a drag began, and the view then
  const isOn = () => Boolean(place.querySelector(".whole"));

  /** Move the picture at once, until it is drawn again. */
  function move(next) {
    view = next;
    const by = view.zoom / drawn.zoom,
      { style } = /** @type {SVGElement} */ (place.firstElementChild);
    style.transform = `translate(${view.x - by * drawn.x}px, ${view.y - by * drawn.y}px) scale(${by})`;
    moved();
  }

  place.addEventListener(
    "wheel",
    (event) => {
      if (!isOn()) return;
      event.preventDefault();
      const { left, top } = place.getBoundingClientRect(),
        [x, y] = [event.clientX - left, event.clientY - top],
        zoom = Math.min(MAX_ZOOM, Math.max(MIN_ZOOM, view.zoom * Math.exp(-STEP * event.deltaY))),
        by = zoom / view.zoom;
      move({ zoom, x: x - by * (x - view.x), y: y - by * (y - view.y) }); // what is under the pointer stays there
    },
    { passive: false },
  );
  place.addEventListener("pointerdown", ({ clientX, clientY, button }) => {
    from = isOn() && !button ? { clientX, clientY, view, isDrag: false } : null;
  });
  place.addEventListener("pointermove", ({ clientX, clientY, buttons }) => {
    if (!from || !buttons) return;
    const [x, y] = [clientX - from.clientX, clientY - from.clientY];
    from.isDrag ||= Math.hypot(x, y) >= STILL;
    if (!from.isDrag) return;
    move({ ...view, x: from.view.x + x, y: from.view.y + y });
  });
  const release = (event) => {
    if (from?.isDrag) event.stopImmediatePropagation(); // what is dragged is not selected
    from = null;
  };
  place.addEventListener("click", release, true);
  return {
    /** What is in view, which is drawn now: `{zoom, x, y}`. */
    view: () => (drawn = view),
    reset: () => {
      view = { zoom: 1, x: 0, y: 0 };
    },
  };
}

/**
 * Arrange services and calls for picture.js.
 * @param {any} scene of scene.js. @param {{width: number, height: number}} stage @param {{zoom: number, x: number, y: number}} view
 */
export function arrangeAll(scene, stage, { zoom, x: left, y: top }) {
  const { nodes, edges } = scene.map,
    shown = nodes.name.map((name) => !scene.space || namespace(name) === scene.space),
    { places, circles } = stretch(nodes, shown, stage),
    count = places.filter(Boolean).length,
    onPath = new Set(scene.path.map((one) => one.edge)),
    first = originOf(scene.incident).service,
    isMain = (i) => nodes.name[i] === first || nodes.name[i] === scene.service,
    weigh = (i) => (isMain(i) ? 4e6 : 0) + (nodes.incident[i] ? 1e6 : 0) + 1e3 * Math.min(QUIET + BAD, nodes.deviation[i] ?? 0) + nodes.services[i],
    order = places.flatMap((one, i) => (one ? [i] : [])).sort((a, b) => weigh(b) - weigh(a));
  /** Services grow more slowly than the space between them. */
  const radius = (i) =>
    Math.min(8, Math.max(3, 75 / Math.sqrt(count))) *
    (nodes.services[i] > 1 ? Math.min(3, 0.8 + 0.12 * Math.sqrt(nodes.services[i])) : 1) *
    (nodes.name[i] === first ? 1.5 : 1) *
    zoom ** 0.3;
  const to = ({ x, y }) => ({ x: zoom * x + left, y: zoom * y + top });
  const at = new Map(order.map((i) => [i, { ...to(places[i]), radius: radius(i), label: null }])),
    taken = [...at.values()].map((one) => boxAround(one, 2 * one.radius, 2 * one.radius));
  const isNamed = (i) => isMain(i) || (nodes.deviation[i] > QUIET && order.indexOf(i) < MAX_NAMED);
  for (const [i, one] of at) {
    one.label = spotOf(one, textWidth(nodeLabel(scene, i), isMain(i)), taken, isNamed(i), stage);
    if (one.label) taken.push(one.label);
  }
  const ways = new Map(
    [...edges.source.keys()]
      .filter((e) => edges.source[e] !== edges.destination[e] && at.has(edges.source[e]) && at.has(edges.destination[e]))
      .filter((e) => count <= CROWDED || isUnusualCall(scene, e) || isNewCall(scene, e) || onPath.has(e))
      .map((e) => [e, straight(at.get(edges.source[e]), at.get(edges.destination[e]))]),
  );
  const spaces = circles.map((one) => ({ ...one, ...to(one), across: zoom * one.across, down: zoom * one.down }));
  return { kind: "whole", ...stage, at, ways, spaces, taken, root: scene.index.get(first) };
}

/** The box of a name right or left of a service, where it is free; a `strong` one is always drawn. */
function spotOf({ x, y, radius }, width, taken, strong, stage) {
  const beside = [x + radius + ASIDE + width / 2, x - radius - ASIDE - width / 2].map((middle) => boxAround({ x: middle, y }, width, HEIGHT)),
    inside = beside.filter(({ left, right }) => left > 2 && right < stage.width - 2);
  return inside.find((one) => isFree(one, taken)) ?? (strong ? (inside[0] ?? beside[0]) : null);
}

/** The way of a call between the rims of two services. */
function straight(from, to) {
  const length = Math.hypot(to.x - from.x, to.y - from.y) || 1,
    [ux, uy] = [(to.x - from.x) / length, (to.y - from.y) / length],
    a = { x: from.x + ux * (from.radius + 2), y: from.y + uy * (from.radius + 2) },
    b = { x: to.x - ux * (to.radius + 2), y: to.y - uy * (to.radius + 2) };
  return {
    line: `M${a.x} ${a.y}L${b.x} ${b.y}`,
    head: head(b, ux, uy),
    spots: SPOTS.map((share) => ({ x: a.x + share * (b.x - a.x), y: a.y + share * (b.y - a.y), room: length - from.radius - to.radius })),
  };
}

/** Stretch the positions of the service, so that the services and the circles of their namespaces fill the stage. */
function stretch(nodes, shown, { width, height }) {
  const round = circlesOf(nodes, shown),
    xs = [...nodes.x.filter((_, i) => shown[i]), ...round.flatMap(({ x, reach }) => [x - reach, x + reach])],
    ys = [...nodes.y.filter((_, i) => shown[i]), ...round.flatMap(({ y, reach }) => [y - reach, y + reach])],
    [left, right, top, bottom] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
  const scale = {
    x: (width - 2 * (MARGIN + (round.length ? 0 : NAME_ROOM))) / Math.max(right - left, 1e-3),
    y: (height - 2 * (MARGIN + (round.length ? 8 : 0))) / Math.max(bottom - top, 1e-3),
  };
  const smaller = Math.min(scale.x, scale.y, CLOSEST);
  for (const axis of ["x", "y"]) scale[axis] = Math.min(scale[axis], STRETCH * smaller);
  const to = (x, y) => ({ x: width / 2 + (x - (left + right) / 2) * scale.x, y: height / 2 - (y - (top + bottom) / 2) * scale.y });
  return {
    places: nodes.name.map((_, i) => (shown[i] ? to(nodes.x[i], nodes.y[i]) : null)),
    circles: round.map(({ name, x, y, reach }) => ({ name, ...to(x, y), across: reach * scale.x, down: reach * scale.y })),
  };
}

/** The circle around the services of each namespace, in units of the layout; none around a namespace that is folded. */
function circlesOf({ name, x, y }, shown) {
  const groups = new Map();
  name.forEach((one, i) => {
    if (shown[i]) groups.set(namespace(one), [...(groups.get(namespace(one)) ?? []), i]);
  });
  return [...groups]
    .filter(([, members]) => !members.some((i) => name[i].endsWith(EVERYTHING)))
    .map(([of, members]) => {
      const mean = (values) => members.reduce((sum, i) => sum + values[i], 0) / members.length,
        middle = { x: mean(x), y: mean(y) };
      return { name: of, ...middle, reach: 0.7 + Math.max(...members.map((i) => Math.hypot(x[i] - middle.x, y[i] - middle.y))) };
    });
}
