"""Compares the detector with its recorded figures. The exit code is 1 if a figure fell.

    python -m benchmarks.gate [--parts boutique quiet ...] [--processes 2] [--record] [--noise [--seeds 3]]

    boutique     Online Boutique, cold start: recall, false alarms, root cause
    sockshop     odd cases of RCAEval's Sock Shop, which may guide choices: the same figures
    autoscaled   Sock Shop with an autoscaler: time in alarm while its front end is fast
    other-mesh   300 services of the other simulator: recall, false alerts
    quiet        simulated meshes without faults: false alerts
    calm-again   small meshes with a known truth (bench_calm_again)
    false-green  calm while users suffer: traffic, deploys and gaps (bench_false_green)

Figures are compared with ``results/gate.json``. A figure fell if it is worse by more than its noise.

A recording's noise is the effect of one incident (1/n of a recall) or one false alarm. For a share of time, it is a
false alarm of mean length. A simulated figure's noise is the standard deviation over other seeds. ``--noise`` measures
and stores it. ``--record`` stores the figures, with the known noise.

Recordings and the other simulator are read from ../shared. Where they are missing, a message says so, and the other
parts run. The other simulator's recording is made once, in a minute, and kept in out/gate with all verdict lines.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.gate.figures import (
    RESULTS,
    MeasuredFigure,
    RecordedFigure,
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
    parser.add_argument("--noise", action="store_true", help="measure and store the noise of simulated parts")
    parser.add_argument("--seeds", type=int, default=3, help="number of other seeds for --noise")
    arguments = parser.parse_args()
    parts = available(arguments.parts)
    with start_workers(arguments.processes) as workers:
        if arguments.noise:
            store_noise(workers, [part for part in parts if part in SIMULATED], arguments.seeds)
            return 0
        figures = measure(workers, pieces(parts))
    return conclude(figures, arguments.parts, is_record=arguments.record)


def conclude(figures: Sequence[MeasuredFigure], parts: Sequence[str], *, is_record: bool, path: Path = RESULTS) -> int:
    """Print the comparison with the recorded figures of these parts, and return the exit code. With ``is_record``,
    store the figures and return 0."""
    before, titles = read(path), {TITLES[part] for part in parts}
    recorded = {name: figure for name, figure in before.items() if name.split(":")[0] in titles}
    comparisons = compare(recorded, figures)
    print(f"detector {detector_digest()[:SHORT]}, recorded: {short_digests(recorded)}")
    print(table(comparisons))
    if is_record:
        write(record(before, figures, detector_digest()), path)
        print(f"{path}: {len(figures)} figures recorded")
        return 0
    return 1 if has_fallen(comparisons) else 0


def available(parts: Sequence[str]) -> list[str]:
    """Return the measurable parts, and print a note on each other part."""
    measurable = []
    for part in parts:
        if path := missing(part):
            print_note(f"skipped: {TITLES[part]}: no {path} (it is not part of the project)")
        else:
            measurable.append(part)
    return measurable


def measure(workers: Workers, selection: Sequence[Piece]) -> list[MeasuredFigure]:
    """Return the pieces' figures, in the order of the parts."""
    results = workers.each("gate", run_piece, selection, [piece.steps for piece in selection])
    order = list(TITLES)
    in_order = sorted(zip(selection, results, strict=True), key=lambda pair: order.index(pair[0].part))
    return join(figure for _, figures in in_order for figure in figures)


def store_noise(workers: Workers, parts: Sequence[str], seeds: int) -> None:
    draws = [measure(workers, pieces(parts, draw)) for draw in range(1, seeds + 1)]
    write(record_noise(read(), draws))
    print(f"{RESULTS}: noise of {len(draws[0])} figures over {seeds} seeds recorded")


def short_digests(figures: Mapping[str, RecordedFigure]) -> str:
    """Return the recorded figures' detectors, for people."""
    return ", ".join(sorted({figure.detector[:SHORT] for figure in figures.values() if figure.detector})) or "none"


if __name__ == "__main__":
    sys.exit(main())
