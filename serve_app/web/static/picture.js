// A picture of services and their calls as SVG. Around the suspects, services are plates in layers (layers.js); a whole mesh has them
// where its layout does (whole.js). Normal calls are faint until the pointer or the keyboard is at one of their services.
import { WORDS, condition, shape } from "./conditions.js";
import { el, show } from "./dom.js";
import { PLATE } from "./layers.js";
import { isNewCall, isUnusualCall, nodeLabel } from "./scene.js";
import { originOf, originText } from "./suspects.js";
import { boxAround, fit, isFree, textWidth } from "./text.js";
import { callLabel } from "./numbers.js";
import { EVERYTHING, plural, readable } from "./words.js";

const SHAPE = 11, // from the left of a plate to the middle of its shape
  TEXT = 20, // to its name
  END = 9, // from the name to the right
  BADGE = 7, // radius of the number of a step
  LINE = 13, // height of a line of a label
  PAD = 4, // around it
  MARK = 6, // radius of the mark of an origin that has no label
  LABELS = 5, // of calls of the origin
  APART = 3, // around a label, to others
  ENOUGH = 0.1; // of the requests of the busiest call of a selected service, from which a call has a label
const LOOKS = ["normal", "unusual", "new", "spread", "origin", "selected"]; // of calls, the most prominent last

/** The width of a plate that shows a whole name. */
export const plateWidth = (text, isBold) => Math.ceil(TEXT + textWidth(text, isBold) + END) + 1;

/**
 * @param {HTMLElement} place
 * @param {{select: (service: string, source?: string | null) => void, open: (i: number) => void}} on called by clicks.
 */
