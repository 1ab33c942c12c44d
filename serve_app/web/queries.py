"""What one session shows of its meshes to those who look: it reads, keeps layouts and the last maps, writes nothing.

Kept by mesh: a layout, so that services stay where they are, and a few maps, so that ten pages cost as much as one.
"""

import zlib
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

import numpy as np

from model.snapshot import MeshSnapshot
from model.state.mesh_state import MeshState
from serve_app.api.schemas.verdict import VerdictDocument
from serve_app.api.views import Deviations
from serve_app.stores.record import Record
from serve_app.stores.repository import MeshRepository, unknown_instant, unknown_mesh
from serve_app.web.assets import GZIP
from serve_app.web.comparison import comparison, period
from serve_app.web.graph.layout import Layout, arrange
from serve_app.web.graph.map import gone_services, map_document
from serve_app.web.history import instant, series, timeline
from serve_app.web.moments import Moment

MOST_MESHES = 32  # whose layouts are kept
MOST_MAPS = 8  # of one mesh
LEVEL = 1  # a fifth of the time of the usual 6, for a tenth more bytes

MapKey = tuple[datetime, tuple[str, ...]]


@dataclass(slots=True)
class _Shown:
    """What is kept of one mesh."""

    layout: Layout | None = None
    maps: OrderedDict[MapKey, bytes] = field(default_factory=OrderedDict)


class Viewing:
    """Reads of the kept time of meshes, for people. Of one thread: who asks for the same waits, and finds it made.

    Args:
        meshes: of the session.
    """

    def __init__(self, meshes: MeshRepository) -> None:
        self._meshes = meshes
        self._shown: OrderedDict[str, _Shown] = OrderedDict()

    def timeline(self, mesh: str, since: datetime | None, limit: int) -> bytes:
        """JSON of the verdicts later than ``since`` as columns.

        Raises:
            UnknownMesh: it has no verdict.
        """
        return timeline(self._meshes.load_records(mesh, since, limit), self._window(mesh))

    def series(self, mesh: str, service: str, source: str | None) -> bytes:
        """JSON of what was measured of a service, or of the calls that ``source`` makes to it.

        Raises:
            UnknownMesh: there is none.
            InvalidParameter: nobody of this name is in the kept snapshots.
        """
        return series(self._window(mesh), service, source)

    def comparison(self, mesh: str, first: tuple[datetime, datetime], second: tuple[datetime, datetime]) -> bytes:
        """JSON of what differs between two periods.

        Raises:
            UnknownMesh: there is none.
            InvalidParameter: a period without a snapshot.
        """
        state = self._meshes.load_state(mesh)
        periods = period(state.window, *first, "first"), period(state.window, *second, "second")
        return comparison(*periods, state.interval_seconds)

    def map(self, mesh: str, at: datetime | None, expand: Sequence[str]) -> bytes:
        """JSON of a mesh as it is drawn, compressed (gzip); the newest snapshot, or the one of an instant.

        Raises:
            UnknownMesh, UnknownInstant: there is none.
        """
        stored = self._meshes.load_stored(mesh)
        at = at or stored.observed_at
        assert at is not None  # a mesh with a verdict
        key, shown = (at, tuple(expand)), self._of(mesh)
        if key not in shown.maps:
            state = self._meshes.refresh(stored).mesh.state
            moment = self._moment(mesh, state, at)
            shown.layout = _arranged(shown.layout, state, moment)
            before = [snapshot for snapshot in state.window if snapshot.observed_at < at]
            drawn = map_document(moment, shown.layout, before, expand)
            shown.maps[key] = zlib.compress(drawn, LEVEL, GZIP)
            while len(shown.maps) > MOST_MAPS:
                shown.maps.popitem(last=False)
        return shown.maps[key]

    def moments(self, mesh: str) -> list[Moment]:
        """The kept time, oldest first.

        Raises:
            UnknownMesh: there is none.
        """
        state = self._meshes.load_state(mesh)
        records = self._meshes.load_records(mesh, None, len(state.window))
        snapshots = {instant(snapshot.observed_at): snapshot for snapshot in state.window}
        found = ((VerdictDocument.model_validate_json(record.document), record) for record in records)
        return [
            _moment(snapshot, verdict, record)
            for verdict, record in found
            if (snapshot := snapshots.get(instant(verdict.observed_at))) is not None
        ]

    def forget(self, mesh: str) -> None:
        """It was deleted: another of this name is another mesh."""
        self._shown.pop(mesh, None)

    def _of(self, mesh: str) -> _Shown:
        shown = self._shown.setdefault(mesh, _Shown())
        self._shown.move_to_end(mesh)
        while len(self._shown) > MOST_MESHES:
            self._shown.popitem(last=False)
        return shown

    def _window(self, mesh: str) -> tuple[MeshSnapshot, ...]:
        window = self._meshes.load_state(mesh).window
        if not window:  # of another version: set aside as it was read
            raise unknown_mesh(mesh)
        return window

    def _moment(self, mesh: str, state: MeshState, at: datetime) -> Moment:
        record = self._meshes.load_record(mesh, at)
        snapshot = next((snapshot for snapshot in reversed(state.window) if snapshot.observed_at == at), None)
        if snapshot is None:  # dropped in between
            raise unknown_instant(mesh, at)
        return _moment(snapshot, VerdictDocument.model_validate_json(record.document), record)


def _moment(snapshot: MeshSnapshot, verdict: VerdictDocument, record: Record) -> Moment:
    return Moment(snapshot, Deviations.unpack(record.deviations, snapshot), verdict, record.seconds)


def _arranged(layout: Layout | None, state: MeshState, moment: Moment) -> Layout:
    """Places of all services known of a mesh, and of those that its incidents name; who has a place keeps it."""
    names = tuple(dict.fromkeys((*state.node_ids, *moment.snapshot.node_ids, *gone_services(moment))))
    if layout is not None and set(names) <= set(layout.names):
        return layout
    rates = np.ones(state.edge_index.shape[1], np.float32)
    return arrange(names, state.edge_index, rates, layout)
