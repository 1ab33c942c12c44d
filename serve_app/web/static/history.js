// The history of a mesh: a calendar of its archived incidents, lists by service and by kind, and one incident in full.
import { archivedIncident } from "./archived.js";
import { by, el, show } from "./dom.js";
import * as feed from "./feed.js";
import { address, go, read } from "./link.js";
import { isNotice } from "./severity.js";
import { acceptedText, capitalized, clock, ends, feedbackText, incidentTitle, kind, lasted, owner, plural, span } from "./words.js";

const MONTH = /^\d{4}-\d\d$/;
const DAY = /^\d{4}-\d\d-\d\d$/;
const PAGE = 200; // incidents in one answer
const MOST_PAGES = 5; // of one month
const MOST_GROUPS = 12; // services in the list
const SEVERITIES = ["notice", "minor", "major", "critical"];
const WEEKDAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];

/**
 * @param {{leave: () => void, ask: (question: import("./decision.js").Question) => void, changed: () => void}} on leave:
 * called to go back to the mesh. ask: opens the dialog for a decision. changed: called after feedback.
 */
export function historyView(on) {
  const detail = archivedIncident({ ask: on.ask, changed });
  let drawn = null, // `{mesh, history, newest, canWrite}`
    month = null, // `{key, incidents, isCut, failed}` that is loaded
    service = null, // the service or kind that the list is limited to
    what = null;

  /** The lists show the feedback, too. */
  function changed() {
    month = null;
    on.changed();
  }

  /** @param {any} next `{mesh, history, newest, canWrite}`: history is a month, a day or an id; newest: time of the newest
   * snapshot. */
  function draw(next) {
    if (next.mesh !== drawn?.mesh) {
      month = null;
      service = what = null;
    }
    drawn = next;
    redraw();
  }

  function redraw() {
    const { mesh, history, newest } = drawn,
      isMonth = MONTH.test(history),
      isDay = DAY.test(history);
    if (!isMonth && !isDay && history !== "now") {
      show(by("history"), bar(el("a", { href: address({ history: "now" }) }, "All incidents")), detail.draw(mesh, history, drawn.canWrite, redraw));
      return;
    }
    const current = history === "now" ? newest?.slice(0, 7) : history.slice(0, 7);
    if (!current) return; // the newest snapshot decides
    const key = `${mesh} ${current}`;
    if (month?.key !== key) load(mesh, current, key);
    const found = month?.incidents ?? [],
      ofDay = isDay ? found.filter((one) => began(one, history)) : found,
      { team } = read(),
      listed = ofDay.filter((one) => (!service || involves(one, service)) && (!what || one.kind === what) && (!team || one.team === team));
    show(
      by("history"),
      bar(
        el("a", { href: address({ history: shift(current, -1) }), "data-key": "previous" }, "Previous month"),
        el("span", { class: "month" }, monthName(current)),
        el("a", { href: address({ history: shift(current, 1) }), "data-key": "next" }, "Next month"),
      ),
      el("p", { class: "sr", role: "status" }, status(found)),
      month?.failed ? el("p", { class: "failed", role: "alert" }, month.failed) : null,
      calendar(current, found, isDay ? history : null),
      el(
        "div",
        { class: "groups" },
        groups("By service", count(ofDay, (one) => [...new Set([one.suspects[0]?.service ?? one.affected[0] ?? ""])]), service, (name) => {
          service = service === name ? null : name;
          redraw();
        }),
        groups("By kind", count(ofDay, (one) => [one.kind]), what, (name) => {
          what = what === name ? null : name;
          redraw();
        }),
        ofDay.some((one) => one.team) || team
          ? groups("By team", count(ofDay, (one) => [one.team]), team, (name) => go({ team: team === name ? null : name }))
          : null,
      ),
      list(listed, isDay ? history : monthName(current)),
    );
  }

  async function load(mesh, current, key) {
    month = { key, incidents: null };
    const loaded = { key, incidents: [], isCut: false, failed: null };
    try {
      let cursor = null;
      for (let i = 0; i < MOST_PAGES; i++) {
        const page = await feed.incidents(mesh, {
          since: `${current}-01T00:00:00Z`,
          until: `${shift(current, 1)}-01T00:00:00Z`,
          limit: PAGE,
          cursor,
        });
        loaded.incidents.push(...page.incidents);
        cursor = page.next;
        if (!cursor) break;
      }
      loaded.isCut = Boolean(cursor);
    } catch (error) {
      loaded.failed = error.message;
    }
    if (month.key !== key) return; // another month was chosen meanwhile
    month = loaded;
    redraw();
  }

  function bar(...children) {
    return el(
      "div",
      { class: "bar" },
      el("h2", { id: "history-title", tabindex: "-1" }, "History"),
      ...children,
      el("button", { type: "button", "data-key": "leave", click: on.leave }, "Back to the mesh"),
    );
  }

  function status(found) {
    if (!month?.incidents) return "Loading";
    return `${plural(found.length, "incident")} in this month`;
  }

  function list(incidents, when) {
    const filters = [service, what && kind(what), read().team].filter(Boolean).join(", "),
      cut = month?.isCut ? ` Only the newest ${month.incidents.length} of this month are shown.` : "";
    const head = el("h3", {}, `${plural(incidents.length, "incident")}: ${when}${filters ? `, ${filters}` : ""}`);
    if (!month?.incidents) return el("p", { class: "affected" }, "Loading");
    if (!incidents.length) return el("div", {}, head, el("p", { class: "affected" }, "No incident was archived for this time."));
    return el("div", {}, head, cut ? el("p", { class: "affected" }, cut) : null, el("ol", { class: "archived" }, ...incidents.map(row)));
  }

  function row(one) {
    const duration = one.until ? `lasted ${lasted(one)}` : "still open",
      alerted = one.opened_at ? `, reported after ${span(ends(one.opened_at) - ends(one.since))}` : "";
    return el(
      "li",
      { class: `card ${one.severity}` },
      el("h4", {}, el("a", { href: address({ history: one.id }) }, incidentTitle(one))),
      el(
        "p",
        { class: "when" },
        `${one.since.slice(0, 10)} ${clock(one.since)} UTC, ${one.severity}, ${kind(one.kind)}; ${duration}${alerted}`,
      ),
      owner(one) ? el("p", { class: "owner" }, `Team: ${owner(one)}`) : null,
      one.feedback ? el("p", { class: "said" }, feedbackText(one.feedback)) : null,
      one.accepted ? el("p", { class: "said" }, acceptedText(one.accepted)) : null,
      el(
        "div",
        { class: "actions" },
        el("a", { href: feed.report(drawn.mesh, one.id), target: "_blank", rel: "noopener" }, "Report"),
      ),
    );
  }

  return { draw };
}

