// The panel of a service or of the calls between two: why it is suspected, unusual metrics, callers and callees, metrics as usual, and
// what happened to it.
import { archivedDetails, chartsOf } from "./archive.js";
import { chart, point } from "./chart.js";
import { contextLines } from "./context.js";
import { beforeAndAfter } from "./deploys.js";
import { by, el, failure, show } from "./dom.js";
import * as feed from "./feed.js";
import { address } from "./link.js";
import { neighbours } from "./neighbours.js";
import { reasonChart, reasonSeries, reasonText, valueNow } from "./reasons.js";
import { nearest } from "./series.js";
import { QUIET, unusualness } from "./severity.js";
import { originOf } from "./suspects.js";
import { anomalyText, count, figures, metricName, metricValue } from "./numbers.js";
import { capitalized, clock, dateTime, day, ends, kind, moment, owner, plural, readable, time } from "./words.js";

const PAUSE_MS = 1000; // least time between two requests
const LISTED = 6; // changes, events and incidents
const CHARTS = 2; // of calls that the reasons of a suspect are about
const ROLES = { first_suspect: "first suspect", suspect: "suspect", affected: "affected" };

/** @param {any} on `{select(service, source), look(at)}`: called by clicks. */
export function panelView(on) {
  const place = by("panel");
  let drawn = null,
    loaded = null, // {key, subject, details, problem}
    asked = "",
    due = 0,
    timer = null,
    cursor = null,
    isUsualOpen = null, // whether metrics as usual are unfolded; null: if there is nothing else to see
    opener = null, // key of the button that opened it, which gets the focus back
    wanted = ""; // subject that shall get the focus when it is drawn
  const seriesOf = reasonSeries(() => drawn?.service && redraw());

  /**
   * @param {any} next `{mesh, at, newest, service, source, suspects, incident, range, map, isArchived, stale, contextOf}`; at: null: the newest
   * snapshot. incident: that the suspects are of; null: of none. range: `{start, end}` of the charts; null: the live window. map: of the moment. isArchived: whether the moment is from
   * before the live window. stale: since when the newest data are, in words; empty: they are not. contextOf: a function with the
   * context of a service, see context.js.
   */
  function draw(next) {
    const before = drawn?.service,
      hadFocus = place.contains(document.activeElement);
    drawn = next;
    place.hidden = !next.service;
    if (!next.service) {
      if (hadFocus) leaveFor(before);
      loaded = null;
      cursor = null;
      isUsualOpen = null;
      return;
    }
    if (loaded && loaded.subject !== subjectOf(next)) {
      loaded = null;
      cursor = null;
      isUsualOpen = null;
    }
    redraw();
    load();
  }

  const subjectOf = ({ mesh, service, source }) => JSON.stringify([mesh, service, source ?? null]);
  const keyOf = (next) => `${subjectOf(next)} ${next.at ?? next.newest} ${next.range ? `${next.range.start} ${next.range.end}` : ""}`;

  async function load() {
    const wait = due - Date.now(),
      key = keyOf(drawn);
    if (asked || loaded?.key === key || (drawn.isArchived && !drawn.range)) return;
    if (wait > 0) {
      timer ??= setTimeout(() => {
        timer = null;
        if (drawn.service) load();
      }, wait);
      return;
    }
    const { mesh, service, source, at, range, map, isArchived } = drawn,
      subject = subjectOf(drawn);
    asked = key;
    let answer;
    try {
      const [details, over] = await Promise.all([
        isArchived ? null : feed.details(mesh, service, source, at),
        range && chartsOf(mesh, service, source, range),
      ]);
      answer = { details: details ?? archivedDetails(service, source, map, over), over };
    } catch (error) {
      answer = { problem: error.message };
    }
    asked = "";
    due = Date.now() + PAUSE_MS;
    if (subject === subjectOf(drawn) && drawn.service) {
      loaded = { key, subject, ...answer };
      redraw();
    } else due = 0;
    if (drawn.service) load();
  }

  function redraw() {
    const { service, source } = drawn;
    by("panel-title").textContent = readable(source ? `Calls ${source} → ${service}` : service);
    show(by("panel-content"), ...(loaded ? (loaded.details ? content(loaded.details, loaded.over ?? loaded.details) : [failure(loaded.problem, "panel", retry)]) : [el("p", { class: "affected" }, "Loading")]));
    if (wanted === subjectOf(drawn)) {
      wanted = "";
      focus();
    }
  }

  function retry() {
    loaded = null;
    draw(drawn);
  }

  /** @param {any} details @param {any} over what the charts show: the details, or a range. */
  function content(details, over) {
    const links = details.source
      ? el(
          "p",
          { class: "ends" },
          ...[details.source, details.service].map((name) => button(name, `end ${name}`, () => on.select(name, null))),
        )
      : null;
    const { unusual, usual } = charts(details, over);
    return [
      links,
      ...standing(details),
      linksTo(details.links),
      ...muted(details),
      ...suspicion(details),
      unusual,
      details.source ? null : neighbours("Callers", details.callers, details.callers_total, details, (one) => on.select(details.service, one)),
      details.source ? null : neighbours("Callees", details.callees, details.callees_total, details, (one) => on.select(one, details.service)),
      usual,
      list("Incidents", details.incidents, incidentRow, "No incident so far."),
      list("Changes", details.changes, changeRow, "No deploy or change in the kept snapshots."),
      list("Kubernetes events", details.events, eventRow, ""),
    ].filter(Boolean);
  }

  /** Its state at the moment: its requests, its score, and what is missing. */
  function standing(details) {
    const { state, deviation, observed_at: at } = details,
      when = drawn.at ? `At ${moment(at, drawn.newest)}` : drawn.stale ? `Stale since ${drawn.stale}` : `Now, ${time(at, true)}`,
      caller = failingCaller(details),
      score = deviation === null || caller ? "" : ` Anomaly score ${anomalyText(deviation)}, ${unusualness(deviation)}; up to ${QUIET} is normal.`;
    const missing = missingText(details);
    return [
      el("p", { class: "affected" }, `${when}: ${volume(details)}.${score}`),
      caller
        ? el(
            "p",
            { class: "why" },
            el("b", {}, "Normal by itself; "),
            button(`the calls from ${caller}`, `calls from ${caller}`, () => on.select(details.service, caller)),
            el("b", {}, drawn.incident.kind === "slow" ? " are slow" : " fail"),
          )
        : null,
      missing ? el("p", { class: `missing ${state}` }, missing) : null,
      owner(details) ? el("p", { class: "owner" }, `Team: ${owner(details)}`) : null,
    ];
  }

  function muted({ muted: mutes }) {
    return mutes.map((one) =>
      el("p", { class: "why planned" }, `Muted${one.until ? ` until ${dateTime(one.until)}` : ""}: ${one.reason}`),
    );
  }

  /** The caller whose calls to this service are wrong, while the service is not; null: there is none. */
  function failingCaller({ service, source }) {
    const origin = originOf(drawn.incident);
    return !source && origin.service === service ? origin.caller : null;
  }

  const suspectOf = ({ service, source }) => (source ? undefined : drawn.suspects.find((one) => one.service === service));

  /** Why it is a suspect, if it is one, with charts of what the panel has no chart of: calls, and signals. */
  function suspicion(details) {
    const suspect = suspectOf(details),
      { service, metrics, observed_at: at } = details;
    if (!suspect) return [];
    const rank = el("p", { class: "why" }, el("b", {}, `Suspect ${drawn.suspects.indexOf(suspect) + 1}`)),
      isElsewhere = (reason) => reason.source || reason.destination || !metrics.some(({ metric }) => metric === reason.metric),
      charted = suspect.reasons.filter(isElsewhere).slice(0, CHARTS);
    const rows = suspect.reasons.flatMap((reason) => {
      const series = drawn.isArchived ? null : seriesOf(drawn, service, reason),
        text = reasonText(reason, drawn.incident, valueNow(reason, series, at, !drawn.at));
      return [el("p", { class: "why" }, text), series && charted.includes(reason) ? reasonChart(series, reason, at) : null];
    });
    const about = drawn.incident && drawn.contextOf(service);
    return [
      rank,
      ...rows,
      ...(suspect.context ?? []).map((fact) => el("p", { class: "why" }, reasonText(fact, drawn.incident))),
      ...contextLines(about && { ...about, links: {} }, suspect, drawn.incident), // the panel has all links already
    ];
  }

  /** The charts: open for unusual metrics, folded for usual ones. */
  function charts(details, { times, metrics, incidents, changes }) {
    if (!times.length) return { unusual: el("p", { class: "affected" }, "No data in this range."), usual: null };
    const at = nearest(times, ends(details.observed_at)),
      named = (suspectOf(details)?.reasons ?? []).filter((one) => !one.source && !one.destination).map((one) => one.metric),
      rank = (one) => (named.includes(one.metric) ? named.indexOf(one.metric) : named.length),
      isUsual = (one) => !named.includes(one.metric) && isWithin(one, at),
      found = metrics.filter(({ observed }) => observed.some((value) => value !== null)),
      unusual = found.filter((one) => !isUsual(one)).sort((a, b) => rank(a) - rank(b)), // the strongest reason first
      usual = found.filter(isUsual),
      measured = [...unusual, ...usual],
      missing = metrics.filter((one) => !found.includes(one)).map((one) => metricName(one.metric));
    const actions = {
      point: (index) => {
        if (index === cursor) return;
        cursor = index;
        const drawnCharts = by("panel-content").querySelectorAll(".charts .chart");
        measured.forEach((one, i) => point(drawnCharts[i], { ...one, times }, { at, cursor }));
      },
      look: (index) => on.look(times[index]),
    };
    const shared = { times, incidents: clip(incidents, times), changes: changes.map((one) => one.at).filter((one) => one >= times[0]) };
    const view = { at, cursor: cursor !== null && cursor < times.length ? cursor : null };
    const drawAll = (some) => el("div", { class: "charts" }, ...some.map((one) => chart({ ...one, ...shared }, view, actions))),
      isOpen = isUsualOpen ?? (!unusual.length && !suspectOf(details)),
      title = `${unusual.length ? "" : "All "}${plural(usual.length, "metric")} as usual`;
    const fold = () => {
      isUsualOpen = !isOpen;
    };
    return {
      unusual: unusual.length ? drawAll(unusual) : null,
      usual: el(
        "section",
        { class: "usual-metrics" },
        usual.length ? el("details", { open: isOpen }, el("summary", { "data-key": "usual metrics", click: fold }, title), drawAll(usual)) : null,
        missing.length && measured.length ? el("p", { class: "affected" }, `Not measured: ${missing.join(", ")}.`) : null,
      ),
    };
  }

  const clip = (incidents, times) =>
    incidents.filter(({ last }) => last >= times[0]).map(({ since, last }) => ({ first: since < times[0] ? times[0] : since, last }));

  function list(title, rows, row, empty) {
    if (!rows.length && !empty) return null;
    const more = rows.length > LISTED ? `and ${rows.length - LISTED} more` : "";
    return el(
      "section",
      { class: "listed" },
      el("h3", {}, title),
      rows.length
        ? el("ul", {}, ...rows.slice(0, LISTED).map((one) => el("li", {}, ...row(one))), more ? el("li", {}, more) : null)
        : el("p", { class: "affected" }, empty),
    );
  }

  const incidentRow = (one) => [
    el("a", { href: address(one.open && !drawn.at ? { incident: one.id } : { peak: one.id }), "data-key": `incident ${one.id}` }, `${day(one.since)} ${one.severity}${one.open ? ", open" : ""}`),
    ` ${one.headline || kind(one.kind)} (${ROLES[one.role]})`,
  ];
  const changeRow = (one) => [
    el("b", { class: "planned" }, "▲ "),
    button(clock(one.at), `change ${one.at} ${one.kind} ${one.service}`, () => on.look(one.at)),
    ` ${kind(one.kind)}${drawn.source ? ` of ${one.service}` : ""}${one.reason ? ` (${one.reason})` : ""} `,
    el("a", { href: address(beforeAndAfter(one)), "data-key": `before ${one.at} ${one.kind} ${one.service}` }, "before and after"),
  ];
  const eventRow = (one) => [
    `${clock(one.last)} ${one.kind} of ${one.object}${one.count > 1 ? `, ${one.count} times` : ""}: ${one.message}`,
  ];

  function focus() {
    const title = by("panel-title");
    title.focus({ preventScroll: true });
    title.scrollIntoView({ block: "nearest" });
  }

  /** Move the focus from the panel of a service to what opened it, or to the service among the suspects. Returns whether it could. */
  function leaveFor(service) {
    const find = (selector) => /** @type {HTMLElement | null} */ (document.querySelector(selector)),
      to = (opener && find(`[data-key="${CSS.escape(opener)}"]`)) ?? find(`#cards [data-key$=" ${CSS.escape(service)}"]`);
    to?.focus({ preventScroll: true });
    return Boolean(to);
  }

  function close() {
    const { service } = drawn;
    on.select(null, null);
    if (!leaveFor(service)) by("find").focus({ preventScroll: true });
  }

  by("panel-close").addEventListener("click", close);
  return {
    draw,
    /** Move the focus to the panel, as soon as it shows this service or these calls. */
    enter(next) {
      const active = /** @type {any} */ (document.activeElement);
      if (!place.contains(active)) opener = active?.dataset.key ?? null;
      wanted = subjectOf(next);
      if (drawn?.service && wanted === subjectOf(drawn)) redraw();
    },
  };
}

