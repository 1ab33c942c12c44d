// The suspects of an incident that are shown, and where it likely began.

const LIKELY = 0.02; // score of a suspect, below which only the first one is shown
const SUSPECTS = 5; // at most per incident

/** The likely suspects, best first; the first one always. */
export const likelySuspects = ({ suspects }) => suspects.filter((one, i) => i === 0 || one.score >= LIKELY).slice(0, SUSPECTS);

/**
 * Where an incident likely began: a service, or the calls to it from one caller, which fail while the service itself is normal.
 * @param {any} incident null: there is none.
 * @returns {{service: string | undefined, caller: string | null}} caller: null: the service itself.
 */
export const originOf = (incident) => ({ service: incident?.suspects[0]?.service, caller: incident?.caller ?? null });

/** Whether a planned change is of a service where the incident likely began, so that it may be the cause. */
export function isOfOrigin(/** @type {any} */ incident, /** @type {any} */ change) {
  const { service, caller } = originOf(incident);
  return change.service === service || change.service === caller;
}

/** "likely origin", or "the calls from shop/cart are the likely origin"; empty for any other service. */
export function originText(/** @type {any} */ incident, /** @type {string} */ name) {
  const { service, caller } = originOf(incident);
  if (service !== name) return "";
  return caller ? `the calls from ${caller} are the likely origin` : "likely origin";
}
