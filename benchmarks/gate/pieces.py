"""What is measured, in pieces for processes, the longest first."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.calm_again.cases import cases as calm_cases
from benchmarks.gate.figures import Measured
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
    """Work of one process.

    Attributes:
        part: key of ``TITLES``.
        steps: snapshots that it scores.
        measure: returns the figures.
    """

    part: str
    steps: int
    measure: Callable[[], list[Measured]]


def run_piece(piece: Piece) -> list[Measured]:
    """The figures of a piece; runs in a worker."""
    return piece.measure()


def missing(part: str) -> Path | None:
    """The file that a part needs and that does not exist; None if the part can be measured."""
    needed = NEEDED.get(part)
    return None if needed is None or needed.exists() else needed


def pieces(parts: Sequence[str], draw: int = 0) -> list[Piece]:
    """The pieces of these parts.

    Args:
        parts: keys of ``TITLES`` that can be measured.
        draw: which seeds simulated parts use: 0 for the figures, others for their noise.
    """
    found = [piece for part in parts for piece in _of_part(part, draw)]
    return sorted(found, key=lambda one: -one.steps)


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
            chosen = calm_cases(CALM_SEEDS + draw)
            return [Piece(part, case.snapshots, partial(measure_calm_again, title, case)) for case in chosen]
    groups = [false_green_cases(group, GREEN_SEEDS + draw) for group in FALSE_GREEN]
    return [
        Piece(part, sum(case.snapshots for case in group), partial(measure_false_green, title, group))
        for group in groups
    ]
