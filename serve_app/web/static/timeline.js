// Score and threshold over time, with incidents, notices, planned changes and the selected snapshot.
/* global uPlot */
import { by, colour, el, show } from "./dom.js";
import { alerts, notices } from "./severity.js";
import { clock, clockOrDay, ends, kind } from "./words.js";

const MOST_LISTED = 8; // incidents, notices, and planned changes, below the plot
const ALONE_SECONDS = 300; // shown before and after a snapshot that is the only one
const NOTICE_HEIGHT = 3; // of the mark of a notice, in pixels
const COLUMNS = [
  "observed_at",
  "sequence",
  "status",
  "mesh_score",
  "threshold",
  "probability",
  "coverage",
  "missing_parts",
  "milliseconds",
];

/** A timeline with its news, without snapshots that are no longer kept. */
export function append(before, news) {
  if (!before) return news;
  const first = news.kept_from,
    times = [...before.observed_at, ...news.observed_at];
  const timeline = Object.fromEntries(
    COLUMNS.map((name) => [name, [...before[name], ...news[name]].filter((_, i) => times[i] >= first)]),
  );
  timeline.kept_from = first;
  const incidents = new Map(before.incidents.map((one) => [one.id, one]));
  for (const one of news.incidents) {
    const old = incidents.get(one.id) ?? one,
      strongest = old.score > one.score ? old : one;
    incidents.set(one.id, { ...one, first: old.first, service: strongest.service, score: strongest.score });
  }
  timeline.incidents = [...incidents.values()].filter((one) => one.last >= first);
  timeline.changes = [...before.changes, ...news.changes].filter((one) => one.at >= first);
  return timeline;
}

