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

// What shows most about each kind of step, the first that fits; NAME: the deployment.
const OF_STEPS = /** @type {[RegExp, string][]} */ ([
  [/^bring /i, "get deployments,pods,events"],
  [/^roll back/i, "rollout undo deployment/NAME"],
  [/^undo /i, "rollout history deployment/NAME"],
  [/^restart /i, "rollout restart deployment/NAME"],
  [/^find out why containers/i, "logs deployment/NAME --previous"],
  [/^find out why (pods|\S+ sends no)/i, "get pods,events"],
  [/^(find what (uses|fills)|raise the memory)/i, "top pods --containers"],
  [/^raise the cpu/i, "describe deployment/NAME"],
  [/^free disk/i, "get persistentvolumeclaims"],
  [/^scale /i, "get deployments,horizontalpodautoscalers"],
  [/^start the regular/i, "get cronjobs,jobs"],
  [/^(correct the routing|compare the endpoints)/i, "get services,endpointslices"],
  [/^(check|look at the network)[^:]*(dns|polic)/i, "get networkpolicies,pods -o wide"],
  [/^look at the network/i, "get pods -o wide"],
  [/^(look at|limit)/i, "logs deployment/NAME --since=30m"],
]);

/** The kubectl command that belongs to a sentence on what to do about a service, or about its namespace; null: there is none. */
export function kubectl(service, step) {
  const [own, name] = service.split(/\/(.*)/),
    namespace = / namespace ([^\s:]+)/.exec(step)?.[1] ?? own,
    line = OF_STEPS.find(([kind]) => kind.test(step))?.[1];
  return line && PLAIN.test(namespace) && PLAIN.test(name) ? `kubectl -n ${namespace} ${line.replace("NAME", name)}` : null;
}
