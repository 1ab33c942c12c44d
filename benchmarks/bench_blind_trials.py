"""Is a fault found, is the right service named first, and does the next step fit?

    python -m benchmarks.bench_blind_trials [--trials "retry storm" ...] [--seeds 1 2 3] [--processes 1] [--json FILE]

Each trial is a small mesh with a known truth (``benchmarks/blind_trials``), at services that the seed draws. Eleven
have one or two faults, two are planned changes that no alert may follow. The exit code is 1 if fewer than eleven
twelfths of the answers are right, or if an alert follows a planned change.

All trials with one seed take half a minute on a free core.
"""

import sys
from collections.abc import Sequence
from dataclasses import asdict

from benchmarks.blind_trials.score import Marked, score_trial
from benchmarks.blind_trials.trials import BEGIN, LASTS, TRIALS
from benchmarks.rows import command_line, write
from benchmarks.workers import start_workers

MIN_RIGHT = 11 / 12  # of the services and of the next steps
BENIGN = ("scale-out", "deploy")


def main() -> int:
    parser = command_line(__doc__)
    parser.add_argument("--trials", nargs="+", choices=tuple(TRIALS), default=list(TRIALS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--wrong", action="store_true", help="print what was said where it is wrong")
    arguments = parser.parse_args()
    chosen = [(name, seed) for name in arguments.trials for seed in arguments.seeds]
    with start_workers(arguments.processes) as workers:
        marked = workers.each("blind trials", _score, chosen, [BEGIN + LASTS] * len(chosen))
    print(table(marked))
    for one in marked if arguments.wrong else ():
        if not (one.is_found and one.is_service and one.is_action):
            print(f"{one.trial}, seed {one.seed}: {one.said}")
    if arguments.json:
        write([{"benchmark": "blind_trials"} | asdict(one) for one in marked], arguments.json)
    return 0 if is_good(marked) else 1


def table(marked: Sequence[Marked]) -> str:
    """A line for each trial, and one for all: how many of its seeds were answered right."""
    names = list(dict.fromkeys(one.trial for one in marked))
    rows = [(name, [one for one in marked if one.trial == name]) for name in names] + [("all", list(marked))]
    lines = [f"{'trial':32} found service action"]
    for name, of in rows:
        right = (sum(getattr(one, what) for one in of) for what in ("is_found", "is_service", "is_action"))
        lines.append(f"{name:32} " + "  ".join(f"{number}/{len(of)}" for number in right))
    return "\n".join(lines)


def is_good(marked: Sequence[Marked]) -> bool:
    """Whether enough answers are right."""
    calm = all(one.is_found for one in marked if one.trial in BENIGN)
    return calm and all(
        sum(getattr(one, what) for one in marked) >= MIN_RIGHT * len(marked) for what in ("is_service", "is_action")
    )


def _score(trial: tuple[str, int]) -> Marked:
    return score_trial(*trial)


if __name__ == "__main__":
    sys.exit(main())
