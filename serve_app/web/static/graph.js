// The mesh as a graph: around an incident or a selected service in layers (near.js), or the whole of it: a small mesh or namespace
// as it calls (whole.js), a large one as areas (treemap.js).
import { by, el, show } from "./dom.js";
import { address } from "./link.js";
import { nearView } from "./near.js";
import { sceneOf } from "./scene.js";
import { originOf } from "./suspects.js";
import { servicesTable } from "./table.js";
import { treemapView } from "./treemap.js";
import { EVERYTHING, namespace, plural, readable } from "./words.js";
import { walk } from "./walk.js";
import { wholeView } from "./whole.js";

const DRAWN = 60; // services of a namespace of a large mesh, up to which their calls are drawn

/**
 * @param {{select: (service: string | null, source?: string | null) => void, expand: (namespace: string) => void, enter: (namespace:
 * string | null) => void}} on called by a click. expand: draw the services of a namespace, too. enter: show only those.
 */
export function graphView(on) {
  const place = by("canvas"),
    stage = by("stage"),
    table = by("graph-table");
  let given = null,
    scene = null;

  /** Open the node: the panel of a service, the namespace of a folded one. A group of neighbours opens the service that it belongs to. */
  function open(i) {
    const { name, hub } = scene.map.nodes;
    if (name[i].endsWith(EVERYTHING)) on.expand(name[i].slice(0, -EVERYTHING.length));
    else on.select(hub?.[i] ?? name[i]);
  }

  const near = nearView(place, { select: on.select, open }),
    whole = wholeView(place, { select: on.select, open }),
    areas = treemapView(place, on),
    walker = walk(place, open);

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
    if (isTreemap) {
      count = areas.draw(scene, size).count;
      shown = scene.map.services;
      walker.follow(scene, { at: new Map() }, null);
    } else {
      const { at, height } = isLayered ? near.draw(scene, size) : whole.draw(scene, size, isNew);
      if (isLayered) stage.style.height = `${Math.ceil(height) + 2}px`; // with the border
      walker.follow(scene, { at }, isLayered ? near : whole);
      count = at.size;
      shown = [...at.keys()].reduce((sum, i) => sum + scene.map.nodes.services[i], 0);
    }
    place.tabIndex = isTreemap ? -1 : 0; // areas have the focus themselves
    place.style.cursor = "";
    drawCrumbs();
    describe(count, shown, isTreemap);
    drawTable();
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

  /** The table of the same content, if it is open. */
  function drawTable() {
    if (scene && table.open) show(by("graph-rows"), servicesTable(scene, { select: on.select, expand: on.expand }));
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

  table.addEventListener("toggle", drawTable);
  const redraw = () => given && draw(given);
  return { draw, redraw, resize: redraw };
}
