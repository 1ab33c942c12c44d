"""The comparison of two periods of a mesh, as JSON: the metrics that differ by more than their usual variation."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import msgspec
import numpy as np

from model.evidence.release_versions import find_versions
from model.features import EDGE_CHANNELS, NODE_CHANNELS, Array, Channel, channel_values
from model.snapshot import EDGE_METRICS, NODE_METRICS, BoolArray, FloatArray, IntArray, MeshSnapshot
from serve_app.errors import InvalidParameter
from serve_app.stores.numbered import NumberedRows
from serve_app.web.history import metric_tables

MAX_DIFFERENCES, MAX_COMPARED = 60, 300  # rows for a mesh, and for a service
MIN_STRENGTH, SIGNIFICANT = 2.0, 3.0  # strength from which a row is listed, and from which it is significant
COMPARED = ("request_rate", "requests_per_second", "error_rate", "p50_latency", "p99_latency")  # always, of a service
CONTEXT = frozenset({"request_rate", "requests_per_second", "memory_utilization", "active_connections"})
CONTEXT_WEIGHT = 0.25  # in the order of rows: latencies, errors and cpu say more about a fault


@dataclass(frozen=True, slots=True, eq=False)
class _Typical:
    """The typical values of services ``[N, 7]`` or calls ``[E, 4]`` in a period; NaN if nothing was observed.

    Attributes:
        median: in the units of the metrics.
        centre: the median in transformed units (``model.features``).
        spread: usual difference of a single snapshot, in transformed units.
    """

    median: Array
    centre: Array
    spread: Array


@dataclass(frozen=True, slots=True)
class PeriodSample:
    """The snapshots of a period, or rows of the history, oldest first.

    Attributes:
        seconds: time over which the requests of one of them were counted.
    """

    snapshots: Sequence[MeshSnapshot]
    seconds: float


@dataclass(frozen=True, slots=True)
class Focus:
    """A service, its other versions (by their names), and the callers of all of them, to be compared together."""

    service: str
    versions: tuple[str, ...]
    callers: tuple[str, ...]

    @property
    def services(self) -> tuple[str, ...]:
        return (self.service, *self.versions, *self.callers)

    @classmethod
    def of(cls, samples: Iterable[PeriodSample], service: str) -> Self:
        """Return the focus on a service.

        Raises:
            InvalidParameter: no snapshot has it.
        """
        snapshots = [snapshot for sample in samples for snapshot in sample.snapshots]
        names = dict.fromkeys(name for snapshot in snapshots for name in snapshot.node_ids)
        if service not in names:
            raise InvalidParameter(
                f"service: expected a service of one of the periods, got {service!r}; take a name from the graph",
                pointer="/service",
            )
        versions = find_versions(names, [service]).get(service, [])
        own = {service, *versions}
        callers: dict[str, None] = {}
        for snapshot in snapshots:
            rows = [i for i, name in enumerate(snapshot.node_ids) if name in own]
            sources = snapshot.edge_index[0, np.isin(snapshot.edge_index[1], rows)]
            callers |= dict.fromkeys(snapshot.node_ids[i] for i in sources.tolist())
        return cls(service, tuple(versions), tuple(name for name in callers if name not in own))


def comparison(
    first: PeriodSample,
    second: PeriodSample,
    focus: Focus | None = None,
    days: Sequence[tuple[PeriodSample, PeriodSample]] = (),
) -> bytes:
    """Return JSON of a ``ComparisonDocument``.

    The strength of a difference is the difference of the medians in transformed units (``model.features``), divided by
    the usual difference of one snapshot. This is the largest of the spread within a period (1.48 times the median
    absolute deviation), the counting noise of the requests, and the floor of the channel. So strengths of all metrics
    are comparable, and noisy metrics and rare calls do not count. Traffic and memory come after latencies, errors and
    cpu of the same strength.

    A difference is significant if it is strong, and larger than between the same times of day on earlier days, of which
    the most unusual one does not count.

    Args:
        focus: compare only this, and list it even if it does not differ; None: the whole mesh.
        days: the same periods on earlier days.
    """
    samples = [first, second, *(sample for pair in days for sample in pair)]
    rows = NumberedRows.of([snapshot for sample in samples for snapshot in sample.snapshots])
    names, ends = rows.services, rows.calls
    typical, first_row = [], 0
    for sample in samples:
        places = range(first_row, first_row := first_row + len(sample.snapshots))
        typical.append(_typical_values(*metric_tables(sample.snapshots, rows, places), ends, sample.seconds))
    in_focus = np.ones(len(names), bool), np.ones(ends.shape[1], bool)
    if focus is not None:
        own = [names.index(name) for name in (focus.service, *focus.versions)]
        in_focus[0][:] = np.isin(names, focus.services)
        in_focus[1][:] = np.isin(ends[1], own)
    services, calls = (
        _compare([pair[i] for pair in typical], in_focus[i], COMPARED if focus is not None else (), metrics)
        for i, metrics in enumerate((NODE_METRICS, EDGE_METRICS))
    )
    differences = [{"service": names[i], "source": None, **difference} for i, difference in services] + [
        {"service": names[ends[1, i]], "source": names[ends[0, i]], **difference} for i, difference in calls
    ]
    differences.sort(key=lambda row: -abs(row["strength"]) * (CONTEXT_WEIGHT if row["metric"] in CONTEXT else 1.0))
    return msgspec.json.encode(
        {
            "first_snapshots": len(first.snapshots),
            "second_snapshots": len(second.snapshots),
            "first_step_seconds": first.seconds,
            "second_step_seconds": second.seconds,
            "days": len(days),
            "versions": [] if focus is None else [focus.service, *focus.versions],
            "rows": differences[: MAX_DIFFERENCES if focus is None else MAX_COMPARED],
        }
    )


def _typical_values(
    nodes: FloatArray, edges: FloatArray, ends: IntArray, interval_seconds: float
) -> tuple[_Typical, _Typical]:
    node, edge = _median(nodes), _median(edges)
    channels = channel_values(
        np.nan_to_num(node), ~np.isnan(node), np.nan_to_num(edge), ~np.isnan(edge), ends, interval_seconds
    )
    services = _variation(nodes, node, channels.node_noise, NODE_CHANNELS)
    return services, _variation(edges, edge, channels.edge_noise, EDGE_CHANNELS)


def _variation(values: FloatArray, median: Array, noise: Array, channels: Sequence[Channel]) -> _Typical:
    """Return typical values from ``values`` ``[T, rows, metrics]`` and their median; ``noise``: variance by channel."""
    metrics = range(values.shape[2])
    centre = np.stack([channels[i].forward(median[:, i]) for i in metrics], axis=1)
    deviations = np.stack([channels[i].forward(values[:, :, i]) for i in metrics], axis=2) - centre
    spread = np.float32(1.48) * _median(np.abs(deviations))
    floor = np.array([channels[i].floor for i in metrics], np.float32)
    return _Typical(median, centre, np.maximum(np.maximum(spread, np.sqrt(noise[:, : len(metrics)])), floor))


def _compare(
    typical: Sequence[_Typical], in_focus: BoolArray, always: Sequence[str], metrics: Sequence[str]
) -> list[tuple[int, dict[str, Any]]]:
    """Return the rows in focus (bool ``[rows]``) that differ, or have a metric that is always listed, and their
    differences. ``typical``: of the first and the second period, then of the same ones on earlier days."""
    first, second, *days = typical
    difference = second.centre - first.centre
    with np.errstate(invalid="ignore"):
        strength = difference / np.maximum(first.spread, second.spread)
        is_significant = np.abs(strength) >= SIGNIFICANT
        if days:
            shifts = [np.abs(after.centre - before.centre) for before, after in zip(days[::2], days[1::2], strict=True)]
            usual = np.sort(np.nan_to_num(shifts, nan=-1.0), axis=0)
            is_significant &= np.abs(difference) > usual[-2 if len(shifts) > 2 else -1]
        is_listed = np.abs(strength) >= MIN_STRENGTH
    is_listed |= np.isin(metrics, always) & ~(np.isnan(first.median) & np.isnan(second.median))
    return [
        (
            i,
            {
                "metric": metrics[metric],
                "first": float(f"{first.median[i, metric]:.5g}"),
                "second": float(f"{second.median[i, metric]:.5g}"),
                "strength": round(float(np.nan_to_num(strength[i, metric])), 2),
                "significant": bool(is_significant[i, metric]),
            },
        )
        for i, metric in np.argwhere(is_listed & in_focus[:, None]).tolist()
    ]


def _median(values: FloatArray) -> Array:
    """Return the median of the observed values along the first axis, NaN without any. ``np.nanmedian`` is ten times
    slower."""
    sorted_values = np.sort(values, axis=0)  # NaN goes last
    count = (~np.isnan(values)).sum(axis=0, keepdims=True)
    low = np.take_along_axis(sorted_values, np.maximum(count - 1, 0) // 2, axis=0)
    high = np.take_along_axis(sorted_values, count // 2, axis=0)
    return np.asarray((low + high)[0] / 2, np.float32)
