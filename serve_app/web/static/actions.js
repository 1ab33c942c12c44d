// What people did about an incident: who is on it, notes, what helped, and whether its level was accepted as normal; and the
// buttons that add to it.
import { el } from "./dom.js";
import * as feed from "./feed.js";
import { timeOrDateTime } from "./words.js";

const TEXT_LENGTH = 1000; // limit of the service
const QUESTIONS = {
  note: { title: "Note", about: "Everyone who looks at this incident sees it.", label: "Note", isRequired: true, action: "Add the note" },
  done: {
    title: "What helped",
    about: "When a similar incident is seen again, the page shows it.",
    label: "What you did",
    isRequired: true,
    action: "Save",
  },
  accept: {
    title: "This is normal now",
    about: "The present level becomes normal. The incident ends. You cannot undo this.",
    label: "Why (optional)",
    isRequired: false,
    action: "Accept as normal",
  },
};

/**
 * A list of what people did about an incident; null: nothing.
 * @param {any} incident
 * @param {string} now a moment of the day that needs no date.
 */
export function actionList({ id, actions }, now) {
  if (!actions?.length) return null;
  const line = (one) =>
    el("li", {}, el("span", {}, timeOrDateTime(one.at, now)), ` ${one.words}${one.incident === id ? "" : " (of a merged incident)"}`);
  return el("ul", { class: "people", "aria-label": "What people did" }, ...actions.map(line));
}

/** @param {(question: import("./decision.js").Question) => void} ask opens the dialog for a text. */
export function actionsView(ask) {
  let failed = ""; // why the last acknowledgement was not stored

  /**
   * The button that says who is on an incident, and the others, for people who may write.
   * @param {any} at `{mesh, actions, user, isOpen, canWrite, changed}`; actions: until now; user: its name; isOpen: whether it is
   * open now; changed: called after an action.
   */
  function buttons(incident, at) {
    const { actions, user, isOpen, canWrite } = at,
      isOnIt = actions.some((one) => one.kind === "acknowledge" && one.by === user),
      isAccepted = actions.some((one) => one.kind === "accept");
    if (!canWrite) return { first: [], others: [] };
    const button = (text, key, action) => el("button", { type: "button", "data-key": `${key} ${incident.id}`, click: action }, text);
    return {
      first: [
        isOpen && !isOnIt ? button("I'm on it", "acknowledge", () => acknowledge(incident, at)) : null,
        failed ? el("span", { class: "failed", role: "alert" }, failed) : null,
      ],
      others: [
        button("Note", "note", () => question("note", incident, at)),
        button("What helped", "done", () => question("done", incident, at)),
        isOpen && !isAccepted ? button("This is normal now", "normal", () => question("accept", incident, at)) : null,
      ],
    };
  }

  function question(kind, incident, { mesh, changed }) {
    const { title, about, label, isRequired, action } = QUESTIONS[kind];
    ask({
      title,
      about,
      choices: [],
      note: { label, isRequired, limit: TEXT_LENGTH },
      action,
      send: async ({ note: text }) => {
        await feed.act(mesh, incident.id, { kind, text });
        await changed();
      },
    });
  }

  async function acknowledge(incident, { mesh, changed }) {
    failed = "";
    try {
      await feed.act(mesh, incident.id, { kind: "acknowledge" });
    } catch (error) {
      failed = error.message;
    }
    await changed();
  }

  return { buttons };
}
