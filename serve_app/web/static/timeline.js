// Score and threshold over time, with incidents, notices, planned changes, gaps and the selected moment.
/* global uPlot */
import { by, colour, el, show } from "./dom.js";
import { gaps, nearest as nearestIndex } from "./series.js";
import { drawRangeState, rangeText } from "./range.js";
import { alerts, notices } from "./severity.js";
import { between, clock, clockOrDay, date, ends, isLocalZone, kind, moment, plural, readable, span, timeOrDateTime } from "./words.js";

const MAX_LISTED = 8; // incidents, notices, and planned changes, below the plot
const HEIGHT = 104; // of the plot, in pixels
const ALONE_SECONDS = 300; // shown before and after a snapshot that is the only one
const NOTICE_HEIGHT = 3; // of the mark of a notice, in pixels
const DAY_SECONDS = 86400;
const EFFECT_SECONDS = [120, 600]; // after a planned change: from when on its effect can be known, and until when an incident may be its effect
/**
 * @param {any} on `{look(at), visit(incident), select(period, first), zoom(range), deploy(change)}`: called by a click, a click on
 * an incident, a drag with Shift or while periods are compared, another drag, and a click on a change.
 */
export function timelineView(on) {
  let plot = null,
    data = null,
    view = {},
    moments = [], // of the points of the plot; null: within a gap
    silences = [], // gaps without data, as pairs of seconds
    shifted = false;
  const place = by("plot"),
    scrub = by("scrub");

  scrub.addEventListener("input", () => on.look(data.observed_at[scrub.valueAsNumber]));
  place.addEventListener("pointerdown", (event) => {
    shifted = event.shiftKey;
  });

  const plotWidth = () => Math.max(200, place.clientWidth);
  const resize = () => plot?.setSize({ width: plotWidth(), height: HEIGHT });

  function begin() {
    const line = { points: { show: false } },
      score = { ...line, label: "score", stroke: () => colour("accent"), width: 1.8 },
      threshold = { ...line, label: "threshold", stroke: () => colour("soft"), width: 1.2, dash: [5, 4] },
      highest = { ...line, label: "highest", stroke: () => colour("accent"), width: 0.6 };
    const axis = {
      stroke: () => colour("soft"),
      grid: { stroke: () => colour("rule"), width: 0.5 },
      ticks: { show: false },
      font: "11px system-ui",
    };
    plot = new uPlot(
      {
        width: plotWidth(),
        height: HEIGHT,
        tzDate: (s) => (isLocalZone() ? new Date(s * 1000) : uPlot.tzDate(new Date(s * 1000), "Etc/UTC")),
        padding: [8, 28, 0, 0],
        series: [{}, highest, score, threshold],
        scales: { x: { range: (_, low, high) => extent(low, high) }, y: { range: (_, low, high) => [0, Math.max(4, 1.08 * high)] } },
        axes: [
          { ...axis, size: 24, space: 70, values: (_, times) => times.map((s, i) => tick(s, times[i - 1], times[1] - times[0])) },
          { ...axis, size: 46, space: 36 },
        ],
        cursor: { drag: { x: true, y: false, setScale: false }, points: { size: 6 } },
        hooks: { drawClear: [shades], draw: [marks], setSelect: [selectPeriod], ready: [listen] },
      },
      [[], [], [], []],
      place,
    );
  }

  /** The limits of the time axis: of the range, else of the data. */
  function extent(low, high) {
    if (view.range) return [ends(view.range.start), ends(view.range.end)];
    if (low === null) return [0, DAY_SECONDS];
    return low === high ? [low - ALONE_SECONDS, high + ALONE_SECONDS] : [low, high];
  }

  /** A label of the time axis: a clock, and a day where one begins. */
  function tick(s, before, step) {
    const at = s * 1000,
      isNewDay = before !== undefined && date(at) !== date(before * 1000);
    return step >= DAY_SECONDS || isNewDay ? date(at).slice(5) : clock(at, step < 60);
  }

  function listen(u) {
    u.over.addEventListener("click", () => {
      if (u.cursor.left < 0 || u.select.width >= 3 || !data.observed_at.length) return;
      const at = u.cursor.idx === null ? null : moments[u.cursor.idx];
      on.look(at ?? nearest(u.posToVal(u.cursor.left, "x")));
    });
  }

  /** The snapshot nearest to a time. */
  const nearest = (s) => data.observed_at.reduce((best, at) => (Math.abs(ends(at) - s) < Math.abs(ends(best) - s) ? at : best));

  function selectPeriod(u) {
    const { left, width } = u.select;
    if (width < 3) return;
    const [from, to] = [left, left + width].map((x) => u.posToVal(x, "x"));
    u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    if (shifted || view.first) on.select([nearest(from), nearest(to)], shifted);
    else on.zoom(rangeText(from, to));
  }

  function band(u, from, to, fill, height = u.bbox.height) {
    const a = Math.max(u.bbox.left, u.valToPos(from, "x", true)),
      b = Math.min(u.bbox.left + u.bbox.width, u.valToPos(to, "x", true));
    if (b < u.bbox.left || a > u.bbox.left + u.bbox.width) return;
    u.ctx.fillStyle = fill;
    u.ctx.fillRect(a, u.bbox.top, Math.max(2, b - a), height);
  }

  function shades(u) {
    if (!data) return;
    for (const gap of silences) band(u, ...gap, colour("panel"));
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
    const at = view.at ?? (view.range && !view.range.isLast ? undefined : data?.observed_at.at(-1));
    if (at === undefined) return;
    const x = u.valToPos(ends(at), "x", true);
    if (x < u.bbox.left || x > u.bbox.left + u.bbox.width) return;
    pen.strokeStyle = colour("ink");
    pen.lineWidth = (view.at ? 2 : 1) * dense;
    pen.beginPath();
    pen.moveTo(x, u.bbox.top);
    pen.lineTo(x, low);
    pen.stroke();
  }

  const newest = () => data.observed_at.at(-1) ?? "";

  function incidentText(one) {
    const isOpen = one.last === view.newest && !view.stopped && (!view.range || view.range.isLast);
    const times = isOpen ? `${clockOrDay(one.since, newest())} to now` : between(one.since, one.last, newest());
    return `${times}: ${one.severity}, ${view.titles.get(one.id) ?? one.service ?? one.id}`;
  }

  const changeText = (one) => `${clockOrDay(one.at, newest())} ${kind(one.kind)} of ${one.service}${one.reason ? ` (${one.reason})` : ""}${hadNoEffect(one) ? ": no effect seen" : ""}`;

  /** Whether the mesh stayed normal for minutes after a planned change. */
  function hadNoEffect({ at }) {
    const since = (i) => ends(data.observed_at[i]) - ends(at),
      after = [...data.observed_at.keys()].filter((i) => since(i) >= 0 && since(i) <= EFFECT_SECONDS[1]);
    return since(after.at(-1)) >= EFFECT_SECONDS[0] && after.every((i) => data.status[i] === "normal");
  }

  /** List the newest ones as buttons, and how many more there are. */
  function list(id, rows, text, key, action) {
    const newestFirst = rows.slice(-MAX_LISTED).reverse(),
      more = rows.length - newestFirst.length;
    show(
      by(id),
      ...newestFirst.map((one) => el("li", { class: one.severity ?? null }, el("button", { type: "button", "data-key": key(one), click: () => action(one) }, text(one)))),
      more > 0 ? el("li", {}, `and ${more.toLocaleString("en")} more`) : null,
    );
  }

  function draw(timeline, next) {
    view = next;
    const { range } = view;
    drawRangeState(range);
    const shown = range ? range.answer : timeline;
    place.hidden = scrub.parentElement.hidden = !shown;
    if (!shown) {
      by("moment").textContent = "";
      for (const id of ["past", "past-notices", "changes"]) show(by(id));
      return;
    }
    data = shown;
    if (plot === null) begin();
    else if (plot.width !== plotWidth()) resize(); // it was hidden meanwhile
    const times = data.observed_at.map(ends);
    const found = gaps(times, data.step);
    silences = joined([...found, ...emptyRuns(times, data.mesh_score)]);
    const filled = (column) => withGaps(column, times, found);
    moments = filled(data.observed_at);
    plot.setData([
      withGaps(times, times, found, ([from, to]) => (from + to) / 2),
      filled(data.highest ?? data.mesh_score.map(() => null)),
      filled(data.mesh_score),
      filled(data.threshold),
    ]);
    const last = data.observed_at.length - 1,
      i = view.at ? nearestIndex(data.observed_at, ends(view.at)) : last,
      at = data.observed_at[i];
    scrub.max = String(Math.max(0, last));
    scrub.value = String(Math.max(0, i));
    scrub.setAttribute(
      "aria-valuetext",
      at ? `${timeOrDateTime(at, newest())}, ${(data.status[i] ?? "no data").replace("_", " ")}` : "no snapshot",
    );
    by("moment").textContent = readable(momentText());
    list("past", alerts(data.incidents), incidentText, (one) => one.id, on.visit);
    list("past-notices", notices(data.incidents), incidentText, (one) => one.id, on.visit);
    by("planned").hidden = !data.changes.length;
    by("planned-title").textContent = readable(plural(data.changes.length, "planned change") + (data.changes.length === 1 ? `: ${changeText(data.changes[0])}` : ""));
    list("changes", data.changes, (one) => `▲ ${changeText(one)}`, (one) => `change ${one.at} ${one.kind} ${one.service}`, on.deploy);
  }

  /** What the plot shows, and how coarse it is. */
  function momentText() {
    const { range, at } = view,
      missing = silences.length ? `; ${plural(silences.length, "gap")} without data` : "";
    const showing = at ? `showing ${moment(at, view.newest)}` : "";
    if (!range) {
      if (showing) return showing;
      return newest() ? `${between(data.observed_at[0], newest())}${missing}; click, or move the slider, to look back` : "";
    }
    const period = between(range.start, range.end, range.isLast ? range.end : new Date()),
      first = data.complete_from && ends(data.complete_from) > ends(range.start) ? `; complete from ${timeOrDateTime(data.complete_from, range.end)}` : "";
    return `${[showing, period].filter(Boolean).join("; ")}; 1 point = ${span(data.step)}${first}${missing}`;
  }

  return {
    draw,
    redraw: () => data && draw(data, view),
    resize,
  };
}

/** A column with one more value, null or `fill(gap)`, within each gap. */
function withGaps(column, times, found, fill = /** @type {any} */ (() => null)) {
  if (!found.length) return column;
  const after = new Map(found.map((gap) => [gap[0], gap]));
  return column.flatMap((value, i) => (after.has(times[i]) ? [value, fill(after.get(times[i]))] : [value]));
}

/** Pairs of seconds without overlaps. */
function joined(pairs) {
  const apart = [];
  for (const [from, to] of pairs.sort((a, b) => a[0] - b[0])) {
    const before = apart.at(-1);
    if (before && from <= before[1]) before[1] = Math.max(before[1], to);
    else apart.push([from, to]);
  }
  return apart;
}

/** Runs of points without a value, up to the points around them, as pairs of seconds. */
function emptyRuns(times, values) {
  const runs = [];
  values.forEach((value, i) => {
    if (value !== null) return;
    const until = times[Math.min(i + 1, times.length - 1)];
    if (i && values[i - 1] === null) runs.at(-1)[1] = until;
    else runs.push([times[Math.max(0, i - 1)], until]);
  });
  return runs;
}
