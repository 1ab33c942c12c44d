// Feedback on an incident, open or archived: what was given, and the buttons and questions that give it.
import { el } from "./dom.js";
import * as feed from "./feed.js";
import { isNotice } from "./severity.js";

const NOTE_LENGTH = 1000; // limit of the service

/** @param {(question: import("./decision.js").Question) => void} ask opens the dialog for a decision. */
export function feedbackView(ask) {
  let failed = ""; // why the last feedback was not withdrawn

  /**
   * The feedback on an incident, with buttons for people who may write.
   * @param {any} at `{mesh, given, canWrite, selected, changed}`; given: feedback until now, or null; selected: a service; changed: called after a change.
   */
  function row(incident, at) {
    const { given, canWrite } = at;
    const button = (text, key, action) =>
      el("button", { type: "button", "data-key": `${key} ${incident.id}`, click: action }, text);
    if (!canWrite)
      return [
        given ? el("span", { class: "said" }, given.text) : null,
        el("span", { class: "said" }, "Your token is read-only; feedback and mutes need the write scope."),
      ];
    if (given)
      return [
        el("span", { class: "said", role: "status" }, given.text),
        button("Undo", "undo", () => undo(incident, at)),
        failed ? el("span", { class: "failed", role: "alert" }, failed) : null,
      ];
    return [
      isNotice(incident) ? null : button("Confirm incident", "yes", () => confirm(incident, at)),
      button(isNotice(incident) ? "Not useful" : "False alarm", "no", () => deny(incident, at)),
    ];
  }

  /** Ask why it was an incident, and which service caused it: at first the selected one. */
  function confirm(incident, at) {
    const services = [...new Set([...incident.suspects.map((one) => one.service), ...incident.affected])];
    ask({
      title: "Confirm incident",
      about: "If you name the service that caused it, TAGAE prefers it when the same services are affected again.",
      choices: [
        {
          name: "culprit",
          label: "Caused by",
          options: [["", "unknown"], ...services.map((one) => [one, one])],
          value: services.includes(at.selected) ? at.selected : "",
        },
      ],
      note: { label: "Note (optional)", isRequired: false, limit: NOTE_LENGTH },
      action: "Confirm",
      send: (values) => give(incident, at, true, values),
    });
  }

  /** Ask why an alarm was false. */
  function deny(incident, at) {
    ask({
      title: isNotice(incident) ? "Not useful" : "False alarm",
      about: "Similar deviations of these services raise no further alert.",
      choices: [],
      note: { label: "Why (optional)", isRequired: false, limit: NOTE_LENGTH },
      action: isNotice(incident) ? "Mark as not useful" : "Mark as false alarm",
      send: (values) => give(incident, at, false, values),
    });
  }

  /** @param {Record<string, string>} values of the dialog. */
  async function give(incident, { mesh, changed }, wasIncident, values) {
    const { culprit, note } = values;
    failed = "";
    await feed.sendFeedback(mesh, { incident: incident.id, was_incident: wasIncident, note, ...(culprit ? { culprit } : {}) });
    await changed();
  }

  async function undo(incident, { mesh, changed }) {
    failed = "";
    try {
      await feed.undoFeedback(mesh, incident.id);
    } catch (error) {
      failed = error.message;
    }
    await changed();
  }

  return { row };
}