/** @param {any} on `{look(at), visit(incident id), select(period, first)}`: called by a click, a click on an incident, a drag (with Shift). */
export function timelineView(on) {
  let plot = null,
    data = null,
    view = {},
    shifted = false;
  const place = by("plot"),
    scrub = by("scrub");

  scrub.addEventListener("input", () => on.look(data.observed_at[scrub.valueAsNumber]));
  place.addEventListener("pointerdown", (event) => {
    shifted = event.shiftKey;
  });

  function begin() {
    const score = { label: "score", stroke: () => colour("score"), width: 1.8, points: { show: false } };
    const threshold = {
      label: "threshold",
      stroke: () => colour("threshold"),
      width: 1.2,
      dash: [5, 4],
      points: { show: false },
    };
    const axis = {
      stroke: () => colour("soft"),
      grid: { stroke: () => colour("rule"), width: 0.5 },
      ticks: { show: false },
      font: "11px system-ui",
    };
    plot = new uPlot(
      {
        width: Math.max(200, place.clientWidth),
        height: 104,
        tzDate: (s) => uPlot.tzDate(new Date(s * 1000), "Etc/UTC"),
        padding: [8, 18, 0, 0],
        series: [{}, score, threshold],
        scales: { y: { range: (_, low, high) => [0, Math.max(4, 1.08 * high)] } },
        axes: [
          { ...axis, size: 24, space: 70, values: (_, times) => times.map((s) => clock(s * 1000, times[1] - times[0] < 60)) },
          { ...axis, size: 46, space: 36 },
        ],
        cursor: { drag: { x: true, y: false, setScale: false }, points: { size: 6 } },
        hooks: { drawClear: [shades], draw: [marks], setSelect: [selectPeriod], ready: [listenToClicks] },
      },
      [[], [], []],
      place,
    );
  }

  function listenToClicks(u) {
    u.over.addEventListener("click", () => {
      if (u.cursor.idx !== null && u.select.width < 3) on.look(data.observed_at[u.cursor.idx]);
    });
  }

  function selectPeriod(u) {
    if (u.select.width < 3) return;
    const within = [u.posToIdx(u.select.left), u.posToIdx(u.select.left + u.select.width)].map(
      (i) => data.observed_at[i],
    );
    u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    on.select(within, shifted);
  }

  function band(u, from, to, fill, height = u.bbox.height) {
    const a = Math.max(u.bbox.left, u.valToPos(from, "x", true)),
      b = Math.min(u.bbox.left + u.bbox.width, u.valToPos(to, "x", true));
    u.ctx.fillStyle = fill;
    u.ctx.fillRect(a, u.bbox.top, Math.max(2, b - a), height);
  }

  function shades(u) {
    if (!data) return;
    for (const one of alerts(data.incidents)) band(u, ends(one.since), ends(one.last), colour("shade"));
    const thin = NOTICE_HEIGHT * (window.devicePixelRatio || 1);
    for (const one of notices(data.incidents)) band(u, ends(one.since), ends(one.last), colour("notice"), thin);
    if (view.first) band(u, ...view.first.map(ends), colour("period-a"));
    if (view.second) band(u, ...view.second.map(ends), colour("period-b"));
  }

  function marks(u) {
    const pen = u.ctx,
      dense = window.devicePixelRatio || 1,
      low = u.bbox.top + u.bbox.height;
    pen.fillStyle = colour("warn");
    for (const change of data?.changes ?? []) {
      const x = u.valToPos(ends(change.at), "x", true);
      pen.beginPath();
      pen.moveTo(x, low - 9 * dense);
      pen.lineTo(x - 5 * dense, low);
      pen.lineTo(x + 5 * dense, low);
      pen.fill();
    }
    const at = view.at ?? data?.observed_at.at(-1);
    if (at === undefined) return;
    const x = u.valToPos(ends(at), "x", true);
    pen.strokeStyle = colour("ink");
    pen.lineWidth = (view.at ? 2 : 1) * dense;
    pen.beginPath();
    pen.moveTo(x, u.bbox.top);
    pen.lineTo(x, low);
    pen.stroke();
  }

  /** List the newest ones as buttons. */
  function listIncidents(id, list) {
    const until = ({ last }) => (last === data.observed_at.at(-1) && !view.stopped ? "now" : clock(last)),
      now = data.observed_at.at(-1) ?? "";
    const button = (one) =>
      el(
        "button",
        { type: "button", "data-key": one.id, click: () => on.visit(one.id) },
        `${clockOrDay(one.since, now)} to ${until(one)}: ${one.severity}, ${one.service ?? one.id}`,
      );
    const newest = list.slice(-MOST_LISTED).reverse();
    show(by(id), ...newest.map((one) => el("li", {}, button(one))));
  }

  function draw(timeline, next) {
    data = timeline;
    view = next;
    if (plot === null) begin();
    const times = data.observed_at.map(ends);
    plot.setData([times, data.mesh_score, data.threshold]);
    if (times.length === 1) plot.setScale("x", { min: times[0] - ALONE_SECONDS, max: times[0] + ALONE_SECONDS }); // else a day
    const last = data.observed_at.length - 1,
      i = view.at ? data.observed_at.indexOf(view.at) : last;
    scrub.max = String(Math.max(0, last));
    scrub.value = String(i < 0 ? last : i);
    const at = data.observed_at[i < 0 ? last : i];
    scrub.setAttribute(
      "aria-valuetext",
      at ? `${clock(at, true)} UTC, ${data.status[i < 0 ? last : i].replace("_", " ")}` : "no snapshot",
    );
    by("moment").textContent = view.at
      ? `showing ${clock(view.at, true)} UTC`
      : at
        ? `${clockOrDay(data.observed_at[0], at)} to ${clock(at)} UTC; click, or move the slider, to look back`
        : "";
    listIncidents("past", alerts(data.incidents));
    listIncidents("past-notices", notices(data.incidents));
    const shown = data.changes.slice(-MOST_LISTED).reverse();
    show(
      by("changes"),
      ...shown.map((one) =>
        el(
          "li",
          {},
          el("b", {}, "▲ "),
          `${clockOrDay(one.at, at)} ${kind(one.kind)} of ${one.service}${one.reason ? ` (${one.reason})` : ""}`,
        ),
      ),
    );
  }

  return {
    draw,
    redraw: () => data && draw(data, view),
    resize: () => plot?.setSize({ width: Math.max(200, place.clientWidth), height: 104 }),
  };
}
