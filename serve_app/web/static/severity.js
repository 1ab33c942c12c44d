// Incidents raise alerts. Notices do not: a resource becomes short, but users do not suffer yet.

export const isNotice = ({ severity }) => severity === "notice";

/** The incidents that raise an alert, worst first. */
export const alerts = (incidents) => incidents.filter((one) => !isNotice(one));

export const notices = (incidents) => incidents.filter(isNotice);
