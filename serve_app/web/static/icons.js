// The icon of each state and of each severity. They differ in shape, so that colour is not needed to tell them apart. They are part of the
// script, because a state may change when the service can no longer be reached.

const QUESTION = (ink) =>
  `<path d="M11.8 12.6a4.3 4.3 0 1 1 6.5 3.7c-1.6.9-2.3 1.7-2.3 3.4" fill="none" stroke="${ink}" stroke-width="3" stroke-linecap="round"/><circle cx="16" cy="24" r="2" fill="${ink}"/>`;
const OCTAGON = "M10 1.5h12L30.5 10v12L22 30.5H10L1.5 22V10z";

/** "!", moved down by some pixels. */
const MARK = (down = 0) =>
  `<path d="M16 ${7.5 + down}V${18 - down / 3}" stroke="#fff" stroke-width="4" stroke-linecap="round"/><circle cx="16" cy="${24 + down / 3}" r="2.3" fill="#fff"/>`;

const SHAPES = {
  critical: `<path d="${OCTAGON}" fill="#b3151f" stroke="#fff"/>${MARK()}`,
  major: `<path d="M16 1.5 31 29.5H1z" fill="#c2410c" stroke="#c2410c" stroke-width="2" stroke-linejoin="round"/>${MARK(4)}`,
  minor: `<circle cx="16" cy="16" r="15" fill="#8a5300"/>${MARK()}`,
  notice: '<path d="M16 1.2 30.8 16 16 30.8 1.2 16z" fill="#0f6674"/>',
  unusual:
    '<circle cx="16" cy="16" r="14" fill="#fff" stroke="#57606a" stroke-width="2.6"/><path d="m9 16.5 5 5L23.5 11" fill="none" stroke="#57606a" stroke-width="3.5" stroke-linecap="round" stroke-linejoin="round"/>',
  calm: '<circle cx="16" cy="16" r="15" fill="#1a7f37"/><path d="m9 16.5 5 5L23.5 11" fill="none" stroke="#fff" stroke-width="3.5" stroke-linecap="round" stroke-linejoin="round"/>',
  incident: `<path d="${OCTAGON}" fill="#d1242f"/>${MARK()}`,
  recovering:
    '<rect x="1.5" y="1.5" width="29" height="29" rx="5" fill="#0969da"/><path d="M16 25V8.5M9 15l7-7 7 7" fill="none" stroke="#fff" stroke-width="3.5" stroke-linecap="round" stroke-linejoin="round"/>',
  learning:
    '<circle cx="16" cy="16" r="14" fill="#fff" stroke="#57606a" stroke-width="2.6" stroke-dasharray="5.5 4"/><path d="M16 8v8.5l5.5 3.5" fill="none" stroke="#57606a" stroke-width="3" stroke-linecap="round" stroke-linejoin="round"/>',
  unknown: `<path d="M16 1.2 30.8 16 16 30.8 1.2 16z" fill="#e3a008" stroke="#7a5200" stroke-width="1.6"/>${QUESTION("#2b1d00")}`,
  last_incident: `<path d="${OCTAGON}" fill="#fff" stroke="#d1242f" stroke-width="3"/>${QUESTION("#b3151f")}`,
};

/** What the state of an icon is called. */
export const STATES = {
  calm: "No incident",
  unusual: "No incident, but unusual",
  incident: "Incident",
  recovering: "Recovering",
  learning: "Learning",
  unknown: "Unknown",
  last_incident: "Unknown, last known: incident",
};

/** Why a state is unknown. */
export const WHY = {
  stopped: "no data",
  failing: "source failing",
  muted: "muted incident",
  unscored: "not all services scored",
  silent: "telemetry missing",
};

/** The name of a state's icon. An incident that was open when the data stopped has its own, and a calm mesh that is unusual
 * has one that is not green. */
export function iconName({ name, isOpen, isUnusual }) {
  if (name === "unknown" && isOpen) return "last_incident";
  return name === "calm" && isUnusual ? "unusual" : name;
}

/** The severity that gives an open incident its shape and colour; empty in other states. */
export const severityOf = (name, incident) => (name === "incident" && incident ? incident.severity : "");

/** The address of an icon, by the name of a state or a severity. */
export const icon = (name) =>
  `data:image/svg+xml,${encodeURIComponent(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32">${SHAPES[name]}</svg>`)}`;
