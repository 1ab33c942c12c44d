// The page for browsers while the service does not answer: it asks whether the service is ready, and reloads then.
import { by } from "./dom.js";
import { ready } from "./feed.js";
import { span } from "./words.js";

const PAUSE_MS = 1000; // between two requests, and between two changes of the clock
const began = Date.now();

document.documentElement.dataset.theme =
  localStorage.getItem("theme") ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");

setInterval(() => {
  by("elapsed").textContent = `Waiting for ${span((Date.now() - began) / 1000)}.`;
}, PAUSE_MS);

async function wait() {
  try {
    await ready();
    location.reload(); // keeps the view in the address
  } catch {
    setTimeout(wait, PAUSE_MS);
  }
}
wait();
