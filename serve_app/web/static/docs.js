// The reference of the API: fills commands with the address of this service, and sends requests that change nothing.
import { copy } from "./copy.js";
import { by, el, show } from "./dom.js";
import { meshes, ROOT } from "./feed.js";

const MOST_CHARACTERS = 20_000; // of an answer

document.documentElement.dataset.theme =
  localStorage.getItem("theme") ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");

for (const place of document.querySelectorAll("[data-origin]")) place.textContent = ROOT.replace(/\/$/, "");

/** @type {HTMLElement[]} */
const operations = [...document.querySelectorAll("article[data-path]")].map((one) => /** @type {HTMLElement} */ (one));
for (const operation of operations) {
  operation.addEventListener("input", () => fill(operation));
  operation.querySelector(".send")?.addEventListener("click", () => send(operation));
}
for (const button of document.querySelectorAll(".copy")) {
  const code = button.parentElement?.querySelector("code");
  if (code) button.addEventListener("click", () => copy(code.textContent ?? "", code, button));
}

/** The parameters of an operation. @returns {HTMLInputElement[]} */
const inputs = (operation) => [...operation.querySelectorAll("input")];

/** The path and the query of an operation, with the values of its fields. */
function address(operation) {
  const query = new URLSearchParams();
  let path = operation.dataset.path;
  for (const { name, value, dataset } of inputs(operation)) {
    if (dataset.in === "path") path = path.replace(`{${name}}`, encodeURIComponent(value));
    else if (dataset.in === "query" && value) query.set(name, value);
  }
  const text = query.toString().replaceAll("+", "%20").replaceAll("%2F", "/").replaceAll("%3A", ":");
  return path.slice(1) + (text ? `?${text}` : "");
}

/** Put the values of the fields into the command. */
function fill(operation) {
  operation.querySelector("[data-address]").textContent = `/${address(operation)}`;
}

async function send(operation) {
  const answer = operation.querySelector(".answer"),
    began = performance.now();
  show(answer, el("p", {}, "Sending"));
  try {
    const response = await fetch(ROOT + address(operation), { headers: { accept: "application/json" } }),
      text = await response.text(),
      took = Math.round(performance.now() - began);
    show(
      answer,
      el("p", { class: response.ok ? null : "refused" }, `${response.status} ${response.statusText}, ${took} ms`),
      el("pre", { tabindex: 0, "aria-label": "Answer" }, el("code", {}, pretty(text))),
    );
  } catch {
    show(answer, el("p", { class: "refused" }, "The service does not answer."));
  }
}

function pretty(text) {
  let whole = text;
  try {
    whole = JSON.stringify(JSON.parse(text), null, 1);
  } catch {
    // it is not JSON, and is shown unchanged
  }
  return whole.length > MOST_CHARACTERS ? `${whole.slice(0, MOST_CHARACTERS)}\n… ${whole.length - MOST_CHARACTERS} more characters` : whole;
}

by("find").addEventListener("input", () => {
  const wanted = by("find").value.trim().toLowerCase();
  for (const operation of operations) operation.hidden = !operation.textContent?.toLowerCase().includes(wanted);
});

meshes().then(
  (found) => {
    show(by("known-meshes"), ...found.map((one) => el("option", { value: one.mesh })));
    const [first] = found;
    if (!first) return;
    for (const operation of operations) {
      for (const input of inputs(operation)) if (input.name === "mesh") input.value = first.mesh;
      fill(operation);
    }
  },
  () => {}, // without a sign-in, the examples keep their names
);
