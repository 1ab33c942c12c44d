// The dialog in which a person decides something about the mesh, with the reason. It stays open until the service accepts.
import { by, el } from "./dom.js";

/**
 * Asks for a decision.
 * @typedef {{
 *   title: string,
 *   about: string,
 *   choices: {name: string, label: string, options: string[][], value?: string}[],
 *   note: {label: string, isRequired: boolean, limit: number},
 *   action: string,
 *   send: (values: Record<string, string>) => Promise<any>,
 * }} Question
 * choices: options as value and text. note: the reason in words, in the value `note`. action: text of the button that sends.
 */
export function decisionDialog() {
  const dialog = by("decision"),
    form = by("decision-form");
  let question = /** @type {Question | null} */ (null),
    underWay = false;

  /** @param {Question} next */
  function ask(next) {
    question = next;
    by("decision-title").textContent = next.title;
    by("decision-about").textContent = next.about;
    by("decision-failed").textContent = "";
    by("decision-choices").replaceChildren(...next.choices.map(choice));
    by("decision-note-label").textContent = next.note.label;
    Object.assign(by("decision-note"), { value: "", required: next.note.isRequired, maxLength: next.note.limit });
    by("decision-send").textContent = next.action;
    dialog.showModal();
  }

  function choice({ name, label, options, value }) {
    const list = /** @type {HTMLSelectElement} */ (
      el("select", { name }, ...options.map(([of, text]) => el("option", { value: of }, text)))
    );
    if (value !== undefined) list.value = value;
    return el("label", { class: "field" }, label, list);
  }

  async function send(event) {
    event.preventDefault();
    if (!question || underWay) return;
    underWay = true;
    by("decision-failed").textContent = "";
    const texts = [...new FormData(form)].map(([name, text]) => [name, String(text).trim()]);
    try {
      await question.send(Object.fromEntries(texts));
      dialog.close();
    } catch (error) {
      by("decision-failed").textContent = error.message;
    }
    underWay = false;
  }

  form.addEventListener("submit", send);
  by("decision-cancel").addEventListener("click", () => dialog.close());
  return { ask, isAsking: () => dialog.open };
}
