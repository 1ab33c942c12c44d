"""Does the detector stay calm while users suffer, and does it stay calm when no one does?

    python -m benchmarks.bench_false_green [--groups traffic deploys gaps ...] [--seeds 31 32] [--services 60]
                                           [--cases N] [--days 14] [--processes 1] [--json FILE]

Each case is a simulated mesh, scored here. It prints one line with one letter a snapshot, from the first one that
counts: A alert, n notice, R recovering, . calm, ? no verdict. Lines of long runs have one letter for several snapshots,
the worst one. A group misses its bound if too many of its cases fail, and the exit code is 1 then. The case
generators are in ``benchmarks/false_green``:

traffic      requests from outside fall or rise: an alert within twelve snapshots that stays
deploys      a service turns slow or fails soon after its own deploy: likewise
harmless     200 harmless deploys, scalings and canaries: two alerts at most
gaps         snapshots are missing in an incident: one id, the same beginning, and no incident that stays forever
days         two weeks with nights, weekends and marketing peaks: one alert about traffic at most
jobs         a job every 30 or 60 minutes: two notices and alerts at most, each
canaries     new versions that are as good as the old ones: no alert
saturation   a service with little traffic uses all its CPU: an alert if it is slow, else a notice
quiet        meshes without faults: alerts and notices within the promise

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
            chosen = spread(cases(group, size), arguments.cases)
            outcomes = workers.each(group, score_case, chosen, [case.snapshots for case in chosen])
            for outcome in outcomes:
                print(outcome.line, flush=True)
            summary = summarize(group, outcomes)
            print(summary.line, flush=True)
            rows += [*(outcome.row for outcome in outcomes), summary.row]
            is_good &= summary.is_good
    if arguments.json:
        update_groups(arguments.json, rows)
    return 0 if is_good else 1


def update_groups(path: Path, measured: Sequence[Row]) -> None:
    """Replace the rows of the groups that were measured, in the order of all groups."""
    replace(path, measured, lambda row: row["group"])
    write(sorted(read(path), key=lambda row: list(GROUPS).index(row["group"])), path)


def spread(found: Sequence[Case], most: int | None) -> Sequence[Case]:
    """At most this many of the cases, evenly spaced."""
    if most is None or len(found) <= most:
        return found
    return [found[i * len(found) // most] for i in range(most)]


if __name__ == "__main__":
    sys.exit(main())
