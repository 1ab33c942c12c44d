"""The recorded figures, ``results/gate.json``: by name of the figure its value, noise, direction and detector."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import stdev
from typing import Any

from benchmarks.gate.measured import DIGITS, Measured

RESULTS = Path("benchmarks/results/gate.json")


@dataclass(frozen=True, slots=True)
class Recorded:
    """A recorded figure.

    Attributes:
        figure: its name.
        value: of the figure; None: only its noise has been measured.
        noise: a change that chance explains, in the unit of the value.
        is_higher_better: its direction.
        detector: digest of the detector.
        seeds: values with other seeds, from which the noise comes; empty for recordings.
    """

    figure: str
    value: float | None
    noise: float
    is_higher_better: bool
    detector: str = ""
    seeds: tuple[float, ...] = field(default=())

    def to_json(self) -> dict[str, Any]:
        """The entry in the file, without the name."""
        better = "higher" if self.is_higher_better else "lower"
        found = {"value": self.value, "noise": self.noise, "better": better, "detector": self.detector}
        return found | ({"seeds": list(self.seeds)} if self.seeds else {})


def read(path: Path = RESULTS) -> dict[str, Recorded]:
    """The recorded figures by name; empty if there is no file."""
    if not path.exists():
        return {}
    return {
        figure: Recorded(
            figure,
            one["value"],
            one["noise"],
            one["better"] == "higher",
            one["detector"],
            tuple(one.get("seeds", ())),
        )
        for figure, one in json.loads(path.read_text(encoding="utf-8")).items()
    }


def write(figures: Mapping[str, Recorded], path: Path = RESULTS) -> None:
    """Write the figures, in their order."""
    entries = {figure: one.to_json() for figure, one in figures.items()}
    path.write_text(json.dumps(entries, indent=1) + "\n", encoding="utf-8")


def record(before: Mapping[str, Recorded], found: Sequence[Measured], detector: str) -> dict[str, Recorded]:
    """The recorded figures with new values. Other figures stay, and so does noise that comes from seeds.

    Args:
        before: recorded so far.
        found: the new values.
        detector: digest of the detector that they are of.
    """
    after = dict(before)
    for one in found:
        seeds = before[one.figure].seeds if one.figure in before else ()
        noise = one.noise if one.noise is not None else noise_of(seeds)
        after[one.figure] = Recorded(one.figure, one.value, noise, one.is_higher_better, detector, seeds)
    return after


def record_noise(before: Mapping[str, Recorded], draws: Sequence[Sequence[Measured]]) -> dict[str, Recorded]:
    """The recorded figures with new noise.

    Args:
        before: recorded so far.
        draws: the figures with each of the other seeds.
    """
    after = dict(before)
    for one in draws[0]:
        seeds = tuple(other.value for draw in draws for other in draw if other.figure == one.figure)
        known = before.get(one.figure, Recorded(one.figure, None, 0.0, one.is_higher_better))
        after[one.figure] = Recorded(
            one.figure, known.value, noise_of(seeds), known.is_higher_better, known.detector, seeds
        )
    return after


def noise_of(seeds: Sequence[float]) -> float:
    """Standard deviation over seeds; 0 if there are fewer than two."""
    return round(stdev(seeds), DIGITS) if len(seeds) > 1 else 0.0
