"""Compiled passes over the series around the network: numpy arrays in, numpy arrays out.

A series is one channel of a service or of a call. The definition of each pass is the numpy code of the model that calls
it. That code runs where the library does not: :func:`are_compiled`. Filters are identical to the last bit in both, so a
machine with the library continues the state of one without it.

Shapes: N rows, C channels of a row, S = 3 time scales. Errors: ``InvalidArgument`` names the array that does not fit.
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
SLOTS, SCALES, EXPOSURES = 13, 3, 3
FILTER_CONSTANTS, TAIL_CONSTANTS, COUNT_CONSTANTS = 20, 6, 16
COUNTED_SNAPSHOTS = 16
MAX_CHANNELS = 64
NODE_METRICS, EDGE_METRICS, NODE_CHANNELS, EDGE_CHANNELS = 7, 4, 9, 5


def _struct(numbers: int, floats: int, arrays: int) -> type[ctypes.Structure]:
    """Return the layout of a struct of ``csrc/passes.h``."""
    types = [ctypes.c_int64] * numbers + [ctypes.c_float] * floats + [ctypes.c_void_p] * arrays
    return type("Pass", (ctypes.Structure,), {"_fields_": [(f"field{i}", kind) for i, kind in enumerate(types)]})


_BACKEND = choose_passes(read_setting())
_STRUCTS = {name: _struct(*counts) for name, counts in PASSES.items()}


def are_compiled() -> bool:
    """Whether the passes can run: their library is loaded, and ``TAGAE_KERNELS`` permits it."""
    return _BACKEND.library is not None


def update_filters(
    constants: Floats,
    floor: Floats,
    two_sided: Flags,
    alone: Floats,
    weight: Floats,
    filters: Floats,
    value: Floats,
    noise: Floats,
    measured: Flags,
    muted: Flags,
    paused: Flags,
    requests: Floats,
) -> tuple[Floats, Floats, Floats, Floats, Floats, Flags]:
    """``update_filters`` of ``model/state/filters.py``.

    Args:
        constants: of that file, in the order of ``FilterConstants`` in ``csrc/passes.h``.
        floor, two_sided, alone, weight: ``[C]`` of the channels; the floor as a variance.
        filters: ``[13, N, C]``.
        value, noise, measured: ``[N, C]``.
        muted, paused, requests: ``[N]``.

    Returns:
        Updated filters, deviations now, levels ``[S, N, C]``, expected values, spreads, and which series are known.
    """
    rows, channels = size = filters.shape[1:]
    _check_channels(channels)
    after, level = np.empty((SLOTS, *size), np.float32), np.empty((SCALES, *size), np.float32)
    now, expected, spread = (np.empty(size, np.float32) for _ in range(3))
    known = np.empty(size, np.bool_)
    _run(
        "update_filters",
        size,
        _fit("constants", constants, np.float32, (FILTER_CONSTANTS,)),
        _fit("floor", floor, np.float32, (channels,)),
        _fit("two_sided", two_sided, np.bool_, (channels,)),
        _fit("alone", alone, np.float32, (channels,)),
        _fit("weight", weight, np.float32, (channels,)),
        _fit("filters", filters, np.float32, (SLOTS, *size)),
        _fit("value", value, np.float32, size),
        _fit("noise", noise, np.float32, size),
        _fit("measured", measured, np.bool_, size),
        _fit("muted", muted, np.bool_, (rows,)),
        _fit("paused", paused, np.bool_, (rows,)),
        _fit("requests", requests, np.float32, (rows,)),
        *(after, now, level, expected, spread, known),
    )
    return after, now, level, expected, spread, known


def calibrate(
    constants: Floats,
    rate: Floats,
    mean_excess: Floats,
    shape: Floats,
    impact: Floats,
    exposure: Integers,
    level: Floats,
    exceed_count: Floats,
    exceed_sum: Floats,
    now: Floats,
    predicted: Floats,
    expected: Floats,
    spread: Floats,
    seen: Floats,
    observed: Flags,
) -> tuple[Floats, Floats, Floats]:
    """``SeriesTail.calibrate`` of ``model/scoring/calibration.py``.

    Args:
        constants: of that file, in the order of ``TailConstants`` in ``csrc/passes.h``.
        rate, mean_excess, shape: ``[EXPOSURES, S, C]`` shipped tails.
        impact: ``[4, EXPOSURES, S, C]``.
        exposure: ``[N]``.
        level, exceed_count, exceed_sum: ``[S, N, C]``.
        now, predicted, expected, spread, seen, observed: ``[N, C]``.

    Returns:
        Surprise of what neighbours do not explain, raw surprise, and expected values, ``[N, C]`` each.
    """
    rows, channels = size = now.shape
    _check_channels(channels)
    tails, scales = (EXPOSURES, SCALES, channels), (SCALES, *size)
    surprise, raw, explained = (np.empty(size, np.float32) for _ in range(3))
    _run(
        "calibrate",
        (*size, EXPOSURES),
        _fit("constants", constants, np.float32, (TAIL_CONSTANTS,)),
        _fit("rate", rate, np.float32, tails),
        _fit("mean_excess", mean_excess, np.float32, tails),
        _fit("shape", shape, np.float32, tails),
        _fit("impact", impact, np.float32, (4, *tails)),
        _fit("exposure", exposure, np.int64, (rows,)),
        _fit("level", level, np.float32, scales),
        _fit("exceed_count", exceed_count, np.float32, scales),
        _fit("exceed_sum", exceed_sum, np.float32, scales),
        _fit("now", now, np.float32, size),
        _fit("predicted", predicted, np.float32, size),
        _fit("expected", expected, np.float32, size),
        _fit("spread", spread, np.float32, size),
        _fit("seen", seen, np.float32, size),
        _fit("observed", observed, np.bool_, size),
        *(surprise, raw, explained),
    )
    return surprise, raw, explained


def channel_values(
    interval_seconds: float,
    largest: float,
    node_offsets: Floats,
    edge_offsets: Floats,
    node_features: Floats,
    edge_features: Floats,
    node_observed: Flags,
    edge_observed: Flags,
    edge_index: Integers,
) -> tuple[Floats, Flags, Floats, Floats, Flags, Floats]:
    """``channel_values`` of ``model/features.py``, whose results are in the order of ``ChannelValues``.

    Args:
        interval_seconds: between snapshots, s.
        largest: value; what is larger counts as this.
        node_offsets, edge_offsets: ``[9]``, ``[5]`` of the channels.
        node_features, node_observed: ``[N, 7]``.
        edge_features, edge_observed: ``[E, 4]``.
        edge_index: ``[2, E]``.
    """
    nodes, edges = len(node_features), len(edge_features)
    of_nodes, of_edges = (nodes, NODE_CHANNELS), (edges, EDGE_CHANNELS)
    node, node_noise = np.empty(of_nodes, np.float32), np.empty(of_nodes, np.float32)
    edge, edge_noise = np.empty(of_edges, np.float32), np.empty(of_edges, np.float32)
    node_seen, edge_seen = np.empty(of_nodes, np.bool_), np.empty(of_edges, np.bool_)
    _run(
        "channel_values",
        (nodes, edges, interval_seconds, largest),
        _fit("node_offsets", node_offsets, np.float32, (NODE_CHANNELS,)),
        _fit("edge_offsets", edge_offsets, np.float32, (EDGE_CHANNELS,)),
        _fit("node_features", node_features, np.float32, (nodes, NODE_METRICS)),
        _fit("edge_features", edge_features, np.float32, (edges, EDGE_METRICS)),
        _fit("node_observed", node_observed, np.bool_, (nodes, NODE_METRICS)),
        _fit("edge_observed", edge_observed, np.bool_, (edges, EDGE_METRICS)),
        _fit("edge_index", edge_index, np.int64, (2, edges)),
        np.zeros((4, nodes)),
        *(node, node_noise, edge, edge_noise, node_seen, edge_seen),
    )
    return node, node_seen, node_noise, edge, edge_seen, edge_noise


def count_failures(
    constants: Floats,
    recent: Sequence[Counts],
    usual: Floats,
    past_long: Floats,
    seen: Floats,
    measured: Flags,
    requests: Floats,
    paused: Flags,
    level: Floats,
    value: Floats,
    known: Flags,
) -> tuple[Counts, Floats, Floats]:
    """``count_failures`` of ``model/state/few_requests.py``.

    Args:
        constants: of that file, in the order of ``CountConstants`` in ``csrc/passes.h``.
        recent: ``[2, N]`` of each of the 16 snapshots before this one, newest first.
        usual: ``[3, N]``, before the snapshot.
        past_long, seen, measured: ``[N, C]``.
        requests, paused: ``[N]``.
        level, value, known: ``[S, N, C]``, ``[N, C]``, ``[N, C]``; these change in place.

    Returns:
        Counts of this snapshot ``[2, N]``, updated usual counts, and the surprise ``[N]``.
    """
    rows, channels = size = value.shape
    _check_channels(channels)
    if len(recent) != COUNTED_SNAPSHOTS:
        raise InvalidArgument(
            f"recent: expected {COUNTED_SNAPSHOTS} arrays, got {len(recent)}; give one for each snapshot",
            argument="recent",
        )
    surprise, newest, usual_after = (
        np.empty(rows, np.float32),
        np.empty((2, rows), np.uint16),
        np.empty((3, rows), np.float32),
    )
    _run(
        "count_failures",
        size,
        _fit("constants", constants, np.float32, (COUNT_CONSTANTS,)),
        *(_fit("recent", of, np.uint16, (2, rows)) for of in recent),
        _fit("usual", usual, np.float32, (3, rows)),
        _fit("past_long", past_long, np.float32, size),
        _fit("seen", seen, np.float32, size),
        _fit("measured", measured, np.bool_, size),
        _fit("requests", requests, np.float32, (rows,)),
        _fit("paused", paused, np.bool_, (rows,)),
        *(newest, usual_after),
        _own("level", level, np.float32, (SCALES, *size)),
        _own("value", value, np.float32, size),
        _own("known", known, np.bool_, size),
        surprise,
    )
    return newest, usual_after, surprise


def _run(name: str, scalars: tuple[float, ...], *arrays: NDArray[Any]) -> None:
    found = _BACKEND.library
    assert found is not None, "the caller asks are_compiled first"
    filled = _STRUCTS[name](*scalars, *map(_address, arrays))
    if not getattr(found, f"tagae_{name}")(ctypes.byref(filled)):
        raise InvalidArgument(f"{name}: expected row indices, got one out of range; check edge_index and exposure")


def _address(array: NDArray[Any]) -> int:
    """Return where the numbers are. ``array.ctypes.data`` takes five times as long; a pass has twenty arrays."""
    try:
        return ctypes.addressof(ctypes.c_char.from_buffer(array.data))
    except (TypeError, ValueError):  # read-only, or empty
        return array.ctypes.data


def _check_channels(channels: int) -> None:
    if not 0 < channels <= MAX_CHANNELS:
        raise InvalidArgument(f"expected 1 to {MAX_CHANNELS} channels, got {channels}; give the array of one table")


def _fit(name: str, array: NDArray[Any], dtype: DTypeLike, shape: tuple[int, ...]) -> NDArray[Any]:
    """Return the array as the pass reads it: contiguous, of its type."""
    if array.shape != shape:
        raise InvalidArgument(f"{name}: expected shape {list(shape)}, got {list(array.shape)}", argument=name)
    return np.ascontiguousarray(array, dtype)


def _own(name: str, array: NDArray[Any], dtype: DTypeLike, shape: tuple[int, ...]) -> NDArray[Any]:
    """Return an array that the pass changes in place; a copy would lose what it writes."""
    if _fit(name, array, dtype, shape) is not array or not array.flags.writeable:
        raise InvalidArgument(f"{name}: expected a contiguous, writable array of {np.dtype(dtype)}", argument=name)
    return array
