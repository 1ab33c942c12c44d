// Lines of the card of an incident.
import { el } from "./dom.js";
import { address } from "./link.js";
import { isOfOrigin } from "./suspects.js";
import { day } from "./words.js";

/** What to do about an incident; null: documents of earlier versions do not say. */
export const nextStep = ({ next_step: text }) => (text ? el("p", { class: "next" }, el("b", {}, "What to do: "), text) : null);

/** A planned change: of the likely origin, or of another service around the same time. @param {any[]} more what follows. */
export function changeLine(incident, change, ...more) {
  const isCause = isOfOrigin(incident, change);
  return el("p", { class: isCause ? "why planned" : "why affected" }, `▲ ${change.text} `, ...more);
}

/** How often similar incidents were seen, with a link to each of the newest, and what helped then. */
export function seenBefore(seen) {
  const links = seen.incidents.flatMap((id, i) => [
    i ? ", " : "",
    el("a", { href: address({ history: null, peak: id }), "data-key": `seen ${id}` }, idTime(id)),
  ]);
  return el(
    "div",
    { class: "why seen" },
    el("p", {}, `${seen.text}. Open: `, ...links),
    ...seen.helped.map((one) => el("p", { class: "said" }, `${one.words} (${idTime(one.incident)})`)),
  );
}

/** 2026-11-17 14:05, from the id of an incident. */
const idTime = (id) => day(id.replace(/^(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d).*$/, "$1-$2-$3T$4:$5Z"));

/** A table of what the failing or slow calls share, compared to all other calls; null: nothing. */
export function inCommon(shared) {
  if (!shared?.groups.length) return null;
  const of = (count, total) => el("td", { class: "n" }, `${count.toLocaleString("en")} of ${total.toLocaleString("en")}`);
  return el(
    "table",
    { class: "in-common" },
    el("thead", {}, el("tr", {}, ...["In common", shared.verb, `others ${shared.verb}`].map((text) => el("th", { scope: "col" }, text)))),
    el("tbody", {}, ...shared.groups.map((one) => el("tr", {}, el("th", { scope: "row" }, one.calls), of(one.bad, one.total), of(one.others_bad, one.others)))),
  );
}
