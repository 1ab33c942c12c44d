// A small chart of one metric: measured and expected values, the usual range, the moment, and a readout of one snapshot.
import { el } from "./dom.js";
import { nearest, runs } from "./series.js";
import { metricName, metricValue } from "./numbers.js";
import { clock, clockOrDay, ends, time } from "./words.js";

const WIDTH = 360,
  HEIGHT = 78,
  LOW = 14, // below the plot: the times
  HIGH = 6; // above it

/**
 * @param {any} data `{metric, times, observed, expected, low, high, incidents, changes}`; incidents: `{first, last}`.
 * @param {any} view `{at, cursor}`: index of the selected moment, and of the snapshot to read out; null: the moment.
 * @param {any} [on] `{point(index or null), look(index)}`: a snapshot is pointed at, or chosen. None: it is only looked at.
 */
export function chart(data, { at, cursor }, on) {
  const { metric, times, observed } = data,
    index = cursor ?? at,
    name = metricName(metric),
    { x, y, top } = scales(data);
  const inside = (event) => {
    const { left, width } = event.currentTarget.getBoundingClientRect();
    return nearest(times, ends(times[0]) + ((event.clientX - left) / width) * (ends(times.at(-1)) - ends(times[0])));
  };
  const picture = el(
    "svg",
    { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true" },
    ...data.incidents.map(({ first, last }) =>
      el("rect", { class: "incident", x: x(ends(first)), y: HIGH, width: Math.max(2, x(ends(last)) - x(ends(first))), height: HEIGHT - LOW - HIGH }),
    ),
    el("path", { class: "usual", d: area(data.low, data.high, times, x, y) }),
    el("path", { class: "expected", d: line(data.expected, times, x, y) }),
    el("path", { class: "observed", d: line(observed, times, x, y) }),
    ...data.changes.map((one) => mark("change", x(ends(one)))),
    mark("moment", x(ends(times[at]))),
    mark("cursor", cursor === null ? null : x(ends(times[cursor]))),
    el("path", { class: "axis", d: `M0 ${HEIGHT - LOW}H${WIDTH}` }),
  );
  const steps = { ArrowLeft: -1, ArrowRight: 1, Home: -times.length, End: times.length };
  const slider = {
    class: "plot",
    role: "slider",
    tabindex: 0,
    "data-key": `chart ${metric}`,
    "aria-label": `${name} over time`,
    "aria-valuemin": 0,
    "aria-valuemax": times.length - 1,
    "aria-valuenow": index,
    "aria-valuetext": spoken(data, index),
    pointermove: (event) => on.point(inside(event)),
    pointerleave: () => on.point(null),
    click: (event) => on.look(inside(event)),
    keydown: (event) => {
      const now = Number(event.currentTarget.getAttribute("aria-valuenow"));
      if (event.key === "Enter") on.look(now);
      else if (event.key in steps) on.point(Math.min(times.length - 1, Math.max(0, now + steps[event.key])));
      else return;
      event.preventDefault();
      event.stopPropagation();
    },
  };
  return el(
    "figure",
    { class: "chart" },
    el("figcaption", {}, el("b", {}, name), el("span", { class: "reading" }, shownReadout(data, at, cursor))),
    el("div", on ? slider : { class: "plot", role: "img", "aria-label": `${name} over time: ${spoken(data, index)}` }, picture),
    el("div", { class: "scale", "aria-hidden": "true" }, ...[clockOrDay(times[0], times.at(-1)), upTo(metricValue(metric, top)), clock(times.at(-1))].map((text) => el("span", {}, text))),
  );
}

/** Read out another snapshot of a chart that is drawn. */
export function point(figure, data, { at, cursor }) {
  const index = cursor ?? at,
    { x } = scales(data),
    slider = figure.querySelector("[role=slider]");
  figure.querySelector(".cursor").setAttribute("d", upright(cursor === null ? null : x(ends(data.times[cursor]))));
  figure.querySelector(".reading").textContent = shownReadout(data, at, cursor);
  slider.setAttribute("aria-valuenow", String(index));
  slider.setAttribute("aria-valuetext", spoken(data, index));
}

const spoken = (data, index) => `${time(data.times[index], true)}: ${readout(data, index)}`;

/** The time is shown only where it is not the moment. */
const shownReadout = (data, at, cursor) => (cursor === null ? readout(data, at) : spoken(data, cursor));

/** "84 ms, expected 40 ms (30 ms to 52 ms)". */
function readout({ metric, observed, expected, low, high }, index) {
  const text = (value) => metricValue(metric, value),
    [least, most] = [text(low[index]), text(high[index])],
    usual = low[index] === null || high[index] === null ? "" : least === most ? least : least.startsWith("below") ? upTo(most) : `${least} to ${most}`,
    compared = observed[index] === null || !usual ? "" : expected[index] === null ? `, usually ${usual}` : `, expected ${text(expected[index])} (${usual})`;
  return `${text(observed[index])}${compared}`;
}

function scales({ times, observed, expected, high }) {
  const first = ends(times[0]),
    last = ends(times.at(-1)),
    seen = observed.filter((value) => value !== null),
    usual = [...expected, ...high].filter((value) => value !== null),
    most = Math.max(0, ...seen, ...usual.filter((value) => value <= 3 * Math.max(...seen, 0))),
    top = most || Math.max(0, ...usual) || 1;
  return {
    top,
    x: (at) => Number(((WIDTH * (at - first)) / Math.max(1, last - first)).toFixed(1)),
    y: (value) => Number((HEIGHT - LOW - (HEIGHT - LOW - HIGH) * Math.min(1, value / top)).toFixed(1)),
  };
}

/** A line with gaps where nothing is known; a point alone is a dot. */
function line(values, times, x, y) {
  const corner = (i) => `${x(ends(times[i]))} ${y(values[i])}`;
  return runs(times.map(ends), (i) => values[i] !== null)
    .map((run) => `M${run.map(corner).join("L")}${run.length === 1 ? "h1" : ""}`)
    .join("");
}

/** The area between two lines. */
function area(low, high, times, x, y) {
  const corner = (values) => (i) => `${x(ends(times[i]))} ${y(values[i])}`;
  return runs(times.map(ends), (i) => low[i] !== null && high[i] !== null)
    .filter((run) => run.length > 1)
    .map((run) => `M${[...run.map(corner(high)), ...run.toReversed().map(corner(low))].join("L")}Z`)
    .join("");
}

const upTo = (text) => (text.startsWith("below") ? text : `up to ${text}`);
const upright = (x) => (x === null ? "" : `M${x} ${HIGH}V${HEIGHT - LOW}`);
const mark = (kind, x) => el("path", { class: kind, d: upright(x) });
