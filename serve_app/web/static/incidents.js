// The incident in view and notices: suspects, reasons with small charts, what people did, feedback. Below them: unusual services that raise no
// alert yet.
import { actionList, actionsView } from "./actions.js";
import { command, kubectl } from "./command.js";
import { contextLines } from "./context.js";
import { beforeAndAfter } from "./deploys.js";
import { by, el, show } from "./dom.js";
import { changeLine, inCommon, nextStep, seenBefore } from "./incident_lines.js";
import * as feed from "./feed.js";
import { feedbackView } from "./feedback.js";
import { address } from "./link.js";
import { notices } from "./severity.js";
import { factsOf, reasonChart, reasonSeries, reasonText, valueNow } from "./reasons.js";
import { hasSeparateFaults, isOfOrigin, isOfScope, likelySuspects, originOf } from "./suspects.js";
import { ends, namespace, owner, plural, short, someOf, span, timeOrDateTime } from "./words.js";

const NAMES = 8, // affected services of a namespace that are named
  SPACES = 4, // namespaces of affected services
  SUSPECTS = 3, // that are shown, the others are folded
  FACTS = 3; // of a suspect

/**
 * @param {{
 *   select: (service: string) => void,
 *   ask: (question: import("./decision.js").Question) => void,
 *   mute: (incident: any) => void,
 * }} on called by clicks; ask: opens the dialog for a decision.
 */
