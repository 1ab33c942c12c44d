"""The metrics of the service: name, meaning and labels of each.

With Ray, each replica counts through ``ray.serve.metrics`` (``runtime/instruments.py``); Ray exports the metrics as
``ray_tagae_*`` with labels for application, deployment and replica. Without Ray, and at the ingress's ``/metrics``,
``prometheus_client`` uses the same names. The gauges of meshes are computed from the stored verdicts at each scrape, so
that all replicas give the same values, and a deleted mesh disappears.
"""

from dataclasses import KW_ONLY, dataclass
from datetime import datetime
from enum import StrEnum
from http import HTTPStatus
from typing import Annotated, Protocol

from model.verdict import Status

# From one stage of a small mesh up to the default deadline.
SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)


@dataclass(frozen=True, slots=True)
class Metric:
    """A histogram if it has ``buckets``, a ``gauge``, or a counter. Names follow Prometheus' conventions."""

    name: str
    description: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    gauge: bool = False

    @property
    def is_counter(self) -> bool:
        return not self.buckets and not self.gauge


PREDICTIONS = Metric("tagae_predictions_total", "Verdicts made, by status and weights.", ("model_version", "status"))
CONFIDENCE = Metric(
    "tagae_prediction_confidence_ratio",
    "Probability of each verdict's status: of an incident if the mesh is anomalous, of none if it is normal.",
    ("model_version",),
    (0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 1.0),
)
PARTS_SCORED = Metric("tagae_parts_scored_total", "Partitions scored, by the replica that scored them.", ("scorer",))
PARTS_MISSING = Metric("tagae_parts_missing_total", "Partitions that were not scored in time.")
INFERENCE = Metric(
    "tagae_inference_duration_seconds",
    "Duration of one network pass over a batch of partitions.",
    ("model_version",),
    SECONDS,
)
# Counters, not histograms: Ray exports the middle of a bucket as a histogram's sum.
NEIGHBOURS_FETCHED = Metric(
    "tagae_neighbours_fetched_total", "Callers and callees that services attend to in network passes."
)
NEIGHBOURS_RECOMPUTED = Metric(
    "tagae_neighbours_recomputed_total",
    "Shared services in network passes: they belong to other parts, and are computed there too.",
)
BATCHES = Metric("tagae_batches_total", "Batches that a scoring replica scored.")
BATCH_GROUPS = Metric("tagae_batch_groups_total", "Groups of partitions in these batches.")
BATCH_WAIT = Metric("tagae_batch_wait_seconds", "Time that a group of partitions waited for its pass.", buckets=SECONDS)
GROUPS_WAITING = Metric(
    "tagae_groups_waiting", "Groups of partitions that wait for their pass, by scoring replica.", gauge=True
)
GROUPS_REFUSED = Metric(
    "tagae_groups_refused_total",
    "Groups of partitions that a scoring replica refused, since they could not be scored by their deadline.",
)
STAGE = Metric("tagae_stage_seconds", "Duration of each stage from snapshot to verdict.", ("stage",), SECONDS)
STAGE_TIME = Metric("tagae_stage_time_seconds_total", "Time in each stage of the session.", ("stage",))
REFUSALS = Metric("tagae_refusals_total", "Requests answered with an error, by code of the problem.", ("code",))
SNAPSHOTS_DROPPED = Metric(
    "tagae_snapshots_dropped_total",
    "Snapshots without a verdict because the service was too busy, by reason: overload (429), deadline (504).",
    ("reason",),
)
REQUESTS = Metric(
    "tagae_requests_total",
    "Requests by kind (push: a snapshot or metrics; other) and outcome: served; failed (5xx); shed (429); client "
    "(another 4xx); abandoned (the client left).",
    ("kind", "outcome"),
)
FAILED_LOGINS = Metric(
    "tagae_failed_logins_total",
    "Requests with a wrong token, by reason: malformed, unknown, expired.",
    ("reason",),
)
RETRIES = Metric("tagae_retries_total", "Calls repeated because a replica died, by deployment.", ("callee",))
NOTIFICATIONS_SENT = Metric(
    "tagae_notifications_sent_total",
    "Alerts and events acknowledged, by receiver: alertmanager, grafana, pagerduty, slack, webhook.",
    ("receiver",),
)
NOTIFICATIONS_FAILED = Metric(
    "tagae_notifications_failed_total",
    "Failed attempts to send notifications, by receiver (as above; state: their state in the store) and reason: "
    "unreachable, late, broken, overloaded, failed, forbidden, refused, secret, unwritable.",
    ("receiver", "reason"),
)
NOTIFICATIONS_DROPPED = Metric(
    "tagae_notifications_dropped_total",
    "Alerts and events dropped, by receiver and reason: refused, set_aside (the receiver fails, but takes "
    "others), expired, full.",
    ("receiver", "reason"),
)
NOTIFICATIONS_WAITING = Metric(
    "tagae_notifications_waiting", "Alerts and events not acknowledged yet, by receiver.", ("receiver",), gauge=True
)
RECEIVER_FAILING = Metric(
    "tagae_receiver_failing",
    "1 while a receiver takes no notifications: its newest one, or the newest check, failed.",
    ("receiver", "name"),
    gauge=True,
)
STORE_GONE = Metric(
    "tagae_store_gone",
    "1 while the state store is unavailable (no files, no answer), so that nothing can be read or stored.",
    gauge=True,
)
MESHES_FOUND = Metric(
    "tagae_session_lookups_total",
    "Snapshots by where their mesh was: hit (in the memory of the session), miss (read from the store, or new).",
    ("outcome",),
)
MESHES_EVICTED = Metric(
    "tagae_session_evictions_total", "Meshes dropped from the memory of a session, to make room for others."
)
MESH_LOAD = Metric("tagae_session_load_seconds", "Duration of reading a mesh from the store.", buckets=SECONDS)
MESHES_HELD = Metric("tagae_session_meshes", "Meshes in the memory of a session.", gauge=True)
MESHES_HELD_BYTES = Metric("tagae_session_memory_bytes", "Memory of the meshes that a session holds.", gauge=True)
SPANS_DROPPED = Metric(
    "tagae_spans_dropped_total",
    "Spans that were not exported, by reason: full (too many wait), failed (the collector did not take them).",
    ("reason",),
)
WEIGHTS = Metric(
    "tagae_weights",
    "Different weights that meshes may use: the default weights and the weights of single meshes.",
    gauge=True,
)
MODEL_LOADS = Metric(
    "tagae_model_loads_total", "Loads of weights from the registry, by outcome: loaded, failed.", ("outcome",)
)
MODEL_MEMORY = Metric(
    "tagae_model_memory_bytes", "Memory of the weights from the registry that a process holds.", gauge=True
)
SHADOWED = Metric(
    "tagae_shadow_snapshots_total",
    "Snapshots of a trial for the other model, by outcome: scored, left_out (no time to spare), failed.",
    ("outcome",),
)
MODEL_CHANGES = Metric(
    "tagae_model_changes_total",
    "Changes of the models in use, by action (canary, promote, confirm, rollback) and by whom: person, rule.",
    ("action", "by"),
)
GPU_MEMORY_PEAK = Metric(
    "tagae_gpu_memory_peak_bytes",
    "Peak memory of a scorer's tensors on its GPU since it started.",
    ("device",),
    gauge=True,
)
GPU_MEMORY_RESERVED = Metric(
    "tagae_gpu_memory_reserved_bytes",
    "Memory of the GPU that a scorer holds, in use or kept for later.",
    ("device",),
    gauge=True,
)
GPU_MEMORY_FRAGMENTED = Metric(
    "tagae_gpu_memory_fragmented_ratio",
    "Share of the reserved memory that lies unused between tensors.",
    ("device",),
    gauge=True,
)
GPU_UNUSED = Metric(
    "tagae_gpu_unused",
    "1 while a process that should score on a GPU scores on the CPU, by reason: torch, driver, no_gpu, check, memory.",
    ("reason",),
    gauge=True,
)
GPU_FALLBACKS = Metric(
    "tagae_gpu_fallbacks_total",
    "Groups of parts that were scored on the CPU because the GPU failed, by reason: memory, error.",
    ("reason",),
)
METRICS = tuple(metric for metric in list(globals().values()) if isinstance(metric, Metric))