export function pictureView(place, on) {
  let scene, svg;

  /**
   * @param {any} next the scene, see scene.js.
   * @param {any} arranged `{kind, width, height, at, ways, root}`, and where there are any `rest`, `columns`, `spaces`. kind: a class.
   * at: services by position in the map, `{x, y}` with the `width` of a plate, or with a `radius` and the `label` of a name. ways: see
   * routes.js. root: the service in the middle.
   */
  function draw(next, arranged) {
    scene = next;
    const { kind, width, height, at, ways, root, rest = [], columns = [], spaces = [] } = arranged,
      steps = new Map(scene.path.map(({ edge, step, isDown }) => [ends(edge)[isDown ? 1 : 0], step]));
    const picture = el(
      "svg",
      { class: `graph ${kind}`, width, height },
      el("g", {}, ...spaces.map(space)),
      el("g", { class: "calls" }, ...[...ways].sort(([a], [b]) => prominence(a) - prominence(b)).map(([e, way]) => call(e, way))),
      el("g", {}, ...[...at].reverse().map(([i, one]) => service(i, one, i === root, steps.get(i)))),
      el("g", {}, ...rest.map(({ x, y, text }) => el("text", { class: "rest", x, y: y + 4 }, text))),
      el("g", { class: "rates" }, ...rates(arranged, columns, height)),
    );
    show(place, picture);
    svg = place.firstElementChild;
    trace(nodeOf(document.activeElement));
  }

  const ends = (e) => [scene.map.edges.source[e], scene.map.edges.destination[e]];
  const nameOf = (i) => scene.map.nodes.name[i];
  const isFolded = (i) => nameOf(i).endsWith(EVERYTHING);
  const isSlow = () => scene.incident?.kind === "slow";
  const isSelected = (e) => scene.source === nameOf(ends(e)[0]) && scene.service === nameOf(ends(e)[1]);
  const hop = (e) => scene.path.find(({ edge }) => edge === e);

  function lookOf(e) {
    if (isSelected(e)) return "selected";
    if (e === scene.originCall) return "origin";
    if (isNewCall(scene, e)) return "new";
    if (hop(e)) return "spread";
    return isUnusualCall(scene, e) ? "unusual" : "normal";
  }

  /** Calls that matter are drawn last, above the others. */
  const prominence = (e) => LOOKS.indexOf(lookOf(e));

  function space({ name, x, y, across, down }) {
    return el("g", { class: "space" }, el("ellipse", { cx: x, cy: y, rx: across, ry: down }), el("text", { x, y: y - down - 4 }, name));
  }

  function call(e, { line, head }) {
    const [source, destination] = ends(e),
      look = lookOf(e),
      about = { origin: ", likely origin", new: ", new" }[look] ?? "";
    return el(
      "g",
      { class: `call ${look}${isFolded(source) || isFolded(destination) ? "" : " one"}`, "data-ends": `${source} ${destination}`, "data-call": e },
      el("title", {}, readable(`${nameOf(source)} → ${nameOf(destination)}: ${callLabel(scene.map.edges, e, isSlow()) || "not observed"}${about}`)),
      el("path", { class: "reach", d: line }),
      el("path", { class: "line", d: line }),
      el("path", { class: "head", d: head }),
    );
  }

  function service(i, one, isRoot, step) {
    const { nodes, status } = scene.map,
      of = condition(nodes, i, status, scene.incident),
      { services: origins, caller } = originOf(scene.incident),
      isFirst = origins.includes(nameOf(i)) && !caller,
      about = readable(`${scene.map.nodes.label?.[i] ?? nameOf(i)}: ${[WORDS[of], originText(scene.incident, nameOf(i))].filter(Boolean).join(", ")}`),
      hasBadge = step && (one.width || one.label), // where there is no room for a name, there is none for a number
      badge = one.width ? { x: one.x + one.width / 2 - 4, y: one.y - PLATE / 2 + 3 } : { x: one.x + one.radius + 4, y: one.y - one.radius - 4 };
    return el(
      "g",
      {
        class: ["service", of, isRoot && "root", isFirst && "first", scene.service === nameOf(i) && "selected", isFolded(i) && "folded"]
          .filter(Boolean)
          .join(" "),
        role: "button",
        tabindex: "-1",
        "aria-label": `${about}; ${countText(i)}`,
        "data-node": i,
        "data-key": `service ${nameOf(i)}`,
      },
      el("title", {}, about),
      ...(one.width ? plate(i, one, of, isRoot) : disc(i, one, of, isFirst)),
      hasBadge ? el("circle", { class: "badge", cx: badge.x, cy: badge.y, r: BADGE }) : null,
      hasBadge ? el("text", { class: "step", x: badge.x, y: badge.y + 3.5 }, String(step)) : null,
    );
  }

  /** "2 callers, 1 callee" of a service. */
  function countText(i) {
    const { source, destination } = scene.map.edges,
      others = (mine, theirs) => new Set(theirs.filter((one, e) => mine[e] === i && one !== i)).size;
    return `${plural(others(destination, source), "caller")}, ${plural(others(source, destination), "callee")}`;
  }

  function plate(i, { x, y, width }, of, isRoot) {
    const left = x - width / 2;
    return [
      el("rect", { x: left, y: y - PLATE / 2, width, height: PLATE, rx: 6 }),
      el("path", { class: "shape", d: shape(of, left + SHAPE, y, 5) }),
      el("text", { x: left + TEXT, y: y + 4 }, fit(nodeLabel(scene, i), width - TEXT - END, isRoot)),
    ];
  }

  function disc(i, { x, y, radius, label }, of, isFirst) {
    return [
      isFirst ? el("circle", { class: "ring", cx: x, cy: y, r: radius + 5 }) : null,
      el("circle", { class: "halo", cx: x, cy: y, r: radius + 3 }),
      el("path", { class: "shape", d: shape(of, x, y, radius) }),
      label ? el("text", { x: label.left, y: label.bottom - 4 }, nodeLabel(scene, i)) : null,
    ];
  }

  /** The labels of calls, the most important first, where there is room. The mark of an origin is always drawn. */
  function* rates({ at, ways, taken: kept = [] }, columns, height) {
    const { requests_per_second: rate } = scene.map.edges,
      taken = [...kept],
      first = scene.index.get(originOf(scene.incident).service) ?? scene.index.get(scene.service),
      atOrigin = at.has(first) ? [...ways.keys()].filter((e) => ends(e).includes(first)) : [],
      enough = ENOUGH * Math.max(0, ...atOrigin.map((e) => rate[e] ?? 0)),
      matters = (e) => (scene.incident ? lookOf(e) !== "normal" : rate[e] >= enough),
      wanted = scene.labels ? [...ways.keys()] : atOrigin.filter(matters),
      weigh = (e) => 1e9 * prominence(e) + Math.min(1e8, rate[e] ?? 0);
    for (const e of wanted.sort((a, b) => weigh(b) - weigh(a)).slice(0, scene.labels ? wanted.length : LABELS)) {
      const text = callLabel(scene.map.edges, e, isSlow());
      if (!text) continue;
      const lines = text.split(", "),
        isBold = lookOf(e) === "origin",
        size = (all) => ({ lines: all, width: Math.max(...all.map((line) => textWidth(line, isBold, 11))) + 2 * PAD, height: LINE * all.length + 2 }),
        sizes = [size(lines), size([lines.at(-1).replace(" failed", " ✗")])], // the second one for narrow gutters
        spots = sizes.flatMap((one) =>
          ways.get(e).spots.filter(({ room }) => one.width <= room - 8).map((spot) => ({ lines: one.lines, ...boxAround(spot, one.width, one.height) })),
        ),
        spot = spots.find((one) => isFree(one, taken) && inGutter(one, columns) && one.top > 2 && one.bottom < height - 2);
      if (!spot && e === scene.originCall) {
        const [{ x, y }] = ways.get(e).spots;
        yield el("circle", { class: "origin-mark", cx: x, cy: y, r: MARK });
      }
      if (!spot) continue;
      taken.push({ left: spot.left - APART, right: spot.right + APART, top: spot.top - APART, bottom: spot.bottom + APART });
      yield el(
        "g",
        { class: `rate ${lookOf(e)}`, "data-ends": ends(e).join(" ") },
        el("rect", { x: spot.left, y: spot.top, width: spot.right - spot.left, height: spot.bottom - spot.top, rx: 4 }),
        ...spot.lines.map((line, k) => el("text", { x: (spot.left + spot.right) / 2, y: spot.top + LINE * (k + 1) - 2 }, line)),
      );
    }
  }

  /** Show the calls of a service, and dim the others; undefined: of none. */
  function trace(i) {
    svg.classList.toggle("tracing", i !== undefined);
    for (const one of svg.querySelectorAll("[data-ends]")) one.classList.toggle("lit", i !== undefined && one.dataset.ends.split(" ").includes(i));
  }

  const nodeOf = (target) => target?.closest?.(".graph [data-node]")?.dataset.node;
  for (const event of ["pointerover", "focusin"]) place.addEventListener(event, ({ target }) => svg?.isConnected && trace(nodeOf(target)));
  for (const event of ["pointerleave", "focusout"]) place.addEventListener(event, () => svg?.isConnected && trace(undefined));
  place.addEventListener("click", ({ target }) => {
    if (!svg?.isConnected) return;
    const node = nodeOf(target),
      at = /** @type {Element} */ (target).closest(".call.one");
    if (node !== undefined) on.open(Number(node));
    else if (at) {
      const [source, destination] = ends(Number(/** @type {HTMLElement} */ (at).dataset.call));
      on.select(nameOf(destination), nameOf(source));
    } else on.select(null);
  });

  return { draw };
}

/** Whether a label leaves all columns free. */
const inGutter = ({ left, right }, columns) => columns.every((one) => right < one.left - 2 || left > one.right + 2);