export function incidentsView(on) {
  const feedback = feedbackView(on.ask),
    people = actionsView(on.ask),
    seriesOf = reasonSeries(redraw);
  const unfolded = new Set(); // keys of buttons
  let kept = { key: "", mesh: null, found: new Map() }, // what the service keeps of the incidents in view, by incident: actions, feedback, similar ones
    drawn = null;

  /** @param {any} next `{mesh, verdict, shown, map, state, service, panel, incident, live, canWrite, user, newest, contextOf}`; shown: the
   * incident in view; null: none. panel: the suspect whose reasons the open panel shows, `{service, incident}`; null: none. incident: the id in
   * the link. contextOf: a function with the context of a service, see context.js. */
  function draw(next) {
    drawn = next;
    load(false);
    redraw();
  }

  /** Load what the service keeps of the incidents in view, when they are other ones, or `again`; if that fails, keep what is known. */
  async function load(again = true) {
    if (!drawn) return;
    const { mesh, live, verdict } = drawn,
      ids = verdict.incidents.map((one) => one.id),
      key = [mesh, live, ...ids].join(" ");
    if (key === kept.key && !again) return;
    kept = { key, mesh, found: mesh === kept.mesh ? kept.found : new Map() };
    if (!ids.length) return;
    const detail = (id) => feed.incidentDetail(mesh, id).catch(() => null), // it is no longer kept
      past = () => Promise.all(ids.map(detail)).then((all) => all.filter(Boolean)),
      found = await (live ? feed.incidents(mesh).then((list) => list.incidents) : past()).catch(() => null);
    if (!found || key !== kept.key) return;
    kept.found = new Map(found.map((one) => [one.id, one]));
    redraw();
  }

  /** An incident with what the service keeps of it. */
  const known = (incident) => kept.found.get(incident.id) ?? incident;

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
      before = known(incident).seen_before,
      suspects = likelySuspects(incident).map((one, i) => suspect(one, i, incident)),
      shared = drawn.map?.in_common?.[incident.id],
      common = inCommon(shared),
      changes = incident.changes.slice(0, 3),
      changed = (/** @type {any} */ one) => changeLine(incident, one, el("a", { href: address(beforeAndAfter(one)) }, "Before and after"));
    return el(
      "article",
      { class: `card ${incident.severity}` },
      owner(incident) ? el("p", { class: "owner" }, `Team: ${owner(incident)}`) : null,
      isWider(incident) || shared?.fact ? el("p", { class: "why" }, el("b", {}, "Likely cause: "), shared?.fact ? shared.groups[0].calls : incident.title) : null,
      actionList(known(incident), verdictTime()),
      ...(incident.error_budgets ?? []).map((one) => el("p", { class: "why budget" }, `It ${one.text}`)),
      before ? seenBefore(before) : null,
      ...changes.filter((one) => isOfOrigin(incident, one)).map(changed),
      ...eventsOfSuspectsFirst(incident).slice(0, 3).map((one) => el("p", { class: "why" }, `Kubernetes: ${one.text}`)),
      ...(shared?.fact ? [common] : []),
      ...suspects.slice(0, SUSPECTS),
      ...(suspects.length > SUSPECTS ? folded(`suspects ${incident.id}`, plural(suspects.length - SUSPECTS, "more suspect"), "plain", suspects.slice(SUSPECTS)) : []),
      shared?.fact ? null : common,
      actions(incident),
      ...changes.filter((one) => !isOfOrigin(incident, one)).map(changed),
      changes.length ? null : el("p", { class: "affected" }, "No deploys or changes of these services."),
      ...affectedLines(incident),
      others.length ? el("p", { class: "affected" }, `Teams affected, too: ${others.join(", ")}`) : null,
    );
  }

  /** The affected services by namespace, without those where it began. */
  function affectedLines(incident) {
    const began = originOf(incident).services,
      affected = incident.affected.filter((/** @type {string} */ one) => !began.includes(one)),
      also = affected.length < incident.affected.length ? "Also affected" : "Affected";
    const spaces = [...new Set(affected.map(namespace))],
      inside = (space) => affected.filter((one) => namespace(one) === space).map(short),
      lines = spaces.slice(0, SPACES).map((space) => `${also} in ${space}: ${someOf(inside(space), NAMES)}`);
    if (spaces.length > SPACES) lines.push(`and services of ${plural(spaces.length - SPACES, "more namespace")}`);
    return lines.map((text) => el("p", { class: "affected" }, text));
  }

  function noticeCard(notice) {
    const [first] = notice.suspects,
      age = ends(verdictTime()) - ends(notice.since),
      line = first && notice.next_step && !notice.recovering ? kubectl(first.service, notice.next_step) : null,
      state = notice.recovering ? "recovering" : "users are not affected yet";
    return el(
      "article",
      { class: `card notice${drawn.incident === notice.id ? " linked" : ""}` },
      el("h3", {}, notice.headline),
      nextStep(notice),
      line ? command(line, "for Kubernetes") : null,
      el("p", { class: "when" }, `since ${timeOrDateTime(notice.since, verdictTime())} (${span(age)}); ${state}`),
      ...notice.suspects.map((one) =>
        el("div", { class: "suspect" }, nameButton(one.service, notice), ...reasons(one, one === first, notice)),
      ),
      actionList(known(notice), verdictTime()),
      actions(notice),
    );
  }

  const verdictTime = () => drawn.verdict.observed_at;

  function suspect(one, i, incident) {
    const isFault = hasSeparateFaults(incident) && incident.origins.includes(one.service),
      opened = i === 0 || isFault,
      since = isFault ? (one.reasons[0]?.since ?? incident.since) : incident.since;
    return el(
      "div",
      { class: "suspect" },
      nameButton(one.service, incident, el("b", {}, `${i + 1}`), roleOf(one.service, i, isFault ? since : null, incident)),
      owner(one) && owner(one) !== owner(incident) ? el("p", { class: "owner" }, `Team: ${owner(one)}`) : null,
      ...reasons(one, opened, { ...incident, since }, !isOfScope(incident, one.service)),
      ...(opened && drawn.panel?.service !== one.service ? contextLines(drawn.contextOf(one.service), one, incident) : []),
    );
  }

  /** What a suspect is among the others; null: the title says what it is. @param {string | null} since of a fault of its own. */
  function roleOf(service, i, since, incident) {
    if (incident.scope) return null;
    if (since) return `fault ${i + 1} of ${incident.origins.length}, since ${timeOrDateTime(since, verdictTime())}`;
    if (isWider(incident) || originOf(incident).services.length > 1) return originOf(incident).services.includes(service) ? null : "less likely";
    const isUncertain = incident.headline?.startsWith("Cause uncertain");
    return i > Number(isUncertain) ? "less likely" : isUncertain ? "possible cause" : "likely cause";
  }

  /** A button that selects a service, with its rank before its name, and its role behind it, if it has them. */
  function nameButton(service, incident, rank = null, role = null) {
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
      role ? el("span", { class: "role" }, role) : null,
    );
  }

  /** The facts about a suspect, with a chart of the first one that is measured; unless it is opened or selected, only the first fact. None of a suspect
   * whose reasons are in the panel. */
  function reasons(one, opened, incident, hasCharts = true) {
    const { panel, verdict } = drawn,
      { service } = one,
      facts = factsOf(one, incident),
      isCharted = hasCharts && !verdict.archived;
    if (panel?.service === service && panel.incident === (incident?.id ?? null)) return [];
    if (!opened && drawn.service !== service) return facts.slice(0, 1).map((reason) => why(reason, incident));
    const measured = isCharted ? facts.findIndex((reason) => seriesOf(drawn, service, reason) !== null) : -1; // or not loaded yet
    const lines = facts.map((reason, i) => {
      const series = i === measured ? seriesOf(drawn, service, reason) : null,
        now = valueNow(reason, series, verdictTime(), drawn.live);
      return [why(reason, incident, now), series && !panel ? reasonChart(series, reason, verdictTime()) : null];
    });
    const more = lines.slice(FACTS).flat();
    return [...lines.slice(0, FACTS).flat(), ...(more.length ? folded(`facts ${incident?.id} ${service}`, plural(lines.length - FACTS, "more fact"), "plain", more) : [])];
  }

  const why = (reason, incident, now = "") => el("p", { class: "why" }, reasonText(reason, incident, now));

  /** What is done first, and a menu with the rest. */
  function actions(incident) {
    const { first, others } = people.buttons(incident, decisionsOn(incident)),
      mute = drawn.canWrite ? el("button", { type: "button", "data-key": `mute ${incident.id}`, click: () => on.mute(incident) }, "Mute") : null,
      report = el("a", { href: feed.report(drawn.mesh, incident.id), target: "_blank", rel: "noopener", "data-key": `report ${incident.id}` }, "Report");
    return el("div", { class: "actions" }, ...first, ...feedback.row(incident, decisionsOn(incident)), ...(drawn.canWrite ? folded(`more ${incident.id}`, "More", "more", [...others, mute, report]) : [report]));
  }

  /** A button that unfolds what follows; it stays unfolded when the card is drawn again. */
  function folded(key, text, look, children) {
    const isOpen = unfolded.has(key),
      turn = () => {
        if (!unfolded.delete(key)) unfolded.add(key);
        redraw();
      };
    return [
      el("button", { type: "button", class: look, "aria-expanded": String(isOpen), "data-key": key, click: turn }, isOpen ? "Less" : text),
      ...(isOpen ? children : []),
    ];
  }

  /** What people decided about an incident, and how they decide. */
  function decisionsOn(incident) {
    const { mesh, canWrite, live, user, service: selected } = drawn,
      decided = known(incident);
    return { mesh, canWrite, given: decided.feedback ?? null, actions: decided.actions ?? [], user, selected, isOpen: live, changed: load };
  }

  return { draw, load };
}

/** Whether the cause is more than the first suspect: calls, a namespace, or several services. */
const isWider = (incident) => Boolean(incident.title && !incident.scope && incident.suspects[0] && incident.title !== incident.suspects[0].service && !hasSeparateFaults(incident));

/** The Kubernetes events near an incident, newest first; events of its suspects come before all others. */
function eventsOfSuspectsFirst(incident) {
  const rank = ({ service }) => Number(!incident.suspects.some((one) => one.service === service));
  return [...incident.events].sort((a, b) => rank(a) - rank(b));
}
