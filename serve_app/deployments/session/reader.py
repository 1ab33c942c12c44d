"""Answers the questions to a session."""

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime
from typing import ParamSpec, TypeVar, TypeVarTuple

from serve_app.actions.feedback import encode_feedback
from serve_app.actions.mutes import encode_mute
from serve_app.alerts.links import Links
from serve_app.api.codec import ARROW
from serve_app.api.codec.arrow_embeddings import encode_embeddings
from serve_app.api.drift import drift_document
from serve_app.api.embeddings import Embeddings
from serve_app.api.schemas.actions import FeedbackListDocument, MuteListDocument
from serve_app.api.schemas.models import ModelsDocument
from serve_app.api.schemas.verdict import VerdictDocument
from serve_app.api.views import Deviations, model_document, plan_document
from serve_app.deployments.scoring.messages import ScoredMesh
from serve_app.deployments.session.verdict_signal import VerdictSignal
from serve_app.errors import InvalidParameter, UnknownModel
from serve_app.models.rollout import ALL_MESHES, limit_to
from serve_app.models.served import EVERY_MESH, ServedModels
from serve_app.models.trials import Trials
from serve_app.pipeline import Options, embed, plan_of
from serve_app.settings.base import check_mesh_name
from serve_app.stores.record import Record, StoredSnapshot
from serve_app.stores.repository import MeshRepository
from serve_app.web.formats import ReportFormat
from serve_app.web.incidents import IncidentViews
from serve_app.web.past import PastQueries
from serve_app.web.queries import OwnerPatterns, PageQueries
from serve_app.web.report import markdown_report, report
from serve_app.web.report.case import find_all
from serve_app.web.report.picture import incident_picture
from serve_app.web.report.zones import read_zone

