"""Values in place of missing ones, in tiers: the last value of the series, the mean of its namespace, none (the mask).

The mean of a namespace is of deviations: a service that has twice the latency of its neighbours keeps twice the latency
of their mean. ``by_level`` is the plain mean of the values instead. Services and calls without a row have one again, if
there is a value for it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from model.features import EDGE_CHANNELS, NODE_CHANNELS, Array, Channel
from model.snapshot import EDGE_METRICS, NODE_METRICS, EdgeMetric, MeshSnapshot, namespace_of
from model.state.filters import CENTRE, SEEN
from model.state.mesh_state import MeshState

Values = NDArray[np.float64]
LONGEST = 20  # snapshots without a value, after which a series is not filled


@dataclass(frozen=True, slots=True)
class Filling:
    """What stands in place of missing values.

    Attributes:
        name: for the table.
        last: snapshots for which the last value stands in.
        mean: whether the mean of the namespace stands in after that, for up to ``LONGEST`` snapshots.
        by_level: whether that is the mean of the values, not of the deviations.
        is_scored: whether the values count as measured. Else only the network reads them, as the neighbourhood of
            services that are measured.
    """

    name: str
    last: int = 0
    mean: bool = False
    by_level: bool = False
    is_scored: bool = True


MASK = Filling("mask")
FILLINGS = (
    MASK,
    Filling("last value", last=4),
    Filling("mean value of the namespace", mean=True, by_level=True),
    Filling("mean deviation of the namespace", mean=True),
    Filling("last value, mean deviation, mask", last=4, mean=True),
    Filling("the same, for neighbours only", last=4, mean=True, is_scored=False),
)


Key = tuple[str, ...]  # of a service: its node id; of a call: the node ids of caller and callee


@dataclass(frozen=True, slots=True)
class Series:
    """The series of services or of calls that a mesh has had so far, C metrics each; not a number where none is known.

    Attributes:
        row: of each key.
        now: ``[R, C]`` values.
        last: ``[R, C]`` newest values.
        age: ``[R, C]`` snapshots since then.
    """

    row: Mapping[Key, int]
    now: Values
    last: Values
    age: NDArray[np.int64]

    @classmethod
    def none(cls, columns: int) -> "Series":
        """Return no series."""
        nothing = np.empty((0, columns))
        return cls({}, nothing, nothing, np.empty((0, columns), np.int64))

    def follow(self, keys: Sequence[Key], values: Values) -> "Series":
        """Return the series after one more snapshot with these rows."""
        new = dict.fromkeys(key for key in keys if key not in self.row)
        row = {**self.row, **{key: len(self.row) + i for i, key in enumerate(new)}}
        now = np.full((len(row), values.shape[1]), np.nan)
        now[[row[key] for key in keys]] = values
        last, age = now.copy(), np.full(now.shape, LONGEST + 1)
        last[: len(self.last)] = self.last
        age[: len(self.age)] = self.age
        measured = ~np.isnan(now)
        return Series(row, now, np.where(measured, now, last), np.where(measured, 0, age + 1))


Known = tuple[Series, Series]  # of services, of calls


def follow_series(snapshots: Iterable[MeshSnapshot]) -> Iterator[Known]:
    """Yield what is known after each snapshot."""
    nodes, edges = Series.none(len(NODE_METRICS)), Series.none(len(EDGE_METRICS))
    for one in snapshots:
        calls = [(one.node_ids[a], one.node_ids[b]) for a, b in one.edge_index.T.tolist()]
        nodes = nodes.follow([(name,) for name in one.node_ids], np.where(one.node_observed, one.node_features, np.nan))
        edges = edges.follow(calls, np.where(one.edge_observed, one.edge_features, np.nan))
        yield nodes, edges


def fill(snapshot: MeshSnapshot, known: Known, state: MeshState, filling: Filling) -> MeshSnapshot:
    """Return a snapshot with values in place of missing ones.

    Args:
        snapshot: as it came.
        known: the series up to it.
        state: of the mesh before the snapshot.
        filling: what to fill in.
    """
    if not filling.last and not filling.mean:
        return snapshot
    nodes, edges = known
    calls = [(state.node_ids[a], state.node_ids[b]) for a, b in state.edge_index.T.tolist()]
    node_values = _fill_series(nodes, [(name,) for name in state.node_ids], state.node_filters, NODE_CHANNELS, filling)
    edge_values = _fill_series(edges, calls, state.edge_filters, EDGE_CHANNELS, filling)
    there = ~np.isnan(edge_values[:, EdgeMetric.REQUESTS_PER_SECOND])  # a call without a rate is no call
    ends = [key for key, row in edges.row.items() if there[row]]
    own = {*snapshot.node_ids, *(name for key in ends for name in key)}
    names = [name for (name,), row in nodes.row.items() if name in own or not np.isnan(node_values[row]).all()]
    position = {name: i for i, name in enumerate(names)}
    return MeshSnapshot.create(
        node_ids=names,
        edge_index=np.array([[position[name] for name in key] for key in ends], np.int64).reshape(-1, 2).T,
        node_features=node_values[[nodes.row[name,] for name in names]],
        edge_features=edge_values[there],
        observed_at=snapshot.observed_at,
        changes=snapshot.changes,
        policies=snapshot.policies,
        signals=snapshot.signals,
    )


def _fill_series(
    series: Series, keys: Sequence[Key], filters: Array, channels: Sequence[Channel], filling: Filling
) -> Values:
    """Return the values ``[R, C]``, filled. ``keys`` and ``filters`` are of the mesh's state."""
    values = np.where(series.age <= filling.last, series.last, np.nan)
    if not filling.mean:
        return values
    centre = np.zeros(values.shape) if filling.by_level else _usual_levels(series, keys, filters)
    number: dict[str, int] = {}
    spaces = np.array([number.setdefault(namespace_of(key[0]), len(number)) for key in series.row], np.int64)
    for column, channel in enumerate(channels[: values.shape[1]]):
        missing = np.isnan(values[:, column]) & (series.age[:, column] <= LONGEST)
        if missing.any():
            level = _mean_of_namespace(series.now[:, column], centre[:, column], spaces, channel)
            values[missing, column] = level[missing]
    return values


def _usual_levels(series: Series, keys: Sequence[Key], filters: Array) -> Values:
    """Return the usual level of each series, in transformed units; not a number if it has none yet."""
    columns = series.now.shape[1]
    centre = np.full(series.now.shape, np.nan)
    rows = [(i, series.row[key]) for i, key in enumerate(keys[: filters.shape[1]]) if key in series.row]
    if rows:
        theirs, ours = np.array(rows).T
        seen = filters[SEEN, theirs, :columns] > 0
        centre[ours] = np.where(seen, filters[CENTRE, theirs, :columns], np.nan)
    return centre


def _mean_of_namespace(now: Values, centre: Values, spaces: NDArray[np.int64], channel: Channel) -> Values:
    """Return the value ``[R]`` that each row would have by the mean of its namespace; not a number without one."""
    with np.errstate(invalid="ignore"):
        deviation = channel.forward(now.astype(np.float32)) - centre
    known = ~np.isnan(deviation)
    count = np.bincount(spaces[known], minlength=int(spaces.max(initial=-1)) + 1)
    total = np.bincount(spaces[known], deviation[known], len(count))
    mean = np.divide(total, count, out=np.full(len(count), np.nan), where=count > 0)
    wanted = centre + mean[spaces]
    return np.where(np.isnan(wanted), np.nan, channel.invert(np.nan_to_num(wanted)))
