"""The gate: is the detector as good as the recorded figures say? The exit code is 1 if a figure fell.

    python -m benchmarks.gate [--parts boutique quiet ...] [--processes 2] [--record] [--noise [--seeds 3]]

    boutique     Online Boutique, cold start: recall, false alarms, root cause
    sockshop     odd cases of RCAEval's Sock Shop, which may be used for choosing: likewise
    autoscaled   Sock Shop with an autoscaler: time in alarm while its front end is fast
    other-mesh   300 services of the other simulator: recall, false alerts
    quiet        simulated meshes without faults: false alerts
    calm-again   small meshes with a known truth (bench_calm_again)
    false-green  calm while users suffer: traffic, deploys and gaps (bench_false_green)

Figures are compared with ``results/gate.json``. A figure fell if it is worse by more than its noise.

Noise of a recording is what one incident (1/n of a recall) or one false alarm changes. For a share of time, this is a
false alarm of mean length. Noise of a simulated figure is the standard deviation of its values with other seeds than
its own. ``--noise`` measures and stores it. ``--record`` stores the figures, with the noise that is known.

Recordings and the other simulator are read from ../shared. Where they are missing, a message says so, and the other
parts run. The recording of the other simulator is made once, in a minute, and kept in out/gate with all verdict lines.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.gate.figures import (
    RESULTS,
    Measured,
    Recorded,
    compare,
    has_fallen,
    join,
    read,
    record,
    record_noise,
    table,
    write,
)
from benchmarks.gate.pieces import SIMULATED, TITLES, Piece, missing, pieces, run_piece
from benchmarks.workers import Workers, start_workers
from lab.comparison.digest import SHORT, detector_digest
from serve_app.cli.console import print_note


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=tuple(TITLES), default=list(TITLES))
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--record", action="store_true", help="store the figures")
    parser.add_argument(
        "--noise", action="store_true", help="measure simulated parts with other seeds, store the noise"
    )
    parser.add_argument("--seeds", type=int, default=3, help="number of other seeds for --noise")
    arguments = parser.parse_args()
    parts = available(arguments.parts)
    with start_workers(arguments.processes) as workers:
        if arguments.noise:
            store_noise(workers, [part for part in parts if part in SIMULATED], arguments.seeds)
            return 0
        found = measure(workers, pieces(parts))
    return conclude(found, arguments.parts, is_record=arguments.record)


def conclude(found: Sequence[Measured], parts: Sequence[str], *, is_record: bool, path: Path = RESULTS) -> int:
    """Print how the figures compare with the recorded ones, and return the exit code.

    Args:
        found: the figures.
        parts: the chosen parts; recorded figures of others are not shown.
        is_record: whether to store the figures. The exit code is 0 then.
        path: file of the recorded figures.
    """
    before, titles = read(path), {TITLES[part] for part in parts}
    shown = {name: one for name, one in before.items() if name.split(":")[0] in titles}
    compared = compare(shown, found)
    print(f"detector {detector_digest()[:SHORT]}, recorded: {short_digests(shown)}")
    print(table(compared))
    if is_record:
        write(record(before, found, detector_digest()), path)
        print(f"{path}: {len(found)} figures recorded")
        return 0
    return 1 if has_fallen(compared) else 0


def available(parts: Sequence[str]) -> list[str]:
    """The parts that can be measured; says which cannot, and why."""
    found = []
    for part in parts:
        if path := missing(part):
            print_note(f"skipped: {TITLES[part]}: no {path} (it is not part of the project)")
        else:
            found.append(part)
    return found


def measure(workers: Workers, chosen: Sequence[Piece]) -> list[Measured]:
    """The figures of some pieces, in the order of the parts."""
    found = workers.each("gate", run_piece, chosen, [one.steps for one in chosen])
    order = list(TITLES)
    in_order = sorted(zip(chosen, found, strict=True), key=lambda one: order.index(one[0].part))
    return join(figure for _, figures in in_order for figure in figures)


def store_noise(workers: Workers, parts: Sequence[str], seeds: int) -> None:
    """Measure simulated parts with other seeds, and store the noise."""
    draws = [measure(workers, pieces(parts, draw)) for draw in range(1, seeds + 1)]
    write(record_noise(read(), draws))
    print(f"{RESULTS}: noise of {len(draws[0])} figures over {seeds} seeds recorded")


def short_digests(recorded: Mapping[str, Recorded]) -> str:
    """The detectors of recorded figures, for people."""
    return ", ".join(sorted({one.detector[:SHORT] for one in recorded.values() if one.detector})) or "none"


if __name__ == "__main__":
    sys.exit(main())
