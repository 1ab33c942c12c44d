// The banner: what is wrong and since when in one sentence, with notes.
import { by, el, show } from "./dom.js";
import { alerts, isNotice, notices } from "./severity.js";
import { clock, ends, incidentTitle, plural, recovery, span } from "./words.js";

const MOST_NAMES = 3; // muted services in the text

export function headline(status, head, story) {
  by("verdict").className = status;
  if (by("headline").textContent !== head) by("headline").textContent = head;
  by("story").textContent = story;
}

export const showNotes = (list) => show(by("notes"), ...list.map(([kind, text]) => el("li", { class: kind || null }, text)));

/** @param {any} now `{verdict, incident, view, map, timeline, missed, problem}`; missed: the time of a link, if it is not
 * kept; problem: the message of a failed request. */
export function banner(now) {
  const { verdict, incident, view } = now;
  const when = view.at ? `At ${clock(verdict.observed_at, true)} UTC: ` : ""; // the verdict that is shown, not the requested one
  const [status, head, story] = incident ? incidentHead(verdict, incident) : quietHead(now);
  headline(status, when + head, story);
  const notes = [
    ...(incident ? incidentNotes(verdict, incident) : quietNotes(verdict)),
    ...linkNotes(now),
    ...silenceNotes(verdict),
    ...muteNotes(verdict),
  ];
  showNotes(notes.filter(([, text]) => text !== story));
}

function incidentHead(verdict, incident) {
  const age = ends(verdict.observed_at) - ends(incident.since),
    since = `Since ${clock(incident.since)} UTC (${span(age)}).`;
  return [verdict.status, incidentTitle(incident), incident.recovering ? `${since} ${recovery(incident)}` : since];
}

function incidentNotes(verdict, incident) {
  const others = alerts(verdict.incidents).length - 1,
    noticed = notices(verdict.incidents).length,
    impact = incident.impact?.text ?? `${plural(incident.affected.length, "service")} affected`,
    [planned] = incident.changes;
  return [
    ["", incidentTitle(incident).includes(impact) ? incident.severity : `${incident.severity}, ${impact}`],
    planned ? ["planned", `▲ ${planned.text}`] : ["", "no deploys or changes around then"],
    ["", `probability ${verdict.probability.toFixed(2)}`],
    ...(others > 0 ? [["", `and ${plural(others, "other incident")}`]] : []),
    ...(noticed > 0 ? [["notice", plural(noticed, "notice")]] : []),
  ];
}

const quietNotes = (verdict) => [
  ["", `probability of an incident ${verdict.probability.toFixed(2)}`],
  ...(notices(verdict.incidents).length ? [["notice", noticeText(verdict)]] : []),
];

/** "Memory of shop/cart reaches its limit in 40 minutes (25 to 70). And 1 more notice." */
function noticeText({ incidents }) {
  const [first, ...others] = notices(incidents);
  return incidentTitle(first) + (others.length ? ` And ${plural(others.length, "more notice")}.` : "");
}

const silenceNotes = ({ silence }) => (silence ? [["", silenceText(silence)]] : []);

/** "No telemetry from 23 of 300 services since 01:40 UTC: shop/cart, shop/pay and 21 more." */
function silenceText({ services, total, since, names }) {
  const shown = names.slice(0, MOST_NAMES).join(", "),
    more = services > MOST_NAMES ? ` and ${services - MOST_NAMES} more` : "";
  return `No telemetry from ${services} of ${plural(total, "service")} since ${clock(since)} UTC: ${shown}${more}.`;
}

function quietHead({ verdict, map }) {
  const { status, mesh_score, threshold, coverage, sequence, silence } = verdict;
  const hidden = [...new Set(verdict.muted.flatMap((one) => one.hides))];
  if (hidden.length) {
    const more = hidden.length > MOST_NAMES ? ` and ${hidden.length - MOST_NAMES} more` : "";
    return ["partial", "No alerts, but muted services have an incident", `Muted: ${hidden.slice(0, MOST_NAMES).join(", ")}${more}.`];
  }
  if (status === "warming_up") {
    const so_far = `${plural(sequence, "snapshot")} so far; scoring starts after the first ten.`;
    return [status, "Learning this mesh", so_far];
  }
  if (status === "partial") {
    if (coverage === 1) return [status, "No incident found, but telemetry is missing", silenceText(silence)];
    const share = `${Math.floor(100 * coverage)}% of the services were scored.`;
    return [status, "No incident found, but some services were not scored", share];
  }
  const noticed = notices(verdict.incidents).length;
  if (noticed) return [status, `No incident. ${plural(noticed, "notice")}.`, noticeText(verdict)];
  const services = silence
      ? `${silence.total - silence.services} of ${plural(silence.total, "service")}`
      : map
        ? `All ${plural(map.services, "service")}`
        : "All services",
    limit = threshold === null ? "" : `, usually below ${threshold.toFixed(1)}`;
  return [status, "No incident", `${services} within normal range (anomaly score ${mesh_score.toFixed(1)}${limit}).`];
}

/** What was requested but is not shown. */
function linkNotes({ verdict, view, timeline, missed, problem }) {
  const texts = [problem];
  if (missed) texts.push(`the snapshot of this link, ${missed}, is no longer kept; showing live data`);
  const isOpen = verdict.incidents.some((one) => one.id === view.incident);
  if (view.incident && !isOpen && timeline) texts.push(incidentOfLink(view.incident, timeline));
  return texts.filter(Boolean).map((text) => ["", text]);
}

function incidentOfLink(id, { incidents, observed_at }) {
  const found = incidents.find((one) => one.id === id);
  if (!found) return `the incident of this link is no longer kept; the timeline starts at ${clock(observed_at[0])} UTC`;
  const when = found.last === observed_at.at(-1) ? "is still open" : `was open until ${clock(found.last)} UTC`;
  return `the ${isNotice(found) ? "notice" : "incident"} of this link, ${found.service ?? id}, ${when}; see the timeline`;
}

/** Active mutes, those that hide an incident first. */
const muteNotes = ({ muted }) =>
  muted
    .toSorted((a, b) => b.hides.length - a.hides.length)
    .slice(0, 2)
    .map((one) => ["planned", `muted: ${one.services.join(", ") || "the whole mesh"} (${one.reason})`]);
