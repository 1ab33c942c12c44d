"""Shares of few requests.

One failure among two requests is not a share of 50%. With few requests the share of failures moves towards the usual
one, as if more requests, which fail as usual, had been seen too. How far a failure then is from normal agrees with the
binomial distribution, and the usual share is learned without the bias that a logarithm of 0 or 1 failures has.
"""

import numpy as np

from model.features import EDGE_CHANNELS, ERROR, Array, error_noise
from model.snapshot import BoolArray
from model.state.filters import ENOUGH, SEEN, SLOW_CENTRE

MOST = 10 * ENOUGH  # requests, above which the usual share no longer matters
CHANNEL = EDGE_CHANNELS[ERROR]  # the same for services and calls


def shrink_errors(
    value: Array, noise: Array, measured: BoolArray, filters: Array, requests: Array
) -> tuple[Array, Array]:
    """Return the channels ``[N, C]`` and their noise with the shrunken shares of failures.

    Args:
        value, noise, measured: of services or calls, ``[N, C]``; not changed.
        filters: ``[13, N, C]`` before the snapshot.
        requests: ``[N]`` in the snapshot.
    """
    rows = np.flatnonzero((requests < MOST) & measured[:, ERROR])
    if not len(rows):
        return value, noise
    counted, seen = requests[rows], filters[SEEN, rows, ERROR]
    share, usual = _shares(value[rows, ERROR]), _shares(filters[SLOW_CENTRE, rows, ERROR])
    added = np.minimum(np.float32(ENOUGH), counted * seen)  # no more than were ever seen
    together = counted + added
    share = (share * counted + usual * added) / together
    value, noise = value.copy(), noise.copy()
    value[rows, ERROR], noise[rows, ERROR] = CHANNEL.forward(share), error_noise(share, CHANNEL, together)
    return value, noise


def _shares(transformed: Array) -> Array:
    return CHANNEL.invert(transformed).astype(np.float32)
