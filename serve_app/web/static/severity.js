// Incidents raise alerts. Notices do not: a resource is running out, but users are not affected yet.

/** Anomaly scores (log10) of services and calls: up to the first normal, from the second on very unusual. */
export const QUIET = 3;
export const BAD = 6;

/** "normal", "unusual" or "very unusual". */
export const unusualness = (score) => (score <= QUIET ? "normal" : score < BAD ? "unusual" : "very unusual");

export const isNotice = ({ severity }) => severity === "notice";

/** The incidents that raise an alert, the most urgent first. */
export const alerts = (incidents) => incidents.filter((one) => !isNotice(one));

export const notices = (incidents) => incidents.filter(isNotice);

/** Whether the first suspect of an incident sends no telemetry, so that the state of the incident is unknown. */
export const isUnseen = ({ recovering, kind }) => recovering && kind === "telemetry_missing";

/** The most urgent of open incidents; verdicts list it first. */
export const worst = (open) => open[0] ?? null;
