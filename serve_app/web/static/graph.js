// The mesh as a graph, around an incident or a selected service in layers (layers.js), or the whole of it (whole.js); both are one kind of
// picture (picture.js).
import { legend } from "./conditions.js";
import { MIXED, foldCrowd } from "./crowd.js";
import { by, show } from "./dom.js";
import { layers } from "./layers.js";
import { pictureView, plateWidth } from "./picture.js";
import { routes } from "./routes.js";
import { nodeLabel, sceneOf } from "./scene.js";
import { originOf } from "./suspects.js";
import { EVERYTHING, plural, readable } from "./words.js";
import { walk } from "./walk.js";
import { arrangeAll, cameraOf } from "./whole.js";

const SETTLED_MS = 150; // after the last movement of the camera, before names get their new room

/**
 * @param {{select: (service: string | null, source?: string | null) => void, enter: (namespace: string | null) => void}} on called by a click.
 * enter: show only the services of a namespace; null: of all.
 */
export function graphView(on) {
  const place = by("canvas"),
    stage = by("stage");
  let given = null,
    scene = null;

  /** Open the node: the panel of a service, the namespace of a folded one. */
  function open(i) {
    const name = scene.map.nodes.name[i];
    if (name.endsWith(EVERYTHING)) on.enter(name === MIXED ? null : name.slice(0, -EVERYTHING.length));
    else on.select(name);
  }

  let settled = 0; // timer
  const camera = cameraOf(place, () => {
    clearTimeout(settled);
    settled = setTimeout(redraw, SETTLED_MS);
  });
  const picture = pictureView(place, { select: on.select, open }),
    enterOnce = walk(place);

  /** @param {any} next `{mesh, map, incident, service, source, near, space, labels}`: what to show. space: only this
   * namespace. labels: on all calls. */
  function draw(next) {
    const before = given,
      isNew =
        !before ||
        ["mesh", "near", "service", "source", "space"].some((field) => before[field] !== next[field]) ||
        before.incident?.id !== next.incident?.id ||
        before.map.collapsed.length !== next.map.collapsed.length;
    given = next;
    scene = sceneOf(next.near ? { ...next, map: foldCrowd(next.map, next.incident, [next.service, next.source]) } : next);
    stage.style.height = "";
    const size = { width: place.clientWidth, height: place.clientHeight },
      isLayered = next.near && scene.centre.size > 0;
    if (!size.width) return; // hidden
    if (isNew) camera.reset();
    const arranged = isLayered ? arrangeLayers(scene, size) : arrangeAll(scene, size, camera.view());
    picture.draw(scene, arranged);
    show(by("legend"), ...legend(place));
    if (isLayered) stage.style.height = `${Math.ceil(arranged.height) + 2}px`; // with the border
    enterOnce();
    describe([...arranged.at.keys()]);
  }

  /** @param {number[]} drawn the nodes in view. */
  function describe(drawn) {
    const { map, incident, service } = scene,
      total = map.nodes.name.length,
      shown = drawn.reduce((sum, i) => sum + map.nodes.services[i], 0);
    const parts = [`${plural(map.services, "service")} and ${plural(map.calls, "call")}`];
    if (incident) {
      const { services, caller } = originOf(incident),
        origin = services.join(", ") || "unknown";
      parts.push(`likely origin ${caller ? `the calls ${caller} → ${origin}` : origin}, spread over ${plural(scene.path.length, "call")}`);
    }
    if (service) parts.push(`${scene.source ? `the calls ${scene.source} → ${service} are` : `${service} is`} selected`);
    const silent = map.nodes.silent.filter(Boolean).length;
    if (silent) parts.push(`no telemetry from ${silent}`);
    if (drawn.length < total) parts.push(`${drawn.length} of ${total} nodes in view`);
    place.setAttribute("aria-label", readable(`The mesh as a graph: ${parts.join("; ")}`));
    const services = plural(map.services, "service");
    by("graph-title").textContent = shown < map.services ? `Services: ${shown.toLocaleString("en")} of ${map.services.toLocaleString("en")}` : services;
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
    root = index.get(originOf(incident).service) ?? index.get(service),
    need = (i) => plateWidth(nodeLabel(scene, i), i === root),
    layered = layers(map, centre, centre.has(root) ? root : undefined, stage, need, labels);
  return { kind: "near", width: stage.width, ...layered, ways: routes(map.edges, layered, stage.width), root };
}
