"""The rank of the root cause among the suspects, from 1."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from lab.evaluation.measures.intervals import Estimate, share

PLACES = (1, 3, 5)
AVERAGED = 5  # avg5: mean of top-1 to top-5


@dataclass(frozen=True, slots=True)
class Ranking:
    """Share of the incidents whose root cause is among the first 1, 3, 5 suspects, and the mean of the first five such
    shares."""

    top1: Estimate
    top3: Estimate
    top5: Estimate
    avg5: Estimate


def ranking(places: Sequence[int | None], clusters: Sequence[Hashable]) -> Ranking:
    """Return the shares over some incidents."""
    one, three, five = (share([within(p, k) for p in places], clusters) for k in PLACES)
    return Ranking(one, three, five, share([sum(within(p, k + 1) for k in range(AVERAGED)) / AVERAGED for p in places]))


def place(culprit: str | None, suspects: Sequence[str]) -> int | None:
    """Return the rank from 1; None: not named."""
    return suspects.index(culprit) + 1 if culprit in suspects else None


def place_of_twin(culprit: str | None, suspects: Sequence[str]) -> int | None:
    """Return the rank if components that a recording lists several times count once; see :func:`component`."""
    if culprit is None:
        return None
    return place(component(culprit), list(dict.fromkeys(component(name) for name in suspects)))


def component(service: str) -> str:
    """Return the name before the type. AWS lists one component several times (a Lambda and its Lambda::Function)."""
    return service.split("_AWS:")[0]


def within(place: int | None, first: int) -> bool:
    """Return whether a rank is at most ``first``; None has none."""
    return place is not None and place <= first
