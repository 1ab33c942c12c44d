"""The page's queries about a session's meshes. They only read.

Each mesh has a cached layout, so that services keep their positions, and a few cached maps, so that many pages cost as
much as one.
"""

import zlib
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

import msgspec

from model.incidents.owners import Owners
from model.names import readable
from model.snapshot import MeshSnapshot, Owner
from model.state.mesh_state import MeshState
from serve_app.alerts.links import Links
from serve_app.api.codec import unpack_snapshot
from serve_app.api.views import graph_document, incident_services
from serve_app.errors import InvalidParameter
from serve_app.stores.history_files import MINUTE
from serve_app.stores.history_reader import HistoryReader, HistorySpan
from serve_app.stores.records import IncidentFilter
from serve_app.stores.repository import MeshRepository
from serve_app.stores.rows import ONE_STEP
from serve_app.stores.scored_snapshot import ScoredSnapshot
from serve_app.stores.state_store import StateStore
from serve_app.web.assets import GZIP
from serve_app.web.details import MAX_LISTED, details, span
from serve_app.web.front_door import Period, front_door, snapshots_outside
from serve_app.web.graph.layout import Layout, arrange
from serve_app.web.graph.map import gone_services, map_document
from serve_app.web.history import timeline
from serve_app.web.incidents import NOTICE
from serve_app.web.moment import Moment
from serve_app.web.past import PastQueries
from serve_app.web.period import Subject

MAX_MESHES = 32  # with a cached layout
MAX_MAPS = 8  # cached for each mesh
COMPRESSION = 1  # a fifth of level 6's time, and a tenth more bytes
SECONDS_BEFORE = 900  # before an incident that is longer than the window; these minutes show what is usual

OwnerPatterns = Callable[[str], Sequence[tuple[str, Owner]]]
MapKey = tuple[datetime, tuple[str, ...]]


@dataclass(slots=True)
class _Cache:
    layout: Layout | None = None
    maps: OrderedDict[MapKey, bytes] = field(default_factory=OrderedDict)