class Outcome(StrEnum):
    """A request's outcome, as gates and collectors count it: a label of ``REQUESTS``."""

    SERVED = "served"
    FAILED = "failed"  # through the service: 5xx, or an answer that broke off
    SHED = "shed"  # 429: refused because of overload
    CLIENT = "client"  # another 4xx, the client's own error
    ABANDONED = "abandoned"  # the client left before the answer


def outcome_of(status: int) -> Outcome:
    """The outcome of a request that was answered with this HTTP status."""
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        return Outcome.SHED
    if status >= 500:
        return Outcome.FAILED
    return Outcome.CLIENT if status >= 400 else Outcome.SERVED


class Instruments(Protocol):
    """Records measurements."""

    def count(self, metric: Metric, amount: float = 1.0, **labels: str) -> None:
        """Add to a counter."""

    def observe(self, metric: Metric, value: float, **labels: str) -> None:
        """Add one value to a histogram."""

    def set(self, metric: Metric, value: float, **labels: str) -> None:
        """Set a gauge."""


@dataclass(frozen=True, slots=True)
class DriftGauges:
    """How far a mesh has drifted.

    Attributes:
        ratios: distance of each measure in ``model.drift.measures.MEASURES`` over its limit; None: unknown.
    """

    drifting: int
    ratios: tuple[float | None, ...]


