"""The measures of drift, their values for one mesh, and their limits.

A measure compares the newest block of a mesh, six hours, with one of two references: with training, or with the same
hours of the mesh's own last week. With training, four blocks are taken together, since training has no hours.

========== ==================== ======= ==============================================================================
kind       of                   unit    value
========== ==================== ======= ==============================================================================
values     each population      1       population stability index, see ``populations.py``
tails      each channel         decades log10 of how often it enters its tail, over how often it does in the reference
missing    each channel, week   share   values that are missing, less the share in the week
calls      the mesh, week       share   calls that were first made in the last four days, see ``call_sample.py``
========== ==================== ======= ==============================================================================

A measure *drifts* if it is above its limit in two blocks in a row; values only if enough of them moved. In a small
mesh, a single service that leaves can move a third of the services: those that called it, and those that it called. So
against the own week, the share that moved is less half of the share that services that joined or left can have moved.
All of it is the most that they can add to a total variation; half of it is what they add in simulated meshes. A
retirement is then no drift of the mesh, and drift of the others shows beside it.

Limits were chosen on simulated meshes (``bench_drift``, in the tree of a56a3c09). Against training, limits of values
come with the weights: 2.5 times the largest distance of a training mesh from the mean of the others. The index
of a mesh of n services is larger by chance the smaller n is (its mean without drift grows as 1/n), so a
mesh of 20 services can be farther away than any training mesh without drift.
"""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from model.drift.populations import CHANNELS, POPULATIONS
from model.features import Array

EMPTY = 0.002  # share added to every bin, so that a service that enters an empty bin does not count as infinitely far


def population_stability_index(p: Array, q: Array) -> Array:
    """Return the population stability index of histograms ``[..., B]``; it is 0 if they are equal, and symmetric.

    The index of shares p and q in the same bins is ``sum((p - q) * ln(p / q))``, the sum of the two Kullback-Leibler
    divergences (Jeffreys 1946). Of n and m independent draws from the same shares, it is about ``(1/n + 1/m)`` times a
    chi-square of B - 1 degrees of freedom (Yurdakul and Naranjo, *Journal of Risk Model Validation* 14(4), 2020); a
    mesh counts as n services, however often each is measured.

    Args:
        p, q: shares that sum to 1, or zeros for a population without values.
    """
    a, b = _fill(p), _fill(q)
    return ((a - b) * np.log(a / b)).sum(axis=-1)


def moved_share(p: Array, q: Array) -> Array:
    """Return the least share, 0 to 1, that changes its bin between histograms ``[..., B]``: the total variation."""
    return np.abs(p - q).sum(axis=-1) / 2


def _fill(shares: Array) -> Array:
    return (shares + np.float32(EMPTY)) / np.float32(1 + EMPTY * shares.shape[-1])


class Reference(StrEnum):
    """What a mesh is compared with."""

    TRAINING = "training"
    WEEK = "week"


class Kind(StrEnum):
    """What is compared."""

    VALUES = "values"
    TAILS = "tails"
    MISSING = "missing"
    CALLS = "calls"


@dataclass(frozen=True, slots=True)
class Measure:
    """One measure.

    Attributes:
        channel: name of the population, or ``mesh``.
    """

    reference: Reference
    kind: Kind
    channel: str = "mesh"


_NAMES = tuple(p.name for p in POPULATIONS)
_OF_BOTH = (
    *((Kind.VALUES, name) for name in _NAMES),
    *((Kind.TAILS, name) for name in _NAMES[:CHANNELS]),
)
_OF_WEEK = (*_OF_BOTH, *((Kind.MISSING, name) for name in _NAMES[:CHANNELS]), (Kind.CALLS, "mesh"))
MEASURES = (
    *(Measure(Reference.TRAINING, kind, of) for kind, of in _OF_BOTH),
    *(Measure(Reference.WEEK, kind, of) for kind, of in _OF_WEEK),
)
ROWS: dict[tuple[Reference, Kind], slice] = {}
for _row, _measure in enumerate(MEASURES):
    _first = ROWS.setdefault((_measure.reference, _measure.kind), slice(_row, _row)).start
    ROWS[_measure.reference, _measure.kind] = slice(_first, _row + 1)


def no_distances() -> Array:
    """Return the values of a mesh that nothing is known of: not a number, ``[MEASURES]``."""
    return np.full(len(MEASURES), np.nan, np.float32)


OF_VALUES = {  # of the index, from the own week; channels that follow load unevenly have higher ones
    "request_rate": 0.3,
    "requests_per_second": 0.4,
    "weight": 0.15,
    "cpu_utilization": 1.5,
    "cpu_per_request": 1.5,
    "active_connections": 1.5,
    "callers": 0.2,
    "callees": 0.2,
}
OTHER_VALUES = 0.2
MIN_MOVED, MIN_SERVICES, MAX_NEEDED = 0.15, 4, 0.25  # shares of the values, and services
OF_KINDS = {
    (Reference.TRAINING, Kind.VALUES): 2.5,  # times the limit of the weights
    (Reference.TRAINING, Kind.TAILS): 1.4,
    (Reference.WEEK, Kind.TAILS): 1.2,
    (Reference.WEEK, Kind.MISSING): 0.15,
    (Reference.WEEK, Kind.CALLS): 0.15,
}


def _limit(measure: Measure) -> float:
    if (measure.reference, measure.kind) == (Reference.WEEK, Kind.VALUES):
        return OF_VALUES.get(measure.channel.partition(".")[2], OTHER_VALUES)
    return OF_KINDS[measure.reference, measure.kind]


def least_moved(services: int) -> float:
    """Return the share of the values, 0 to 1, that has to move before a mesh of so many services has drifted.

    It is the share of a few services in a small mesh, where two that change are no drift of the mesh.
    """
    return float(np.clip(MIN_SERVICES / max(services, 1), MIN_MOVED, MAX_NEEDED))


LIMITS = np.array(list(map(_limit, MEASURES)), np.float32)
