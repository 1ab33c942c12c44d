// The keyboard in the graph: arrows go along calls and within a column, Enter opens, Esc leaves. The page says where it is.
import { WORDS, condition } from "./conditions.js";
import { by } from "./dom.js";
import { originText } from "./suspects.js";
import { plural, readable } from "./words.js";

const ASIDE = 3; // how much less a service beside is wanted than one straight above or below

/** @param {HTMLElement} place that has the focus. @param {(i: number) => void} open */
export function walk(place, open) {
  let scene, drawn, view,
    here; // position of a service; undefined: nowhere

  /** What can be walked: services by position, in pixels. @param {any} next @param {{at: Map<number, any>}} arranged @param {{mark: (i?: number) => void}} shown */
  function follow(next, arranged, shown) {
    const name = scene?.map.nodes.name[here];
    scene = next;
    drawn = arranged.at;
    view = shown;
    here = drawn.has(scene.index.get(name)) ? scene.index.get(name) : undefined;
    if (here !== undefined) view.mark(here);
  }

  const first = () => {
    const { index, incident, service } = scene,
      wanted = [service, incident?.suspects[0]?.service].map((name) => index.get(name)).find((i) => drawn.has(i));
    return wanted ?? drawn.keys().next().value;
  };

  /** The services at the other end of the calls of one, without those that are not drawn. */
  function others(i, from, to) {
    const { edges } = scene.map;
    return [...new Set(edges[from].flatMap((one, e) => (one === i && edges[to][e] !== i && drawn.has(edges[to][e]) ? [edges[to][e]] : [])))];
  }

  function nearest(candidates, away) {
    return candidates.reduce((best, one) => (best === undefined || away(one) < away(best) ? one : best), undefined);
  }

  function nextFrom(key) {
    const { x, y, column } = drawn.get(here),
      offset = (i) => ({ x: drawn.get(i).x - x, y: drawn.get(i).y - y });
    if (key === "ArrowLeft" || key === "ArrowRight") {
      const along = key === "ArrowLeft" ? others(here, "destination", "source") : others(here, "source", "destination");
      return nearest(along, (i) => Math.hypot(offset(i).x, offset(i).y));
    }
    const sign = key === "ArrowUp" ? -1 : 1,
      there = [...drawn.keys()].filter((i) => i !== here && drawn.get(i).column === column && sign * offset(i).y > 0);
    return nearest(there, (i) => Math.abs(offset(i).y) + ASIDE * Math.abs(offset(i).x));
  }

  function go(i) {
    here = i;
    view.mark(i);
    const { nodes, status } = scene.map,
      state = [WORDS[condition(nodes, i, status, scene.incident)], originText(scene.incident, nodes.name[i])].filter(Boolean).join(", "),
      [callers, callees] = [others(i, "destination", "source"), others(i, "source", "destination")];
    by("walked").textContent = readable(
      `${nodes.name[i]}: ${state}; ${plural(callers.length, "caller")}, ${plural(callees.length, "callee")} in view`,
    );
  }

  function leave() {
    here = undefined;
    view?.mark();
    by("walked").textContent = "";
  }

  place.addEventListener("focus", () => {
    if (place.matches(":focus-visible") && drawn?.size) go(here ?? first());
  });
  place.addEventListener("blur", leave);
  place.addEventListener("keydown", (event) => {
    const { key } = event;
    if (event.target !== place || !drawn?.size || event.ctrlKey || event.metaKey || event.altKey) return;
    if (!["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown", "Enter", "Escape"].includes(key)) return;
    event.preventDefault();
    event.stopPropagation(); // the same keys move through time elsewhere
    if (key === "Escape") place.blur();
    else if (here === undefined) go(first());
    else if (key === "Enter") open(here);
    else {
      const i = nextFrom(key);
      if (i === undefined) by("walked").textContent = { ArrowLeft: "No caller in view", ArrowRight: "No callee in view", ArrowUp: "Top", ArrowDown: "Bottom" }[key];
      else go(i);
    }
  });

  return { follow };
}
