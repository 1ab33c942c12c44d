"""The interfaces of snapshot sources, the result of a poll, and the interface of sessions, which get the snapshots."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Literal, Protocol

from model.snapshot import MeshSnapshot
from serve_app.plugins import O, Plugin
from serve_app.settings import CollectorSettings

if TYPE_CHECKING:  # sources of other packages need none of these
    from model.verdict import ClusterEvent
    from serve_app.collect.prometheus.client import QueryAnswer
    from serve_app.collect.prometheus.frames import DroppedSeries
    from serve_app.collect.prometheus.pods import PodCoverage
    from serve_app.collect.prometheus.survey import Survey

Role = tuple[str, str]  # identifies a query or another source request: its subject, and the value that it asks for


Outcome = Literal["ok", "warning", "problem"]


@dataclass(frozen=True, slots=True)
class Finding:
    """A finding about a mesh or an installation, as the doctor, the log and the page show it.

    Attributes:
        subject: the checked part, such as ``store``.
        outcome: a ``problem`` keeps the service from working as configured, a ``warning`` does not.
        remedy: the cost and the cure; empty if all is well.
        toml: the lines of `tagae.toml` that fix it; empty if no setting does.
    """

    subject: str
    outcome: Outcome
    found: str
    remedy: str = ""
    toml: str = ""

    def __str__(self) -> str:
        return f"{self.found}; {self.remedy}" if self.remedy else self.found


@dataclass(frozen=True, slots=True)
class Poll:
    """The result of polling one instant.

    Attributes:
        snapshot: None if services or calls are unknown and no recent values can stand in.
        stale_seconds: age of the values that stand in for a failed query.
        masked: failed queries without recent values; their metrics are not observed in the snapshot.
        why: why there is no snapshot; with a snapshot, the remarks.
        ignored_annotations: descriptions of invalid annotations.
        unmapped_queues: queues that belong to no service of the mesh.
        recorded: whether recording rules were read.
        arrival: how the series arrive and where they come from.
        behind_seconds: how old the newest snapshot should be, because data arrive late; 0: as in the settings.
        survey: what ``arrival`` says in words; None: unknown.
        pods: which pods belong to which services; None: unknown.
        dropped: series that name no service, by query.
        folded: names in labels that are not services, with their kind: ``addresses``, ``hashes`` or ``pods``.
    """

    at: datetime
    snapshot: MeshSnapshot | None
    answers: Mapping[Role, "QueryAnswer"]
    stale_seconds: Mapping[Role, float] = field(default_factory=dict)
    masked: tuple[Role, ...] = ()
    why: str = ""
    ignored_annotations: tuple[str, ...] = ()
    unmapped_queues: tuple[str, ...] = ()
    recorded: bool = False
    arrival: tuple[Finding, ...] = ()
    behind_seconds: float = 0.0
    survey: "Survey | None" = None
    pods: "PodCoverage | None" = None
    dropped: Mapping[Role, "DroppedSeries"] = field(default_factory=dict)
    folded: Mapping[str, str] = field(default_factory=dict)

    @property
    def remarks(self) -> tuple[Finding, ...]:
        """The unusual findings about the series."""
        return tuple(finding for finding in self.arrival if finding.outcome != "ok")

    @property
    def failures(self) -> dict[Role, "QueryAnswer"]:
        return {role: answer for role, answer in self.answers.items() if answer.failed}


class PollSource(Protocol):
    """A source that can be polled for any instant. Polling may block."""

    def poll(self, at: datetime) -> Poll: ...


class SnapshotSource(Protocol):
    """A source that yields one mesh's snapshots in time order. It needs one property and one generator."""

    @property
    def interval_seconds(self) -> float:
        """Expected time between two snapshots, s."""

    def snapshots(self) -> Iterator[MeshSnapshot]:
        """Yield the snapshots, oldest first; may never end. Each is created on demand and not stored."""


class LiveSource(Protocol):
    """The source of a live mesh, which a package provides to read something other than Prometheus. It needs two methods
    and no thread, clock or retries: the collector decides which instants are due, and asks again after a failure.

    Cost of each method: ``snapshot_at`` is called once an interval for each mesh, and up to
    ``collector.catch_up_snapshots`` times in a row after an outage. It runs in a thread of its own and may block, but
    only for ``collector.deadline_seconds``: the next instant waits for it. ``close`` is called once.
    """

    def snapshot_at(self, at: datetime) -> MeshSnapshot | None:
        """Return the mesh at an instant, UTC, with ``observed_at`` equal to it. Instants come in order; the same
        instant may come again, and then has the same content.

        Returns:
            None: the mesh has no services at this instant, and will not get any for it.

        Raises:
            Exception: the snapshot is not available now. People read the text, and the same time is requested again.
        """

    def close(self) -> None:
        """Release files and connections."""


@dataclass(frozen=True, kw_only=True)
class SourcePlugin(Plugin[O]):
    """A source that settings can choose, provided by a package as an entry point of ``tagae.sources``."""

    open: Callable[[O, CollectorSettings], LiveSource]  # all meshes share one interval and deadline


@dataclass(frozen=True, slots=True)
class Resume:
    """Where a mesh's collector continues.

    Attributes:
        at: Unix time of the newest snapshot with a verdict; None: there is none.
        reads_past: whether to read a new mesh's past, or the rest of it. A mesh whose state was damaged is watched
            again at once, since people may be waiting for an incident to end.
    """

    at: float | None
    reads_past: bool


class Sessions(Protocol):
    """The sessions that own meshes. Each method raises the service's error if it refuses, or does not answer."""

    async def push(self, mesh: str, snapshot: MeshSnapshot, events: "tuple[ClusterEvent, ...]") -> None:
        """Push a live snapshot, with the Events about its services."""

    async def replay(self, mesh: str, snapshot: MeshSnapshot) -> None:
        """Push a snapshot of the past."""

    async def resume(self, mesh: str) -> Resume:
        """Where to continue with a mesh. Waits until it is known."""

    async def connections(self) -> dict[str, str]:
        """Prometheus URL by mesh, of the meshes that were connected on the page."""
