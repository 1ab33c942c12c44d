// The history of a mesh: a calendar of its archived incidents, and lists by service and by kind. An incident leads to its moment.
import { actionList } from "./actions.js";
import { calendar, dayName, legend, monthName, period, shift } from "./calendar.js";
import { by, el, failure, show } from "./dom.js";
import * as feed from "./feed.js";
import { address, go, read } from "./link.js";
import { listedService } from "./suspects.js";
import { ago, capitalized, date, ends, kind, owner, plural, span, time } from "./words.js";

const MONTH = /^\d{4}-\d\d$/;
const DAY = /^\d{4}-\d\d-\d\d$/;
const PAGE = 200; // incidents in one answer
const MAX_PAGES = 5; // of one calendar
const MAX_GROUPS = 12; // services in the list

/** @param {{leave: () => void}} on leave: called to go back to the mesh. */
export function historyView(on) {
  let drawn = null, // `{mesh, history, newest}`
    last = "", // month with which the calendar ends
    loaded = null, // `{key, incidents, isCut, failed}` of the calendar; incidents: null: they are being loaded
    service = null, // the service or kind that the list is limited to
    what = null;

  /** @param {any} next `{mesh, history, newest}`: history is a month or a day; newest: time of the newest snapshot. */
  function draw(next) {
    if (next.mesh !== drawn?.mesh) {
      loaded = null;
      last = "";
      service = what = null;
    }
    drawn = next;
    redraw();
  }

  function redraw() {
    const { mesh, history, newest } = drawn,
      day = DAY.test(history) ? history : null,
      month = day || MONTH.test(history) ? history.slice(0, 7) : newest && date(newest).slice(0, 7);
    if (!month) return; // the newest snapshot decides
    if (!day || !last || day < period(last).first || day > period(last).last) last = month; // a click on a day moves nothing
    const shown = period(last),
      key = [mesh, shown.since, shown.until].join(" ");
    if (loaded?.key !== key) load(mesh, shown, key);
    const all = loaded.incidents ?? [],
      ofDay = day ? all.filter((one) => date(one.since) === day) : all,
      { team } = read(),
      listed = ofDay.filter((one) => (!service || listedService(one) === service) && (!what || one.kind === what) && (!team || one.team === team));
    show(
      by("history"),
      bar(
        el("a", { href: address({ history: shift(last, -1) }), "data-key": "previous" }, "Earlier"),
        el("span", { class: "month" }, `${monthName(shown.first.slice(0, 7))} to ${monthName(last)}`),
        el("a", { href: address({ history: shift(last, 1) }), "data-key": "next" }, "Later"),
      ),
      el("p", { class: "sr", role: "status" }, loaded.incidents ? `${plural(all.length, "incident")} in these months` : "Loading"),
      loaded.failed ? failure(loaded.failed, "history", retry) : null,
      el(
        "div",
        { class: "archive" },
        el(
          "div",
          { class: "choose" },
          calendar(shown, all, day),
          legend(),
          groups("By service", count(ofDay, (one) => [listedService(one)]), service, (name) => {
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
        list(listed, day),
      ),
    );
  }

  function retry() {
    loaded = null;
    redraw();
  }

  async function load(mesh, { since, until }, key) {
    loaded = { key, incidents: null, isCut: false, failed: null };
    const answer = { key, incidents: [], isCut: false, failed: null };
    try {
      let cursor = null;
      for (let i = 0; i < MAX_PAGES; i++) {
        const page = await feed.incidents(mesh, { since, until, limit: PAGE, cursor });
        answer.incidents.push(...page.incidents);
        cursor = page.next;
        if (!cursor) break;
      }
      answer.isCut = Boolean(cursor);
    } catch (error) {
      answer.failed = `The incidents could not be loaded: ${error.message}`;
    }
    if (loaded?.key !== key) return; // another calendar was chosen meanwhile
    loaded = answer;
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

  function list(incidents, day) {
    if (!loaded.incidents) return el("div", { class: "skeleton", "aria-hidden": "true" });
    const filters = [service, what && kind(what), read().team, day && dayName(day)].filter(Boolean).join(", "),
      cut = loaded.isCut ? `Only the newest ${loaded.incidents.length} are shown.` : "";
    return el(
      "div",
      {},
      el(
        "h3",
        {},
        `${plural(incidents.length, "incident")}${filters ? `: ${filters} ` : ""}`,
        day ? el("a", { href: address({ history: last }), "data-key": "all days" }, "All days") : null,
      ),
      cut ? el("p", { class: "affected" }, cut) : null,
      incidents.length
        ? el("ol", { class: "archived" }, ...incidents.map(row))
        : el("p", { class: "affected" }, loaded.failed ? "" : "No incident was archived for this time."),
    );
  }

  function row(one) {
    const duration = one.lasted ? `lasted ${one.lasted}` : "still open",
      alerted = one.opened_at ? `, reported after ${span(ends(one.opened_at) - ends(one.since))}` : "";
    return el(
      "li",
      { class: `card ${one.severity}` },
      el("h4", {}, el("a", { href: address({ history: null, peak: one.id }), "data-key": `incident ${one.id}` }, one.headline)),
      el(
        "p",
        { class: "when" },
        `${date(one.since)} ${time(one.since)}${drawn.newest ? ` (${ago(one.since, drawn.newest)})` : ""}, ${one.severity}, ${kind(one.kind)}; ${duration}${alerted}`,
      ),
      owner(one) ? el("p", { class: "owner" }, `Team: ${owner(one)}`) : null,
      one.replayed ? el("p", { class: "said" }, "Found in the past of the mesh, when it was new; no notification was sent.") : null,
      one.feedback ? el("p", { class: "said" }, one.feedback.text) : null,
      actionList(one, drawn.newest ?? one.since),
      el(
        "div",
        { class: "actions" },
        el("a", { href: feed.report(drawn.mesh, one.id), target: "_blank", rel: "noopener" }, "Report"),
      ),
    );
  }

  return { draw };
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
      ...counted.slice(0, MAX_GROUPS).map(([name, number]) =>
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
