"""Distance between two histograms: the population stability index, and the share of the population that moved.

The index of shares p and q in the same bins is ``sum((p - q) * ln(p / q))``, the sum of the two Kullback-Leibler
divergences (Jeffreys 1946). Credit scoring compares populations with it and calls 0.1 a small and 0.25 a large change
(Siddiqi, *Credit Risk Scorecards*, 2006; Yurdakul and Naranjo, *Journal of Risk Model Validation* 14(4), 2020). Here,
limits are measured instead, since a mesh has few services and these are not independent draws. Of n and m independent
draws from the same shares in B bins, the index is about ``(1/n + 1/m)`` times a chi-square of B - 1 degrees of freedom
(Yurdakul and Naranjo); a mesh counts as n services, however often each is measured.

The share that moved is the total variation distance, ``sum(|p - q|) / 2``: at least this share of the population has to
change its bin to turn one histogram into the other.
"""

import numpy as np

from model.features import Array

EMPTY = 0.002  # share added to every bin, so that a service that enters an empty bin does not count as infinitely far


def population_stability_index(p: Array, q: Array) -> Array:
    """Return the index of histograms ``[..., B]``; it is 0 if they are equal, and symmetric.

    Args:
        p, q: shares that sum to 1, or zeros for a population without values.
    """
    a, b = _fill(p), _fill(q)
    index: Array = ((a - b) * np.log(a / b)).sum(axis=-1)
    return index


def moved_share(p: Array, q: Array) -> Array:
    """Return the least share, 0 to 1, that changes its bin between histograms ``[..., B]``."""
    moved: Array = np.abs(p - q).sum(axis=-1) / 2
    return moved


def _fill(shares: Array) -> Array:
    filled: Array = (shares + np.float32(EMPTY)) / np.float32(1 + EMPTY * shares.shape[-1])
    return filled
