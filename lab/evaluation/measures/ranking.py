"""The rank of the root cause among the suspects, from 1."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from lab.evaluation.measures.intervals import Estimate, share

PLACES = (1, 3)


@dataclass(frozen=True, slots=True)
class Ranking:
    """Share of the incidents whose root cause is the first suspect, and among the first three."""

    top1: Estimate
    top3: Estimate


def ranking(places: Sequence[int | None], clusters: Sequence[Hashable]) -> Ranking:
    return Ranking(*(share([within(p, k) for p in places], clusters) for k in PLACES))


def place(culprit: str | None, suspects: Sequence[str]) -> int | None:
    """Return the rank from 1; None: not named."""
    return suspects.index(culprit) + 1 if culprit in suspects else None


def within(place: int | None, first: int) -> bool:
    return place is not None and place <= first
