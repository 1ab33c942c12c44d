// The services that behave most like one service, by their embeddings. Computed on request.
import { el } from "./dom.js";
import * as feed from "./feed.js";
import { QUIET, unusualness } from "./severity.js";

const TITLE = "Services like this one";

/** @param {any} on `{redraw(), select(service)}`: called when an answer arrived, and by a click on a service. */
export function similarView(on) {
  let asked = ""; // mesh and service of the answer
  let answer = null; // {similar} or {problem}; null: on its way

  async function ask(mesh, service) {
    const key = keyOf(mesh, service);
    asked = key;
    answer = null;
    on.redraw();
    let found;
    try {
      found = await feed.similar(mesh, service);
    } catch (error) {
      found = { problem: error.message };
    }
    if (asked !== key) return;
    answer = found;
    on.redraw();
  }

  const keyOf = (mesh, service) => JSON.stringify([mesh, service]);

  function content(mesh, service) {
    if (asked !== keyOf(mesh, service)) {
      const find = () => ask(mesh, service);
      return el("button", { type: "button", "data-key": "similar", click: find }, "Find services that behave like this one");
    }
    if (!answer) return el("p", { class: "affected" }, "Loading");
    if (answer.problem) return el("p", { class: "failed", role: "alert" }, answer.problem);
    if (!answer.similar.length) return el("p", { class: "affected" }, "The mesh has no other service.");
    const head = ["Service", "Similarity"].map((text) => el("th", { scope: "col" }, text));
    return el(
      "table",
      {},
      el("thead", {}, el("tr", {}, ...head)),
      el("tbody", {}, ...answer.similar.map(row)),
    );
  }

  function row({ service, similarity, deviation }) {
    return el(
      "tr",
      { class: deviation > QUIET ? "unusual" : null },
      el(
        "td",
        {},
        el("button", { type: "button", class: "plain", "data-key": `similar ${service}`, click: () => on.select(service) }, service),
        deviation > QUIET ? el("span", { class: "tag" }, ` ${unusualness(deviation)}`) : null,
      ),
      el("td", { class: "n" }, similarity.toFixed(2)),
    );
  }

  return {
    /** The section of a service in the panel. */
    section: (mesh, service) => el("section", { class: "listed" }, el("h3", {}, TITLE), content(mesh, service)),
  };
}
