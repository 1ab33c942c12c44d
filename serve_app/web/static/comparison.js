// Compares two periods: which metrics differ most, or all of a service before and after a change.
import { difference } from "./deploys.js";
import { by, el, failure, show } from "./dom.js";
import * as feed from "./feed.js";
import { latest } from "./answers.js";
import { metricName, metricValue } from "./numbers.js";
import { between, ends, kind, plural, time } from "./words.js";

const ROWS = 20; // at most
const BEFORE_SECONDS = 600; // before an incident: the default first period
const DAY_SECONDS = 86400;

/** The default periods: before and since the open incident, or the two halves of the timeline. */
export function periods(timeline, incident) {
  const times = timeline.observed_at,
    last = times.at(-1);
  if (!incident || incident.since <= times[0]) {
    const middle = Math.floor(times.length / 2);
    return { first: [times[0], times[Math.max(0, middle - 1)]], second: [times[middle], last] };
  }
  const from = ends(incident.since),
    before = times.filter((at) => ends(at) < from && ends(at) >= from - BEFORE_SECONDS);
  return {
    first: [before[0] ?? times[0], before.at(-1) ?? times[0]],
    second: [times.find((at) => ends(at) >= from) ?? last, last],
  };
}

/** @param {{select: (service: string, source?: string | null) => void}} on called by a click. */
export function comparisonView(on) {
  const place = by("comparison");
  let drawn = null,
    isNew = false; // opened by this view, and not scrolled to yet
  const answers = latest(redraw);

  /** @param {any} next `{mesh, first, second, focus, changes}`; focus: a service whose change is shown; changes: of the timeline. */
  function draw(next) {
    by("compare").setAttribute("aria-expanded", String(Boolean(next.first)));
    isNew = Boolean(next.first) && (isNew || (next.focus && next.focus !== drawn?.focus));
    drawn = next;
    redraw();
  }

  function redraw() {
    const { mesh, first, second, focus } = drawn;
    place.hidden = !first;
    if (!first) {
      answers.forget();
      return;
    }
    const { answer, failed, isLoading, key } = answers.ask(JSON.stringify([mesh, first, second, focus]), async (signal) => ({
      ...(await feed.comparison(mesh, first, second, focus, signal)),
      focus,
    }));
    place.setAttribute("aria-busy", String(isLoading));
    if (failed)
      show(place, title(), failure(failed, key, answers.retry));
    else if (!answer || answer.focus !== focus) show(place, title(), el("div", { class: "skeleton" }));
    else show(place, title(), focus ? el("p", { class: "sentence" }, difference(focus, answer)) : null, differences(answer));
    if (isNew) place.scrollIntoView({ block: "nearest" });
    isNew = isNew && isLoading;
  }

  function differences(answer) {
    const { first, second } = drawn,
      rows = answer.rows.slice(0, ROWS);
    if (!rows.length)
      return el("p", {}, `No metric differs by more than its usual variation (${plural(answer.first_snapshots, "snapshot")} and ${answer.second_snapshots}).`);
    const heads = ["Service or call", "Metric", text(first), text(second)].map((name) => el("th", { scope: "col" }, name));
    return el("table", {}, el("thead", {}, el("tr", {}, ...heads)), el("tbody", {}, ...rows.map(row)));
  }

  const row = ({ service, source, metric, first, second, strength, significant }) =>
    el(
      "tr",
      {},
      el("td", {}, el("button", { type: "button", class: "plain", "data-key": `${service} ${source} ${metric}`, click: () => on.select(service, source) }, source ? `${source} → ${service}` : service)),
      el("td", {}, metricName(metric)),
      el("td", { class: "n" }, metricValue(metric, first)),
      significant
        ? el("td", { class: `n ${strength > 0 ? "up" : "down"}` }, el("b", {}, `${strength > 0 ? "▲" : "▼"} ${metricValue(metric, second)}`))
        : el("td", { class: "n" }, metricValue(metric, second)),
    );

  /** A period: with its date unless the newest snapshot is of the same day. */
  const text = ([from, to]) => between(from, to, drawn.newest);

  function title() {
    const { first, second, focus, changes } = drawn,
      change = focus && changes.find((one) => one.service === focus && Math.abs(ends(one.at) - ends(second[0])) < DAY_SECONDS / 24),
      about = change ? `the ${kind(change.kind)} of ${focus}${change.reason ? ` (${change.reason})` : ""} at ${time(change.at)}: ` : `the change of ${focus}: `;
    return el(
      "div",
      {},
      el(
        "h3",
        { id: "comparison-title" },
        focus ? `Before and after ${about}` : "Differences: ",
        el("span", { class: "a" }, text(first)),
        focus ? " and " : " compared with ",
        el("span", { class: "b" }, text(second)),
      ),
      el("p", { class: "affected" }, "Drag on the timeline to set the second period, Shift-drag to set the first."),
    );
  }

  return { draw };
}
