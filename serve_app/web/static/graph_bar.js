// The controls above the graph: the suspects or the whole mesh, a namespace, rates.
import { by, el, show } from "./dom.js";
import { go, read } from "./link.js";
import { namespace } from "./words.js";

/** The namespaces that are drawn service by service, with one more. */
const withExpanded = (name) => [...new Set([...(read().expand?.split(",") ?? []), name])].join(",");

/** Show the suspects, or the selection, with what is around them. */
export function lookAround() {
  const { service, space, expand } = read();
  go({ view: null, space: null, expand: service && space ? withExpanded(space) : expand });
}

by("near").addEventListener("click", lookAround);
by("all").addEventListener("click", () => go({ view: "all" }));
by("space").addEventListener("change", () => {
  const space = by("space").value;
  go({ space: space || null, view: space ? "all" : read().view });
});
by("labels").addEventListener("change", () => go({ labels: by("labels").checked ? "calls" : null }));

/** @param {{map: any, incident: any, near: boolean, hasCentre: boolean}} shown near: whether the graph shows what is around the suspects or
 * the selection; hasCentre: whether it can. map: null: not loaded. */
export function drawGraphBar({ map, incident, near, hasCentre }) {
  const { service, space = "", labels } = read();
  by("near").disabled = !hasCentre;
  by("near").setAttribute("aria-pressed", String(near));
  by("all").setAttribute("aria-pressed", String(!near));
  by("near").textContent = incident || !service ? "Suspects" : "Selection";
  if (!map) return;
  const spaces = [...new Set(map.nodes.name.map(namespace))].sort(),
    all = space && !spaces.includes(space) ? [...spaces, space] : spaces;
  show(by("space"), el("option", { value: "" }, "All namespaces"), ...all.map((one) => el("option", { value: one }, one)));
  by("space").value = space;
  by("labels").checked = Boolean(labels);
}
