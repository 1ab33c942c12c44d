// Around the suspects: services are plates in layers (layers.js), calls run between them (routes.js). Drawn as SVG, to the height
// that it needs. Normal calls are faint until the pointer or the keyboard is at one of their services.
import { WORDS, condition, shape } from "./conditions.js";
import { el, show } from "./dom.js";
import { textWidth } from "./labels.js";
import { PLATE, layers } from "./layers.js";
import { routes } from "./routes.js";
import { isEvidence, isNewCall, isUnusualCall, nodeLabel } from "./scene.js";
import { originOf, originText } from "./suspects.js";
import { EVERYTHING, callLabel, readable } from "./words.js";

const SHAPE = 11, // from the left of a plate to the middle of its shape
  TEXT = 20, // to its name
  END = 9, // from the name to the right
  BADGE = 7, // radius of the number of a step, at a corner of the plate
  LINE = 13, // height of a line of a label
  PAD = 4, // around it
  MARK = 6, // radius of the mark of an origin that has no label
  ENOUGH = 0.1; // of the requests of the busiest call of the origin, from which a call has a label
const LOOKS = ["normal", "unusual", "new", "spread", "origin", "selected"]; // of calls, the most prominent last

/** The view. @param {HTMLElement} place @param {{select: (service: string, source?: string | null) => void, open: (i: number) => void}} on */
export function nearView(place, on) {
  let scene, svg, traced;

  /**
   * @param {any} next the scene, see scene.js.
   * @param {{width: number, height: number}} stage the height is the most that may be used.
   * @returns {{at: Map<number, {x: number, y: number, column: number}>, height: number}} the services that are drawn.
   */
  function draw(next, stage) {
    scene = next;
    const steps = new Map(scene.path.map(({ edge, step, isDown }) => [ends(edge)[isDown ? 1 : 0], step])),
      root = scene.index.get(scene.incident?.suspects[0]?.service) ?? scene.index.get(scene.service),
      need = (i) => Math.ceil(TEXT + textWidth(nodeLabel(scene.map.nodes, i), i === root) + END) + 1,
      layered = layers(scene.map, scene.centre, scene.centre.has(root) ? root : undefined, stage, need, scene.labels),
      ways = routes(scene.map.edges, layered, stage.width);
    svg = el(
      "svg",
      { class: "near", width: stage.width, height: layered.height, "aria-hidden": "true" },
      el("g", { class: "calls" }, ...[...ways].sort(([a], [b]) => prominence(a) - prominence(b)).map(([e, way]) => call(e, way))),
      el("g", {}, ...[...layered.at].map(([i, plate]) => service(i, plate, i === root, steps.get(i)))),
      el("g", {}, ...layered.rest.map(rest)),
      el("g", { class: "rates" }, ...rates(ways, layered)),
    );
    show(place, svg);
    svg = place.firstElementChild;
    if (traced !== undefined) trace(traced);
    return layered;
  }

  const ends = (e) => [scene.map.edges.source[e], scene.map.edges.destination[e]];
  const nameOf = (i) => scene.map.nodes.name[i];
  const isGroup = (i) => Boolean(scene.map.nodes.hub?.[i]) || nameOf(i).endsWith(EVERYTHING);
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

  function call(e, { line, heads }) {
    const [source, destination] = ends(e),
      look = lookOf(e),
      { requests_per_second: rate, error_rate: errors } = scene.map.edges,
      about = { origin: ", likely origin", new: ", new" }[look] ?? "";
    return el(
      "g",
      { class: `call ${look}${isGroup(source) || isGroup(destination) ? "" : " one"}`, "data-ends": `${source} ${destination}`, "data-call": e },
      el("title", {}, readable(`${nameOf(source)} → ${nameOf(destination)}: ${callLabel(rate[e], errors?.[e]) || "not observed"}${about}`)),
      el("path", { class: "reach", d: line }),
      el("path", { class: "line", d: line }),
      el("path", { class: "head", d: look === "spread" && !hop(e).isDown ? heads.source : heads.destination }),
    );
  }

  function service(i, { x, y, width }, isRoot, step) {
    const { nodes, status } = scene.map,
      of = condition(nodes, i, status, scene.incident),
      left = x - width / 2,
      { service: origin, caller } = originOf(scene.incident),
      first = nameOf(i) === origin && !caller,
      about = originText(scene.incident, nameOf(i)),
      text = fit(nodeLabel(nodes, i), width - TEXT - END, isRoot);
    return el(
      "g",
      {
        class: ["service", of, isRoot && "root", first && "first", scene.service === nameOf(i) && "selected", isGroup(i) && "group"]
          .filter(Boolean)
          .join(" "),
        "data-node": i,
      },
      el("title", {}, readable(`${nameOf(i)}: ${[WORDS[of], about].filter(Boolean).join(", ")}`)),
      el("rect", { x: left, y: y - PLATE / 2, width, height: PLATE, rx: 6 }),
      el("path", { class: "shape", d: shape(of, left + SHAPE, y, 5) }),
      el("text", { x: left + TEXT, y: y + 4 }, text),
      step ? el("circle", { cx: left + width - 4, cy: y - PLATE / 2 + 3, r: BADGE }) : null,
      step ? el("text", { class: "step", x: left + width - 4, y: y - PLATE / 2 + 6.5 }, String(step)) : null,
    );
  }

  function rest({ x, y, text }) {
    return el("text", { class: "rest", x, y: y + 4 }, text);
  }

  /** The labels of calls, the most important first, where there is room in a gutter. The mark of an origin is always drawn. */
  function* rates(ways, { columns, height }) {
    const { requests_per_second: rate, error_rate: errors } = scene.map.edges,
      taken = [],
      first = scene.index.get(scene.incident?.suspects[0]?.service) ?? scene.index.get(scene.service),
      atOrigin = [...ways.keys()].filter((e) => ends(e).includes(first)),
      least = ENOUGH * Math.max(0, ...atOrigin.map((e) => rate[e] ?? 0)),
      wanted = scene.labels ? [...ways.keys()] : atOrigin.filter((e) => rate[e] >= least || e === scene.originCall || isEvidence(scene, e)),
      weigh = (e) => 1e9 * prominence(e) + Math.min(1e8, rate[e] ?? 0);
    for (const e of wanted.sort((a, b) => weigh(b) - weigh(a))) {
      const text = callLabel(rate[e], errors?.[e]);
      if (!text) continue;
      const lines = text.split(", "),
        isBold = lookOf(e) === "origin",
        size = (all) => ({ lines: all, width: Math.max(...all.map((line) => textWidth(line, isBold, 11))) + 2 * PAD, height: LINE * all.length + 2 }),
        sizes = [size(lines), size([lines.at(-1).replace(" failed", " ✗")])], // the second one for narrow gutters
        spots = sizes.flatMap((one) => ways.get(e).spots.filter(({ room }) => one.width <= room - 8).map(({ x, y }) => boxOf(one, x, y))),
        spot = spots.find((one) => taken.every((other) => apart(one, other)) && inGutter(one, columns) && one.top > 2 && one.bottom < height - 2);
      if (!spot && e === scene.originCall) {
        const [{ x, y }] = ways.get(e).spots;
        yield el("circle", { class: "origin-mark", cx: x, cy: y, r: MARK });
      }
      if (!spot) continue;
      taken.push(spot);
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
    traced = i;
    svg?.classList.toggle("tracing", i !== undefined);
    for (const one of svg?.querySelectorAll("[data-ends]") ?? [])
      one.classList.toggle("lit", i !== undefined && one.dataset.ends.split(" ").includes(String(i)));
  }

  const nodeOf = (target) => target.closest?.(".near [data-node]")?.dataset.node;
  place.addEventListener("pointerover", ({ target }) => {
    if (!svg?.isConnected) return;
    const node = nodeOf(target);
    trace(node === undefined ? undefined : Number(node));
  });
  place.addEventListener("pointerleave", () => svg?.isConnected && trace(undefined));
  place.addEventListener("click", ({ target }) => {
    if (!svg?.isConnected) return;
    const node = nodeOf(/** @type {Element} */ (target)),
      at = /** @type {Element} */ (target).closest(".call.one");
    if (node !== undefined) on.open(Number(node));
    else if (at) {
      const [source, destination] = ends(Number(/** @type {HTMLElement} */ (at).dataset.call));
      on.select(nameOf(destination), nameOf(source));
    } else on.select(null);
  });

  /** Show where the keyboard is; undefined: nowhere. */
  function mark(i) {
    for (const one of svg?.querySelectorAll("[data-node]") ?? []) one.classList.toggle("at", Number(one.dataset.node) === i);
    trace(i);
  }

  return { draw, mark };
}

/** The text, or its beginning and end if it is too wide. */
function fit(text, room, bold) {
  if (textWidth(text, bold) <= room) return text;
  const letters = [...text];
  for (let kept = letters.length - 1; kept > 1; kept--) {
    const begin = Math.ceil(0.6 * kept),
      cut = `${letters.slice(0, begin).join("")}…${letters.slice(letters.length - kept + begin).join("")}`;
    if (textWidth(cut, bold) <= room) return cut;
  }
  return "…";
}

/** The box of a label around a point. */
const boxOf = ({ lines, width, height }, x, y) => ({ lines, left: x - width / 2, top: y - height / 2, right: x + width / 2, bottom: y + height / 2 });

const apart = (a, b) => a.right < b.left || a.left > b.right || a.bottom < b.top || a.top > b.bottom;

/** Whether a label leaves all columns free. */
const inGutter = ({ left, right }, columns) => columns.every((one) => right < one.left - 2 || left > one.right + 2);
