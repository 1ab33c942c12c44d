// The mesh as a graph: around an incident or a selected service in layers (layers.js), or the whole of it: a small mesh or namespace
// as it calls (whole.js), both as one kind of picture (picture.js); a large one as areas (treemap.js).
import { legend } from "./conditions.js";
import { by, el, show } from "./dom.js";
import { address } from "./link.js";
import { layers } from "./layers.js";
import { pictureView, plateWidth } from "./picture.js";
import { routes } from "./routes.js";
import { nodeLabel, sceneOf } from "./scene.js";
import { originOf } from "./suspects.js";
import { treemapView } from "./treemap.js";
import { EVERYTHING, namespace, plural, readable } from "./words.js";
import { walk } from "./walk.js";
import { arrangeAll, cameraOf } from "./whole.js";

const SETTLED_MS = 150; // after the last movement of the camera, before names get their new room
const DRAWN = 60; // services of a namespace of a large mesh, up to which their calls are drawn

/**
 * @param {{select: (service: string | null, source?: string | null) => void, expand: (namespace: string) => void, enter: (namespace:
 * string | null) => void}} on called by a click. expand: draw the services of a namespace, too. enter: show only those.
 */
export function graphView(on) {
  const place = by("canvas"),
    stage = by("stage");
  let given = null,
    scene = null;

  /** Open the node: the panel of a service, the namespace of a folded one. */
  function open(i) {
    const name = scene.map.nodes.name[i];
    if (name.endsWith(EVERYTHING)) on.expand(name.slice(0, -EVERYTHING.length));
    else on.select(name);
  }

  let settled = 0; // timer
  const camera = cameraOf(place, () => {
    clearTimeout(settled);
    settled = setTimeout(redraw, SETTLED_MS);
  });
  by("legend").replaceChildren(...legend());
  const picture = pictureView(place, { select: on.select, open }),
    areas = treemapView(place, on),
    enterOnce = walk(place);

  /** @param {any} next `{mesh, map, incident, service, source, near, space, unusual, labels}`: what to show. space: only this
   * namespace. unusual: only unusual services. labels: on all calls. */
  function draw(next) {
    const before = given,
      isNew =
        !before ||
        ["mesh", "near", "service", "source", "space", "unusual"].some((field) => before[field] !== next[field]) ||
        before.incident?.id !== next.incident?.id ||
        before.map.collapsed.length !== next.map.collapsed.length;
    given = next;
    scene = sceneOf(next);
    stage.style.height = "";
    const size = { width: place.clientWidth, height: place.clientHeight },
      isLayered = next.near && scene.centre.size > 0;
    if (!size.width) return; // hidden
    const isTreemap = !isLayered && isLarge();
    let count, shown; // nodes, and the services that they stand for
    if (isNew) camera.reset();
    if (isTreemap) {
      count = areas.draw(scene, size).count;
      shown = scene.map.services;
    } else {
      const arranged = isLayered ? arrangeLayers(scene, size) : arrangeAll(scene, size, camera.view());
      picture.draw(scene, arranged);
      if (isLayered) stage.style.height = `${Math.ceil(arranged.height) + 2}px`; // with the border
      count = arranged.at.size;
      shown = [...arranged.at.keys()].reduce((sum, i) => sum + scene.map.nodes.services[i], 0);
    }
    enterOnce();
    drawCrumbs();
    describe(count, shown, isTreemap);
  }

  /** Whether what is in view is too large to draw its calls. */
  function isLarge() {
    const { map, space } = scene;
    if (!map.namespaces) return false;
    return !space || map.nodes.name.filter((name) => namespace(name) === space).length > DRAWN || map.collapsed.includes(space);
  }

  /** The way back from a namespace of a large mesh. */
  function drawCrumbs() {
    const { map, space } = scene,
      isInside = Boolean(map.namespaces && space);
    by("crumbs").hidden = !isInside;
    if (isInside)
      show(by("crumbs"), el("a", { href: address({ space: null, view: "all" }) }, "All namespaces"), el("span", {}, " › "), el("span", { "aria-current": "page" }, space));
  }

  function describe(count, shown, isTreemap) {
    const { map, incident, service } = scene,
      total = map.nodes.name.length;
    const parts = [`${plural(map.services, "service")} and ${plural(map.calls, "call")}`];
    if (incident) {
      const { service: first = "unknown", caller } = originOf(incident);
      parts.push(`likely origin ${caller ? `the calls ${caller} → ${first}` : first}, spread over ${plural(scene.path.length, "call")}`);
    }
    if (service) parts.push(`${scene.source ? `the calls ${scene.source} → ${service} are` : `${service} is`} selected`);
    const silent = map.nodes.silent.filter(Boolean).length;
    if (silent) parts.push(`no telemetry from ${silent}`);
    const { namespaces: spaces } = map,
      isOverview = isTreemap && !scene.space;
    if (isOverview) parts.push(`${count} of ${plural(spaces.name.length, "namespace")} as areas`);
    else if (count < total) parts.push(`${count} of ${total} nodes in view`);
    place.setAttribute("aria-label", readable(`The mesh as a graph: ${parts.join("; ")}`));
    const services = plural(map.services, "service");
    by("graph-title").textContent = isOverview
      ? `${services} in ${plural(spaces.name.length, "namespace")}`
      : shown < map.services
        ? `Services: ${shown.toLocaleString("en")} of ${map.services.toLocaleString("en")}`
        : services;
  }

  const redraw = () => given && draw(given);
  return { draw, redraw };
}

/**
 * Arrange services and calls around the suspects for picture.js.
 * @param {any} scene of scene.js. @param {{width: number, height: number}} stage the height is the most that may be used.
 */
export function arrangeLayers(scene, stage) {
  const { map, centre, index, incident, service, labels } = scene,
    root = index.get(incident?.suspects[0]?.service) ?? index.get(service),
    need = (i) => plateWidth(nodeLabel(map.nodes, i), i === root),
    layered = layers(map, centre, centre.has(root) ? root : undefined, stage, need, labels);
  return { kind: "near", width: stage.width, ...layered, ways: routes(map.edges, layered, stage.width), root };
}
