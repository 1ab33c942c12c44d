"""Distance between two samples of embeddings: the energy distance.

Of samples X and Y it is ``2 E|x - y| - E|x - x'| - E|y - y'|``, with Euclidean norms and means over all pairs, a row
with itself included (Szekely and Rizzo, *Journal of Statistical Planning and Inference* 143(8), 2013). It is 0 or
more, and 0 only for equal distributions. Divided by ``2 E|x - y|`` it has no unit and is at most 1.

A sample keeps 16 numbers of each embedding: its product with a fixed random matrix, which changes distances little
(Johnson and Lindenstrauss 1984).
"""

from functools import cache

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating]
Half = NDArray[np.float16]

WIDTH = 16  # numbers of an embedding in a sample
_SEED = 46


def project(embeddings: Floats) -> Half:
    """Return embeddings ``[n, D]`` as float16 rows of a sample, ``[n, WIDTH]``."""
    return (embeddings @ _matrix(embeddings.shape[1])).astype(np.float16)


def energy_distance(x: Floats, y: Floats) -> float:
    """Return the energy distance of two samples ``[n, d]`` and ``[m, d]``, 0 to 1, without unit.

    It is 0 if both have the same single value, and not a number if one has no rows.
    """
    if not len(x) or not len(y):
        return float("nan")
    between = _mean_distance(x, y)
    within = (_mean_distance(x, x) + _mean_distance(y, y)) / 2
    return max(0.0, 1.0 - within / between) if between > 0 else 0.0


def _mean_distance(x: Floats, y: Floats) -> float:
    return float(np.linalg.norm(x.astype(np.float32)[:, None] - y.astype(np.float32)[None], axis=-1).mean())


@cache
def _matrix(width: int) -> NDArray[np.float32]:
    drawn = np.random.default_rng(_SEED).normal(0.0, WIDTH**-0.5, (width, WIDTH))
    return drawn.astype(np.float32)
