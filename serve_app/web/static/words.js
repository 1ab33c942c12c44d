// Times, names and short phrases for people. Times are UTC, or of the browser's zone if the reader chose it. Sentences come from the service.
import { isUnseen } from "./severity.js";

const DAYS = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"],
  MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const MINUTE_MS = 60000,
  DAY_MS = 86400000;
const chosen = { isLocal: false, moment: Date.now() };

/** Show times of the browser's zone, or UTC. */
export function setZone(/** @type {boolean} */ isLocal) {
  chosen.isLocal = isLocal;
}

/** The texts of the service are about this moment: their times without a date are of the day before it. */
export function setMoment(/** @type {string} */ at) {
  chosen.moment = ms(at);
}

export const isLocalZone = () => chosen.isLocal;

/** The browser's zone: Asia/Kabul. */
export const browserZone = () => Intl.DateTimeFormat().resolvedOptions().timeZone;

const ms = (at) => new Date(at).getTime();
const offset = (at) => (chosen.isLocal ? -new Date(at).getTimezoneOffset() : 0); // minutes ahead of UTC at a time

/** A time as the chosen zone writes it: 2026-03-01T03:12:15. A text that is not a time stays unchanged. */
export function inZone(at) {
  const time = ms(at);
  return Number.isNaN(time) ? String(at) : new Date(time + MINUTE_MS * offset(at)).toISOString().slice(0, 19);
}

/** The time at which the chosen zone writes this: the opposite of `inZone`, as ISO text. */
export function fromZone(text) {
  const asUtc = ms(`${text}Z`),
    guess = asUtc - MINUTE_MS * offset(asUtc);
  return new Date(asUtc - MINUTE_MS * offset(guess)).toISOString();
}

/** "UTC", "UTC+4:30": the zone of a time, which changes with summer time. */
export function zone(at) {
  const ahead = Math.round(offset(at)),
    size = Math.abs(ahead),
    minutes = size % 60 ? `:${String(size % 60).padStart(2, "0")}` : "";
  return ahead ? `UTC${ahead < 0 ? "-" : "+"}${Math.floor(size / 60)}${minutes}` : "UTC";
}

/** 03:12 or 03:12:15. */
export const clock = (at, exact = false) => inZone(at).replace(/^.*T(\d\d:\d\d)(:\d\d)$/, exact ? "$1$2" : "$1");

/** 2026-03-01. */
export const date = (at) => inZone(at).slice(0, 10);

/** 2026-03-01 03:12. */
export const day = (at) => inZone(at).slice(0, 16).replace("T", " ");

/** 03:12, or 2026-03-01 03:12 if it is not the day of `now`. */
export const clockOrDay = (at, now) => (date(at) === date(now) ? clock(at) : day(at));

/** 03:12 UTC, and the same with seconds. */
export const time = (at, exact = false) => `${clock(at, exact)} ${zone(at)}`;

/** 2026-03-01 03:12 UTC. */
export const dateTime = (at) => `${day(at)} ${zone(at)}`;

/** 03:12 UTC, or 2026-03-01 03:12 UTC if it is not the day of `now`. */
export const timeOrDateTime = (at, now) => `${clockOrDay(at, now)} ${zone(at)}`;

/** 03:12:15 UTC, or 2026-03-01 03:12 UTC if it is not the day of `now`. */
export const moment = (at, now) => (date(at) === date(now) ? time(at, true) : dateTime(at));

/** "03:12 to 04:12 UTC": with dates if it is not the day of `now`, and with two zones if summer time begins between them. */
export function between(from, to, now = to) {
  const isOneDay = date(from) === date(to),
    isToday = isOneDay && date(to) === date(now);
  const first = isToday ? clock(from) : day(from),
    last = isOneDay ? clock(to) : day(to);
  return `${first}${zone(from) === zone(to) ? "" : ` ${zone(from)}`} to ${last} ${zone(to)}`;
}

/** "4 min ago". */
export const ago = (at, now) => `${span(ends(now) - ends(at))} ago`;

const WRITTEN = /(?:(\d{4}-\d\d-\d\d) |[A-Z][a-z]{2} (\d{1,2}) ([A-Z][a-z]{2})(?: (\d{4}))? )?\b(\d\d:\d\d)(:\d\d)? UTC(?![+-])/g; // by the service

