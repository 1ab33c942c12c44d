"""The interfaces of sources of snapshots, and what the collector knows of a poll."""

from collections.abc import Callable, Iterator, Mapping, Sized
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from model.snapshot import MeshSnapshot
from serve_app.plugins import O, Plugin
from serve_app.settings import CollectorSettings

Role = tuple[str, str]  # of a query, or of another request of a source: what it is about, and what it asks for


class PolledAnswer(Protocol):
    """The result of one request."""

    @property
    def failed(self) -> str:
        """The cause of its failure in one word; empty if it succeeded."""

    @property
    def detail(self) -> str:
        """A description of the failure."""

    @property
    def seconds(self) -> float:
        """Time until the result was complete."""

    @property
    def samples(self) -> Sized:
        """What was received."""


@dataclass(frozen=True, slots=True)
class Remark:
    """A sentence about the series of a mesh.

    Attributes:
        subject: what it is about: ``scrapes``, ``newest sample``, ``lag``, ``clusters``, ``replicas``, ``jobs`` or
            ``match``.
        found: what was found.
        remedy: what it costs and what to do; empty if nothing needs to be done.
        setting: the line of `tagae.toml` that fixes it; empty if no setting does.
        is_usual: whether nothing is wrong.
    """

    subject: str
    found: str
    remedy: str = ""
    setting: str = ""
    is_usual: bool = False

    def __str__(self) -> str:
        return f"{self.found}; {self.remedy}" if self.remedy else self.found


@dataclass(frozen=True, slots=True)
class Poll:
    """The result of polling one instant.

    Attributes:
        at: the instant.
        snapshot: None if services or calls are unknown and no recent values can stand in.
        answers: result of each request.
        stale_seconds: age of the values that stand in for a failed request.
        masked: failed requests without recent values; their metrics are not observed in the snapshot.
        why: why there is no snapshot; beside a snapshot, the remarks.
        ignored_annotations: descriptions of invalid annotations.
        arrival: how the series arrive and where they come from.
        behind_seconds: how old the newest snapshot should be, because data arrive late; 0: as in the settings.
    """

    at: datetime
    snapshot: MeshSnapshot | None
    answers: Mapping[Role, PolledAnswer]
    stale_seconds: Mapping[Role, float] = field(default_factory=dict)
    masked: tuple[Role, ...] = ()
    why: str = ""
    ignored_annotations: tuple[str, ...] = ()
    arrival: tuple[Remark, ...] = ()
    behind_seconds: float = 0.0

    @property
    def remarks(self) -> tuple[Remark, ...]:
        """What is unusual about the series, for people."""
        return tuple(one for one in self.arrival if not one.is_usual)

    @property
    def failed(self) -> dict[Role, PolledAnswer]:
        """The requests that failed."""
        return {role: answer for role, answer in self.answers.items() if answer.failed}


class PollSource(Protocol):
    """A source that can be polled for any instant. Polling may block."""

    def poll(self, at: datetime) -> Poll: ...


class SnapshotSource(Protocol):
    """A source of the snapshots of one mesh, in order of time. It needs one property and one generator."""

    @property
    def interval_seconds(self) -> float:
        """Expected time between two snapshots, s."""

    def snapshots(self) -> Iterator[MeshSnapshot]:
        """Yield the snapshots, oldest first; may never end. Each is made on demand and not stored."""


class LiveSource(Protocol):
    """A source of a live mesh: what a package provides to read something else than Prometheus. It needs two methods
    and no thread, no clock and no retries: the collector decides which instants are due, and asks again after a
    failure.

    Cost of each method: ``snapshot_at`` is called once an interval for each mesh, and up to
    ``collector.catch_up_snapshots`` times in a row after an outage. It runs in a thread of its own and may block, but
    only for ``collector.deadline_seconds``: the next instant waits for it. ``close`` is called once.
    """

    def snapshot_at(self, at: datetime) -> MeshSnapshot | None:
        """The mesh at an instant, UTC, with ``observed_at`` equal to it. Instants come in order; the same instant may
        come again, and then has the same content.

        Returns:
            None: the mesh has no services at this instant, and will not get any for it.

        Raises:
            Exception: the snapshot is not available now. People read the text, and the same time is requested again.
        """

    def close(self) -> None:
        """Release files and connections."""


@dataclass(frozen=True, kw_only=True)
class SourcePlugin(Plugin[O]):
    """A source that settings can choose: what a package provides as an entry point of ``tagae.sources``.

    Attributes:
        open: opens the source of a mesh with its options. The settings of all collected meshes have the interval and
            the deadline.
    """

    open: Callable[[O, CollectorSettings], LiveSource]
