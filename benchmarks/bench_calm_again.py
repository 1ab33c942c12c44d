"""Measures whether an alert ends with its harm, matters, names the right service, and follows the score.

    python -m benchmarks.bench_calm_again [--cases residue step ...] [--seeds 5 6] [--processes 1] [--json FILE]

Each case is a small mesh with a known truth (``benchmarks/calm_again``), scored here. Each line is OK or FAULT; the
exit code is 1 after a FAULT:

residue   a fault ends, and a shift of less than a millisecond stays; half an hour later another service fails
step      1 ms of the 100 that a user waits, permanently: no alert
swing     traffic falls for two minutes and then rises: an alert, which later does not say that requests fell
network   a service's outgoing calls are slow: this service is the first suspect
cpu       a service without free CPU is slow, and a small service behind it: the first suspect is the former
night     forty faults in ten hours, each with a small lasting shift: quiet in between, each found and named
decision  all verdicts above: alerts open above the threshold, normal is below it, and the threshold is stable

All cases with one seed take a minute on a free core.
"""

import sys

from benchmarks.calm_again.cases import SCENARIOS, Case, cases
from benchmarks.calm_again.judge import Line
from benchmarks.calm_again.score import score_case
from benchmarks.rows import Row, command_line, write
from benchmarks.workers import start_workers


def main() -> int:
    parser = command_line(__doc__)
    parser.add_argument("--cases", nargs="+", choices=tuple(SCENARIOS), default=list(SCENARIOS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[5])
    parser.add_argument("--processes", type=int, default=1)
    arguments = parser.parse_args()
    selection = [case for seed in arguments.seeds for case in cases(seed) if case.name in arguments.cases]
    with start_workers(arguments.processes) as workers:
        results = workers.each("calm again", score_case, selection, [case.snapshots for case in selection])
    lines = [(case, line) for case, case_lines in zip(selection, results, strict=True) for line in case_lines]
    for case, line in lines:
        print(f"seed {case.seed}  {line}")
    faults = sum(not line.holds for _, line in lines)
    print(f"{faults} of {len(lines)} lines are FAULT")
    if arguments.json:
        write([_row(*pair) for pair in lines], arguments.json)
    return 1 if faults else 0


def _row(case: Case, line: Line) -> Row:
    return {
        "benchmark": "calm_again",
        "seed": case.seed,
        "case": line.case,
        "measure": line.measure,
        "value": round(line.value, 4),
        "limit": line.limit,
        "is_good": line.holds,
    }


if __name__ == "__main__":
    sys.exit(main())
