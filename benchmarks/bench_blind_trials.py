"""Measures whether a fault is found, the right service comes first, and the next step fits.

    python -m benchmarks.bench_blind_trials [--trials "retry storm" ...] [--seeds 1 2 3] [--processes 1] [--json FILE]

Each trial is a small mesh with a known truth (``benchmarks/blind_trials``), at services that the seed draws. Eleven
have one or two faults, two are planned changes without alerts. The exit code is 1 if fewer than eleven twelfths of the
answers are right, or if an alert follows a planned change.

All trials with one seed take half a minute on a free core.
"""

import sys
from collections.abc import Sequence
from dataclasses import asdict

from benchmarks.blind_trials.score import TrialScore, score_trial
from benchmarks.blind_trials.trials import BEGIN, LASTS, TRIALS
from benchmarks.rows import command_line, write
from benchmarks.workers import start_workers

MIN_RIGHT = 11 / 12  # share of services and of next steps
BENIGN = ("scale-out", "deploy")


def main() -> int:
    parser = command_line(__doc__)
    parser.add_argument("--trials", nargs="+", choices=tuple(TRIALS), default=list(TRIALS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--wrong", action="store_true", help="print wrong answers")
    arguments = parser.parse_args()
    trials = [(name, seed) for name in arguments.trials for seed in arguments.seeds]
    with start_workers(arguments.processes) as workers:
        scores = workers.each("blind trials", _score, trials, [BEGIN + LASTS] * len(trials))
    print(table(scores))
    for score in scores if arguments.wrong else ():
        if not (score.is_found and score.is_service and score.is_action):
            print(f"{score.trial}, seed {score.seed}: {score.text}")
    if arguments.json:
        write([{"benchmark": "blind_trials"} | asdict(score) for score in scores], arguments.json)
    return 0 if is_good(scores) else 1


def table(scores: Sequence[TrialScore]) -> str:
    """Return a line for each trial and one for all, with the number of right answers."""
    names = list(dict.fromkeys(score.trial for score in scores))
    rows = [(name, [score for score in scores if score.trial == name]) for name in names] + [("all", list(scores))]
    lines = [f"{'trial':32} found service action"]
    for name, group in rows:
        right = (sum(getattr(score, answer) for score in group) for answer in ("is_found", "is_service", "is_action"))
        lines.append(f"{name:32} " + "  ".join(f"{number}/{len(group)}" for number in right))
    return "\n".join(lines)


def is_good(scores: Sequence[TrialScore]) -> bool:
    calm = all(score.is_found for score in scores if score.trial in BENIGN)
    return calm and all(
        sum(getattr(score, answer) for score in scores) >= MIN_RIGHT * len(scores)
        for answer in ("is_service", "is_action")
    )


def _score(trial: tuple[str, int]) -> TrialScore:
    return score_trial(*trial)


if __name__ == "__main__":
    sys.exit(main())
