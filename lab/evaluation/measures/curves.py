"""Metrics of scores without a threshold, and of probabilities."""

from dataclasses import dataclass

import numpy as np

from lab.evaluation.measures.truth import Flags, Floats


@dataclass(frozen=True, slots=True)
class Forecast:
    """Quality of the probabilities.

    Attributes:
        base_rate: share of snapshots with an incident.
        brier: mean squared distance of probability and outcome; 0 is best.
        brier_of_base_rate: Brier score of always predicting the base rate.
    """

    snapshots: int
    base_rate: float
    brier: float
    brier_of_base_rate: float


def auroc(positive: Floats, negative: Floats) -> float | None:
    """Return the probability that a faulty snapshot scores above a normal one; ties count half. None if either is
    absent."""
    if not len(positive) or not len(negative):
        return None
    _, place, count = np.unique(np.concatenate([positive, negative]), return_inverse=True, return_counts=True)
    ranks = (np.cumsum(count) - (count - 1) / 2)[place]
    n, m = len(positive), len(negative)
    return float((ranks[:n].sum() - n * (n + 1) / 2) / (n * m))


def forecast(probability: Floats, incident: Flags) -> Forecast | None:
    """Compare probabilities ``[T]`` with the outcomes; None if there are none.

    Source: Brier, Verification of forecasts expressed in terms of probability, 1950.
    """
    if not len(probability):
        return None
    outcome = incident.astype(np.float64)
    base, brier = float(outcome.mean()), float(np.mean((probability - outcome) ** 2))
    return Forecast(len(outcome), base, brier, base * (1 - base))
