// Commands to copy.
import { el } from "./dom.js";

const COPIED_MS = 2000;

/** A command in a box with a button that copies it. @param {string} text @param {string} about what it is for, for screen readers. */
export function command(text, about) {
  const copy = async ({ currentTarget: button }) => {
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
      setTimeout(() => (button.textContent = "Copy"), COPIED_MS);
    } catch {
      getSelection()?.selectAllChildren(button.previousElementSibling); // a page may not write to the clipboard over HTTP from another machine
    }
  };
  return el(
    "div",
    { class: "command" },
    el("pre", { tabindex: 0, "aria-label": about }, el("code", {}, text)),
    el("button", { type: "button", "aria-label": `Copy: ${about}`, "data-key": `copy ${text}`, click: copy }, "Copy"),
  );
}

const PLAIN = /^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$/; // a name in Kubernetes; any other one could be more than a name in a shell

/** The kubectl command that belongs to a sentence on what to do about a service; null: there is none. */
export function kubectl(service, step) {
  const [namespace, name] = service.split(/\/(.*)/);
  if (!PLAIN.test(namespace) || !PLAIN.test(name)) return null;
  if (step.startsWith("Bring ")) return `kubectl -n ${namespace} get deployments,pods,events`;
  if (step.startsWith("Roll back")) return `kubectl -n ${namespace} rollout undo deployment/${name}`;
  return /^(Look at|Find out why containers)/.test(step) ? `kubectl -n ${namespace} logs deployment/${name} --since=30m` : null;
}
