// Compares two periods: which metrics differ most.
import { by, el, show } from "./dom.js";
import * as feed from "./feed.js";
import { clock, ends, metricName, metricValue, plural, time } from "./words.js";

const ROWS = 20; // at most
const BEFORE_SECONDS = 600; // before an incident: the default first period

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
  let asked = "";
  const place = by("comparison");

  async function draw({ mesh, first, second }) {
    by("compare").setAttribute("aria-expanded", String(Boolean(first)));
    place.hidden = !first;
    const now = JSON.stringify([mesh, first, second]);
    if (!first || now === asked) {
      if (!first) asked = "";
      return;
    }
    asked = now;
    let answer;
    try {
      answer = await feed.comparison(mesh, first, second);
    } catch (error) {
      if (now === asked) show(place, title(first, second), el("p", { class: "failed" }, error.message));
      return;
    }
    if (now !== asked) return;
    const rows = answer.rows
      .slice(0, ROWS)
      .map(({ service, source, metric, first: a, second: b, strength }) =>
        el(
          "tr",
          {},
          el(
            "td",
            {},
            el(
              "button",
              { type: "button", "data-key": `${service} ${source} ${metric}`, click: () => on.select(service, source) },
              source ? `${source} → ${service}` : service,
            ),
          ),
          el("td", {}, metricName(metric)),
          el("td", { class: "n" }, metricValue(metric, a)),
          el(
            "td",
            { class: `n ${strength > 0 ? "up" : "down"}` },
            `${strength > 0 ? "▲" : "▼"} ${metricValue(metric, b)}`,
          ),
        ),
      );
    const head = el(
      "tr",
      {},
      ...["Service or call", "Metric", `${clock(first[0])} to ${clock(first[1])}`, `${clock(second[0])} to ${clock(second[1])}`].map((text) => el("th", { scope: "col" }, text)),
    );
    show(
      place,
      title(first, second),
      rows.length
        ? el("table", {}, el("thead", {}, head), el("tbody", {}, ...rows))
        : el(
            "p",
            {},
            `No metric differs by more than its usual variation (${plural(answer.first_snapshots, "snapshot")} and ${answer.second_snapshots}).`,
          ),
    );
  }

  function title(first, second) {
    return el(
      "div",
      {},
      el(
        "h3",
        { id: "comparison-title" },
        "Differences: ",
        el("span", { class: "a" }, `${clock(first[0])} to ${clock(first[1])}`),
        " compared with ",
        el("span", { class: "b" }, `${clock(second[0])} to ${time(second[1])}`),
      ),
      el("p", { class: "affected" }, "Drag on the timeline to set the second period, Shift-drag to set the first."),
    );
  }

  return { draw };
}