/** A text of the service with its times in the chosen zone. */
function rezoned(text) {
  return text.replace(WRITTEN, (_, iso, dayOfMonth, month, year, minute, second = "") => {
    const near = new Date(chosen.moment),
      named = dayOfMonth && `${year ?? near.getUTCFullYear()}-${String(MONTHS.indexOf(month) + 1).padStart(2, "0")}-${dayOfMonth.padStart(2, "0")}`,
      today = near.toISOString().slice(0, 10);
    let at = ms(`${iso ?? named ?? today}T${minute}${second}Z`);
    if (!iso && !dayOfMonth && at > chosen.moment) at -= DAY_MS;
    const there = inZone(at),
      plain = new Date(`${there}Z`),
      before = iso ? `${there.slice(0, 10)} ` : dayOfMonth ? `${DAYS[plain.getUTCDay()]} ${plain.getUTCDate()} ${MONTHS[plain.getUTCMonth()]}${year ? ` ${plain.getUTCFullYear()}` : ""} ` : "";
    return `${before}${time(at, Boolean(second))}`;
  });
}

export const ends = (at) => new Date(at).getTime() / 1000;

/** 12 s, 4 min, 2 h 10 min, 3 h, 3 days. */
export function span(s) {
  if (s < 120) return `${Math.round(Math.max(0, s))} s`;
  const minutes = Math.round(s / 60);
  if (minutes < 120) return `${minutes} min`;
  if (s < 172800) return `${Math.floor(minutes / 60)} h${minutes % 60 ? ` ${minutes % 60} min` : ""}`;
  return `${Math.round(s / 86400)} days`;
}

export const EVERYTHING = "/*"; // after a namespace: all its services, drawn as one node
export const kind = (text) => text.replaceAll("_", " ");
/** The name of a service to show, without its namespace. */
export const short = (service) => readable(service.slice(service.indexOf("/") + 1));
export const namespace = (service) => service.slice(0, service.indexOf("/"));

const ESCAPED = /~([0-9A-F]{2,6})~/g, // a character that ids may not contain, as its code point
  SHORTENED = /~([0-9a-f]{6})[0-9a-f]{26}~/g, // the end of a name that was too long
  SHOWN = /^(?![/~\u2800]|\p{Default_Ignorable_Code_Point})[\p{L}\p{M}\p{N}\p{P}\p{S} ]$/u;

/** A text for people with times in the chosen zone, and original names instead of ids: "shop/bank gateway" for
 * "shop/bank~20~gateway". Characters that print nothing or change the direction of writing stay escaped, since they could
 * make a name look like another one. */
export function readable(text) {
  if (chosen.isLocal && text?.includes(" UTC")) return original(rezoned(text));
  return original(text);
}

function original(text) {
  if (!text?.includes("~")) return text;
  const character = (written, code) => {
    const point = parseInt(code, 16),
      found = point <= 0x10ffff ? String.fromCodePoint(point) : "";
    return SHOWN.test(found) ? found : written;
  };
  return text.replace(ESCAPED, character).replace(SHORTENED, "…$1");
}

export const capitalized = (text) => text[0].toUpperCase() + text.slice(1);
/** "a, b and 3 more": the first names of a list. @param {string[]} names @param {number} total of which they are the first. */
export function someOf(names, most, total = names.length) {
  const more = total > most ? ` and ${(total - most).toLocaleString("en")} more` : "";
  return names.slice(0, most).join(", ") + more;
}

export const plural = (n, word) => `${n.toLocaleString("en")} ${word}${n === 1 ? "" : "s"}`;

/** What a recovering incident shows. */
export function recovery(incident) {
  const at = incident.suspects_at ? `, ${time(incident.suspects_at)}` : "",
    state = isUnseen(incident) ? "Its telemetry stopped" : "Recovering: normal in the last snapshots";
  return `${state}; suspects at the peak${at}.`;
}

/** When the numbers of an incident were measured: at its peak, if that is another snapshot than the one in view; else null. */
export const peakOf = ({ suspects_at: at, recovering }, { observed_at: now }) => (at && at !== now && !recovering ? at : null);

/** "checkout (#checkout)": who owns a service or an incident; empty if no one is known. */
export const owner = ({ team, contact }) => (team && contact ? `${team} (${contact})` : team || contact || "");

/** "The incident at shop/cart", "The incident of the requests to the mesh". */
export const namedIncident = ({ title, caller, scope }) => `The incident ${caller || scope ? "of the" : "at"} ${title}`;

/** Services without repetition: the suspects of a verdict by rank, then the others. */
export const suspectsFirst = (services, { suspects }) => [
  ...new Set([...suspects.map((one) => one.service).filter((one) => services.includes(one)), ...services]),
];