MOST_IN_GRAPH = 20_000  # services of a whole graph: about 40 MB of JSON
P = ParamSpec("P")
T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class Reader:
    """The data that a :class:`~serve_app.deployments.session.queries.SessionQuery` is answered from.

    Its methods run in the threads of :meth:`load` and :meth:`view`. The queries describe the answers and the errors.

    Args:
        meshes: stored meshes, some of them in memory.
        models: that the meshes use.
        options: how meshes are cut into parts.
        signal: wakes readers that wait for a verdict.
        trials: of models; None: there are none.
        owner_patterns: returns the patterns of a mesh's settings that name owners; None: there are none.
        scored: how the newest snapshot of each mesh was scored, by the session; None: not known.

    Attributes:
        scored: as the argument.
        pages, past, incidents: views for the page, in the thread of :meth:`view`.
    """

    def __init__(
        self,
        meshes: MeshRepository,
        models: ServedModels,
        options: Options,
        signal: VerdictSignal,
        trials: Trials | None = None,
        owner_patterns: OwnerPatterns | None = None,
        scored: Mapping[str, ScoredMesh] | None = None,
    ) -> None:
        self.meshes, self.signal, self.scored = meshes, signal, {} if scored is None else scored
        self.pages, self.past = PageQueries(meshes, owner_patterns), PastQueries(meshes)
        self.incidents = IncidentViews(meshes)
        self._models, self._options, self._trials = models, options, trials
        # A thread of its own: pages wait for each other, and never take a thread that a push needs.
        self._view_thread = ThreadPoolExecutor(1, "viewing")

    async def load(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function that reads the store, in any thread."""
        return await asyncio.to_thread(function, *args, **kwargs)

    async def view(self, function: Callable[[*Ts], T], *args: *Ts) -> T:
        """Call a function that makes a part of the page, in the thread of the page."""
        return await asyncio.get_running_loop().run_in_executor(self._view_thread, function, *args)

    async def wait(self, event: asyncio.Event, seconds: float) -> None:
        """Wait for an event, at most so long."""
        with suppress(TimeoutError):
            await asyncio.wait_for(event.wait(), seconds)

    async def forget(self, mesh: str) -> None:
        """Drop what is held in memory for the page of a mesh."""
        await self.view(self.pages.forget, mesh)

    def model(self, can_see: Callable[[str], bool]) -> bytes:
        weights = self._models.weights
        digests = {mesh: one.digest for mesh, one in weights.by_mesh.items()}
        own = {mesh: pin.version for mesh, pin in self._models.rollout.meshes.items()} | digests
        visible = {mesh: digest for mesh, digest in own.items() if can_see(mesh)}
        return model_document(self._models.checkpoint(ALL_MESHES), visible).model_dump_json().encode()

    async def models(self, can_see: Callable[[str], bool]) -> bytes:
        registry = self._models.registry
        cards = [] if registry is None else await registry.cards()
        rollout = limit_to(await self.load(self._models.read_rollout), can_see)
        pinned = [mesh for mesh in self._models.pinned if mesh == EVERY_MESH or can_see(mesh)]
        return ModelsDocument(models=cards, rollout=rollout, pinned=pinned).model_dump_json().encode()

    async def card(self, version: str) -> bytes:
        if self._models.registry is None:
            raise UnknownModel("model: expected a registry, got none; set models.registry")
        return (await self._models.registry.card(version)).model_dump_json().encode()

    def comparison(self, version: str) -> bytes:
        return self._require_trials().compare(version).model_dump_json().encode()

    def trial(self, mesh: str) -> bytes:
        return self._require_trials().of_mesh(check_mesh_name(mesh)).model_dump_json().encode()

    def _require_trials(self) -> Trials:
        if self._models.registry is None or self._trials is None:
            raise UnknownModel("model: expected a registry, got none; set models.registry")
        return self._trials

    def plan(self, name: str, members: bool) -> bytes:
        mesh = self.meshes.refresh(self.meshes.load_stored(name)).mesh
        document = plan_document(plan_of(mesh, self._options), mesh.state, members=members)
        return document.model_dump_json(exclude_none=True).encode()

    def graph(self, mesh: str, at: datetime | None) -> StoredSnapshot:
        services = self.meshes.load_record(mesh, at).services
        if services > MOST_IN_GRAPH:
            raise InvalidParameter(
                f"graph: expected service or incidents=true for a mesh of more than {MOST_IN_GRAPH} services, got "
                f"neither for {services}; name a service, request the services of the open incidents, or read the map",
            )
        return self.meshes.load_snapshot(mesh, at)

    def embeddings(self, mesh: str) -> Embeddings:
        stored = self.meshes.load_stored(mesh)
        record, state = Record.unpack(stored.verdict), self.meshes.refresh(stored).mesh.state
        checkpoint = self._models.checkpoint(mesh)
        newest, vectors = embed(checkpoint, state, self._options)
        verdict = VerdictDocument.model_validate_json(record.document)
        deviations = Deviations.unpack(record.deviations, newest).services
        return Embeddings(
            mesh,
            newest.observed_at,
            checkpoint.digest,
            verdict.status,
            verdict.mesh_score,
            newest.node_ids,
            deviations,
            vectors,
        )

    def embeddings_json(self, mesh: str) -> bytes:
        services = self.meshes.load_record(mesh).services
        if services > MOST_IN_GRAPH:
            raise InvalidParameter(
                f"embeddings: expected at most {MOST_IN_GRAPH} services in JSON, got {services}; ask for Arrow with "
                f"the header Accept: {ARROW}",
            )
        return self.embeddings(mesh).document().model_dump_json().encode()

    def embeddings_arrow(self, mesh: str) -> bytes:
        return encode_embeddings(self.embeddings(mesh))

    def similar(self, mesh: str, service: str, limit: int) -> bytes:
        embeddings = self.embeddings(mesh)
        if service not in embeddings.services:
            raise InvalidParameter(
                f"service: expected a service of the newest snapshot, got {service!r}; correct the name, or find it "
                "with the route services",
                pointer="/service",
            )
        return embeddings.similar(service, limit).model_dump_json().encode()

    def report(self, mesh: str, incident: str | None, form: ReportFormat, links: Links | None, timezone: str) -> str:
        kept, zone = self.pages.moments(mesh), read_zone(timezone)
        moments = kept if incident is None else self.incidents.moments(mesh, incident, kept)
        cases = [case.incident for case in find_all(mesh, moments, incident)]
        similar = {one.id: before.text for one in cases if (before := self.incidents.seen_before(mesh, one))}
        if form is ReportFormat.SVG:
            return incident_picture(mesh, moments, incident, zone)
        if form is ReportFormat.HTML:
            return report(mesh, moments, incident, seen_before=similar, links=links, zone=zone)
        given = [said for one in cases if (said := self.incidents.feedback(mesh, one.id))]
        return markdown_report(mesh, moments, incident, seen_before=similar, feedback=given, links=links, zone=zone)

    def picture(self, mesh: str, incident: str) -> str:
        """The picture of an open incident, as SVG."""
        return incident_picture(mesh, self.incidents.moments(mesh, incident, self.pages.moments(mesh)), incident)

    def drift(self, mesh: str) -> bytes:
        state = self.meshes.load_state(mesh)
        return drift_document(mesh, state, self._models.checkpoint(mesh)).model_dump_json().encode()

    def feedback(self, mesh: str) -> bytes:
        kept = [encode_feedback(one) for one in self.meshes.load_state(mesh).memory.feedback]
        return FeedbackListDocument(feedback=kept).model_dump_json().encode()

    def mutes(self, mesh: str) -> bytes:
        state = self.meshes.load_state(mesh)
        kept = [encode_mute(one, state.observed_at) for one in state.memory.mutes]
        return MuteListDocument(mutes=kept).model_dump_json().encode()
