"""Compiled passes over the series around the network: numpy arrays in, numpy arrays out.

A series is one channel of a service or of a call. The definition of each pass is the numpy code of the model that calls
it. That code runs where the library does not: :func:`are_compiled`. Filters are identical to the last bit in both, so a
machine with the library continues the state of one without it.

``ARRAYS`` has the arrays of each pass, in the order in which they are given. ``InvalidArgument`` names one that does
not fit.
"""

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from kernels.errors import InvalidArgument
from kernels.library import choose_passes, read_setting
from kernels.schemas import PASSES

Floats = NDArray[np.float32]
Flags = NDArray[np.bool_]
Integers = NDArray[np.int64]
Counts = NDArray[np.uint16]
_F, _B, _I, _U = np.float32, np.bool_, np.int64, np.uint16
COUNTED_SNAPSHOTS = 16
MAX_CHANNELS = 64
READ, CHANGED, MADE = range(3)  # a pass reads an array, changes it in place, or returns it
# Of each pass, the arrays of its struct in ``csrc/passes.h``, in that order: name, type, and sizes. N rows, C channels;
# N services and E calls for the channels.
_SERIES, _SCALES, _TAILS = ("N", "C"), (3, "N", "C"), (3, 3, "C")
Array = tuple[int, str, type[np.generic], tuple[int | str, ...]]
ARRAYS: dict[str, tuple[Array, ...]] = {
    "update_filters": (
        (READ, "constants", _F, (20,)),
        (READ, "floor", _F, ("C",)),
        (READ, "two_sided", _B, ("C",)),
        (READ, "alone", _F, ("C",)),
        (READ, "weight", _F, ("C",)),
        (READ, "filters", _F, (13, "N", "C")),
        *((READ, name, of, _SERIES) for name, of in (("value", _F), ("noise", _F), ("measured", _B))),
        *((READ, name, of, ("N",)) for name, of in (("muted", _B), ("paused", _B), ("requests", _F))),
        (MADE, "updated", _F, (13, "N", "C")),
        (MADE, "now", _F, _SERIES),
        (MADE, "level", _F, _SCALES),
        *((MADE, name, of, _SERIES) for name, of in (("expected", _F), ("spread", _F), ("known", _B))),
    ),
    "calibrate": (
        (READ, "constants", _F, (6,)),
        *((READ, name, _F, _TAILS) for name in ("rate", "mean_excess", "shape")),
        (READ, "impact", _F, (4, *_TAILS)),
        (READ, "exposure", _I, ("N",)),
        *((READ, name, _F, _SCALES) for name in ("level", "exceed_count", "exceed_sum")),
        *((READ, name, _F, _SERIES) for name in ("now", "predicted", "expected", "spread", "seen")),
        (READ, "observed", _B, _SERIES),
        *((MADE, name, _F, _SERIES) for name in ("surprise", "raw", "explained")),
    ),
    "channel_values": (
        (READ, "node_offsets", _F, (9,)),
        (READ, "edge_offsets", _F, (5,)),
        (READ, "node_features", _F, ("N", 7)),
        (READ, "edge_features", _F, ("E", 4)),
        (READ, "node_observed", _B, ("N", 7)),
        (READ, "edge_observed", _B, ("E", 4)),
        (READ, "edge_index", _I, (2, "E")),
        (READ, "sums", np.float64, (4, "N")),
        *((MADE, name, _F, ("N", 9)) for name in ("node", "node_noise")),
        *((MADE, name, _F, ("E", 5)) for name in ("edge", "edge_noise")),
        (MADE, "node_seen", _B, ("N", 9)),
        (MADE, "edge_seen", _B, ("E", 5)),
    ),
    "count_failures": (
        (READ, "constants", _F, (16,)),
        *((READ, "recent", _U, (2, "N")) for _ in range(COUNTED_SNAPSHOTS)),
        (READ, "usual", _F, (3, "N")),
        *((READ, name, of, _SERIES) for name, of in (("past_long", _F), ("seen", _F), ("measured", _B))),
        *((READ, name, of, ("N",)) for name, of in (("requests", _F), ("paused", _B))),
        (MADE, "newest", _U, (2, "N")),
        (MADE, "usual_after", _F, (3, "N")),
        (CHANGED, "level", _F, _SCALES),
        *((CHANGED, name, of, _SERIES) for name, of in (("value", _F), ("known", _B))),
        (MADE, "surprise", _F, ("N",)),
    ),
}


def _struct(numbers: int, floats: int, arrays: int) -> type[ctypes.Structure]:
    """Return a struct's layout in ``csrc/passes.h``."""
    types = [ctypes.c_int64] * numbers + [ctypes.c_float] * floats + [ctypes.c_void_p] * arrays
    return type("Pass", (ctypes.Structure,), {"_fields_": [(f"field{i}", kind) for i, kind in enumerate(types)]})


_BACKEND = choose_passes(read_setting())
_STRUCTS = {name: _struct(*counts) for name, counts in PASSES.items()}


