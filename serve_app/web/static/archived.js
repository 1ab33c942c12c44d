// One incident of the archive as it was at its highest score: facts, suspects, and the picture that the report has, too.
import { el } from "./dom.js";
import * as feed from "./feed.js";
import { feedbackView } from "./feedback.js";
import { changeLine, nextStep, seenBefore } from "./incident_lines.js";
import { reasonText } from "./reasons.js";
import { likelySuspects } from "./suspects.js";
import { date, ends, incidentTitle, kind, lasted, plural, scoreText, shareText, span, time } from "./words.js";

/**
 * A part of the page that loads an incident once and draws it.
 * @param {{ask: (question: import("./decision.js").Question) => void, changed: () => void}} on ask: opens the dialog for a
 * decision. changed: called after feedback.
 */
export function archivedIncident(on) {
  const feedback = feedbackView(on.ask);
  let loaded = { key: "", answer: null, failed: null };

  /** Return the incident; `redraw` is called when more of it has been loaded. */
  function draw(mesh, id, canWrite, redraw) {
    const key = `${mesh} ${id}`;
    if (loaded.key !== key) load(mesh, id, key, redraw);
    if (loaded.failed) return el("p", { class: "failed", role: "alert" }, loaded.failed);
    if (!loaded.answer) return el("p", { role: "status" }, "Loading the incident");
    const incident = loaded.answer,
      at = {
        mesh,
        canWrite,
        given: incident.feedback,
        accepted: incident.accepted,
        isOpen: !incident.until,
        changed: () => reload(mesh, id, redraw),
      };
    return whole(mesh, incident, {
      row: feedback.row(incident, at),
      culpritButton: (service) => feedback.culpritButton(incident, service, at),
    });
  }

  /** Load the incident again after feedback. */
  async function reload(mesh, id, redraw) {
    await load(mesh, id, loaded.key, redraw, loaded.answer);
    on.changed();
  }

  async function load(mesh, id, key, redraw, answer = null) {
    loaded = { key, answer, failed: null };
    let found;
    try {
      found = { key, answer: await feed.incidentDetail(mesh, id), failed: null };
    } catch (error) {
      found = { key, answer: null, failed: error.message };
    }
    if (loaded.key !== key) return; // another incident was chosen meanwhile
    loaded = found;
    redraw();
  }

  return { draw };
}

/** @param {{row: any[], culpritButton: (service: string) => any}} feedback what people say about it, and buttons to say it. */
function whole(mesh, incident, feedback) {
  return el(
    "article",
    { class: `card ${incident.severity} whole` },
    el("h3", {}, incidentTitle(incident)),
    nextStep(incident),
    facts(incident),
    incident.seen_before ? seenBefore(incident.seen_before) : null,
    ...incident.changes.map((one) => changeLine(incident, one)),
    ...incident.events.map((one) => el("p", { class: "why" }, `Kubernetes: ${one.text}`)),
    el("img", { class: "picture", src: feed.report(mesh, incident.id, "svg"), alt: "Score over time, and how it spread" }),
    el("h4", {}, "Suspects"),
    el("ol", { class: "archived" }, ...likelySuspects(incident).map((one) => suspect(one, incident, feedback))),
    el("p", { class: "affected" }, `Affected: ${incident.affected.join(", ") || "none"}`),
    el(
      "div",
      { class: "actions" },
      ...feedback.row,
      el("a", { href: feed.report(mesh, incident.id), target: "_blank", rel: "noopener" }, "Report"),
    ),
  );
}

function facts(incident) {
  const rows = [
    ["severity", incident.severity],
    ["kind", kind(incident.kind)],
    ["since", `${date(incident.since)} ${time(incident.since, true)}`],
    ["lasted", incident.until ? lasted(incident) : "still open"],
    ["reported after", incident.opened_at ? span(ends(incident.opened_at) - ends(incident.since)) : "unknown"],
    ["impact", incident.impact?.text ?? plural(incident.affected.length, "service")],
    ...(incident.error_budgets ?? []).map((one) => ["error budget", one.text.replace(" so far", "")]),
    ["probability", `${shareText(incident.probability)} at the highest score`],
    ["mesh", `${plural(incident.mesh_services, "service")}, ${plural(incident.mesh_calls, "call")}`],
  ];
  return el("dl", { class: "facts" }, ...rows.map(([name, text]) => el("div", {}, el("dt", {}, name), el("dd", {}, text))));
}

function suspect(one, incident, feedback) {
  return el(
    "li",
    { class: "suspect" },
    el("h5", {}, `${incident.suspects.indexOf(one) + 1}. ${one.service}, score ${scoreText(one.score)}`),
    ...one.reasons.map((reason) => el("p", { class: "why" }, reasonText(reason, incident))),
    feedback.culpritButton(one.service),
  );
}
