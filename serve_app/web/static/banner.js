// The banner: the state of the mesh, or the cause of its incident with severity, impact and age as chips, a line for each
// other incident, and notes.
import { command, kubectl } from "./command.js";
import { toolLink } from "./context.js";
import { by, el, show } from "./dom.js";
import { address } from "./link.js";
import { STATES, icon, iconName, severityOf } from "./icons.js";
import { learning } from "./learning.js";
import { alerts, isNotice, isUnseen, notices, worst } from "./severity.js";
import { isSimulated, silentFor } from "./state.js";
import { hasSeparateFaults, originOf } from "./suspects.js";
import { about, shareText } from "./numbers.js";
import { between, capitalized, dateTime, ends, moment, namedIncident, peakOf, plural, readable, recovery, someOf, span, suspectsFirst, time, timeOrDateTime } from "./words.js";

const MAX_NAMES = 3; // muted services in the text
const MAX_LINES = 8, // other incidents, each with a line
  MAX_TITLE = 105, // characters of a headline that a line of 1440 pixels has room for
  FEW = 0.01, // of the harmed requests, below which those that fail, or are slow, are not counted
  NOW = 4,
  BEFORE = 20; // snapshots of which the medians are compared, as for the harm of an incident

/**
 * @param {any} state `{name, isOpen, isUnusual}`; none: there is no mesh to have one.
 * @param {string | {when?: string, cause: string, detail?: string}} head when: of a past moment; detail: what a narrow screen leaves out.
 * @param {string} story a sentence below.
 * @param {any} [incident] the one that the headline is about; its severity gives shape and colour.
 * @param {{chips?: any[], way?: string[], step?: any[], commands?: any[], others?: any[]}} [about] the incident: chips, the services from the
 * front door to the cause, what to do, commands for it, and a line for each other incident.
 */
export function headline(state, head, story, incident = null, { chips = [], way = [], step = [], commands = [], others = [] } = {}) {
  const { when = "", cause, detail = "" } = typeof head === "string" ? { cause: head } : head,
    name = state?.name ? iconName(state) : "",
    severity = severityOf(name, incident),
    image = by("state-icon"),
    alt = severity ? `${STATES[name]}: ${severity}` : STATES[name],
    title = readable(when + cause + detail);
  by("verdict").className = [...new Set([state?.name, name, severity])].filter(Boolean).join(" ");
  image.hidden = !name;
  if (name && image.alt !== alt) Object.assign(image, { alt, src: icon(severity || name) });
  if (by("headline").textContent !== title)
    show(by("headline"), when || null, el("span", { class: "cause" }, cause), detail ? el("span", { class: "detail" }, detail) : null);
  const spoken = title.replace(/ \([^)]*\)/g, ""); // without ages, which change all the time
  if (by("spoken").textContent !== spoken) by("spoken").textContent = spoken;
  by("story").textContent = readable(story);
  by("progress").hidden = true; // of a mesh that is learned
  show(by("chips"), ...chips.map(({ kind = null, image: of, text, short = text }) =>
    el("li", { class: kind }, of ? el("img", { src: icon(of), alt: "", width: 16, height: 16 }) : null,
      ...(short === text ? [text] : [el("span", { class: "wide" }, text), el("span", { class: "narrow" }, short)]))));
  show(by("way"), ...(way.length > 1 ? [`Front door: ${way.join(" → ")}`] : []));
  show(by("next-step"), ...(step.length ? [el("b", {}, el("span", { class: "wide" }, "What to do: "), el("span", { class: "narrow", "aria-hidden": "true" }, "→ ")), ...step] : []));
  show(by("commands"), ...commands);
  show(by("others"), ...others);
}

/** @param {string[][]} list kind, text and, if the note leads somewhere, the address. */
export function showNotes(list) {
  show(
    by("notes"),
    ...list.map(([kind, text, to]) =>
      el("li", { class: kind || null }, to ? el("a", { href: to, "data-key": `note ${to}` }, text) : text),
    ),
  );
}

