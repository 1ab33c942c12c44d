"""The mesh as a whole against its own recent past: its reconstruction loss, and the drift of its embeddings.

Both are numbers of a whole snapshot, so many small deviations at once add up in them. The loss is L_recon of
:mod:`model.scoring.reconstruction`. The drift is the distance of the mean embedding from its mean over the window, in
standard deviations of each dimension:

    drift = sqrt(mean over d of (m_d - mean_d)^2 / variance_d)

Mean and variance are exponential ones over ``WINDOW`` snapshots. What is usual is a percentile of the mesh's own
history after its warm-up. Alerts are no part of it, so that a fault does not become usual by lasting. A level that has
lasted for ``LONGEST_SECONDS`` without an alert is the mesh's new one, and its history starts again.
"""

from dataclasses import dataclass, replace
from datetime import datetime

import numpy as np

from model.features import Array
from model.incidents.policy import AlertPolicy
from model.scoring.verdict_context import VerdictContext
from model.verdict import Reconstruction

KEPT = 480  # snapshots of the history: two hours at 15 s
LEAST = 10  # snapshots of it from which a percentile is known
WINDOW = 120  # snapshots over which the embedding is averaged
LONGEST_SECONDS = 3600.0  # above the percentile, after which the level is the mesh's own
USUAL_DRIFT = 1.0  # by its definition, on average
LEAST_DEVIATION = 1e-4  # of a dimension of the mean embedding


@dataclass(frozen=True, slots=True)
class ReconstructionHistory:
    """What is remembered about the mesh as a whole, of snapshots without alerts.

    Attributes:
        model: digest of the weights. Other weights have other losses and embeddings, so they start a new history.
        times: of the snapshots (Unix, s), oldest first; at most ``KEPT``.
        losses, drifts: of these snapshots.
        mean, variance: of each dimension of the mean embedding; empty before the first snapshot.
        above: the last snapshots as bits, the newest lowest: whether they were above a percentile.
        since: first snapshot of the present run above a percentile.
    """

    model: str = ""
    times: tuple[float, ...] = ()
    losses: tuple[float, ...] = ()
    drifts: tuple[float, ...] = ()
    mean: tuple[float, ...] = ()
    variance: tuple[float, ...] = ()
    above: int = 0
    since: datetime | None = None

    def drift(self, embedding: Array) -> float | None:
        """Return the drift of a mean embedding ``[D]``; None before ``LEAST`` snapshots."""
        if len(self.times) < LEAST:
            return None
        distance = embedding - np.array(self.mean, np.float32)
        deviation = np.sqrt(np.array(self.variance, np.float32)) + np.float32(LEAST_DEVIATION)
        return float(np.sqrt(np.mean((distance / deviation) ** 2)))

    def usual(self, percentile: float) -> tuple[float, float] | None:
        """Return this percentile of losses and of drifts; None before ``LEAST`` snapshots."""
        count = len(self.times)
        if count < LEAST:
            return None
        ordered = np.sort(np.array((self.losses, self.drifts)), axis=1)  # numpy's percentile takes five times as long
        place = percentile / 100 * (count - 1)
        low = int(place)
        between = ordered[:, low] + (place - low) * (ordered[:, min(low + 1, count - 1)] - ordered[:, low])
        return float(between[0]), float(between[1])

    def learn(self, at: datetime, loss: float, drift: float | None, embedding: Array) -> "ReconstructionHistory":
        """Add a snapshot. A drift that is not known yet counts as ``USUAL_DRIFT``."""
        mean, variance = (np.array(of or (0.0,) * len(embedding), np.float32) for of in (self.mean, self.variance))
        rate = np.float32(1 / min(len(self.times) + 1, WINDOW))
        step = embedding - mean
        return replace(
            self,
            times=(*self.times, at.timestamp())[-KEPT:],
            losses=(*self.losses, loss)[-KEPT:],
            drifts=(*self.drifts, USUAL_DRIFT if drift is None else drift)[-KEPT:],
            mean=tuple((mean + rate * step).tolist()),
            variance=tuple(((1 - rate) * (variance + rate * step**2)).tolist()),
        )


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
    drift, usual = history.drift(embedding), history.usual(policy.percentile)
    is_above = usual is not None and (loss > usual[0] or (drift is not None and drift > usual[1]))
    above = (history.above << 1 | is_above) & ((1 << policy.confirm_of) - 1)
    since = (history.since or when.observed_at) if above else None
    exceeded = above.bit_count() >= policy.confirm
    if since is not None and (when.observed_at - since).total_seconds() > LONGEST_SECONDS and not alerted:
        history, above, since = ReconstructionHistory(history.model), 0, None
    history = replace(history, above=above, since=since)
    # The first snapshots of a mesh have no past, and so other losses.
    if when.learned > policy.warm_up and not alerted and not (exceeded and history.times):
        history = history.learn(when.observed_at, loss, drift, embedding)
    loss_threshold, drift_threshold = usual or (None, None)
    return Reconstruction(loss, drift, loss_threshold, drift_threshold, exceeded, since if exceeded else None), history
