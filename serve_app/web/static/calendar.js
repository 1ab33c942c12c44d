// The calendar of the history: weeks as columns, a cell for each day with its incidents.
import { el } from "./dom.js";
import { address } from "./link.js";
import { isNotice } from "./severity.js";
import { date, fromZone, plural } from "./words.js";

const MONTHS = 3; // shown at once
const SEVERITIES = ["notice", "minor", "major", "critical"];
const WEEKDAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];
const DAY_MS = 86400000;

/** The months of a calendar that ends with `last` ("2026-11"): its first and its last day, and the times between which they are. */
export function period(last) {
  const first = `${shift(last, 1 - MONTHS)}-01`,
    after = `${shift(last, 1)}-01`;
  return { first, last: nextDay(after, -1), since: fromZone(`${first}T00:00:00`), until: fromZone(`${after}T00:00:00`) };
}

/** 2026-12 from 2026-11 and 1. */
export function shift(month, offset) {
  const [year, number] = month.split("-").map(Number);
  return new Date(Date.UTC(year, number - 1 + offset, 1)).toISOString().slice(0, 7);
}

/** "November 2026" from 2026-11. */
export const monthName = (month, style = "long") => named(`${month}-01`, { month: style, year: "numeric" });

/** "Tuesday, 17 November 2026" from 2026-11-17. */
export const dayName = (day) => named(day, { weekday: "long", day: "numeric", month: "long", year: "numeric" });

/** A table of these days. A day with incidents is a link that limits the list to it; the link of the chosen day shows all. */
export function calendar({ first, last }, incidents, chosen) {
  const of = (day) => incidents.filter((one) => date(one.since) === day),
    monday = nextDay(first, -((weekday(first) + 6) % 7)),
    weeks = [],
    monthOf = (week) => (nextDay(week, 6) > last ? last : nextDay(week, 6)).slice(0, 7); // the month of its Sunday
  for (let day = monday; day <= last; day = nextDay(day, 7)) weeks.push(day);
  const months = weeks.map((week, i) => {
    const month = monthOf(week),
      isFirst = !i || monthOf(weeks[i - 1]) !== month;
    return isFirst ? named(`${month}-01`, { month: "long" }).slice(0, 3) : "";
  });
  const row = (name, i) =>
    el(
      "tr",
      {},
      el("th", { scope: "row", abbr: name }, name.slice(0, 3)),
      ...weeks.map((week) => {
        const day = nextDay(week, i);
        return day < first || day > last ? el("td") : cell(day, of(day), chosen);
      }),
    );
  return el(
    "table",
    { class: "calendar" },
    el("caption", { class: "sr" }, `Incidents by day, ${dayName(first)} to ${dayName(last)}`),
    el("thead", {}, el("tr", {}, el("td"), ...months.map((name, i) => el("th", { scope: "col" }, name, el("span", { class: "sr" }, ` week of ${weeks[i]}`))))),
    el("tbody", {}, ...WEEKDAYS.map(row)),
  );
}

/** What the colours mean. */
export const legend = () => el("p", { class: "calendar legend", "aria-hidden": "true" }, ...SEVERITIES.map((name) => el("span", { class: name }, name)));

function cell(day, incidents, chosen) {
  if (!incidents.length) return el("td", { class: "empty", title: `${dayName(day)}: no incident` });
  const alerts = incidents.filter((one) => !isNotice(one)).length,
    worst = SEVERITIES[Math.max(...incidents.map((one) => SEVERITIES.indexOf(one.severity)))],
    text = `${dayName(day)}: ${plural(alerts, "incident")}, ${plural(incidents.length - alerts, "notice")}, worst ${worst}`;
  return el(
    "td",
    { class: worst },
    el(
      "a",
      {
        href: address({ history: chosen === day ? day.slice(0, 7) : day }),
        "aria-label": text,
        "aria-current": chosen === day ? "date" : null,
        "data-key": day,
        title: text,
      },
      String(incidents.length),
    ),
  );
}

const named = (day, style) => new Date(`${day}T00:00:00Z`).toLocaleDateString("en-GB", { ...style, timeZone: "UTC" });
const weekday = (day) => new Date(`${day}T00:00:00Z`).getUTCDay();
const nextDay = (day, days) => new Date(new Date(`${day}T00:00:00Z`).getTime() + days * DAY_MS).toISOString().slice(0, 10);