/** @param {any} now `{state, stateNow, verdict, newest, incident, context, view, map, timeline, received, pace, needed, source, health,
 * lost, missed, problem}`; stateNow: of the newest verdict; context: of the first suspect, see context.js; missed: the time of a link, if
 * it is not kept; problem: the message of a failed request. */
export function banner(now) {
  const { state, verdict, incident, view, map } = now;
  const when = view.at ? `At ${moment(verdict.observed_at, now.newest?.observed_at ?? verdict.observed_at)}: ` : ""; // the verdict that is shown, not the requested one
  const learned = learning(now),
    shared = map?.in_common?.[incident?.id],
    [head, story] = state.name === "learning" ? [learned.head, learned.story] : state.stopped ? stoppedHead(now) : incident ? (shared?.fact ? [shared.fact, ""] : [causeAndDetail(incident), causeAndDetail(incident).more]) : quietHead(now);
  headline(state, { when, ...(typeof head === "string" ? { cause: head } : head) }, story, incident, incident ? aboutIncident(now) : {});
  by("progress").hidden = state.name !== "learning" || Boolean(verdict.archived);
  by("progress").value = learned.done;
  const notes = [
    ...(state.stopped ? [...lastKnownNotes(now), ...lastIncidentNotes(now)] : []),
    ...(incident && shared?.fact && !state.stopped ? [["", `Reported as: ${withoutImpact(incident)}.`]] : []),
    ...(incident ? incidentNotes(incident) : noticeNotes(verdict)),
    ...linkNotes(now),
    ...liveNotes(now),
    ...(now.health?.receivers ?? []).map((text) => ["now", `Notifications fail: ${text}`]),
    ...(state.why === "silent" && !incident ? [] : silenceNotes(verdict)),
  ];
  showNotes(notes.filter(([, text]) => text !== story));
}

/** What is wrong now, while a past moment without it is in view. */
function liveNotes({ view, incident, newest, stateNow }) {
  const live = worst(alerts(newest.incidents));
  if (!view.at || (live && live.id === incident?.id)) return [];
  if (live) return [["now", `Now: ${live.headline}`]];
  return stateNow.name === "unknown" ? [["now", "Now: status unknown."]] : [];
}

/** The headline of an incident without its impact, which is a chip, and without the last full stop. */
const withoutImpact = ({ headline: text, impact }) => (text.endsWith(` ${impact?.text}.`) ? text.slice(0, -impact.text.length - 3) : text.replace(/\.$/, ""));

/** The cause, its symptom or numbers, and a sentence with what a line has no room for. */
function causeAndDetail(incident) {
  const text = withoutImpact(incident),
    at = text.search(/[:;] /);
  if (at < 0) return { cause: text, detail: "", more: "" };
  const end = text.length > MAX_TITLE ? Math.max(at, text.lastIndexOf("; ", MAX_TITLE)) : text.length;
  return { cause: text.slice(0, at), detail: text.slice(at, end), more: end < text.length ? `${begun(text.slice(end + 2))}.` : "" };
}

