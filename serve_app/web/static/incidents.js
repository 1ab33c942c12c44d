// The incident in view and notices: suspects, reasons with small charts, feedback. Below them: unusual services that raise no alert yet.
import { beforeAndAfter } from "./deploys.js";
import { by, el, show } from "./dom.js";
import { changeLine, inCommon, nextStep, seenBefore } from "./incident_lines.js";
import * as feed from "./feed.js";
import { feedbackView } from "./feedback.js";
import { address } from "./link.js";
import { notices } from "./severity.js";
import { reasonChart, reasonSeries, reasonText, valueNow } from "./reasons.js";
import { likelySuspects } from "./suspects.js";
import { ends, isOfScope, namespace, owner, plural, short, someOf, span, timeOrDateTime } from "./words.js";

const NAMES = 8, // affected services of a namespace that are named
  SPACES = 4; // namespaces of affected services

/**
 * @param {{
 *   select: (service: string) => void,
 *   ask: (question: import("./decision.js").Question) => void,
 *   mute: (incident: any) => void,
 * }} on called by clicks; ask: opens the dialog for a decision.
 */
export function incidentsView(on) {
  const feedback = feedbackView(on.ask),
    seriesOf = reasonSeries(redraw);
  const said = new Map(); // by past incident: the feedback that was given or withdrawn here
  let feedbackOf = new Map(), // by incident
    feedbackMesh = null,
    earlier = { key: "", found: new Map() }, // what is known about the open incidents besides the verdict, by incident
    drawn = null;

  /** Load the feedback on this mesh; if that fails, keep what is known. */
  async function loadFeedback(mesh) {
    if (mesh !== feedbackMesh) feedbackOf = new Map();
    feedbackMesh = mesh;
    const loaded = await feed.feedback(mesh).catch(() => null);
    if (loaded && mesh === feedbackMesh) feedbackOf = new Map(loaded.feedback.map((one) => [one.incident, one]));
    redraw();
  }

  /** @param {any} next `{mesh, verdict, shown, map, state, service, panel, incident, live, canWrite, newest}`; shown: the incident in view; null:
   * none. panel: the suspect whose reasons the open panel shows, `{service, incident}`; null: none. incident: the id in the link. */
  function draw(next) {
    drawn = next;
    loadSeen(next.mesh, next.verdict.incidents);
    redraw();
  }

  /** Load what was seen before and what was accepted, when other incidents are open, or `again`. */
  async function loadSeen(mesh, open, again = false) {
    const key = [mesh, ...open.map((one) => one.id)].join(" ");
    if (key === earlier.key && !again) return;
    earlier = { key, found: again ? earlier.found : new Map() };
    if (!open.length) return;
    const found = await feed.incidents(mesh).catch(() => null);
    if (!found || key !== earlier.key) return;
    earlier.found = new Map(found.incidents.map((one) => [one.id, one]));
    redraw();
  }

  function redraw() {
    if (!drawn) return;
    const { verdict, shown, state } = drawn,
      noticed = notices(verdict.incidents),
      title = shown?.scope ? "Entry points" : "Suspects";
    by("incidents").hidden = !shown;
    by("incidents-title").textContent = state.stopped ? `${title}, last known` : title;
    show(by("cards"), ...(shown ? [card(shown)] : []));
    by("notices-title").textContent = plural(noticed.length, "notice");
    by("notices").hidden = !noticed.length;
    show(by("notice-cards"), ...noticed.map(noticeCard));
    const watching = verdict.watching ?? []; // a stored verdict of an earlier version has none
    by("watching").hidden = !watching.length;
    by("watching-title").textContent = state.stopped ? "Watching, last known" : "Watching";
    show(by("watched"), ...watching.map(watchedService));
  }

  /** An unusual service that raises no alert yet: what is unusual, and what an alert would take. */
  function watchedService(one) {
    return el("li", {}, nameButton(one.service, null), ...one.reasons.map((reason) => why(reason, null)), el("p", { class: "affected" }, one.text));
  }

  /** The incident that the banner is about: what the banner does not say. */
  function card(incident) {
    const others = (incident.teams ?? []).filter((team) => team !== incident.team),
      before = (earlier.found.get(incident.id) ?? incident).seen_before,
      suspects = likelySuspects(incident).map((one, i) => suspect(one, i, incident)),
      shared = drawn.map?.in_common?.[incident.id],
      common = inCommon(shared);
    return el(
      "article",
      { class: `card ${incident.severity}` },
      owner(incident) ? el("p", { class: "owner" }, `Team: ${owner(incident)}`) : null,
      ...(incident.error_budgets ?? []).map((one) => el("p", { class: "why budget" }, `It ${one.text}`)),
      before ? seenBefore(before) : null,
      ...incident.changes.slice(0, 3).map((one) => changeLine(incident, one, el("a", { href: address(beforeAndAfter(one)) }, "Before and after"))),
      incident.changes.length ? null : el("p", { class: "affected" }, "No deploys or changes of these services."),
      ...incident.events.slice(0, 3).map((one) => el("p", { class: "why" }, `Kubernetes: ${one.text}`)),
      ...(shared?.fact ? [common, ...suspects] : [...suspects, common]),
      actions(incident),
      ...affectedLines(incident),
      others.length ? el("p", { class: "affected" }, `Teams affected, too: ${others.join(", ")}`) : null,
    );
  }

  /** The affected services by namespace. */
  function affectedLines({ affected }) {
    const spaces = [...new Set(affected.map(namespace))],
      inside = (space) => affected.filter((one) => namespace(one) === space).map(short),
      lines = spaces.slice(0, SPACES).map((space) => `Affected in ${space}: ${someOf(inside(space), NAMES)}`);
    if (spaces.length > SPACES) lines.push(`and services of ${plural(spaces.length - SPACES, "more namespace")}`);
    return lines.map((text) => el("p", { class: "affected" }, text));
  }

  function noticeCard(notice) {
    const [first] = notice.suspects,
      age = ends(verdictTime()) - ends(notice.since),
      state = notice.recovering ? "recovering" : "users are not affected yet";
    return el(
      "article",
      { class: `card notice${drawn.incident === notice.id ? " linked" : ""}` },
      el("h3", {}, notice.headline),
      nextStep(notice),
      el("p", { class: "when" }, `since ${timeOrDateTime(notice.since, verdictTime())} (${span(age)}); ${state}`),
      ...notice.suspects.map((one) =>
        el("div", { class: "suspect" }, nameButton(one.service, notice), ...reasons(one, one === first, notice)),
      ),
      actions(notice),
    );
  }

  const verdictTime = () => drawn.verdict.observed_at;

  function suspect(one, i, incident) {
    const opened = i === 0;
    return el(
      "div",
      { class: "suspect" },
      nameButton(one.service, incident, el("b", {}, `${i + 1}`)),
      owner(one) && owner(one) !== owner(incident) ? el("p", { class: "owner" }, `Team: ${owner(one)}`) : null,
      ...reasons(one, opened, incident, !isOfScope(incident, one.service)),
      opened || drawn.service === one.service ? feedback.culpritButton(incident, one.service, feedbackAt(incident)) : null,
    );
  }

  /** A button that selects a service, with its rank before its name if it has one. */
  function nameButton(service, incident, rank = null) {
    const isSelected = drawn.service === service;
    return el(
      "button",
      {
        type: "button",
        class: "name",
        "data-key": `select ${incident?.id} ${service}`,
        "aria-pressed": String(isSelected),
        click: () => on.select(isSelected ? null : service),
      },
      rank,
      service,
    );
  }

  /** The reasons of a suspect, with a chart of the first one if it has any, and its context; unless it is opened or selected, only the first reason. None
   * of a suspect whose reasons are in the panel. */
  function reasons({ service, reasons: all, context }, opened, incident, hasCharts = true) {
    const { panel, verdict } = drawn,
      isCharted = hasCharts && !verdict.archived;
    if (panel?.service === service && panel.incident === (incident?.id ?? null)) return [];
    if (!opened && drawn.service !== service) return all.slice(0, 1).map((reason) => why(reason, incident));
    const charted = all.flatMap((reason, i) => {
      const series = isCharted && i === 0 ? seriesOf(drawn, service, reason) : null,
        now = valueNow(reason, series, verdictTime(), drawn.live);
      return [why(reason, incident, now), series && !panel ? reasonChart(series, reason, verdictTime()) : null];
    });
    return [...charted, ...(context ?? []).map((reason) => why(reason, incident))];
  }

  const why = (reason, incident, now = "") => el("p", { class: "why" }, reasonText(reason, incident, now));

  function actions(incident) {
    return el(
      "div",
      { class: "actions" },
      ...feedback.row(incident, feedbackAt(incident)),
      drawn.canWrite
        ? el("button", { type: "button", "data-key": `mute ${incident.id}`, click: () => on.mute(incident) }, "Mute")
        : null,
      el(
        "a",
        {
          href: feed.report(drawn.mesh, incident.id),
          target: "_blank",
          rel: "noopener",
          "data-key": `report ${incident.id}`,
        },
        "Report",
      ),
    );
  }

  /** Where and by whom feedback on an incident is given. */
  function feedbackAt(incident) {
    const { mesh, canWrite, live } = drawn,
      accepted = (earlier.found.get(incident.id) ?? incident).accepted ?? null,
      known = feedbackOf.get(incident.id) ?? incident.feedback ?? null,
      given = said.has(incident.id) && !live ? said.get(incident.id) : known; // the list has no feedback on old incidents
    const changed = (now = given) => {
      said.set(incident.id, now);
      return Promise.all([loadFeedback(mesh), loadSeen(mesh, drawn.verdict.incidents, true)]);
    };
    return { mesh, canWrite, given, accepted, isOpen: live, changed };
  }

  return { draw, loadFeedback };
}
