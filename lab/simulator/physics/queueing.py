"""The simulator's formulas: waiting, retries, quantiles. Pure functions on arrays."""

from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

Z99 = NormalDist().inv_cdf(0.99)
_Z_OF_MAXIMUM = np.array([0.0] + [NormalDist().inv_cdf(min(0.99, n / (n + 1))) for n in range(1, 101)])


def wait_and_blocking(utilisation: Floats, workers: Floats, places: Floats) -> tuple[Floats, Floats]:
    """Return the mean wait in one replica's queue, in units of (service time / workers), and the share of requests it
    refuses.

    The M/M/1/K queue gives both, also in overload: L = x/(1-x) - (K+1) x^(K+1) / (1-x^(K+1)) and
    P = (1-x) x^K / (1-x^(K+1)) (Kleinrock, Queueing Systems I, 3.6). For m workers the wait below saturation is
    multiplied by x^(sqrt(2(m+1))-2), which turns M/M/1 into Sakasegawa's approximation of M/M/m (1977).

    Args:
        utilisation: offered load over capacity, 0 or more, any shape.
        workers: m of one replica; fewer than one counts as one.
        places: K of one replica, including the request in service.
    """
    x = np.clip(utilisation, 1e-4, 20.0)
    x = np.where(np.abs(x - 1.0) < 1e-4, 1.0 - 1e-4, x)
    power = x**places
    denominator = 1.0 - power * x
    blocked = (1.0 - x) * power / denominator
    in_system = x / (1.0 - x) - (places + 1.0) * power * x / denominator
    in_queue = np.maximum(in_system - (1.0 - (1.0 - x) / denominator), 0.0)
    wait = in_queue / (x * np.maximum(1.0 - blocked, 1e-9))
    return wait * np.minimum(x, 1.0) ** (np.sqrt(2.0 * (np.maximum(workers, 1.0) + 1.0)) - 2.0), blocked


def normal_cdf(z: Floats) -> Floats:
    """Return the standard normal distribution, within 1.4e-4 (Bowling et al. 2009)."""
    z = np.clip(z, -8.0, 8.0)
    return 1.0 / (1.0 + np.exp(-(1.5976 * z + 0.07056 * z * z * z)))


def log_spread(p50: Floats, p99: Floats) -> Floats:
    """Return sigma of the lognormal distribution with these quantiles."""
    return np.maximum(np.log(p99 / p50) / Z99, 0.02)


def share_above(limit: Floats, p50: Floats, p99: Floats) -> Floats:
    """Return the share of a lognormal distribution above ``limit``: calls that time out."""
    return normal_cdf(-np.log(limit / p50) / log_spread(p50, p99))


def retry(failing: Floats, retries: Floats, budget: Floats) -> tuple[Floats, Floats]:
    """Return attempts per call, and the share of calls that still fail, if a share ``failing`` of attempts fails.

    Without a budget, r retries make 1 + f + ... + f^r attempts and leave f^(r+1) failing. A budget of b grants at most
    b retries per call (as in Envoy and Linkerd); without a retry, the call stays failed.
    """
    f = np.minimum(failing, 1.0 - 1e-9)
    still_failing = f**retries
    wanted_retries = f * (1.0 - still_failing) / (1.0 - f)
    granted_retries = np.minimum(wanted_retries, budget)
    granted_share = np.divide(
        granted_retries, wanted_retries, out=np.ones_like(wanted_retries), where=wanted_retries > 0
    )
    return 1.0 + granted_retries, f * (1.0 - granted_share + granted_share * still_failing)


def draw_poisson(mean: Floats, z: Floats, u: Floats) -> Floats:
    """Return Poisson counts, each from one normal and one uniform number.

    The number of draws is fixed, unlike in numpy's sampler, so two runs that differ in one service have the same noise
    everywhere else. Small means use the inverse transform, large means the normal distribution with the first
    Cornish-Fisher correction.
    """
    counts = np.maximum(np.rint(mean + np.sqrt(mean) * z + (z * z - 1.0) / 6.0), 0.0)
    small = np.flatnonzero(mean < 10.0)
    m, above = mean[small], u[small]
    probability = np.exp(-m)
    cumulative = probability.copy()
    numbers = np.zeros(len(small))
    for k in range(1, 40):
        beyond = above > cumulative
        if not beyond.any():
            break
        numbers += beyond
        probability = probability * m / k
        cumulative += probability
    counts[small] = numbers
    return counts


def draw_binomial(count: Floats, share: Floats, z: Floats, u: Floats) -> Floats:
    """Return the failures among ``count`` with probability ``share``, with a fixed number of draws as in
    :func:`draw_poisson`.

    Rare or frequent outcomes use the Poisson distribution (Le Cam), others the normal with the same variance.
    """
    rare = np.minimum(share, 1.0 - share)
    mean = count * rare
    normal = np.rint(mean + np.sqrt(mean * (1.0 - rare)) * z)
    hits = np.clip(np.where(mean < 10.0, draw_poisson(np.minimum(mean, 10.0), z, u), normal), 0.0, count)
    return np.where(share > 0.5, count - hits, hits)


def measure_quantiles(p50: Floats, p99: Floats, count: Floats, z50: Floats, z99: Floats) -> tuple[Floats, Floats]:
    """Return the measured quantiles of ``count`` requests; NaN without requests.

    Order statistics of a lognormal: sd of a log quantile is sigma sqrt(q(1-q)/n) / phi(z_q). For fewer than a
    hundred requests, the maximum stands in for the 99th percentile.
    """
    n = np.maximum(count, 1.0)
    sigma = log_spread(p50, p99)
    tail = np.take(_Z_OF_MAXIMUM, np.minimum(n, 100.0).astype(np.int64))
    median = p50 * np.exp(sigma * np.minimum(1.253 / np.sqrt(n), 1.0) * z50)
    high = p50 * np.exp(sigma * (tail + np.minimum(3.73 / np.sqrt(n), 0.6) * z99))
    has_requests = count > 0
    return np.where(has_requests, median, np.nan), np.where(has_requests, np.maximum(high, median), np.nan)
