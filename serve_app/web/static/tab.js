// The browser's tab: its title and its icon show the current state of the mesh, even while the page shows a past moment.
import { by } from "./dom.js";
import { WHY, icon, iconName, severityOf } from "./icons.js";
import { alerts, worst } from "./severity.js";
import { readable } from "./words.js";

let usual = null; // the icon without a state

/**
 * @param {string | null} mesh its name.
 * @param {any} [state] of the mesh, with `name` and `why`; none: it is not known yet.
 * @param {any} [verdict] the newest one, which names the service of an incident.
 */
export function drawTab(mesh, state, verdict) {
  const name = state?.name ? iconName(state) : "",
    link = by("icon"),
    address = name ? icon(severityOf(name, worst(alerts(verdict?.incidents ?? []))) || name) : (usual ?? link.getAttribute("href")),
    title = readable([name && words(name, state.why, verdict), mesh, "TAGAE"].filter(Boolean).join(" · "));
  usual ??= link.getAttribute("href");
  if (link.getAttribute("href") !== address) link.setAttribute("href", address);
  if (document.title !== title) document.title = title;
}

function words(name, why, verdict) {
  const incident = worst(alerts(verdict?.incidents ?? [])),
    about = incident?.title;
  return {
    calm: "✓ no incident",
    unusual: "✓ no incident, but unusual",
    incident: `● incident: ${about}`,
    learning: "… learning",
    recovering: `↑ recovering: ${about}`,
    unknown: `? unknown: ${WHY[why] ?? why}`,
    last_incident: `? last known incident: ${about}`,
  }[name];
}
