"""Measures missing alerts while users are affected, and alerts while no one is.

    python -m benchmarks.bench_false_green [--groups traffic deploys gaps ...] [--seeds 31 32] [--services 60]
                                           [--cases N] [--days 14] [--processes 1] [--json FILE]

Each case is a simulated mesh, scored here. Its line has a letter per snapshot, from the first one that counts: A alert,
n notice, R recovering, . calm, ? no verdict. In long runs, a letter is the worst of several snapshots. A group misses
its bound if too many cases fail; the exit code is 1 then. The cases are in ``benchmarks/false_green``:

traffic      requests from outside fall or rise: an alert within twelve snapshots that stays
deploys      a service turns slow or fails soon after its own deploy: an alert as above
harmless     200 harmless deploys, scalings and canaries: two alerts at most
gaps         snapshots are missing in an incident: one id, the same start, and no permanent incident
days         two weeks with nights, weekends and marketing peaks: one alert about traffic at most
jobs         a job every 30 or 60 minutes: two notices and alerts at most, each
canaries     new versions that are as good as the old ones: no alert
saturation   a service with little traffic uses all its CPU: an alert if it is slow, else a notice
quiet        meshes without faults: alerts and notices within the budget

All groups with two seeds take ten minutes on a free core.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.false_green.cases import GROUPS, Case, Size, cases
from benchmarks.false_green.judge import summarize
from benchmarks.false_green.score import score_case
from benchmarks.rows import Row, command_line, read, replace, write
from benchmarks.workers import start_workers


def main() -> int:
    parser = command_line(__doc__)
    parser.add_argument("--groups", nargs="+", choices=tuple(GROUPS), default=list(GROUPS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[31, 32], help="seeds of the meshes")
    parser.add_argument("--services", type=int, default=60, help="services of a mesh, unless its group sets them")
    parser.add_argument("--cases", type=int, help="at most this many cases of each group, spread evenly")
    parser.add_argument("--days", type=float, default=14.0, help="length of the runs of the group days")
    parser.add_argument("--processes", type=int, default=1)
    arguments = parser.parse_args()
    size = Size(tuple(arguments.seeds), arguments.services, arguments.days)
    rows: list[Row] = []
    is_good = True
    with start_workers(arguments.processes) as workers:
        for group in arguments.groups:
            selection = spread(cases(group, size), arguments.cases)
            outcomes = workers.each(group, score_case, selection, [case.snapshots for case in selection])
            for outcome in outcomes:
                print(outcome.line, flush=True)
            summary = summarize(group, outcomes)
            print(summary.line, flush=True)
            rows += [*(outcome.row for outcome in outcomes), summary.row]
            is_good &= summary.is_good
    if arguments.json:
        update_groups(arguments.json, rows)
    return 0 if is_good else 1


def update_groups(path: Path, new_rows: Sequence[Row]) -> None:
    """Replace the measured groups' rows, in the order of all groups."""
    replace(path, new_rows, lambda row: row["group"])
    write(sorted(read(path), key=lambda row: list(GROUPS).index(row["group"])), path)


def spread(all_cases: Sequence[Case], limit: int | None) -> Sequence[Case]:
    """Return at most this many cases, evenly spaced."""
    if limit is None or len(all_cases) <= limit:
        return all_cases
    return [all_cases[i * len(all_cases) // limit] for i in range(limit)]


if __name__ == "__main__":
    sys.exit(main())
