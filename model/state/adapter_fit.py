"""Fits a mesh's adapter to its last snapshots, puts it into use, and rolls it back.

The fit uses the snapshots of the ring that raised no alert, that follow no alert within ``AFTERMATH`` snapshots, and
that are later than any rollback. Of each it uses the services without a planned change in the last ``CHANGING``
snapshots whose incidents no mute hid in that snapshot, later, or in the ``AFTERMATH`` snapshots before.

A candidate is fitted on the older part of these snapshots. It must beat the adapter in use on the newer part, service
by service; the other services keep their curves. Everything here is deterministic.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import numpy as np
from numpy.typing import NDArray

from model.features import RATE, Array, channel_values
from model.incidents.mutes import matches
from model.snapshot import BoolArray, IntArray, MeshSnapshot
from model.state.filters import CENTRE, FAST, SLOW_CENTRE
from model.state.load_adapter import (
    BEND,
    LATENCIES,
    LEAST,
    MOST,
    SLOPE,
    USUAL,
    Adaptation,
    Adapter,
    load_effect,
    rows_of,
)
from model.state.mesh_state import MeshState

AFTERMATH = 8  # snapshots after an alert that are not used
CHANGING = 12  # snapshots after a planned change in which its service is not used
FEWEST = 40  # snapshots that a fit needs
HELD_OUT = 0.25  # share of them, the newest, that test the candidate
MARGIN = 0.1  # share of the loss by which the candidate must be better
PRECISION = 10.0  # of the prior on the curve in use: a change of the slope by 0.3 is one sigma
ROUNDS = 3  # of the fit, which alternates between the spread of the noise and the curve
CUT = 3.0  # sigmas; larger deviations are clipped, in the fit and in the test
NOISE_FLOOR = 0.02  # of a latency, logarithms
OUTLIER = 1.5  # distance of load from its median, logarithms, beyond which it is ignored
STEEPEST = 3.0  # slope and bend at most
LEAST_RISE = 0.05  # from lowest to highest load; flatter curves are dropped
BLOCK = 512  # services that are fitted at once

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Candidate:
    """The result of a fit.

    Attributes:
        adapter: to put into use; None: it is not better anywhere.
        compared_with: fitting time of the adapter it was compared with; None: there was none.
    """

    adapter: Adapter | None
    compared_with: datetime | None


@dataclass(frozen=True, slots=True)
class FitData:
    """Latencies of N services in T snapshots, and which of them are used.

    Attributes:
        load: ``[T, N]`` request rate, as the channel has it.
        latency: ``[T, N, 3]``, likewise.
        teaches: bool ``[T, N]``: whether the snapshot is used for this service.
        observed: bool ``[T, N, 3]``.
    """

    load: Floats
    latency: Floats
    teaches: BoolArray
    observed: BoolArray

    @property
    def known(self) -> BoolArray:
        """``[T, N, 3]``: observed and used."""
        known: BoolArray = self.observed & self.teaches[..., None]
        return known


@dataclass(frozen=True, slots=True)
class Curves:
    """Curves of all N services: ``load`` ``[N, 3]`` and ``curve`` ``[N, 3, 2]`` as in an adapter."""

    load: Floats
    curve: Floats


def fit(state: MeshState, window: Iterable[MeshSnapshot] | None = None) -> Candidate | None:
    """Fit an adapter to the last snapshots of a mesh.

    The fit is a ridge regression of latency on load, each less its running mean, towards the curve in use. A window
    with constant load changes nothing, however long ago the peaks were.

    Args:
        state: of the mesh.
        window: the snapshots, oldest first; None: the ones in the state. Each is read once and not held in memory.

    Returns:
        The candidate. None if there are too few usable snapshots.
    """
    row = {name: i for i, name in enumerate(state.node_ids)}
    readings = [
        read_latencies(snapshot, row, state.interval_seconds)
        for snapshot in (state.window if window is None else window)
    ]
    quiet = quiet_snapshots(state, [reading.observed_at for reading in readings])
    if len(quiet) < FEWEST or state.observed_at is None:
        return None
    teaches = find_teaching(state, readings, quiet)
    held_out = quiet[len(quiet) - int(HELD_OUT * len(quiet))]
    in_use = _curves_in_use(state)
    of_blocks = [
        _fit_block(in_use, readings, teaches, slice(first, first + BLOCK), held_out)
        for first in range(0, len(row), BLOCK)
    ]
    present, load, proposed, before, after, tests = (np.concatenate(one) for one in zip(*of_blocks, strict=True))
    better = after < (1 - MARGIN) * before
    adapter = state.adaptation.adapter
    beaten = adapter.fitted_at if adapter else None
    if not better.any():
        return Candidate(None, beaten)
    tested = max(float(tests[better].sum()), 1.0)
    loss = float(before[better].sum()) / tested, float(after[better].sum()) / tested
    load = np.where(better[:, None], load[:, 1], load[:, 0])
    curve = np.where(better[:, None, None], proposed, present)
    kept = _rising_rows(load, curve)
    if not len(kept):
        return Candidate(None, beaten)
    services = tuple(state.node_ids[i] for i in kept)
    fitted = Adapter(
        services, load[kept].astype(np.float32), curve[kept].astype(np.float32), state.observed_at, len(quiet), *loss
    )
    return Candidate(fitted, beaten)


def adopt(state: MeshState, candidate: Candidate) -> MeshState:
    """Return the mesh with the candidate's adapter in use.

    Returns ``state`` itself if the candidate is no better, or was compared with another adapter than the one in use
    now.
    """
    present = state.adaptation.adapter
    if candidate.adapter is None or candidate.compared_with != (present.fitted_at if present else None):
        return state
    return replace_adaptation(state, replace(state.adaptation, adapter=candidate.adapter, former=present))


def restore_former(state: MeshState) -> MeshState:
    """Return the mesh with the former adapter, or none. The snapshots behind the present one are not used again."""
    return replace_adaptation(state, Adaptation(state.adaptation.former, None, state.observed_at))


def remove_adapter(state: MeshState) -> MeshState:
    """Return the mesh as if it had never adapted."""
    return replace_adaptation(state, Adaptation())


def replace_adaptation(state: MeshState, adaptation: Adaptation) -> MeshState:
    """Return the mesh with another adaptation. Its filters hold latencies at usual load; they are converted from the
    present adapter's curves to the new adapter's curves."""
    node, edge = state.node_filters.copy(), state.edge_filters.copy()
    for slot in (CENTRE, SLOW_CENTRE):
        load = state.node_filters[slot, :, RATE]
        for adapter, sign in ((state.adaptation.adapter, 1), (adaptation.adapter, -1)):
            if adapter is not None:
                of_services, of_calls = load_effect(adapter, state.node_ids, state.edge_index, load)
                node[slot] += sign * of_services
                edge[slot] += sign * of_calls
    return replace(state, node_filters=node, edge_filters=edge, adaptation=adaptation)


def quiet_snapshots(state: MeshState, times: Sequence[datetime]) -> list[int]:
    """Return the positions of the snapshots that a fit can use, of all with these ``times``, oldest first."""
    alerted = {at for at, _ in state.memory.alerted_scores}
    after = state.adaptation.rolled_back_at
    quiet, since = [], AFTERMATH + 1
    for i, at in enumerate(times):
        since = 0 if at.timestamp() in alerted else since + 1
        judged = state.observed_at is not None and at <= state.observed_at
        if since > AFTERMATH and judged and (after is None or at > after):
            quiet.append(i)
    return quiet


@dataclass(frozen=True, slots=True)
class FitSample:
    """The part of a snapshot that a fit reads, on the rows of the mesh's N services; 0 for services that it does not
    have.

    Attributes:
        observed_at: its time.
        load: float32 ``[N]`` request rate, as the channel has it.
        latency: float32 ``[N, 3]``, likewise.
        observed: bool ``[N, 3]``.
        changed: rows of the services with a planned change.
    """

    observed_at: datetime
    load: Array
    latency: Array
    observed: BoolArray
    changed: list[int]


def read_latencies(snapshot: MeshSnapshot, row: Mapping[str, int], interval_seconds: float) -> FitSample:
    """Read the loads and latencies of a snapshot; ``row`` is the row of each service of the mesh."""
    rows = np.fromiter((row.get(name, -1) for name in snapshot.node_ids), np.int64, snapshot.num_nodes)
    known = rows >= 0
    values = channel_values(
        snapshot.node_features,
        snapshot.node_observed,
        snapshot.edge_features,
        snapshot.edge_observed,
        snapshot.edge_index,
        interval_seconds,
    )
    load, latency = np.zeros(len(row), np.float32), np.zeros((len(row), len(LATENCIES)), np.float32)
    observed = np.zeros(latency.shape, bool)
    load[rows[known]] = values.node[known, RATE]
    latency[rows[known]] = values.node[known][:, LATENCIES]
    seen = values.node_observed[:, LATENCIES] & values.node_observed[:, [RATE]]
    observed[rows[known]] = seen[known]
    changed = [row[change.service] for change in snapshot.changes if change.service in row]
    return FitSample(snapshot.observed_at, load, latency, observed, changed)


def find_teaching(state: MeshState, readings: Sequence[FitSample], quiet: Collection[int]) -> BoolArray:
    """Return whether each of T snapshots is used for each service, ``[T, N]``; ``quiet`` are positions of usable
    snapshots."""
    teaches = np.zeros((len(readings), len(state.node_ids)), bool)
    changed = np.full(len(state.node_ids), -CHANGING - 1)
    usable = set(quiet)
    for t, reading in enumerate(readings):
        changed[reading.changed] = t
        teaches[t] = (t - changed > CHANGING) & (t in usable)
    for service, last in state.memory.last_hidden.items():
        until = sum(reading.observed_at <= last for reading in readings)
        teaches[: until + AFTERMATH, matches((service,), state.node_ids)] = False
    return teaches


def _fit_block(
    in_use: Curves, readings: Sequence[FitSample], teaches: BoolArray, rows: slice, held_out: int
) -> tuple[Floats, Floats, Floats, Floats, Floats, IntArray]:
    """Fit the services ``rows``, each for itself. All at once would need gigabytes in a mesh of 100,000 services.

    Returns:
        Of n services: curves in use ``[n, 3, 2]``; loads ``[n, 2, 3]`` of these and of the proposed ones; proposed
        curves ``[n, 3, 2]``; squared deviations ``[n]`` of both, as in :func:`_fit_curves`; how many values they sum.
    """
    lessons = _fit_data(readings, teaches[:, rows], rows)
    present = _start_curves(Curves(in_use.load[rows], in_use.curve[rows]), lessons)
    proposed, before, after = _fit_curves(lessons, present, held_out)
    load = np.stack([present.load, _widen_load(lessons, present.load)], axis=1)
    return present.curve, load, proposed, before, after, lessons.known[held_out:].sum(axis=(0, 2))


def _fit_data(readings: Sequence[FitSample], teaches: BoolArray, rows: slice) -> FitData:
    """Return the values of the services ``rows``; ``teaches`` is of these."""
    load = np.array([reading.load[rows] for reading in readings], np.float64)
    latency = np.array([reading.latency[rows] for reading in readings], np.float64)
    observed = np.array([reading.observed[rows] for reading in readings])
    usual = np.array([np.median(load[of, n]) if of.any() else 0.0 for n, of in enumerate(teaches.T)])
    return FitData(load, latency, teaches & (np.abs(load - usual) < OUTLIER), observed)


def _curves_in_use(state: MeshState) -> Curves:
    """Return the curves of the adapter in use, of all N services: no load (NaN) and a flat curve for those without
    one."""
    load = np.full((len(state.node_ids), 3), np.nan)
    curve = np.zeros((len(state.node_ids), len(LATENCIES), 2))
    if (adapter := state.adaptation.adapter) is not None:
        place, rows = rows_of(adapter, state.node_ids)
        load[rows], curve[rows] = adapter.load[place], adapter.curve[place]
    return Curves(load, curve)


def _start_curves(in_use: Curves, lessons: FitData) -> Curves:
    """Return the curves in use of some services; flat ones around the usual load for services without one."""
    load = in_use.load.copy()
    for n in np.flatnonzero(np.isnan(load[:, USUAL])):
        seen = lessons.load[lessons.teaches[:, n], n]
        load[n] = np.median(seen) if len(seen) else 0.0
    return Curves(load, in_use.curve)


def _fit_curves(lessons: FitData, present: Curves, test: int) -> tuple[Floats, Floats, Floats]:
    """Fit curves to the snapshots before number ``test``.

    Returns:
        The curves ``[N, 3, 2]``, and the squared deviations ``[N]`` in sigmas, summed over the snapshots from ``test``
        on, of the present curves and of the fitted ones.
    """
    u = lessons.load - present.load[:, USUAL]
    shape = np.stack([u, np.maximum(u, 0) ** 2], axis=-1)[:, :, None]  # [T, N, 1, 2]
    known = lessons.known
    table = np.concatenate([np.broadcast_to(shape, (*known.shape, 2)), lessons.latency[..., None]], axis=-1)
    table = detrend(table, lessons.teaches, known)
    x, y, old, new = table[..., :2], table[..., 2], known[:test], known[test:]
    curve = present.curve
    for _ in range(ROUNDS):  # the first spread also contains the relation
        residual = y[:test] - np.einsum("tnci,nci->tnc", x[:test], curve)
        sigma = _spread(residual, old)
        believed = np.einsum("tnci,nci->tnc", x[:test], curve - present.curve)
        believed = (believed + np.clip(residual, -CUT * sigma, CUT * sigma)) / sigma**2 * old
        gram = np.einsum("tnci,tncj,tnc->ncij", x[:test], x[:test], old / sigma**2) + PRECISION * np.eye(2)
        curve = _convex_fit(present.curve, gram, np.einsum("tnci,tnc->nci", x[:test], believed))

    def loss(of: Floats) -> Floats:
        deviation = (y[test:] - np.einsum("tnci,nci->tnc", x[test:], of)) / sigma
        lost: Floats = (np.minimum(deviation**2, CUT**2) * new).sum(axis=(0, 2))
        return lost

    return curve, loss(present.curve), loss(curve)


def _convex_fit(start: Floats, gram: Floats, moment: Floats) -> Floats:
    """Return the ridge's solution if it bends up, else the best straight line; never falling, never too steep."""
    free = start + np.linalg.solve(gram, moment[..., None])[..., 0]
    # With the bend fixed at 0, the slope is optimal again.
    straight = (
        start[..., SLOPE] + (moment[..., SLOPE] + gram[..., SLOPE, BEND] * start[..., BEND]) / gram[..., SLOPE, SLOPE]
    )
    bent = free[..., BEND] > 0
    curve = np.stack([np.where(bent, free[..., SLOPE], straight), np.where(bent, free[..., BEND], 0)], axis=-1)
    clipped: Floats = np.clip(curve, 0, STEEPEST)
    return clipped


