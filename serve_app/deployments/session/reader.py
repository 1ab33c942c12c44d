"""Reads the stored data of a session's meshes."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from weakref import WeakValueDictionary

from serve_app.actions.feedback import encode_feedback
from serve_app.actions.mutes import encode_mute
from serve_app.alerts.links import Links
from serve_app.api.codec.arrow_embeddings import Embeddings, encode_embeddings
from serve_app.api.drift import drift_document
from serve_app.api.schemas.actions import FeedbackListDocument, MuteListDocument
from serve_app.api.schemas.drift import DriftDocument
from serve_app.api.schemas.verdict import VerdictDocument
from serve_app.api.schemas.views import ScoringDocument
from serve_app.api.views import plan_document
from serve_app.collect.base import Resume
from serve_app.errors import InvalidParameter, UnknownMesh
from serve_app.metrics import MeshGauges
from serve_app.models.served import ServedModels
from serve_app.pipeline import Options, embed, plan_of
from serve_app.stores.repository import MeshRepository
from serve_app.stores.scored_snapshot import ScoredSnapshot, gauges
from serve_app.stores.state_store import StateStore
from serve_app.web.formats import ReportFormat, read_zone
from serve_app.web.incidents import IncidentViews
from serve_app.web.queries import PageQueries
from serve_app.web.report import report
from serve_app.web.report.case import find_all

MAX_IN_GRAPH = 20_000  # services of a whole graph: about 40 MB of JSON


class VerdictSignal:
    """Wakes readers that wait for the next verdict or change of a mesh. Use it from one event loop; an event lives only
    while someone waits for it."""

    def __init__(self) -> None:
        self._awaited: WeakValueDictionary[str, asyncio.Event] = WeakValueDictionary()

    def next_verdict(self, mesh: str) -> asyncio.Event:
        """An event that is set with the next verdict or change of the mesh."""
        return self._awaited.setdefault(mesh, asyncio.Event())

    def notify(self, mesh: str) -> None:
        """Wake the readers: a verdict was stored, a person changed something, or the mesh was deleted."""
        if event := self._awaited.pop(mesh, None):
            event.set()


class Reader:
    """Reads the stored data of meshes. Threads may share it. Methods raise ``UnknownMesh`` for a mesh without data."""

    def __init__(
        self,
        store: StateStore,
        meshes: MeshRepository,
        models: ServedModels,
        options: Options,
        signal: VerdictSignal,
        scorings: Mapping[str, ScoringDocument],
    ) -> None:
        self._store, self._meshes, self._models = store, meshes, models
        self._options, self._signal, self._scorings = options, signal, scorings

    def gauges(self) -> list[MeshGauges]:
        """The gauges of all stored meshes, without their states."""
        return [gauges(mesh) for mesh in self._store.meshes()]

    def resume(self, mesh: str) -> Resume:
        try:
            newest = VerdictDocument.model_validate_json(self._meshes.load_verdict(mesh).document)
        except UnknownMesh:
            return Resume(None, not self._store.was_set_aside(mesh))
        return Resume(newest.observed_at.timestamp(), bool(newest.replayed))

    def scoring(self, mesh: str) -> ScoringDocument | None:
        """How the newest snapshot of a mesh was scored; None: this session did not score it."""
        return self._scorings.get(mesh)

    def verdict(self, mesh: str, at: datetime | None = None) -> bytes:
        """The newest verdict, or an instant's, as JSON.

        Raises:
            UnknownInstant: there is none.
        """
        return self._meshes.load_verdict(mesh, at).document

    def verdicts(self, mesh: str, since: datetime | None, limit: int) -> list[bytes]:
        """The first ``limit`` kept verdicts after ``since``, oldest first, as JSON."""
        return [verdict.document for verdict in self._meshes.load_verdicts(mesh, since, limit)]

    async def new_verdicts(
        self, mesh: str, since: datetime | None, limit: int, seconds: float, revision: int = 0
    ) -> tuple[list[bytes], int]:
        """The verdicts after ``since`` as in :meth:`verdicts`, and the mesh's revision. Without ``since``: the newest.

        It waits up to ``seconds`` if there is no verdict yet and the mesh still has this ``revision``; 0: any. If
        another session takes the mesh over meanwhile, its verdicts are found when the wait is over.
        """
        if since is None:
            return await asyncio.to_thread(lambda: ([self.verdict(mesh)], self._store.revision(mesh)))
        next_verdict = self._signal.next_verdict(mesh)
        verdicts, new_revision = await asyncio.to_thread(self._news, mesh, since, limit)
        if not verdicts and revision in (0, new_revision):
            with suppress(TimeoutError):
                await asyncio.wait_for(next_verdict.wait(), seconds)
            verdicts, new_revision = await asyncio.to_thread(self._news, mesh, since, limit)
        return verdicts, new_revision

    def _news(self, mesh: str, since: datetime, limit: int) -> tuple[list[bytes], int]:
        # The verdicts first: a revision that is newer than they are is a reason to ask again.
        return self.verdicts(mesh, since, limit), self._store.revision(mesh)

    def plan(self, name: str, members: bool) -> bytes:
        """The newest snapshot's plan, as JSON; ``members``: with the services of each part."""
        mesh = self._meshes.load(name).mesh
        document = plan_document(plan_of(mesh, self._options), mesh.state, members=members)
        return document.model_dump_json(exclude_none=True).encode()

    def graph(self, mesh: str, at: datetime | None) -> ScoredSnapshot:
        """The newest snapshot, or an instant's, with its verdict.

        Raises:
            UnknownInstant: there is none.
            InvalidParameter: it has too many services.
        """
        scored_snapshot = self._meshes.load_scored(mesh, self._meshes.load_state(mesh), at)
        services = scored_snapshot.snapshot.num_nodes
        if services > MAX_IN_GRAPH:
            raise InvalidParameter(
                f"graph: expected service or incidents=true for a mesh of more than {MAX_IN_GRAPH} services, got "
                f"neither for {services}; name a service, request the services of the open incidents, or read the map",
            )
        return scored_snapshot

    def embeddings(self, mesh: str) -> bytes:
        """The newest snapshot's service embeddings, as an Arrow IPC stream."""
        state, checkpoint = self._meshes.load_state(mesh), self._models.checkpoint(mesh)
        newest, vectors = embed(checkpoint, state, self._options)
        scored_snapshot = self._meshes.load_scored(mesh, state, newest.observed_at)
        return encode_embeddings(
            Embeddings(
                mesh,
                newest.observed_at,
                checkpoint.digest,
                scored_snapshot.verdict.status,
                scored_snapshot.verdict.mesh_score,
                services=newest.node_ids,
                deviations=scored_snapshot.deviations.services,
                vectors=vectors,
            )
        )

    def drift(self, mesh: str) -> DriftDocument:
        state = self._meshes.load_state(mesh)
        return drift_document(mesh, state, self._models.checkpoint(mesh))

    def feedback(self, mesh: str) -> FeedbackListDocument:
        entries = [encode_feedback(feedback) for feedback in self._meshes.load_state(mesh).memory.feedback]
        return FeedbackListDocument(feedback=entries)

    def mutes(self, mesh: str) -> MuteListDocument:
        """The current and future mutes of a mesh."""
        state = self._meshes.load_state(mesh)
        entries = [encode_mute(mute, state.observed_at) for mute in state.memory.mutes]
        return MuteListDocument(mutes=entries)


class Reports:
    """Incidents as files."""

    def __init__(self, pages: PageQueries, incidents: IncidentViews) -> None:
        self._pages, self._incidents = pages, incidents

    def report(
        self,
        mesh: str,
        incident: str | None,
        form: ReportFormat = ReportFormat.HTML,
        links: Links | None = None,
        timezone: str = "UTC",
    ) -> str:
        """The report on an incident, open or archived; None: the most severe of the newest incidents.

        Raises:
            UnknownIncident: there is none.
            InvalidParameter: there is no such time zone.
        """
        recent, zone = self._pages.moments(mesh), read_zone(timezone)
        moments = recent if incident is None else self._incidents.moments(mesh, incident, recent)
        names = [case.incident.id for case in find_all(mesh, moments, incident)]
        documents = {name: self._incidents.load(mesh, name) for name in names}
        return report(mesh, moments, incident, form, archived=documents, links=links, zone=zone)
