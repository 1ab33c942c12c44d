"""The mesh as a whole against its own recent past: its reconstruction loss, and the displacement of its
embeddings.

Both are numbers of a whole snapshot, so many small deviations at once add up in them. The loss is L_recon of
:mod:`model.scoring.reconstruction`. The displacement is the distance of the mean embedding from its mean over the
window, in standard deviations of each dimension:

    displacement = sqrt(mean over d of (m_d - mean_d)^2 / variance_d)

Mean and variance are exponential ones over ``WINDOW`` snapshots. The thresholds are a percentile of the mesh's own
history after its warm-up; before ``ENOUGH`` snapshots, which have no such percentile yet, at least three standard
deviations above the mean. The displacement moves in long swings, so its threshold is ``DISPLACEMENT_MARGIN`` times as
high. Both have to be exceeded for ``LONGER`` times as long as the level of a service, because one percent of all
snapshots is above a 99th percentile. Alerts and longer runs above a threshold are no part of the history, so that a
fault does not become usual by lasting. A level that has lasted for ``LONGEST_SECONDS`` without an alert is the mesh's
new one, and its history starts again.
"""

from dataclasses import dataclass, field, replace
from datetime import datetime

import numpy as np
from numpy.typing import NDArray

from model.features import Array
from model.incidents.policy import AlertPolicy, VerdictContext
from model.verdict import Reconstruction

KEPT = 480  # snapshots of the history: two hours at 15 s
MIN, ENOUGH = 10, 100  # snapshots of it from which thresholds are known, and from which it has a 99th percentile
LONGER, DISPLACEMENT_MARGIN = 2, 1.5  # see the docstring of the module; chosen in simulated meshes
WINDOW = 120  # snapshots over which the embedding is averaged
LONGEST_SECONDS = 3600.0  # above the percentile, after which the level is the mesh's own
UNKNOWN = 0.0  # in place of the first snapshots' displacement
SHRINKAGE = 10  # snapshots: weight of the dimensions' mean variance in each one's variance
MIN_VARIANCE = 1e-8  # of the mean embedding, by dimension


@dataclass(frozen=True, slots=True)
class ReconstructionHistory:
    """The history of the mesh as a whole, from snapshots without alerts.

    Attributes:
        model: digest of the weights. Other weights have other losses and embeddings, so they start a new history.
        past: float64 ``[3, T]``: times of the snapshots (Unix, s), oldest first and at most ``KEPT``, and their losses
            and displacements; the displacement of the first ones is ``UNKNOWN``.
        moments: float32 ``[2, D]``, mean and variance of the mean embedding by dimension; D is 0 before the first
            snapshot.
        pending: the newest of these snapshots that are above a threshold; they count if their run stays short.
        above: the last snapshots as bits, the newest lowest: whether they were above a threshold.
        since: first snapshot of the present run above a threshold.
    """

    model: str = ""
    past: NDArray[np.float64] = field(default_factory=lambda: np.zeros((3, 0)), compare=False)
    moments: Array = field(default_factory=lambda: np.zeros((2, 0), np.float32), compare=False)
    pending: int = 0
    above: int = 0
    since: datetime | None = None

    @property
    def snapshots(self) -> int:
        return int(self.past.shape[1])

    def displacement(self, embedding: Array) -> float | None:
        """Return the displacement of a mean embedding ``[D]``; None before ``MIN`` snapshots."""
        if self.snapshots < MIN:
            return None
        mean, variance = self.moments
        count = min(self.snapshots, WINDOW)
        # Of few snapshots, the variance of some dimensions is far too small by chance.
        variance = (count * variance + SHRINKAGE * variance.mean()) / (count + SHRINKAGE) + np.float32(MIN_VARIANCE)
        distance = embedding - mean
        return float(np.sqrt((distance * distance / variance).mean()))

    def thresholds(self, percentile: float) -> tuple[float | None, float | None]:
        """Return the thresholds of loss and displacement for this percentile; None before ``MIN`` of them."""
        _, losses, displacements = self.past[:, : self.snapshots - self.pending]
        displacement = _high(displacements[displacements != UNKNOWN], percentile)
        return _high(losses, percentile), displacement and DISPLACEMENT_MARGIN * displacement

    def learn(
        self, at: datetime, loss: float, displacement: float | None, embedding: Array, *, is_above: bool, longest: int
    ) -> "ReconstructionHistory":
        """Add a snapshot, and leave out a run above a threshold that becomes ``longest`` snapshots long."""
        if is_above and self.pending + 1 >= longest:
            return replace(self, past=self.past[:, : self.snapshots - self.pending], pending=0)
        newest = np.array([[at.timestamp()], [loss], [UNKNOWN if displacement is None else displacement]])
        return replace(
            self,
            past=np.concatenate([self.past, newest], axis=1)[:, -KEPT:],
            moments=self.moments if is_above else self._move_moments(embedding),
            pending=self.pending + 1 if is_above else 0,
        )

    def _move_moments(self, embedding: Array) -> Array:
        if not self.moments.size:
            return np.stack([embedding, np.zeros_like(embedding)])
        mean, variance = self.moments
        rate = np.float32(1 / min(self.snapshots + 1, WINDOW))
        step = embedding - mean
        return np.stack([mean + rate * step, (1 - rate) * (variance + rate * step * step)])


def _high(values: NDArray[np.float64], percentile: float) -> float | None:
    """Return this percentile, and of few values at least three standard deviations above their mean; None of fewer
    than ``MIN``."""
    count = len(values)
    if count < MIN:
        return None
    sorted_values = np.sort(values)  # numpy's percentile takes five times as long
    place = percentile / 100 * (count - 1)
    low = int(place)
    high = sorted_values[low] + (place - low) * (sorted_values[min(low + 1, count - 1)] - sorted_values[low])
    return float(high if count >= ENOUGH else max(high, sorted_values.mean() + 3 * sorted_values.std()))


def follow_reconstruction(
    history: ReconstructionHistory,
    loss: float,
    embedding: Array,
    policy: AlertPolicy,
    context: VerdictContext,
    *,
    alerted: bool,
) -> tuple[Reconstruction, ReconstructionHistory]:
    """Compare the mesh as a whole with its history, and learn from it.

    Returns:
        The comparison, and the history after the snapshot.
    """
    policy = policy.at_interval(context.interval_seconds)
    displacement, thresholds = history.displacement(embedding), history.thresholds(policy.percentile)
    is_above = any(
        value is not None and threshold is not None and value > threshold
        for value, threshold in zip((loss, displacement), thresholds, strict=True)
    )
    longest = LONGER * policy.confirm
    above = (history.above << 1 | is_above) & ((1 << LONGER * policy.confirm_of) - 1)
    since = (history.since or context.observed_at) if above else None
    exceeded = above.bit_count() >= longest
    comparison = Reconstruction(loss, displacement, *thresholds, exceeded, since if exceeded else None)
    if alerted or context.learned <= policy.warm_up:  # the first snapshots of a mesh have no past, and so other losses
        return comparison, replace(history, above=above, since=since)
    if exceeded and since is not None and (context.observed_at - since).total_seconds() > LONGEST_SECONDS:
        return comparison, ReconstructionHistory(history.model)
    if not is_above or not exceeded or history.pending:
        history = history.learn(context.observed_at, loss, displacement, embedding, is_above=is_above, longest=longest)
    return comparison, replace(history, above=above, since=since)
