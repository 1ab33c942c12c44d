// The banner: what is wrong and since when in one sentence, and what has to be known beside it.
import { by, el, show } from "./dom.js";
import { clock, ends, plural, span, trouble } from "./words.js";

const NAMED = 3; // services that mutes hide

export function headline(status, head, story) {
  by("verdict").className = status;
  if (by("headline").textContent !== head) by("headline").textContent = head;
  by("story").textContent = story;
}

export const notes = (told) => show(by("notes"), ...told.map(([kind, text]) => el("li", { class: kind || null }, text)));

/** @param {any} now `{verdict, incident, view, map, timeline, missed, problem}`; missed: a moment of a link that is not kept;
 * problem: what could not be had, in words. */
export function banner(now) {
  const { verdict, incident, view } = now;
  const when = view.at ? `At ${clock(verdict.observed_at, true)} UTC: ` : ""; // of what is told, not of what is asked for
  const [status, head, story] = incident ? wrong(verdict, incident) : quiet(now);
  headline(status, when + head, story);
  notes([...(incident ? circumstances(verdict, incident) : chance(verdict)), ...elsewhere(now), ...hushed(verdict)]);
}

function wrong(verdict, incident) {
  const first = incident.suspects[0],
    name = first?.service ?? incident.affected[0],
    age = ends(verdict.observed_at) - ends(incident.since);
  return [
    verdict.status,
    `${name} ${trouble(first?.reasons[0])}, since ${clock(incident.since)} UTC (${span(age)})`,
    first?.reasons[0]?.text ?? "No single reason stands out.",
  ];
}

function circumstances(verdict, incident) {
  const others = verdict.incidents.length - 1,
    [planned] = incident.changes;
  return [
    ["", `${incident.severity}, ${plural(incident.affected.length, "service")} affected`],
    planned ? ["planned", `▲ ${planned.text}`] : ["", "no planned change near it"],
    ["", `probability ${verdict.probability.toFixed(2)}`],
    ...(others > 0 ? [["", `and ${plural(others, "other incident")}`]] : []),
  ];
}

function quiet({ verdict, map }) {
  const { status, mesh_score, threshold, coverage, sequence } = verdict;
  const hidden = [...new Set(verdict.muted.flatMap((one) => one.hides))];
  if (hidden.length) {
    const more = hidden.length > NAMED ? ` and ${hidden.length - NAMED} more` : "";
    return ["partial", "Nothing pages, but mutes hide trouble", `Muted: ${hidden.slice(0, NAMED).join(", ")}${more}.`];
  }
  if (status === "warming_up") {
    const so_far = `${plural(sequence, "snapshot")} so far; verdicts begin after the first ten.`;
    return [status, "Getting to know this mesh", so_far];
  }
  if (status === "partial") {
    const share = `${Math.floor(100 * coverage)}% of the services were scored.`;
    return [status, "Nothing found, but not all was looked at", share];
  }
  const services = map ? plural(map.services, "service") : "the mesh",
    limit = threshold === null ? "" : `, threshold ${threshold.toFixed(1)}`;
  return [status, "Nothing is wrong", `${services} as usual: score ${mesh_score.toFixed(1)}${limit}.`];
}

const chance = (verdict) => [["", `probability of an incident ${verdict.probability.toFixed(2)}`]];

/** What was asked for and is not shown. */
function elsewhere({ incident, view, timeline, missed, problem }) {
  const told = [problem];
  if (missed) told.push(`the moment of this link, ${missed}, is not kept: this is now`);
  if (view.incident && incident?.id !== view.incident && timeline) told.push(whereabouts(view.incident, timeline));
  return told.filter(Boolean).map((text) => ["", text]);
}

function whereabouts(id, { incidents, observed_at }) {
  const meant = incidents.find((one) => one.id === id);
  if (!meant) return `the incident of this link is none of the kept time, which begins at ${clock(observed_at[0])} UTC`;
  const when = meant.last === observed_at.at(-1) ? "is open now" : `was open until ${clock(meant.last)} UTC`;
  return `the incident of this link, ${meant.service ?? id}, ${when}: see it below`;
}

/** Mutes in force, those that hide something first. */
const hushed = ({ muted }) =>
  muted
    .toSorted((a, b) => b.hides.length - a.hides.length)
    .slice(0, 2)
    .map((one) => ["planned", `muted: ${one.services.join(", ") || "the whole mesh"} (${one.reason})`]);
