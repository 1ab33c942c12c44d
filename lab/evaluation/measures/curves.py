"""Metrics of scores without a threshold, and of probabilities."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lab.evaluation.measures.truth import Flags, Floats, Ints

BUFFERS = 4  # snapshots around an incident, at most, in VUS-PR
LEVELS = 200  # thresholds of VUS-PR
BINS = 10  # of probability


@dataclass(frozen=True, slots=True)
class Forecast:
    """Quality of the probabilities.

    Attributes:
        snapshots: number evaluated.
        base_rate: share of them with an incident.
        brier: mean squared distance of probability and outcome; 0 is best.
        brier_of_base_rate: Brier score of always predicting the base rate.
        skill: 1 - brier / brier_of_base_rate; None if all outcomes are equal.
        bins: non-empty tenths of probability.
    """

    snapshots: int
    base_rate: float
    brier: float
    brier_of_base_rate: float
    skill: float | None
    bins: tuple["Bin", ...]


@dataclass(frozen=True, slots=True)
class Bin:
    """Snapshots of similar probability: number, mean probability, and share with an incident."""

    snapshots: int
    said: float
    observed: float


def auroc(positive: Floats, negative: Floats) -> float | None:
    """Return the probability that a faulty snapshot scores above a normal one, ties half; None if one kind is
    absent."""
    if not len(positive) or not len(negative):
        return None
    _, place, count = np.unique(np.concatenate([positive, negative]), return_inverse=True, return_counts=True)
    ranks = (np.cumsum(count) - (count - 1) / 2)[place]
    n, m = len(positive), len(negative)
    return float((ranks[:n].sum() - n * (n + 1) / 2) / (n * m))


def average_precision(positive: Floats, negative: Floats) -> float | None:
    """Return precision averaged over recall. Equal scores are one operating point. None if one kind is absent."""
    if not len(positive) or not len(negative):
        return None
    scores = np.concatenate([positive, negative])
    faulty = np.concatenate([np.ones(len(positive)), np.zeros(len(negative))])
    order = np.argsort(-scores, kind="stable")
    scores, faulty = scores[order], faulty[order]
    last = np.append(scores[1:] != scores[:-1], True)
    hits, seen = np.cumsum(faulty)[last], (np.arange(len(scores)) + 1)[last]
    return float(np.sum(np.diff(hits / len(positive), prepend=0.0) * hits / seen))


def vus_pr(score: Floats, windows: Sequence[Ints]) -> float | None:
    """Return the volume under the range-PR surface, averaged over buffers of 0 to ``BUFFERS`` snapshots.

    Source: Paparrizos et al., Volume Under the Surface, VLDB 2022.

    Args:
        score: ``[T]``, of the labelled span.
        windows: positions of each incident in it; empty ones do not count.
    """
    inside = [window for window in windows if len(window)]
    if not inside:
        return None
    levels = np.unique(np.quantile(score, np.linspace(0, 1, LEVELS)))[::-1]
    return float(np.mean([_range_pr(score, inside, levels, buffer) for buffer in range(BUFFERS + 1)]))


def forecast(probability: Floats, incident: Flags) -> Forecast | None:
    """Compare probabilities ``[T]`` with the outcomes; None if there are none.

    Source: Brier, Verification of forecasts expressed in terms of probability, 1950.
    """
    if not len(probability):
        return None
    outcome = incident.astype(np.float64)
    base, brier = float(outcome.mean()), float(np.mean((probability - outcome) ** 2))
    of_base = base * (1 - base)
    place = np.minimum((probability * BINS).astype(np.int64), BINS - 1)
    bins = [
        Bin(int(here.sum()), float(probability[here].mean()), float(outcome[here].mean()))
        for here in (place == i for i in range(BINS))
        if here.any()
    ]
    return Forecast(len(outcome), base, brier, of_base, 1 - brier / of_base if of_base else None, tuple(bins))


def _range_pr(score: Floats, windows: Sequence[Ints], levels: Floats, buffer: int) -> float:
    soft, hard = np.zeros(len(score)), np.zeros(len(score))
    peaks = []
    for window in windows:
        first, last = int(window.min()), int(window.max())
        hard[window] = 1.0
        for away in range(1, buffer + 1):
            ends = [i for i in (first - away, last + away) if 0 <= i < len(score)]
            soft[ends] = np.maximum(soft[ends], np.sqrt(1 - away / (buffer + 1)))
        peaks.append(score[max(first - buffer, 0) : last + buffer + 1].max())
    soft = np.maximum(soft, hard)
    size = (hard.sum() + soft.sum()) / 2
    over = score >= levels[:, None]
    hits = (over * soft).sum(axis=1)
    touched = (np.array(peaks) >= levels[:, None]).mean(axis=1)
    recall = np.maximum.accumulate(np.minimum(hits / size, 1.0) * touched)
    return float(np.sum(np.diff(recall, prepend=0.0) * hits / over.sum(axis=1)))