/** The weeks of a month as a table; a day with incidents is a link. */
function calendar(month, incidents, chosen) {
  const first = new Date(`${month}-01T00:00:00Z`),
    days = new Date(Date.UTC(first.getUTCFullYear(), first.getUTCMonth() + 1, 0)).getUTCDate(),
    before = (first.getUTCDay() + 6) % 7; // Monday is the first column
  const cells = [
    ...Array.from({ length: before }, () => el("td")),
    ...Array.from({ length: days }, (_, i) => dayCell(`${month}-${String(i + 1).padStart(2, "0")}`, incidents, chosen)),
  ];
  const weeks = [];
  for (let i = 0; i < cells.length; i += 7) weeks.push(el("tr", {}, ...cells.slice(i, i + 7)));
  return el(
    "table",
    { class: "calendar" },
    el("caption", { class: "sr" }, `Incidents by day, ${monthName(month)}`),
    el(
      "thead",
      {},
      el("tr", {}, ...WEEKDAYS.map((name) => el("th", { scope: "col", abbr: name }, name.slice(0, 3)))),
    ),
    el("tbody", {}, ...weeks),
  );
}

function dayCell(day, incidents, chosen) {
  const here = incidents.filter((one) => began(one, day)),
    number = String(Number(day.slice(8)));
  if (!here.length) return el("td", {}, el("span", { class: "day" }, number));
  const alerts = here.filter((one) => !isNotice(one)).length,
    worst = SEVERITIES[Math.max(...here.map((one) => SEVERITIES.indexOf(one.severity)))],
    text = `${number}: ${plural(alerts, "incident")}, ${plural(here.length - alerts, "notice")}, worst ${worst}`;
  return el(
    "td",
    { class: worst },
    el(
      "a",
      {
        href: address({ history: chosen === day ? day.slice(0, 7) : day }),
        "aria-label": text,
        "aria-current": chosen === day ? "date" : null,
        title: text,
      },
      el("span", { class: "day" }, number),
      el("b", {}, String(here.length)),
    ),
  );
}

/** Buttons that limit the list, with the number of incidents of each. */
function groups(title, counted, chosen, choose) {
  return el(
    "section",
    { "aria-label": title },
    el("h3", {}, title),
    counted.length ? null : el("p", { class: "affected" }, "None"),
    el(
      "ul",
      {},
      ...counted.slice(0, MOST_GROUPS).map(([name, number]) =>
        el(
          "li",
          {},
          el(
            "button",
            {
              type: "button",
              "data-key": `${title} ${name}`,
              "aria-pressed": String(name === chosen),
              click: () => choose(name),
            },
            `${title === "By kind" ? capitalized(kind(name)) : name} `,
            el("span", {}, String(number)),
          ),
        ),
      ),
    ),
  );
}

/** Names with how many incidents have them, the most frequent first. */
function count(incidents, names) {
  const found = new Map();
  for (const name of incidents.flatMap(names).filter(Boolean)) found.set(name, (found.get(name) ?? 0) + 1);
  return [...found].sort((a, b) => b[1] - a[1] || a[0].localeCompare(b[0]));
}

/** Whether an incident began on a day. */
const began = (one, day) => one.since.slice(0, 10) === day;

const involves = (one, service) => (one.suspects[0]?.service ?? one.affected[0]) === service;

/** 2026-12 from 2026-11 and 1. */
function shift(month, offset) {
  const [year, number] = month.split("-").map(Number);
  return new Date(Date.UTC(year, number - 1 + offset, 1)).toISOString().slice(0, 7);
}

/** November 2026. */
const monthName = (month) =>
  new Date(`${month}-01T00:00:00Z`).toLocaleDateString("en", { month: "long", year: "numeric", timeZone: "UTC" });
