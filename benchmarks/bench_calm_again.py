"""Does an alert end when its harm ends, does it matter, does it name the right service, and is the score what decides?

    python -m benchmarks.bench_calm_again [--cases residue step ...] [--seeds 5 6] [--processes 1] [--json FILE]

Each case is a small mesh with a known truth (``benchmarks/calm_again``), scored here. It prints OK or FAULT for each
line, and the exit code is 1 if there is a FAULT:

residue   a fault ends, and a shift of less than a millisecond stays; half an hour later another service fails
step      1 ms of the 100 that a user waits, for ever: no alert
swing     traffic falls for two minutes and then rises: an alert, which does not say afterwards that requests fell
network   the calls that a service makes are slow: this service is the first suspect
cpu       a service without free CPU is slow, and a small one behind it: the first one is the first suspect
night     forty faults in ten hours, each with a small shift that stays: quiet in between, each found and named
decision  on all verdicts of the cases above: alerts open above the threshold, normal is below it, and it stays

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
    chosen = [case for seed in arguments.seeds for case in cases(seed) if case.name in arguments.cases]
    with start_workers(arguments.processes) as workers:
        found = workers.each("calm again", score_case, chosen, [case.snapshots for case in chosen])
    lines = [(case, line) for case, made in zip(chosen, found, strict=True) for line in made]
    for case, line in lines:
        print(f"seed {case.seed}  {line}")
    faults = sum(not line.holds for _, line in lines)
    print(f"{faults} of {len(lines)} lines are FAULT")
    if arguments.json:
        write([_row(*one) for one in lines], arguments.json)
    return 1 if faults else 0


def _row(case: Case, line: Line) -> Row:
    return {
        "benchmark": "calm_again",
        "seed": case.seed,
        "case": line.case,
        "measure": line.what,
        "value": round(line.value, 4),
        "limit": line.limit,
        "is_good": line.holds,
    }


if __name__ == "__main__":
    sys.exit(main())
