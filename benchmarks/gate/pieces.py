"""Measurements, in pieces for processes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.calm_again.cases import cases as calm_cases
from benchmarks.gate.figures import MeasuredFigure
from benchmarks.gate.recordings import (
    AUTOSCALED,
    BOUTIQUE,
    OTHER_HOURS,
    OTHER_SIMULATOR,
    SHOP,
    measure_calm,
    measure_other,
    measure_stream,
    snapshot_count,
)
from benchmarks.gate.simulated import (
    FALSE_GREEN,
    false_green_cases,
    measure_calm_again,
    measure_false_green,
    measure_quiet,
    quiet_case,
)

OTHER_SEEDS, QUIET_SEEDS, CALM_SEEDS, GREEN_SEEDS = 7, 41, 5, 31  # the first ones
QUIET_MESHES = 2
TITLES = {
    "boutique": "Online Boutique",
    "sockshop": "Sock Shop, odd cases",
    "autoscaled": "autoscaled Sock Shop",
    "other-mesh": "other simulator",
    "quiet": "quiet meshes",
    "calm-again": "calm again",
    "false-green": "false green",
}
RECORDED = {"boutique": BOUTIQUE, "sockshop": SHOP, "autoscaled": AUTOSCALED}
SIMULATED = tuple(part for part in TITLES if part not in RECORDED)
NEEDED = {**{part: path / "meta.json" for part, path in RECORDED.items()}, "other-mesh": OTHER_SIMULATOR}


@dataclass(frozen=True, slots=True)
class Piece:
    """A process's work: a key of ``TITLES``, the number of snapshots, and a function that returns the figures."""

    part: str
    steps: int
    measure: Callable[[], list[MeasuredFigure]]


def run_piece(piece: Piece) -> list[MeasuredFigure]:
    """Return a piece's figures, in a worker."""
    return piece.measure()


def missing(part: str) -> Path | None:
    """Return the missing file that a part needs; None if the part can be measured."""
    path = NEEDED.get(part)
    return None if path is None or path.exists() else path


def pieces(parts: Sequence[str], draw: int = 0) -> list[Piece]:
    """Return the pieces of measurable parts, the longest first. ``draw`` selects the seeds of simulated parts: 0 for
    the figures, others for their noise."""
    work = [piece for part in parts for piece in _of_part(part, draw)]
    return sorted(work, key=lambda piece: -piece.steps)


def _of_part(part: str, draw: int) -> list[Piece]:
    title = TITLES[part]
    match part:
        case "autoscaled":
            return [Piece(part, snapshot_count(AUTOSCALED), partial(measure_calm, title, AUTOSCALED))]
        case "boutique" | "sockshop":
            path = RECORDED[part]
            return [Piece(part, snapshot_count(path), partial(measure_stream, title, path))]
        case "other-mesh":
            return [Piece(part, OTHER_HOURS * 240, partial(measure_other, title, OTHER_SEEDS + draw))]
        case "quiet":
            meshes = [quiet_case(QUIET_SEEDS + QUIET_MESHES * draw + number) for number in range(QUIET_MESHES)]
            return [Piece(part, case.snapshots, partial(measure_quiet, title, case)) for case in meshes]
        case "calm-again":
            calm = calm_cases(CALM_SEEDS + draw)
            return [Piece(part, case.snapshots, partial(measure_calm_again, title, case)) for case in calm]
    groups = [false_green_cases(group, GREEN_SEEDS + draw) for group in FALSE_GREEN]
    return [
        Piece(part, sum(case.snapshots for case in group), partial(measure_false_green, title, group))
        for group in groups
    ]
