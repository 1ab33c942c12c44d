"""The sketch of a mesh as named arrays and plain fields, for the stored form of its state.

The names are a storage format. A sketch with other populations or bins, of another version, is read as an empty one: it
fills again within a week, and nothing else depends on it.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model.drift.call_sample import CallSample
from model.drift.populations import ValueCounts
from model.drift.sketch import DriftSketch

Arrays = dict[str, NDArray[Any]]
ARRAYS = (
    "recent", "recent_blocks", "week", "week_missing", "week_tails", "days", "distances",
    "ratios", "moved", "since",
)  # fmt: skip
OF_COUNTS = ("values", "missing", "possible")
OF_CALLS = ("ends", "first", "seen", "hours")
PLAIN = ("samples", "block", "judged")


def drift_document(sketch: DriftSketch) -> dict[str, Any]:
    """Return the plain fields."""
    return {**{key: getattr(sketch, key) for key in PLAIN}, "bound": sketch.calls.bound}


def drift_arrays(sketch: DriftSketch) -> Arrays:
    """Return the arrays."""
    arrays: Arrays = {f"drift_{key}": np.ascontiguousarray(getattr(sketch, key)) for key in ARRAYS}
    arrays |= {f"drift_{key}": getattr(sketch.counts, key) for key in OF_COUNTS}
    return arrays | {f"drift_calls_{key}": getattr(sketch.calls, key) for key in OF_CALLS}


def read_drift(document: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> DriftSketch:
    """Read what :func:`drift_document` and :func:`drift_arrays` returned."""
    empty = DriftSketch()
    expected = drift_arrays(empty)
    fixed = (*ARRAYS, *OF_COUNTS)
    tables: dict[str, Any] = {key: arrays.get(f"drift_{key}") for key in fixed}
    if any(table is None or table.shape != expected[f"drift_{key}"].shape for key, table in tables.items()):
        return empty
    if any(f"drift_calls_{key}" not in arrays for key in OF_CALLS):
        return empty
    counts = ValueCounts(*(tables.pop(key) for key in OF_COUNTS))
    calls = CallSample(**{key: arrays[f"drift_calls_{key}"] for key in OF_CALLS}, bound=document["bound"])
    plain = {key: document[key] for key in PLAIN}
    return DriftSketch(counts=counts, **(tables | plain), calls=calls)
