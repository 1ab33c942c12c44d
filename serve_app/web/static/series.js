// Values over time: gaps, in which snapshots are missing, and the point nearest to a time.
import { ends } from "./words.js";

const MISSED = 2.5; // intervals between two snapshots, above which one is missing

/** The usual seconds between snapshots: the median. */
export function usualStep(/** @type {number[]} */ times) {
  const steps = times
    .slice(1)
    .map((at, i) => at - times[i])
    .sort((a, b) => a - b);
  return steps[Math.floor(steps.length / 2)] ?? Infinity;
}

/** Pairs of consecutive times, in seconds, with missing snapshots between them. */
export function gaps(/** @type {number[]} */ times, step = usualStep(times)) {
  return times.slice(1).flatMap((at, i) => (at - times[i] > MISSED * step ? [[times[i], at]] : []));
}

/** The runs of indices of points that are known and follow each other without a gap. */
export function runs(/** @type {number[]} */ times, /** @type {(i: number) => boolean} */ known) {
  const torn = new Set(gaps(times).map(([from]) => from)),
    found = [];
  let isOpen = false;
  times.forEach((at, i) => {
    if (!known(i)) isOpen = false;
    else {
      if (isOpen) found.at(-1).push(i);
      else found.push([i]);
      isOpen = !torn.has(at);
    }
  });
  return found;
}

/** The index of the time nearest to `s`; 0 if there is none. */
export function nearest(times, s) {
  let best = 0;
  times.forEach((at, i) => {
    if (Math.abs(ends(at) - s) < Math.abs(ends(times[best]) - s)) best = i;
  });
  return best;
}
