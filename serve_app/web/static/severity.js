// Incidents raise alerts. Notices do not: a resource becomes short, but users do not suffer yet.

export const isNotice = ({ severity }) => severity === "notice";

/** The incidents that raise an alert, worst first. */
export const alerts = (incidents) => incidents.filter((one) => !isNotice(one));

export const notices = (incidents) => incidents.filter(isNotice);

/** Whether the first suspect of an incident sends no telemetry, so that the state of the incident is unknown. */
export const isUnseen = ({ recovering, kind }) => recovering && kind === "telemetry_missing";

/** The worst incident that is not recovering; if all are, the worst of them. */
export const worst = (open) => open.find((one) => !one.recovering) ?? open[0] ?? null;