def detrend(table: Floats, teaches: BoolArray, known: BoolArray) -> Floats:
    """Subtract the running mean from each series; the mean restarts after a row that is not used. 0 where unknown.

    Load and latency pass through the same filter, so a linear relation between them is preserved, and levels and slow
    drifts (a leak) disappear.

    Args:
        table: ``[T, N, C, K]``.
        teaches: ``[T, N]``.
        known: ``[T, N, C]``; a missing value leaves the mean unchanged.
    """
    out, mean, seen = np.zeros_like(table), np.zeros_like(table[0]), np.zeros(known.shape[1:])
    for t in range(len(table)):
        seen = np.where(teaches[t, :, None], seen, 0) + known[t]
        step = np.where(known[t, ..., None], table[t] - mean, 0)
        out[t] = np.where((seen > 1)[..., None], step, 0)
        mean = mean + step * np.maximum(FAST, 1 / np.maximum(seen, 1))[..., None]
    return out


def _spread(residual: Floats, known: BoolArray) -> Floats:
    """Return one sigma ``[N, 3]`` by the median absolute deviation, with a floor."""
    magnitude = np.where(known, np.abs(residual), np.inf)
    magnitude.sort(axis=0)
    middle = np.take_along_axis(magnitude, (known.sum(axis=0) // 2).clip(0, len(known) - 1)[None], axis=0)[0]
    spread: Floats = 1.4826 * np.where(np.isfinite(middle), middle, 0) + NOISE_FLOOR
    return spread


def _widen_load(lessons: FitData, present: Floats) -> Floats:
    """Return the load range ``[N, 3]``: usual load as before, lowest and highest extended to the load seen."""
    least = np.where(lessons.teaches, lessons.load, np.inf).min(axis=0)
    most = np.where(lessons.teaches, lessons.load, -np.inf).max(axis=0)
    return np.stack(
        [present[:, USUAL], np.minimum(present[:, LEAST], least), np.maximum(present[:, MOST], most)], axis=1
    )


def _rising_rows(load: Floats, curve: Floats) -> IntArray:
    """Return the rows of the services whose latency rises enough over the loads seen, in ascending order."""
    below, above = load[:, LEAST] - load[:, USUAL], load[:, MOST] - load[:, USUAL]
    rise = (curve[..., SLOPE] * (above - below)[:, None] + curve[..., BEND] * (above**2)[:, None]).max(axis=1)
    rows: IntArray = np.flatnonzero(rise > LEAST_RISE)
    return rows
