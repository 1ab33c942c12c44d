// The suspects of an incident: which are likely, where it likely began, and the service that it is listed under.
import { LIKELY_SHARE } from "./numbers.js";

/** The suspects with a considerable share of the score, best first; at least the first one. Before them, separate faults as the headline names them. */
export function likelySuspects(/** @type {any} */ incident) {
  const { suspects, origins } = incident,
    total = suspects.reduce((sum, one) => sum + one.score, 0),
    likely = suspects.filter((one, i) => i === 0 || one.score >= LIKELY_SHARE * total),
    place = ({ service }) => (origins.includes(service) ? origins.indexOf(service) : likely.length);
  return hasSeparateFaults(incident) ? likely.sort((a, b) => place(a) - place(b)) : likely;
}

/**
 * Where an incident likely began: a service, several that suffer as one, or the calls to a service from one caller, which fail while the service
 * itself is normal.
 * @param {any} incident null: there is none.
 * @returns {{service: string | undefined, services: string[], caller: string | null}} service: the first of the services; caller: null: the
 * services themselves.
 */
export function originOf(incident) {
  const service = incident?.suspects[0]?.service;
  return { service, services: incident?.origins?.length ? incident.origins : service ? [service] : [], caller: incident?.caller ?? null };
}

/** Whether an incident began at several services by separate faults. */
export const hasSeparateFaults = (/** @type {any} */ { title, origins = [] }) => origins.length > 1 && title === origins.join(" and ");

/** The service that an incident is listed under: its origin, else the first affected one. */
export const listedService = (/** @type {any} */ incident) => originOf(incident).service ?? incident.affected[0] ?? "";

/** Whether the reasons of a suspect have the numbers of the whole scope, which the metrics of no service show. */
export const isOfScope = (/** @type {any} */ incident, /** @type {string} */ service) =>
  Boolean(incident.scope) && incident.scope !== service && originOf(incident).service === service;

/** Whether a planned change is of a service where the incident likely began, so that it may be the cause. */
export function isOfOrigin(/** @type {any} */ incident, /** @type {any} */ change) {
  const { services, caller } = originOf(incident);
  return services.includes(change.service) || change.service === caller;
}

/** "likely origin", or "the calls from shop/cart are the likely origin"; empty for any other service. */
export function originText(/** @type {any} */ incident, /** @type {string} */ name) {
  const { services, caller } = originOf(incident);
  if (!services.includes(name)) return "";
  return caller ? `the calls from ${caller} are the likely origin` : "likely origin";
}
