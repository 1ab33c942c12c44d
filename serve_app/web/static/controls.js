// The keys and the buttons of the header: each changes the view in the address.
import { periods } from "./comparison.js";
import { by } from "./dom.js";
import { lookAround } from "./graph_bar.js";
import { go, read, visit } from "./link.js";
import { alerts } from "./severity.js";
import { known, shownIncident } from "./store.js";
import { likelySuspects } from "./suspects.js";
import { ends, readable } from "./words.js";

/** Say why a control did nothing. */
export function answer(/** @type {string} */ text) {
  by("answer").textContent = readable(text);
}

/** Go to a snapshot of the live window. */
export function look(/** @type {string} */ at) {
  const newest = known.timeline?.observed_at.at(-1);
  go({ at: at === newest ? null : at }, { quietly: true });
}

/**
 * @param {{select: (service: string, source?: string | null) => void, shownTimeline: () => any, themed: () => void, isAsking: () => boolean}} on
 * select: opens a panel. shownTimeline: the timeline in view; null: it is not loaded. themed: the colours changed. isAsking: whether a
 * dialog waits for an answer.
 */
export function bindControls(on) {
  function compare() {
    const over = on.shownTimeline();
    if (read().first || !over) {
      go({ first: null, second: null, focus: null });
      return;
    }
    const both = periods(over, shownIncident());
    go({ first: both.first.join("~"), second: both.second.join("~") });
  }

  function toggleHistory() {
    const { history, view } = read();
    go({ history: history ? null : "now", view: view === "meshes" ? null : view });
  }

  function step(count) {
    const { at } = read(),
      times = on.shownTimeline()?.observed_at ?? [],
      i = (at ? times.indexOf(at) : times.length - 1) + count;
    if (times[i] !== undefined) look(times[i]);
  }

  /** Go to the beginning of an incident: of the one in view or before it, or of the next. @param {-1 | 1} direction */
  function visitNext(direction) {
    const newest = known.timeline?.observed_at.at(-1),
      at = ends(read().at ?? newest),
      all = alerts(on.shownTimeline()?.incidents ?? []),
      found = direction < 0 ? all.findLast((one) => ends(one.first) < at) : all.find((one) => ends(one.first) > at);
    if (found) go({ at: found.first === newest ? null : found.first, incident: found.id }, { quietly: true });
    else answer(`There is no ${direction < 0 ? "earlier" : "later"} incident in the timeline.`);
  }

  function selectSuspect(rank) {
    const incident = shownIncident(),
      suspects = incident ? likelySuspects(incident) : (known.verdict?.suspects ?? []);
    if (suspects[rank - 1]) on.select(suspects[rank - 1].service);
    else answer(`There is no suspect ${rank}.`);
  }

  const keys = {
    ArrowLeft: () => step(-1),
    ArrowRight: () => step(1),
    "[": () => visitNext(-1),
    "]": () => visitNext(1),
    Escape: () => go(read().history ? { history: null } : { at: null, service: null, source: null, range: null }),
    p: () => {
      const { service, source } = read();
      if (service) on.select(service, source ?? null);
      else selectSuspect(1);
    },
    c: compare,
    h: toggleHistory,
    "/": () => by("find").focus(),
    "?": () => by("keys").showModal(),
    w: () => {
      if (by("near").disabled) answer("There is no incident, and no service is selected. The graph shows the whole mesh.");
      else if (read().view === "all") lookAround();
      else go({ view: "all" });
    },
  };

  addEventListener("keydown", (event) => {
    const isTyping = /** @type {HTMLElement} */ (event.target).matches("input, select, textarea");
    if (event.ctrlKey || event.metaKey || event.altKey || isTyping || by("keys").open || on.isAsking()) return;
    const action = keys[event.key] ?? (/^[1-9]$/.test(event.key) ? () => selectSuspect(Number(event.key)) : null);
    if (!action) return;
    event.preventDefault();
    answer("");
    action();
  });

  function theme(isDark) {
    document.documentElement.dataset.theme = isDark ? "dark" : "light";
    by("theme").setAttribute("aria-pressed", String(isDark));
    on.themed();
  }

  const chosen = localStorage.getItem("theme");
  theme(chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches);
  by("theme").addEventListener("click", () => {
    const isDark = document.documentElement.dataset.theme !== "dark";
    localStorage.setItem("theme", isDark ? "dark" : "light");
    theme(isDark);
  });

  by("mesh").addEventListener("change", () => visit({ mesh: by("mesh").value, history: read().history ? "now" : null }));
  by("live").addEventListener("click", () => go({ at: null, range: null }));
  by("compare").addEventListener("click", compare);
  by("open-history").addEventListener("click", toggleHistory);
  by("connect").addEventListener("click", () => go({ view: read().view === "start" ? null : "start" }));
  by("menu").addEventListener("click", () => by("menu").setAttribute("aria-expanded", String(by("menu").getAttribute("aria-expanded") !== "true")));
  by("help").addEventListener("click", () => by("keys").showModal());
}