class PageQueries:
    """The page's queries. They run in one thread: a second request for a map waits, and finds it in the cache.

    Each raises ``UnknownMesh`` for a mesh without a verdict, and ``UnknownInstant`` for a moment that is not stored.
    ``owner_patterns`` returns the owner patterns in a mesh's settings.
    """

    def __init__(self, store: StateStore, meshes: MeshRepository, owner_patterns: OwnerPatterns) -> None:
        self._store, self._meshes = store, meshes
        self._past = PastQueries(store, meshes)
        self._owner_patterns = owner_patterns
        self._caches: OrderedDict[str, _Cache] = OrderedDict()

    def graph(self, mesh: str, at: datetime | None, service: str | None) -> bytes:
        """Return JSON of a service with its callers and callees, at the newest snapshot or at a given time; without
        ``service``, of all services in open incidents.

        Raises:
            InvalidParameter: neither the snapshot nor the verdict has the service.
        """
        moment = self._meshes.load_scored(mesh, self._meshes.load_state(mesh), at)
        around = incident_services(moment.verdict) if service is None else {service}
        document = graph_document(moment.snapshot, moment.deviations, moment.verdict, around)
        if service is not None and not document["services"] and service not in document["vanished"]:
            raise InvalidParameter(
                f"service: expected a service of the snapshot of {moment.snapshot.observed_at.isoformat()}, got "
                f"{service!r}; correct the name, or find it with the route services",
                pointer="/service",
            )
        return msgspec.json.encode(document)

    def timeline(self, mesh: str, since: datetime | None, limit: int) -> bytes:
        """Return JSON of the verdicts later than ``since``, as columns."""
        return timeline(self._meshes.load_verdicts(mesh, since, limit), self._meshes.load_state(mesh).window)

    def services(self, mesh: str, text: str, limit: int) -> bytes:
        """Return JSON of at most ``limit`` services of the kept snapshots whose names contain a text."""
        return find_services(self._meshes.load_state(mesh).window, text, limit)

    def details(self, mesh: str, subject: Subject, at: datetime | None, links: Links) -> bytes:
        """Return JSON of the details of a service or call, up to the newest snapshot or to a given time.

        Raises:
            InvalidParameter: no kept snapshot has it.
        """
        state = self._meshes.load_state(mesh)
        moment = self._meshes.load_scored(mesh, state, at)
        at = moment.at
        snapshots = span(state.window, at)
        verdicts = self._meshes.load_verdicts(mesh, snapshots[0].observed_at - ONE_STEP, len(snapshots))
        query = IncidentFilter(until=at + ONE_STEP, services=subject.ends, limit=MAX_LISTED)
        incidents = self._store.incidents(mesh, query)
        owner = Owners(self._owner_patterns(mesh), moment.snapshot.policies).find(subject.service)
        return details(subject, state, moment, snapshots, verdicts, incidents, mesh, links, owner)

    def map(self, mesh: str, at: datetime | None, expand: Sequence[str]) -> bytes:
        """Return a mesh's map at its newest snapshot or at a given time, as JSON compressed with gzip."""
        at = at or self._meshes.load_verdict(mesh).head.observed_at
        key, cache = (at, tuple(expand)), self._cache_of(mesh)
        if key not in cache.maps:
            state = self._meshes.load_state(mesh)
            moment = Moment.of(self._meshes.load_scored(mesh, state, at))
            cache.layout = _update_layout(cache.layout, state, moment)
            until = [snapshot for snapshot in state.window if snapshot.observed_at <= moment.snapshot.observed_at]
            # The archive is some snapshots behind: a notice may be an alert by now.
            open_now = [(incident.since, None) for incident in moment.alerts]
            door = front_door(until, state.entry_points, self._calm_snapshots(mesh, until[:-1], open_now))
            document = map_document(moment, cache.layout, until[:-1], expand, state.entry_points, door)
            cache.maps[key] = zlib.compress(document, COMPRESSION, GZIP)
            while len(cache.maps) > MAX_MAPS:
                cache.maps.popitem(last=False)
        return cache.maps[key]

    def past_map(self, mesh: str, at: datetime, expand: Sequence[str], packed: bytes = b"") -> bytes:
        """Return a mesh's map at a past time, or of the snapshot ``packed``, as JSON compressed with gzip."""
        state, cache = self._meshes.load_state(mesh), self._cache_of(mesh)
        moment = self._past.wrap(mesh, unpack_snapshot(packed)) if packed else self._past.moment(mesh, at)
        cache.layout = _update_layout(cache.layout, state, moment)
        document = map_document(moment, cache.layout, (), expand, state.entry_points)
        return zlib.compress(document, COMPRESSION, GZIP)

    def moments(self, mesh: str) -> list[ScoredSnapshot]:
        """Return the kept snapshots with their verdicts, oldest first."""
        return self._meshes.load_window(mesh, self._meshes.load_state(mesh))

    def forget(self, mesh: str) -> None:
        self._caches.pop(mesh, None)

    def _cache_of(self, mesh: str) -> _Cache:
        cache = self._caches.setdefault(mesh, _Cache())
        self._caches.move_to_end(mesh)
        while len(self._caches) > MAX_MESHES:
            self._caches.popitem(last=False)
        return cache

    def _calm_snapshots(
        self, mesh: str, snapshots: Sequence[MeshSnapshot], open_now: Sequence[Period] = ()
    ) -> list[MeshSnapshot]:
        """Return the snapshots without an incident (notices do not count), oldest first. In an incident that is longer
        than all of them, return the stored minutes before it."""
        if not snapshots:
            return []
        query = IncidentFilter(since=snapshots[0].observed_at, until=snapshots[-1].observed_at + ONE_STEP)
        incidents = self._store.incidents(mesh, query)
        periods = [
            *open_now,
            *((incident.since, incident.until) for incident in incidents if incident.severity > NOTICE),
        ]
        calm = snapshots_outside(snapshots, periods)
        if calm or not open_now:
            return calm
        until = int(min(since for since, _ in open_now).timestamp()) // MINUTE * MINUTE
        minutes = HistoryReader(self._store, mesh).moments(HistorySpan(MINUTE, until - SECONDS_BEFORE, until))
        return self._calm_snapshots(mesh, [minute.snapshot for minute in minutes])


def _update_layout(layout: Layout | None, state: MeshState, moment: Moment) -> Layout:
    """Return a layout of all services in a mesh and its incidents; services keep their positions."""
    names = tuple(dict.fromkeys((*state.node_ids, *moment.snapshot.node_ids, *gone_services(moment))))
    if layout is not None and set(names) <= set(layout.names):
        return layout
    return arrange(names, state.edge_index, layout)


def find_services(window: Sequence[MeshSnapshot], text: str, limit: int) -> bytes:
    """Return JSON of a ``ServicesDocument``: services of the snapshots whose ids or original names contain the text, in
    any case.

    The service of exactly this name comes first, then services of this name in any namespace, then names that begin
    with the text, with or without namespace.
    """
    distinct = {id(snapshot.node_ids): snapshot.node_ids for snapshot in window}  # most snapshots share them
    needle = text.casefold()
    services = {name for names in distinct.values() for name in names}
    matches = [name for name in services if needle in name.casefold() or needle in readable(name).casefold()]

    def rank(name: str) -> tuple[bool, bool, bool, str]:
        spellings = name.casefold(), readable(name).casefold()
        begins = any(
            spelling.startswith(needle) or spelling.partition("/")[2].startswith(needle) for spelling in spellings
        )
        is_named = any(needle in (spelling, spelling.partition("/")[2]) for spelling in spellings)
        return text not in (name, readable(name)), not is_named, not begins, name

    return msgspec.json.encode({"services": sorted(matches, key=rank)[:limit], "total": len(matches)})