/** Whether a metric is measured, and within its usual range. */
function isWithin({ observed, low, high }, at) {
  const isKnown = [observed[at], low[at], high[at]].every((value) => value !== null && value !== undefined);
  return isKnown && observed[at] >= low[at] && observed[at] <= high[at];
}

/** Links to other tools, which open beside the page. */
function linksTo(links) {
  const anchors = Object.entries(links).map(([name, href]) =>
    el("a", { href, target: "_blank", rel: "noopener noreferrer", "data-key": `link ${name}` }, capitalized(name)),
  );
  return anchors.length ? el("p", { class: "ends" }, ...anchors) : null;
}

const button = (text, key, action) => el("button", { type: "button", class: "plain", "data-key": key, click: action }, text);

/** "312 requests in 15 s, 47% failed". */
function volume({ requests, interval_seconds: interval, metrics, times, observed_at: at }) {
  if (requests === null) return "requests not observed";
  const i = times.indexOf(at),
    errors = metrics.find(({ metric }) => metric === "error_rate")?.observed[i] ?? null,
    text = `${count(requests)} ${requests === 1 ? "request" : "requests"} in ${figures(interval)} s`;
  return errors === null ? `${text}, errors not observed` : `${text}, ${metricValue("error_rate", errors)} of them failed`;
}

/** Why nothing is known about it; empty if something is. */
function missingText({ state, measured_at: measured, source, neighbours_at: last }) {
  const since = measured ? ` Last measured at ${time(measured, true)}.` : " It was not measured in any kept snapshot.";
  const calls = last && source === null ? " Its callers and callees are the last known ones." : "";
  return {
    absent: source ? `There are no such calls in this snapshot.${since}` : `It is not in this snapshot.${since}${calls}`,
    silent: `It has no telemetry of its own, so its state is unknown.${since}`,
    unscored: "It was not scored: its part of the mesh did not answer in time.",
    warming_up: "It was not scored: TAGAE is still learning this mesh.",
  }[state] ?? "";
}
