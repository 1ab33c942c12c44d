// The callers or callees of a service: rate, errors and latency of their calls, with what was expected where that is known.
import { el } from "./dom.js";
import { QUIET, unusualness } from "./severity.js";
import { count, figures, metricValue } from "./numbers.js";
import { plural } from "./words.js";

/**
 * @param {(service: string) => void} open called by a click on a row.
 */
export function neighbours(title, rows, total, { interval_seconds: interval }, open) {
  if (!rows.length) return el("section", { class: "listed" }, el("h3", {}, title), el("p", { class: "affected" }, `No ${title.toLowerCase()}.`));
  const more = total - rows.length;
  const head = ["Service", "Requests", "Errors", "p99"].map((text) => el("th", { scope: "col" }, text));
  return el(
    "section",
    { class: "listed" },
    el("h3", {}, plural(total, title.slice(0, -1).toLowerCase())),
    el(
      "table",
      {},
      el("thead", {}, el("tr", {}, ...head)),
      el("tbody", {}, ...unusualFirst(rows).map((one) => row(title, one, interval, open))),
    ),
    more > 0 ? el("p", { class: "affected" }, `and ${plural(more, "more service")} with fewer requests`) : null,
  );
}

const unusualFirst = (rows) => rows.toSorted((a, b) => Number(b.deviation > QUIET) - Number(a.deviation > QUIET));

function row(title, { service, requests_per_second: rate, requests, error_rate: errors, p99_latency: p99, deviation }, interval, open) {
  const share = errors === null ? "not observed" : `${metricValue("error_rate", errors)} of ${count(requests)}`;
  return el(
    "tr",
    { class: deviation > QUIET ? "unusual" : null },
    el(
      "td",
      {},
      el("button", { type: "button", class: "plain", "data-key": `${title} ${service}`, click: () => open(service) }, service),
      deviation > QUIET ? el("span", { class: "tag" }, ` ${unusualness(deviation)} calls`) : null,
    ),
    el("td", { class: "n" }, metricValue("requests_per_second", rate)),
    el("td", { class: "n", title: `${count(requests)} requests in ${figures(interval)} s` }, share),
    el("td", { class: "n" }, metricValue("p99_latency", p99)),
  );
}
