// The switch between UTC and the browser's zone. Links keep the choice, and so does this browser.
import { by, el } from "./dom.js";
import { go, read } from "./link.js";
import { browserZone, setZone } from "./words.js";

const STORED = "zone";

/** Apply the zone of the link, else the one chosen last; UTC if none was. */
export function applyZone() {
  const zone = read().tz ?? localStorage.getItem(STORED);
  by("zone").value = zone === "local" ? "local" : "utc";
  setZone(by("zone").value === "local");
}

by("zone").append(el("option", { value: "utc" }, "UTC"), el("option", { value: "local" }, browserZone()));
by("zone").hidden = browserZone() === "UTC"; // there is nothing to choose
by("zone").addEventListener("change", () => {
  localStorage.setItem(STORED, by("zone").value);
  go({ tz: by("zone").value === "local" ? "local" : null }, { quietly: true });
});
applyZone();
if (!read().tz && localStorage.getItem(STORED) === "local") go({ tz: "local" }, { quietly: true });
