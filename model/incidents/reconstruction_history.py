"""The mesh as a whole against its own recent past: its reconstruction loss, and the drift of its embeddings.

Both are numbers of a whole snapshot, so many small deviations at once add up in them. The loss is L_recon of
:mod:`model.scoring.reconstruction`. The drift is the distance of the mean embedding from its mean over the window, in
standard deviations of each dimension:

    drift = sqrt(mean over d of (m_d - mean_d)^2 / variance_d)

Mean and variance are exponential ones over ``WINDOW`` snapshots. The thresholds are a percentile of the mesh's own
history after its warm-up; before ``ENOUGH`` snapshots, which have no such percentile yet, at least three standard
deviations above the mean. The drift moves in long swings, so its threshold is ``DRIFT_MARGIN`` times as high. Both have
to be exceeded for ``LONGER`` times as long as the level of a service, because one percent of all snapshots is above a
99th percentile. Alerts and longer runs above a threshold are no part of the history, so that a fault does not become
usual by lasting. A level that has lasted for ``LONGEST_SECONDS`` without an alert is the mesh's new one, and its
history starts again.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

import numpy as np

from model.features import Array
from model.incidents.policy import AlertPolicy
from model.scoring.verdict_context import VerdictContext
from model.verdict import Reconstruction

KEPT = 480  # snapshots of the history: two hours at 15 s
LEAST, ENOUGH = 10, 100  # snapshots of it from which thresholds are known, and from which it has a 99th percentile
LONGER, DRIFT_MARGIN = 2, 1.5  # see the docstring of the module; chosen in simulated meshes
WINDOW = 120  # snapshots over which the embedding is averaged
LONGEST_SECONDS = 3600.0  # above the percentile, after which the level is the mesh's own
UNKNOWN = 0.0  # in place of the drift of the first snapshots
SHRINKAGE = 10  # snapshots: weight of the mean variance of all dimensions in the variance of each
LEAST_VARIANCE = 1e-8  # of a dimension of the mean embedding


@dataclass(frozen=True, slots=True)
class ReconstructionHistory:
    """What is remembered about the mesh as a whole, of snapshots without alerts.

    Attributes:
        model: digest of the weights. Other weights have other losses and embeddings, so they start a new history.
        times: of the snapshots (Unix, s), oldest first; at most ``KEPT``.
        losses, drifts: of these snapshots; the drift of the first ones is ``UNKNOWN``.
        moments: float32 ``[2, D]``, mean and variance of each dimension of the mean embedding; D is 0 before the first
            snapshot.
        pending: the newest of these snapshots that are above a threshold; they count if their run stays short.
        above: the last snapshots as bits, the newest lowest: whether they were above a threshold.
        since: first snapshot of the present run above a threshold.
    """

    model: str = ""
    times: tuple[float, ...] = ()
    losses: tuple[float, ...] = ()
    drifts: tuple[float, ...] = ()
    moments: Array = field(default_factory=lambda: np.zeros((2, 0), np.float32), compare=False)
    pending: int = 0
    above: int = 0
    since: datetime | None = None

    def drift(self, embedding: Array) -> float | None:
        """Return the drift of a mean embedding ``[D]``; None before ``LEAST`` snapshots."""
        if len(self.times) < LEAST:
            return None
        mean, variance = self.moments
        count = min(len(self.times), WINDOW)
        # Of few snapshots, the variance of some dimensions is far too small by chance.
        variance = (count * variance + SHRINKAGE * variance.mean()) / (count + SHRINKAGE) + np.float32(LEAST_VARIANCE)
        distance = embedding - mean
        return float(np.sqrt((distance * distance / variance).mean()))

    def thresholds(self, percentile: float) -> tuple[float | None, float | None]:
        """Return the thresholds of loss and drift for this percentile; None before ``LEAST`` of them."""
        count = len(self.times) - self.pending
        drift = _high(tuple(drift for drift in self.drifts[:count] if drift), percentile)
        return _high(self.losses[:count], percentile), drift and DRIFT_MARGIN * drift

    def learn(
        self, at: datetime, loss: float, drift: float | None, embedding: Array, *, is_above: bool, longest: int
    ) -> "ReconstructionHistory":
        """Add a snapshot, and leave out a run above a threshold that becomes ``longest`` snapshots long."""
        if is_above and self.pending + 1 >= longest:
            kept = len(self.times) - self.pending
            return replace(
                self, times=self.times[:kept], losses=self.losses[:kept], drifts=self.drifts[:kept], pending=0
            )
        return replace(
            self,
            times=(*self.times, at.timestamp())[-KEPT:],
            losses=(*self.losses, loss)[-KEPT:],
            drifts=(*self.drifts, UNKNOWN if drift is None else drift)[-KEPT:],
            moments=self.moments if is_above else self._move_moments(embedding),
            pending=self.pending + 1 if is_above else 0,
        )

    def _move_moments(self, embedding: Array) -> Array:
        if not self.moments.size:
            return np.stack([embedding, np.zeros_like(embedding)])
        mean, variance = self.moments
        rate = np.float32(1 / min(len(self.times) + 1, WINDOW))
        step = embedding - mean
        return np.stack([mean + rate * step, (1 - rate) * (variance + rate * step * step)])


def _high(values: Sequence[float], percentile: float) -> float | None:
    """Return this percentile, and of few values at least three standard deviations above their mean; None of fewer
    than ``LEAST``."""
    count = len(values)
    if count < LEAST:
        return None
    ordered = np.sort(values)  # numpy's percentile takes five times as long
    place = percentile / 100 * (count - 1)
    low = int(place)
    high = ordered[low] + (place - low) * (ordered[min(low + 1, count - 1)] - ordered[low])
    return float(high if count >= ENOUGH else max(high, ordered.mean() + 3 * ordered.std()))


def follow_reconstruction(
    history: ReconstructionHistory,
    loss: float,
    embedding: Array,
    policy: AlertPolicy,
    when: VerdictContext,
    *,
    alerted: bool,
) -> tuple[Reconstruction, ReconstructionHistory]:
    """Compare the mesh as a whole with its history, and learn from it.

    Args:
        history: before the snapshot, of the same weights.
        loss: L_recon.
        embedding: mean embedding, float32 ``[D]``.
        policy: with the percentile, and in how many snapshots it has to be exceeded.
        when: time and interval.
        alerted: whether an alert is open, of which nothing is learned.

    Returns:
        The comparison, and the history after the snapshot.
    """
    policy = policy.at_interval(when.interval_seconds)
    drift, thresholds = history.drift(embedding), history.thresholds(policy.percentile)
    is_above = any(
        value is not None and threshold is not None and value > threshold
        for value, threshold in zip((loss, drift), thresholds, strict=True)
    )
    longest = LONGER * policy.confirm
    above = (history.above << 1 | is_above) & ((1 << LONGER * policy.confirm_of) - 1)
    since = (history.since or when.observed_at) if above else None
    exceeded = above.bit_count() >= longest
    found = Reconstruction(loss, drift, *thresholds, exceeded, since if exceeded else None)
    if alerted or when.learned <= policy.warm_up:  # the first snapshots of a mesh have no past, and so other losses
        return found, replace(history, above=above, since=since)
    if exceeded and since is not None and (when.observed_at - since).total_seconds() > LONGEST_SECONDS:
        return found, ReconstructionHistory(history.model)
    if not is_above or not exceeded or history.pending:
        history = history.learn(when.observed_at, loss, drift, embedding, is_above=is_above, longest=longest)
    return found, replace(history, above=above, since=since)
