"""Questions to a session. Each knows how a reader answers it, and changes nothing.

They travel from the ingress to the session that owns the mesh. The ingress needs no torch, so this file imports none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Protocol, TypeVar

from serve_app.alerts.links import Links
from serve_app.deployments.scoring.messages import ScoredMesh
from serve_app.metrics import MeshGauges
from serve_app.stores.base import IncidentFilter
from serve_app.stores.record import StoredSnapshot
from serve_app.web.formats import ReportFormat
from serve_app.web.period import Ends, PastTable, Subject, TimeRange

if TYPE_CHECKING:
    from serve_app.deployments.session.reader import Reader

A = TypeVar("A", covariant=True)


class SessionQuery(Protocol[A]):
    """A question with an answer of the type ``A``."""

    async def answer(self, reader: Reader) -> A:
        """The answer of the session with this reader."""


class MeshQuery(SessionQuery[A], Protocol[A]):
    """A question about one mesh. All of them raise ``UnknownMesh`` if there is no such mesh."""

    @property
    def mesh(self) -> str: ...


@dataclass(frozen=True, slots=True)
class MeshesQuery:
    """The meshes of all sessions."""

    async def answer(self, reader: Reader) -> list[MeshGauges]:
        return await reader.load(reader.meshes.gauges)


@dataclass(frozen=True, slots=True)
class ScoringQuery:
    """How the newest snapshot of a mesh was scored; None: by no process that runs now."""

    mesh: str

    async def answer(self, reader: Reader) -> ScoredMesh | None:
        return reader.scored.get(self.mesh)


@dataclass(frozen=True, slots=True)
class ModelQuery:
    """The weights in use, as JSON.

    Attributes:
        meshes: that the caller may see; None: all.
    """

    meshes: frozenset[str] | None = None

    async def answer(self, reader: Reader) -> bytes:
        return reader.model(_is_among(self.meshes))


@dataclass(frozen=True, slots=True)
class ModelsQuery:
    """The models of the registry, and which mesh uses which, as JSON.

    Attributes:
        meshes: that the caller may see; None: all.

    Raises:
        RegistryGone: it does not answer.
    """

    meshes: frozenset[str] | None = None

    async def answer(self, reader: Reader) -> bytes:
        return await reader.models(_is_among(self.meshes))


@dataclass(frozen=True, slots=True)
class CardQuery:
    """The card of a model, as JSON.

    Raises:
        UnknownModel: there is none of this version, or no registry.
        RegistryGone: the registry does not answer.
    """

    version: str

    async def answer(self, reader: Reader) -> bytes:
        return await reader.card(self.version)


@dataclass(frozen=True, slots=True)
class ComparisonOfModelsQuery:
    """Where a model differs from the one that it was tried against, as JSON.

    Raises:
        UnknownModel: it was never tried.
    """

    version: str

    async def answer(self, reader: Reader) -> bytes:
        return await reader.load(reader.comparison, self.version)


@dataclass(frozen=True, slots=True)
class TrialQuery:
    """What both models of a trial made of the last snapshots of a mesh, as JSON.

    Raises:
        UnknownModel: no model was tried on it.
    """

    mesh: str

    async def answer(self, reader: Reader) -> bytes:
        return await reader.load(reader.trial, self.mesh)


@dataclass(frozen=True, slots=True)
class VerdictQuery:
    """The newest verdict, or the one of an instant, as JSON.

    Raises:
        UnknownInstant: there is none.
    """

    mesh: str
    at: datetime | None = None

    async def answer(self, reader: Reader) -> bytes:
        return (await reader.load(reader.meshes.load_record, self.mesh, self.at)).document


@dataclass(frozen=True, slots=True)
class VerdictsQuery:
    """The first ``limit`` kept verdicts after ``since``, oldest first, as JSON."""

    mesh: str
    since: datetime | None
    limit: int

    async def answer(self, reader: Reader) -> list[bytes]:
        return await reader.load(reader.meshes.load_verdicts, self.mesh, self.since, self.limit)


@dataclass(frozen=True, slots=True)
class NewVerdictsQuery:
    """As :class:`VerdictsQuery`, but waits up to ``seconds`` if there is none yet. Without ``since``: the newest one.

    If another session takes the mesh over meanwhile, its verdicts are found when the wait is over.
    """

    mesh: str
    since: datetime | None
    limit: int
    seconds: float

    async def answer(self, reader: Reader) -> list[bytes]:
        if self.since is None:
            return [await VerdictQuery(self.mesh).answer(reader)]
        stored = VerdictsQuery(self.mesh, self.since, self.limit)
        next_verdict = reader.signal.next_verdict(self.mesh)
        if found := await stored.answer(reader):
            return found
        await reader.wait(next_verdict, self.seconds)
        return await stored.answer(reader)


@dataclass(frozen=True, slots=True)
class PlanQuery:
    """The plan that the newest snapshot was cut by, as JSON; ``members``: with the services of each part."""

    mesh: str
    members: bool = False

    async def answer(self, reader: Reader) -> bytes:
        return await reader.load(reader.plan, self.mesh, self.members)


@dataclass(frozen=True, slots=True)
class EmbeddingsQuery:
    """The embeddings of the services of the newest snapshot, as JSON; ``as_arrow``: as an Arrow IPC stream.

    Raises:
        InvalidParameter: JSON would be too large.
    """

    mesh: str
    as_arrow: bool = False

    async def answer(self, reader: Reader) -> bytes:
        return await reader.load(reader.embeddings_arrow if self.as_arrow else reader.embeddings_json, self.mesh)


@dataclass(frozen=True, slots=True)
class SimilarQuery:
    """The ``limit`` services that are most like a service, by their embeddings, as JSON.

    Raises:
        InvalidParameter: the newest snapshot does not have the service.
    """

    mesh: str
    service: str
    limit: int

    async def answer(self, reader: Reader) -> bytes:
        return await reader.view(reader.similar, self.mesh, self.service, self.limit)


@dataclass(frozen=True, slots=True)
class GraphQuery:
    """The newest snapshot, or the one of an instant, with its verdict.

    Raises:
        UnknownInstant: there is none.
        InvalidParameter: it has too many services.
    """

    mesh: str
    at: datetime | None = None

    async def answer(self, reader: Reader) -> StoredSnapshot:
        return await reader.load(reader.graph, self.mesh, self.at)


@dataclass(frozen=True, slots=True)
class NeighbourhoodQuery:
    """A service with its callers and callees, as JSON; None: the services of all open incidents.

    Raises:
        UnknownInstant: there is no such snapshot.
        InvalidParameter: there is no such service, or too many.
    """

    mesh: str
    at: datetime | None
    service: str | None

    async def answer(self, reader: Reader) -> bytes:
        return await reader.view(reader.pages.graph, self.mesh, self.at, self.service)


@dataclass(frozen=True, slots=True)
class MapQuery:
    """The map of the mesh, gzipped JSON; ``expand``: namespaces of a large mesh to show by service."""

    mesh: str
    at: datetime | None
    expand: Sequence[str]

    async def answer(self, reader: Reader) -> bytes:
        return await reader.view(reader.pages.map, self.mesh, self.at, self.expand)


@dataclass(frozen=True, slots=True)
class TimelineQuery:
    """The verdicts of :class:`VerdictsQuery` as columns, JSON."""

    mesh: str
    since: datetime | None
    limit: int

    async def answer(self, reader: Reader) -> bytes:
        return await reader.view(reader.pages.timeline, self.mesh, self.since, self.limit)


@dataclass(frozen=True, slots=True)
class SeriesQuery:
    """The metrics of a service, or of the calls from ``source`` to it, as JSON.

    Raises:
        InvalidParameter: no kept snapshot has a service of this name.
    """

    mesh: str
    service: str
    source: str | None

    async def answer(self, reader: Reader) -> bytes:
        return await reader.view(reader.pages.series, self.mesh, self.service, self.source)


@dataclass(frozen=True, slots=True)
class RangeQuery:
    """The scores of a mesh over a period, and the metrics of a service or a call, as JSON.

    Attributes:
        table: metrics of the subject from the mesh's Prometheus; None: use what is stored.
        problem: why there is none.
    """

    mesh: str
    period: TimeRange
    subject: Subject | None
    table: PastTable | None = None
    problem: str | None = None

    async def answer(self, reader: Reader) -> bytes:
        return await reader.view(reader.past.range, self.mesh, self.period, self.subject, self.table, self.problem)


@dataclass(frozen=True, slots=True)
class PastMapQuery:
    """The map of the mesh at a past time, gzipped JSON; ``expand`` as in :class:`MapQuery`.

    Raises:
        UnknownInstant: nothing is stored of this time.
    """

    mesh: str
    at: datetime
    expand: Sequence[str]
    snapshot: bytes = b""  # packed, from the mesh's Prometheus; empty: use what is stored

    async def answer(self, reader: Reader) -> bytes:
        return await reader.view(reader.pages.past_map, self.mesh, self.at, self.expand, self.snapshot)


@dataclass(frozen=True, slots=True)
class ServicesQuery:
    """The services of a mesh whose names contain a text, as JSON."""

    mesh: str
    text: str
    limit: int

    async def answer(self, reader: Reader) -> bytes:
        return await reader.view(reader.pages.services, self.mesh, self.text, self.limit)


@dataclass(frozen=True, slots=True)
class DetailsQuery:
    """What is known about a service, or about the calls from one caller to it, as JSON. ``links`` lead to other tools.

    Raises:
        UnknownInstant: there is no such snapshot.
        InvalidParameter: no kept snapshot has it.
    """

    mesh: str
    subject: Subject
    at: datetime | None
    links: Links

    async def answer(self, reader: Reader) -> bytes:
        return await reader.view(reader.pages.details, self.mesh, self.subject, self.at, self.links)


@dataclass(frozen=True, slots=True)
class ComparisonQuery:
    """The differences between two periods, as JSON; of one service with its versions and callers, or of the mesh.

    Raises:
        InvalidParameter: a period has no snapshot, or none has the service.
    """

    mesh: str
    first: Ends
    second: Ends
    service: str | None = None

    async def answer(self, reader: Reader) -> bytes:
        return await reader.view(reader.past.comparison, self.mesh, self.first, self.second, self.service)


@dataclass(frozen=True, slots=True)
class IncidentsQuery:
    """The incidents of a period, or those that are open now, as JSON; ``team``: only of this team."""

    mesh: str
    wanted: IncidentFilter
    of_period: bool
    team: str | None = None

    async def answer(self, reader: Reader) -> bytes:
        return await reader.view(reader.incidents.overview, self.mesh, self.wanted, self.of_period, self.team)


@dataclass(frozen=True, slots=True)
class IncidentQuery:
    """An incident, open or archived, as JSON.

    Raises:
        UnknownIncident: there is none.
    """

    mesh: str
    incident: str

    async def answer(self, reader: Reader) -> bytes:
        return await reader.view(reader.incidents.detail, self.mesh, self.incident)


@dataclass(frozen=True, slots=True)
class ReportQuery:
    """The report on an incident, open or archived; None: the most severe one that was open last.

    Raises:
        UnknownIncident: there is none.
        InvalidParameter: there is no such time zone.
    """

    mesh: str
    incident: str | None
    form: ReportFormat = ReportFormat.HTML
    links: Links | None = None
    timezone: str = "UTC"

    async def answer(self, reader: Reader) -> str:
        return await reader.view(reader.report, self.mesh, self.incident, self.form, self.links, self.timezone)


@dataclass(frozen=True, slots=True)
class DriftQuery:
    """How far a mesh is from training and from its own last week, as JSON."""

    mesh: str

    async def answer(self, reader: Reader) -> bytes:
        return await reader.load(reader.drift, self.mesh)


@dataclass(frozen=True, slots=True)
class FeedbackQuery:
    """The feedback on a mesh, as JSON."""

    mesh: str

    async def answer(self, reader: Reader) -> bytes:
        return await reader.load(reader.feedback, self.mesh)


@dataclass(frozen=True, slots=True)
class MutesQuery:
    """The current and future mutes of a mesh, as JSON."""

    mesh: str

    async def answer(self, reader: Reader) -> bytes:
        return await reader.load(reader.mutes, self.mesh)


def _is_among(meshes: frozenset[str] | None) -> Callable[[str], bool]:
    return lambda mesh: meshes is None or mesh in meshes