def _gauge(name: str, description: str) -> Metric:
    return Metric(f"tagae_mesh_{name}", description, ("mesh",), gauge=True)


@dataclass(frozen=True, slots=True)
class MeshGauges:
    """The state of one stored mesh at its newest verdict, with the gauges that show it; None: unknown.

    Attributes:
        made_at: when the verdict was made, Unix time.
        recovering: number of open incidents, without notices, whose services are back to normal.
        hidden: number of muted services that would be part of an incident.
        interval_seconds: measured time between snapshots, s.
        unseen: number of open incidents, without notices, whose first suspect sends no telemetry.
        drift: how far it has drifted; None if unknown.
        teams: of the open incidents, without notices.
    """

    mesh: str
    services: Annotated[int, _gauge("services", "Services in the newest snapshot.")] = 0
    sequence: Annotated[int, _gauge("sequence", "Snapshots counted.")] = 0
    observed_at: Annotated[datetime | None, _gauge("observed_timestamp_seconds", "Time of the newest snapshot.")] = None
    status: str = Status.WARMING_UP.value
    _: KW_ONLY
    score: Annotated[float | None, _gauge("score", "Strongest evidence, in decades of improbability.")] = None
    threshold: Annotated[float | None, _gauge("threshold", "Score that opens an alert.")] = None
    probability: Annotated[
        float | None, _gauge("incident_probability", "Probability that an incident is in progress.")
    ] = None
    incidents: Annotated[int, _gauge("incidents", "Open incidents, without notices.")] = 0
    notices: Annotated[int, _gauge("notices", "Open notices: resources that are running out.")] = 0
    mutes: Annotated[int, _gauge("mutes", "Mutes in force.")] = 0
    silent: Annotated[int, _gauge("silent_services", "Services whose telemetry is missing.")] = 0
    reconstruction_loss: Annotated[
        float | None, _gauge("reconstruction_loss", "Reconstruction loss of the mesh as a whole, 0 to 1.")
    ] = None
    loss_threshold: Annotated[
        float | None,
        _gauge(
            "reconstruction_loss_threshold", "Percentile of the reconstruction loss over history without incidents."
        ),
    ] = None
    embedding_displacement: Annotated[
        float | None,
        _gauge(
            "embedding_drift", "Distance of the mean embedding from its mean over the window, in standard deviations."
        ),
    ] = None
    displacement_threshold: Annotated[
        float | None,
        _gauge(
            "embedding_drift_threshold",
            "1.5 times the percentile of the embedding displacement over history without incidents.",
        ),
    ] = None
    exceeded: Annotated[
        bool | None,
        _gauge(
            "reconstruction_exceeded",
            "1 while loss or displacement is above its threshold in most of the last snapshots, else 0.",
        ),
    ] = None
    made_at: float | None = None
    recovering: int = 0
    hidden: int = 0
    coverage: float = 1.0
    interval_seconds: float | None = None
    unseen: int = 0
    drift: DriftGauges | None = None
    teams: tuple[str, ...] = ()
