"""What the service tells Prometheus: every metric's name, meaning and labels, in this one place.

With Ray each replica counts through ``ray.serve.metrics`` (``deployments/instruments.py``); Ray exports them as
``ray_tagae_*`` with labels for application, deployment and replica. Without Ray, and on the ingress's ``/metrics``,
``prometheus_client`` carries the same names. The meshes' gauges are made from the stored verdicts at each scrape, so
that they are the same whichever replica answers and do not linger after a mesh is deleted.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

# From a small mesh's stage to the default deadline.
SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)


@dataclass(frozen=True, slots=True)
class Metric:
    """A counter, a histogram where it has ``buckets``, or a ``gauge``; names follow Prometheus' conventions."""

    name: str
    description: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    gauge: bool = False

    @property
    def counts(self) -> bool:
        """Whether it is a counter."""
        return not self.buckets and not self.gauge


PREDICTIONS = Metric("tagae_predictions_total", "Verdicts made, by status and weights.", ("model_version", "status"))
PARTS_SCORED = Metric("tagae_parts_scored_total", "Partitions scored, by the Scorer replica that did it.", ("scorer",))
PARTS_MISSING = Metric("tagae_parts_missing_total", "Partitions without an answer in time.")
INFERENCE = Metric(
    "tagae_inference_duration_seconds",
    "One pass of the network over a batch of partitions.",
    ("model_version",),
    SECONDS,
)
STAGE = Metric("tagae_stage_seconds", "One stage of one snapshot's way to its verdict.", ("stage",), SECONDS)
REFUSALS = Metric("tagae_refusals_total", "Requests answered with an error, by the problem's code.", ("code",))
FAILED_LOGINS = Metric(
    "tagae_failed_logins_total",
    "Requests with a wrong token, by reason: malformed, unknown, expired.",
    ("reason",),
)
RETRIES = Metric("tagae_retries_total", "Calls repeated since a replica died, by its deployment.", ("callee",))
ADAPTERS = Metric(
    "tagae_adapters_total",
    "Fits of meshes' adapters, by outcome: adopt, refused (no better than the one in use), too_early (too few quiet "
    "snapshots), failed; and rolled_back.",
    ("outcome",),
)
NOTICES_SENT = Metric(
    "tagae_notices_sent_total", "Alerts and events acknowledged, by receiver: alertmanager, webhook.", ("receiver",)
)
NOTICES_FAILED = Metric(
    "tagae_notices_failed_total",
    "Attempts to tell people that failed, by receiver (alertmanager, webhook; state: the file of what was told) and "
    "reason: unreachable, late, broken, overloaded, failed, forbidden, refused, secret, unwritable.",
    ("receiver", "reason"),
)
NOTICES_DROPPED = Metric(
    "tagae_notices_dropped_total",
    "Alerts and events given up, by receiver and reason: invalid, refused, expired, full.",
    ("receiver", "reason"),
)
NOTICES_WAITING = Metric(
    "tagae_notices_waiting", "Alerts and events not acknowledged yet, by receiver.", ("receiver",), gauge=True
)
STORE_GONE = Metric(
    "tagae_store_gone", "1 while the files of the state store are gone, so that nothing is read or kept.", gauge=True
)
NOTICES = (NOTICES_SENT, NOTICES_FAILED, NOTICES_DROPPED, NOTICES_WAITING)
METRICS = (
    ADAPTERS,
    RETRIES,
    PREDICTIONS,
    PARTS_SCORED,
    PARTS_MISSING,
    INFERENCE,
    STAGE,
    REFUSALS,
    STORE_GONE,
    FAILED_LOGINS,
    *NOTICES,
)


class Instruments(Protocol):
    """Where measurements go."""

    def count(self, metric: Metric, amount: float = 1.0, **labels: str) -> None:
        """Add to a counter."""

    def observe(self, metric: Metric, value: float, **labels: str) -> None:
        """Add one value to a histogram."""

    def set(self, metric: Metric, value: float, **labels: str) -> None:
        """Give a gauge its value."""


@dataclass(frozen=True, slots=True)
class MeshGauges:
    """One mesh as its newest verdict shows it; the verdict's numbers are None before the first.

    Attributes:
        mesh: its name.
        services: in the newest snapshot.
        sequence: snapshots counted.
        observed_at: of the newest snapshot.
        status: of the newest verdict; ``warming_up`` before the first.
        score, threshold, probability: of the newest verdict.
        incidents: how many are open.
        mutes: how many were in force.
    """

    mesh: str
    services: int
    sequence: int
    observed_at: datetime | None
    status: str
    score: float | None = None
    threshold: float | None = None
    probability: float | None = None
    incidents: int = 0
    mutes: int = 0
