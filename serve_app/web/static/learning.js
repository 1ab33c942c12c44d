// The first snapshots of a mesh, from which it is learned: how many there are, and when the first verdict comes.
import { interval, isSimulated } from "./state.js";
import { span, timeOrDateTime } from "./words.js";

const USUAL_NEEDED = 10; // snapshots, until the service has said how many

/** "4 of 10 snapshots". @param {any} mesh a line of the list of meshes, or `{sequence}`. */
export const progressText = ({ sequence, warm_up_snapshots: needed = USUAL_NEEDED }) =>
  sequence < needed ? `${sequence} of ${needed} snapshots` : "its past is read";

/**
 * The headline and the sentence below it, and how much of the warm-up is done.
 * @param {any} now `{verdict, state, needed, timeline, received, pace, source}`; state: as of `stateOf`. needed: snapshots of
 * the warm-up; undefined: not known yet. pace: seconds between two snapshots that arrived while the page was open; null: fewer did.
 * @returns {{head: string, story: string, done: number}} done: from 0 to 1.
 */
export function learning(now) {
  const { verdict, needed = USUAL_NEEDED } = now;
  if (verdict.archived) return { head: "This mesh was still being learned", story: "Nothing was judged at this moment.", done: 1 };
  if (verdict.replayed) {
    return {
      head: `Reading the past of this mesh: now at ${timeOrDateTime(verdict.observed_at, new Date().toISOString())}`,
      story: "Live verdicts follow. No notification is sent of what was in the past; it is in the history.",
      done: now.source?.replayed ?? 0,
    };
  }
  return {
    head: `Learning this mesh: ${progressText({ sequence: verdict.sequence, warm_up_snapshots: needed })} received`,
    story: nextStep(now, needed),
    done: Math.min(1, verdict.sequence / needed),
  };
}

/** What comes next: the first verdict, and when; or a push, if none is under way. */
function nextStep({ verdict, state, timeline, received, pace, source }, needed) {
  const first = `The first verdict comes with snapshot ${needed}.`,
    isOnlyPush = source?.collected === false && verdict.sequence === 1 && pace === null;
  if (state.why === "stopped" || isOnlyPush) return `Push one every ${span(interval(timeline))}. ${first}`;
  if (pace === null && isSimulated(verdict, received)) return first; // its interval is not the one of the pushes
  const left = Math.max(1, needed - verdict.sequence);
  return `First verdict in ${span(Math.max(1, left * (pace ?? interval(timeline))))}.`;
}