/** A text with a capital letter, unless it begins with the name of a service. */
const begun = (text) => (/^\S+\//.test(text) ? text : capitalized(text));

const age = (verdict, { since }) => span(ends(verdict.observed_at) - ends(since));

/** What the banner says about an incident besides its cause. */
function aboutIncident(now) {
  const { state, verdict, incident, map } = now,
    shared = map?.in_common?.[incident.id],
    step = state.stopped ? "" : shared?.next_step || incident.next_step, // two steps could contradict each other
    steps = incident.scope || incident.recovering ? [] : step.split("; separately, "),
    services = steps.length > 1 ? incident.origins : [shared?.service || incident.caller || originOf(incident).service],
    lines = steps.map((one, i) => services[i] && kubectl(services[i], one)).filter(Boolean);
  return {
    chips: incidentChips(now),
    way: hasSeparateFaults(incident) ? [] : map?.ways?.[incident.id],
    step: step ? linked(step, now.context?.links) : [],
    commands: lines.map((line) => command(line, "for Kubernetes")),
    others: otherLines(verdict, incident),
  };
}

const LOGS = "its logs first"; // in a sentence on what to do

/** The sentence on what to do, with a link to the logs if it names them. */
function linked(step, links) {
  const at = step.indexOf(LOGS);
  return at < 0 ? [step] : [step.slice(0, at), toolLink(LOGS, links?.logs, "step"), step.slice(at + LOGS.length)];
}

/** Severity, harm, age and course. */
function incidentChips({ state, verdict, incident, map }) {
  const { severity, since, recovering } = incident,
    noticed = notices(verdict.incidents).length,
    from = `since ${timeOrDateTime(since, verdict.observed_at)}`,
    lasted = age(verdict, incident),
    peak = peakOf(incident, verdict),
    trend = state.stopped || recovering || incident.trend === "steady" ? null : incident.trend;
  return [
    { kind: severity, image: severity, text: capitalized(severity) },
    harm(incident, map, alerts(verdict.incidents).length === 1),
    state.stopped || verdict.archived ? { text: from } : { text: `${from}, ${lasted}`, short: lasted },
    recovering && !state.stopped ? { kind: "recovering wide", text: isUnseen(incident) ? "telemetry missing" : "recovering" } : null,
    trend ? { kind: `trend ${trend}`, text: trend } : null,
    peak ? { kind: "wide", text: `peak at ${time(peak, true)}` } : null,
    noticed ? { kind: "notice", text: plural(noticed, "notice"), short: String(noticed) } : null,
  ].filter(Boolean);
}

/** "4,700 of 30,000 front-door requests a minute fail, 120 are slow; 8 services affected"; without numbers of the front door, the impact. */
function harm({ impact, affected, since }, map, isAlone) {
  const all = 60 * (map?.front_door?.metrics[0].observed.at(-1) ?? 0),
    services = plural(impact?.services ?? affected.length, "service"),
    share = impact?.harmed_share ?? 0;
  if (share * all >= 1) {
    const failing = isAlone ? Math.min(share, failingMore(map.front_door, since)) : NaN,
      of = `of ${about(all)} front-door requests a minute`,
      [fail, slow] = [failing, share - failing].map((part) => (part < FEW * share ? "" : about(part * all))),
      split = [fail && `${fail} ${of} fail`, slow && (fail ? `${slow} are slow` : `${slow} ${of} are slow`)].filter(Boolean).join(", "),
      text = Number.isNaN(failing) ? `${about(share * all)} ${of} fail or are slow` : split;
    return { kind: "harm", text: `${text}; ${services} affected`, short: `${shareText(share)} of requests` };
  }
  return { text: impact?.text ?? `${services} affected`, short: reach({ impact, affected }) };
}

const middle = (values) => values.toSorted((a, b) => a - b)[values.length >> 1] ?? NaN;

/** By how much the share of the front-door requests that fail has risen since an incident began, which is not known of several ones. */
function failingMore({ times, metrics }, since) {
  const errors = metrics[1].observed,
    before = errors.filter((one, i) => one !== null && ends(times[i]) < ends(since)).slice(-BEFORE);
  return Math.max(0, middle(errors.slice(-NOW).filter((one) => one !== null)) - middle(before));
}

/** "7% of requests", or "4 services". */
const reach = ({ impact, affected }) =>
  impact?.harmed_share ? `${shareText(impact.harmed_share)} of requests` : plural(impact?.services ?? affected.length, "service");

/** A line for each other open incident: its cause, impact and age. It leads to its suspects. */
function otherLines(verdict, incident) {
  const others = alerts(verdict.incidents).filter((one) => one.id !== incident.id);
  return [
    ...others.slice(0, MAX_LINES).map((one) =>
      el(
        "li",
        { class: one.severity },
        el("img", { src: icon(one.severity), alt: `${capitalized(one.severity)}: `, width: 16, height: 16 }),
        el("a", { href: address({ incident: one.id }), "data-key": `other ${one.id}` }, causeAndDetail(one).cause, el("span", { class: "detail" }, causeAndDetail(one).detail)),
        el("span", { class: "reach" }, `${reach(one)}, ${age(verdict, one)}`),
      ),
    ),
    others.length > MAX_LINES ? el("li", {}, `and ${plural(others.length - MAX_LINES, "more incident")}; see the timeline`) : null,
  ].filter(Boolean);
}

const incidentNotes = (incident) => (incident.recovering ? [["", recovery(incident)]] : []);

const noticeNotes = (verdict) => (notices(verdict.incidents).length ? [["notice", noticeText(verdict)]] : []);

/** What to say when data stopped: since when, why, and what to do. An incident that was open then is kept: missing data is not a sign of its end. */
function stoppedHead({ state, verdict, incident, received, source, lost }) {
  const since = lastKnownAt({ verdict, received }),
    silence = Number.isFinite(received) ? span(silentFor({ received })) : null,
    story = stopText(source, lost);
  if (incident) {
    const gap = silence ? `No data since ${since} (${silence}).` : "No recent data.",
      head = state.why === "failing" ? `Telemetry source failing. ${openThen(verdict, incident, `at ${since}`)}` : `${gap} ${openThen(verdict, incident, "then")}`;
    return [head, `Status unknown; the incident is kept. ${story}`];
  }
  if (state.why === "failing") return ["Telemetry source failing, status unknown", story];
  return [silence ? `No data since ${since} (${silence}), status unknown` : "No recent data, status unknown", story];
}

/** "The incident at shop/cart was open then.", with the number of others. */
function openThen(verdict, incident, when) {
  const others = alerts(verdict.incidents).length - 1;
  return others > 0
    ? `${namedIncident(incident)} and ${plural(others, "other")} were open ${when}.`
    : `${namedIncident(incident)} was open ${when}.`;
}

/** Why no data arrives, and what to do. */
export const stopText = (source, lost) => `${reasonForStop(source, lost)} ${remedy(source, lost)}`;

function reasonForStop(source, lost) {
  if (lost) return "This page cannot reach TAGAE and keeps retrying.";
  if (source?.problem) return `${capitalized(source.problem)}${/[.!?]$/.test(source.problem) ? "" : "."}`;
  if (source?.collected) return "The telemetry source reports no problem, but no new snapshot was scored.";
  return "No new snapshot arrived.";
}

function remedy(source, lost) {
  if (lost) return "Check that the service is running, and your connection to it.";
  if (source === null) return "Check the telemetry source.";
  if (!source.collected) return "Check the telemetry source: the program that pushes the snapshots of this mesh.";
  return source.problem
    ? "Check that Prometheus is running and reachable; tagae doctor tests each query."
    : "Check the log of TAGAE.";
}

/** When the newest verdict was made, as a clock of the service shows it; of a verdict of unknown age, its snapshot. */
export const lastKnownAt = ({ verdict, received }) =>
  time(Number.isFinite(received) ? received : verdict.observed_at);

/** The last known state, and the time of the snapshot if it differs from the time of the verdict. */
function lastKnownNotes(now) {
  const { verdict, incident, received } = now;
  const learned = learning(now),
    [head, story] = incident ? [withoutImpact(incident), ""] : verdict.status === "warming_up" ? [learned.head, ""] : quietHead({ verdict, map: null }),
    apart = !Number.isFinite(received) || isSimulated(verdict, received);
  return [
    ["last", `last known: ${head}${head.endsWith(".") ? "" : "."} ${story}`],
    ...(apart ? [["", `newest snapshot: ${dateTime(verdict.observed_at)}`]] : []),
  ];
}

/** A link to the last incident, if it ended before the data stopped. */
function lastIncidentNotes({ verdict, timeline }) {
  const last = alerts(timeline?.incidents ?? []).at(-1);
  if (!last || verdict.incidents.some((one) => one.id === last.id)) return [];
  const when = between(last.since, last.last, verdict.observed_at);
  return [["other", `Last incident: ${last.service ?? last.id}, ${when}`, address({ at: last.first, incident: last.id })]];
}

/** "Memory of shop/cart reaches its limit in 40 minutes (25 to 70). And 1 more notice." */
function noticeText({ incidents }) {
  const [first, ...others] = notices(incidents);
  return first.headline + (others.length ? ` And ${plural(others.length, "more notice")}.` : "");
}

const silenceNotes = ({ silence }) => (silence ? [["", silenceText(silence)]] : []);

/** "23 of 300 services". */
const share = ({ services, total }) => `${services.toLocaleString("en")} of ${plural(total, "service")}`;

/** "No telemetry from 23 of 300 services. Silent since 01:40 UTC: shop/cart, shop/pay and 21 more." */
const silenceText = (silence) => `No telemetry from ${share(silence)}. ${silentNames(silence)}`;

function silentNames({ services, since, names }) {
  return `Silent since ${time(since)}: ${someOf(names, MAX_NAMES, services)}.`;
}

function quietHead({ verdict, map }) {
  const { status, coverage, silence, reconstruction } = verdict;
  const hidden = suspectsFirst(
    verdict.muted.flatMap((one) => one.hides),
    verdict,
  );
  if (hidden.length) return ["No alerts, but muted services have an incident", `Muted: ${someOf(hidden, MAX_NAMES)}.`];
  if (status === "partial") {
    if (verdict.archived) return ["Not all services were scored, status unknown", "No incident was found."];
    if (coverage === 1) return [`No telemetry from ${share(silence)}, status unknown`, silentNames(silence)];
    const scored = `${shareText(coverage)} of the services were scored`;
    return [`Only ${scored}, status unknown`, "No incident was found among them."];
  }
  const unusual = map ? countUnusual(map) : 0;
  if (reconstruction?.exceeded && !unusual) {
    const head = status === "anomalous" ? "No incident, but the mesh as a whole is anomalous" : "No incident";
    return [head, `${capitalized(reconstruction.text)}.`];
  }
  const watching = verdict.watching ?? [], // a stored verdict of an earlier version has none
    watched = watching.map((one) => one.service),
    noticed = notices(verdict.incidents).length;
  if (watched.length) return ["No incident yet", [`Watching ${someOf(watched, MAX_NAMES)}: an alert follows if this lasts.`, ...watching[0].reasons.slice(0, 1).map((one) => `${begun(one.text)}.`)].join(" ")];
  const seen = silence ? `, as far as ${share({ services: silence.total - silence.services, total: silence.total })} show` : "";
  return [`No incident${noticed ? `, ${plural(noticed, "notice")}` : ""}${seen}`, silence && !unusual ? silenceText(silence) : normalServices(silence, map, unusual)];
}

/** "All 60 services within normal range.", or "51 of 60 services within normal range, 1 unusual." */
function normalServices(silence, map, unusual) {
  const total = silence?.total ?? map?.services,
    normal = total - (silence?.services ?? 0) - unusual;
  if (total === undefined) return "All services within normal range.";
  if (normal === total) return `All ${plural(total, "service")} within normal range.`;
  return `${share({ services: normal, total })} within normal range${unusual ? `, ${unusual} unusual` : ""}.`;
}

/** How many services with telemetry are unusual. */
const countUnusual = ({ nodes }) => nodes.unusual.reduce((sum, one, i) => sum + (nodes.silent[i] ? 0 : one), 0);

/** What was requested but is not shown. */
function linkNotes({ verdict, view, timeline, missed, problem }) {
  const texts = [problem];
  if (missed) texts.push(`the snapshot of this link, ${missed}, is no longer kept; showing live data`);
  const isOpen = verdict.incidents.some((one) => one.id === view.incident);
  if (view.incident && !isOpen && timeline && !verdict.archived) texts.push(incidentOfLink(view.incident, timeline));
  return texts.filter(Boolean).map((text) => ["", text]);
}

function incidentOfLink(id, { incidents, observed_at }) {
  const found = incidents.find((one) => one.id === id);
  if (!found) return `This incident has expired; the timeline starts at ${time(observed_at[0])}`;
  const when = found.last === observed_at.at(-1) ? "is still open" : `was open until ${time(found.last)}`;
  return `the ${isNotice(found) ? "notice" : "incident"} of this link, ${found.service ?? id}, ${when}; see the timeline`;
}
