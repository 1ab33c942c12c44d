// The suspects of an incident that are worth a line.

const LIKELY = 0.02; // score of a suspect, below which only the first one is shown
const SUSPECTS = 5; // at most per incident

/** The likely suspects, best first; the first one always. */
export const likelySuspects = ({ suspects }) => suspects.filter((one, i) => i === 0 || one.score >= LIKELY).slice(0, SUSPECTS);
