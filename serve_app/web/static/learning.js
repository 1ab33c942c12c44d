// The first snapshots of a mesh, from which it is learned: how many there are, and when the first verdict comes.
import { interval } from "./state.js";
import { ends, span } from "./words.js";

const USUAL_NEEDED = 10; // snapshots, until the service has said how many
const SIMULATED_SECONDS = 600; // between the time of a snapshot and of its arrival, from which the time is simulated or replayed

/** "4 of 10 snapshots". @param {any} mesh a line of the list of meshes, or `{sequence}`. */
export const progressText = ({ sequence, warm_up_snapshots: needed }) => `${sequence} of ${needed ?? USUAL_NEEDED} snapshots`;

/**
 * The headline and the sentence below it, and how much of the warm-up is done.
 * @param {any} now `{verdict, state, needed, timeline, received, pace, source}`; state: as of `stateOf`. needed: snapshots of
 * the warm-up; undefined: not known yet. pace: seconds between two snapshots that arrived while the page was open; null: fewer did.
 * @returns {{head: string, story: string, done: number}} done: from 0 to 1.
 */
export function learning({ verdict: { sequence, observed_at: at }, state, needed = USUAL_NEEDED, timeline, received, pace, source }) {
  const left = Math.max(1, needed - sequence),
    every = span(interval(timeline)),
    first = `The first verdict comes with snapshot ${needed}.`,
    isSimulated = Number.isFinite(received) && Math.abs(ends(at) - received / 1000) > SIMULATED_SECONDS;
  const seconds = left * (pace ?? interval(timeline));
  return {
    head: `Learning this mesh: ${progressText({ sequence, warm_up_snapshots: needed })} received`,
    story:
      state.why === "stopped" || (source && !source.collected && pace === null && sequence === 1)
        ? `Push one every ${every}. ${first}`
        : isSimulated && pace === null
          ? first
          : `First verdict in ${span(Math.max(1, seconds))}.`,
    done: Math.min(1, sequence / needed),
  };
}
