"""The read-only methods of a session."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime
from typing import TypeVar

from model.mesh_weights import Weights
from serve_app.actions.adapter import encode_adaptation
from serve_app.actions.feedback import encode_feedback
from serve_app.actions.mutes import encode_mute
from serve_app.alerts.links import Links
from serve_app.api.schemas.actions import FeedbackListDocument, MuteListDocument
from serve_app.api.views import model_document, plan_document
from serve_app.deployments.news import News
from serve_app.errors import InvalidParameter
from serve_app.metrics import MeshGauges
from serve_app.pipeline import Options, plan_of
from serve_app.stores.base import IncidentFilter
from serve_app.stores.record import StoredSnapshot
from serve_app.stores.repository import MeshRepository
from serve_app.web.formats import ReportFormat
from serve_app.web.incidents import IncidentViews
from serve_app.web.metric_history import Subject
from serve_app.web.queries import PageQueries
from serve_app.web.report import markdown_report, report
from serve_app.web.report.case import find

Period = tuple[datetime, datetime]
MOST_IN_GRAPH = 20_000  # services of a whole graph: some 40 MB of JSON
T = TypeVar("T")


class Queries:
    """Answers questions about meshes without changing them.

    Args:
        meshes: stored meshes, some of them in memory.
        weights: in use.
        options: how meshes are cut into parts.
        news: notifies of new verdicts.
    """

    def __init__(self, meshes: MeshRepository, weights: Weights, options: Options, news: News) -> None:
        self._meshes, self._weights, self._options, self._news = meshes, weights, options, news
        self._viewing, self._incidents = PageQueries(meshes), IncidentViews(meshes)
        # A thread of its own: pages wait for each other, and never take a thread that a push needs.
        self._view_thread = ThreadPoolExecutor(1, "viewing")

    async def forget(self, mesh: str) -> None:
        """Drop what is held in memory for the page of a mesh."""
        await self._view(self._viewing.forget, mesh)

    async def verdict(self, mesh: str, at: datetime | None = None) -> bytes:
        """The newest verdict, or the one of an instant, as JSON.

        Raises:
            UnknownMesh, UnknownInstant: there is none.
        """
        return (await asyncio.to_thread(self._meshes.load_record, mesh, at)).document

    async def verdicts(self, mesh: str, since: datetime | None, limit: int) -> list[bytes]:
        """The first ``limit`` kept verdicts after ``since``, oldest first, as JSON.

        Raises:
            UnknownMesh: nothing is stored.
        """
        return await asyncio.to_thread(self._meshes.load_verdicts, mesh, since, limit)

    async def newer(self, mesh: str, since: datetime | None, limit: int, seconds: float) -> list[bytes]:
        """As :meth:`verdicts`, but waits up to ``seconds`` if there is none yet. Without ``since``: the newest verdict.

        If another session takes the mesh over meanwhile, its verdicts are found when the wait is over.
        """
        if since is None:
            return [await self.verdict(mesh)]
        awaited = self._news.next_verdict(mesh)
        found = await self.verdicts(mesh, since, limit)
        if found:
            return found
        with suppress(TimeoutError):  # another session may have made one
            await asyncio.wait_for(awaited.wait(), seconds)
        return await self.verdicts(mesh, since, limit)

    async def plan(self, mesh: str, members: bool) -> bytes:
        """The plan that the newest snapshot was cut by, as JSON. Errors as of :meth:`verdict`."""
        return await asyncio.to_thread(self._plan, mesh, members)

    async def graph(self, mesh: str, at: datetime | None = None) -> StoredSnapshot:
        """The newest snapshot, or the one of an instant, with its verdict.

        Raises:
            UnknownMesh, UnknownInstant: there is none.
            InvalidParameter: it has too many services.
        """
        return await asyncio.to_thread(self._graph, mesh, at)

    async def graph_around(self, mesh: str, at: datetime | None, service: str | None) -> bytes:
        """A service with its callers and callees, as JSON; None: the services of all open incidents. Errors as of
        :meth:`graph`; also ``InvalidParameter`` if there is no such service."""
        return await self._view(self._viewing.graph, mesh, at, service)

    async def map(self, mesh: str, at: datetime | None, expand: Sequence[str]) -> bytes:
        """The map of the mesh, gzipped JSON; ``expand``: namespaces of a large mesh to show by service."""
        return await self._view(self._viewing.map, mesh, at, expand)

    async def timeline(self, mesh: str, since: datetime | None, limit: int) -> bytes:
        """The verdicts of :meth:`verdicts` as columns, JSON."""
        return await self._view(self._viewing.timeline, mesh, since, limit)

    async def series(self, mesh: str, service: str, source: str | None) -> bytes:
        """The metrics of a service, or of the calls from ``source`` to it, as JSON.

        Raises:
            UnknownMesh: there is none.
            InvalidParameter: no kept snapshot has a service of this name.
        """
        return await self._view(self._viewing.series, mesh, service, source)

    async def services(self, mesh: str, text: str, limit: int) -> bytes:
        """The services of a mesh whose names contain a text, as JSON.

        Raises:
            UnknownMesh: there is none.
        """
        return await self._view(self._viewing.services, mesh, text, limit)

    async def details(self, mesh: str, subject: Subject, at: datetime | None, links: Links) -> bytes:
        """What is known of a service, or of the calls from one caller to it, as JSON. ``links`` lead to other tools.

        Raises:
            UnknownMesh, UnknownInstant: there is no such mesh or snapshot.
            InvalidParameter: no kept snapshot has it.
        """
        return await self._view(self._viewing.details, mesh, subject, at, links)

    async def comparison(self, mesh: str, first: Period, second: Period) -> bytes:
        """The differences between two periods, as JSON.

        Raises:
            UnknownMesh: there is none.
            InvalidParameter: a period has no snapshot.
        """
        return await self._view(self._viewing.comparison, mesh, first, second)

    async def incidents(self, mesh: str, wanted: IncidentFilter, of_period: bool) -> bytes:
        """The incidents of a period, or those that are open now, as JSON.

        Raises:
            UnknownMesh: there is none.
        """
        return await self._view(self._incidents.overview, mesh, wanted, of_period)

    async def incident(self, mesh: str, incident: str) -> bytes:
        """An incident, open or archived, as JSON.

        Raises:
            UnknownMesh, UnknownIncident: there is none.
        """
        return await self._view(self._incidents.detail, mesh, incident)

    async def incident_graph(self, mesh: str, incident: str) -> bytes:
        """The part of the mesh around an incident, as JSON. Errors as of :meth:`incident`."""
        return await self._view(self._incidents.graph, mesh, incident)

    async def incident_series(self, mesh: str, incident: str, service: str, source: str | None) -> bytes:
        """The metrics of a service or a call around an incident, as JSON.

        Raises:
            UnknownMesh, UnknownIncident: there is none.
            InvalidParameter: the archive does not have it.
        """
        return await self._view(self._incidents.series, mesh, incident, service, source)

    async def report(
        self,
        mesh: str,
        incident: str | None,
        form: ReportFormat = ReportFormat.HTML,
        links: Links | None = None,
    ) -> str:
        """The report on an incident, open or archived; None: the most severe one that was open last.

        Raises:
            UnknownMesh, UnknownIncident: there is none.
        """
        return await self._view(self._report, mesh, incident, form, links)

    async def model(self) -> bytes:
        """The weights in use, as JSON."""
        digests = {mesh: one.digest for mesh, one in self._weights.by_mesh.items()}
        return model_document(self._weights.default, digests).model_dump_json().encode()

    async def meshes(self) -> list[MeshGauges]:
        """The meshes of all sessions."""
        return await asyncio.to_thread(self._meshes.gauges)

    async def feedback(self, mesh: str) -> bytes:
        """The feedback on a mesh, as JSON.

        Raises:
            UnknownMesh: there is none.
        """
        state = await asyncio.to_thread(self._meshes.load_state, mesh)
        kept = [encode_feedback(one) for one in state.memory.feedback]
        return FeedbackListDocument(feedback=kept).model_dump_json().encode()

    async def mutes(self, mesh: str) -> bytes:
        """The current and future mutes of a mesh, as JSON.

        Raises:
            UnknownMesh: there is none.
        """
        state = await asyncio.to_thread(self._meshes.load_state, mesh)
        kept = [encode_mute(one, state.observed_at) for one in state.memory.mutes]
        return MuteListDocument(mutes=kept).model_dump_json().encode()

    async def adaptation(self, mesh: str) -> bytes:
        """The adapter of a mesh, as JSON.

        Raises:
            UnknownMesh: there is none.
        """
        state = await asyncio.to_thread(self._meshes.load_state, mesh)
        return encode_adaptation(state.adaptation).model_dump_json().encode()

    def _report(self, mesh: str, incident: str | None, form: ReportFormat, links: Links | None) -> str:
        kept = self._viewing.moments(mesh)
        chosen = incident or find(mesh, kept).incident.id
        moments = self._incidents.moments(mesh, chosen, kept)
        before = self._incidents.seen_before(mesh, find(mesh, moments, chosen).incident)
        text = before.text if before else ""
        if form is ReportFormat.HTML:
            return report(mesh, moments, chosen, seen_before=text, links=links)
        given = [one] if (one := self._incidents.feedback(mesh, chosen)) else []
        return markdown_report(mesh, moments, chosen, seen_before=text, feedback=given, links=links)

    async def _view(self, look: Callable[..., T], *args: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._view_thread, look, *args)

    def _graph(self, mesh: str, at: datetime | None) -> StoredSnapshot:
        services = self._meshes.load_record(mesh, at).services
        if services > MOST_IN_GRAPH:
            raise InvalidParameter(
                f"graph: expected service or incidents=true for a mesh of more than {MOST_IN_GRAPH} services, came "
                f"neither for {services}; name a service, ask for the services of the open incidents, or read the map",
            )
        return self._meshes.load_snapshot(mesh, at)

    def _plan(self, name: str, members: bool) -> bytes:
        mesh = self._meshes.refresh(self._meshes.load_stored(name)).mesh
        document = plan_document(plan_of(mesh, self._options), mesh.state, members=members)
        return document.model_dump_json(exclude_none=True).encode()