def are_compiled() -> bool:
    """Return whether the passes can run: their library is loaded, and ``TAGAE_KERNELS`` permits it."""
    return _BACKEND.library is not None


def update_filters(*arrays: NDArray[Any]) -> tuple[Floats, Floats, Floats, Floats, Floats, Flags]:
    """``update_filters`` of ``model/state/filters.py``; the constants are in the order of ``FilterConstants``.

    Returns:
        Updated filters, deviations now, levels, expected values, spreads, and which series are known.
    """
    after, now, level, expected, spread, is_known = _run("update_filters", _size_of(arrays[5][0]), arrays)
    return after, now, level, expected, spread, is_known


def calibrate(*arrays: NDArray[Any]) -> tuple[Floats, Floats, Floats]:
    """``SeriesTail.calibrate`` of ``model/scoring/calibration.py``; the constants are in the order of
    ``TailConstants``.

    Returns:
        Surprise of what neighbours do not explain, raw surprise, and expected values.
    """
    surprise, raw, expected = _run("calibrate", _size_of(arrays[9]), arrays, 3)
    return surprise, raw, expected


def channel_values(
    interval_seconds: float, largest: float, *arrays: NDArray[Any]
) -> tuple[Floats, Flags, Floats, Floats, Flags, Floats]:
    """``channel_values`` of ``model/features.py``, whose results are in the order of ``ChannelValues``. What is larger
    than ``largest`` counts as this."""
    sizes = {"N": len(arrays[2]), "E": len(arrays[3])}
    inputs = *arrays, np.zeros((4, sizes["N"]))
    node, node_noise, edge, edge_noise, node_seen, edge_seen = _run(
        "channel_values", sizes, inputs, interval_seconds, largest
    )
    return node, node_seen, node_noise, edge, edge_seen, edge_noise


def count_failures(constants: Floats, recent: Sequence[Counts], *arrays: NDArray[Any]) -> tuple[Counts, Floats, Floats]:
    """``count_failures`` of ``model/state/few_requests.py``; the constants are in the order of ``CountConstants``.

    Args:
        constants: of that file.
        recent: one array for each of the 16 snapshots before this one, newest first.
        arrays: the others. Levels, values and what is known change in place.

    Returns:
        Counts of this snapshot, updated usual counts, and the surprise.
    """
    if len(recent) != COUNTED_SNAPSHOTS:
        raise InvalidArgument(
            f"recent: expected {COUNTED_SNAPSHOTS} arrays, got {len(recent)}; give one for each snapshot",
            argument="recent",
        )
    newest, usual, surprise = _run("count_failures", _size_of(arrays[-2]), (constants, *recent, *arrays))
    return newest, usual, surprise


def _run(name: str, sizes: dict[str, int], inputs: Sequence[NDArray[Any]], *numbers: float) -> list[NDArray[Any]]:
    """Run a pass, and return the arrays that it makes; ``numbers`` come after the sizes in its struct."""
    library = _BACKEND.library
    assert library is not None, "the caller asks are_compiled first"
    remaining = iter(inputs)
    results: list[NDArray[Any]] = []
    arrays: list[NDArray[Any]] = []
    for use, label, of, form in ARRAYS[name]:
        shape = tuple(sizes[size] if isinstance(size, str) else size for size in form)
        if use == MADE:
            results.append(np.empty(shape, of))
        arrays.append(results[-1] if use == MADE else _fit(label, next(remaining), of, shape, changes=use == CHANGED))
    struct = _STRUCTS[name](*sizes.values(), *numbers, *map(_address, arrays))
    if not getattr(library, f"tagae_{name}")(ctypes.byref(struct)):
        raise InvalidArgument(f"{name}: expected row indices, got one out of range; check edge_index and exposure")
    return results


def _address(array: NDArray[Any]) -> int:
    """Return where the numbers are. ``array.ctypes.data`` takes five times as long; a pass has twenty arrays."""
    try:
        return ctypes.addressof(ctypes.c_char.from_buffer(array.data))
    except (TypeError, ValueError):  # read-only, or empty
        return array.ctypes.data


def _size_of(series: NDArray[Any]) -> dict[str, int]:
    rows, channels = series.shape
    if not 0 < channels <= MAX_CHANNELS:
        raise InvalidArgument(f"expected 1 to {MAX_CHANNELS} channels, got {channels}; give the array of one table")
    return {"N": rows, "C": channels}


def _fit(name: str, array: NDArray[Any], dtype: DTypeLike, shape: tuple[int, ...], *, changes: bool) -> NDArray[Any]:
    """Return the array as the pass takes it: contiguous, of its type. One that changes in place may not be copied,
    which would lose what is written."""
    if array.shape != shape:
        raise InvalidArgument(f"{name}: expected shape {list(shape)}, got {list(array.shape)}", argument=name)
    fitting = np.ascontiguousarray(array, dtype)
    if changes and (fitting is not array or not array.flags.writeable):
        raise InvalidArgument(f"{name}: expected a contiguous, writable array of {np.dtype(dtype)}", argument=name)
    return fitting
