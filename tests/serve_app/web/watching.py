"""Meshes whose snapshots are scored and stored as in a session, but without Ray."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from model.checkpoint import load
from model.mesh_weights import Weights
from model.snapshot import MeshSnapshot, Owner
from model.verdict import ClusterEvent
from serve_app.api.codec import encode_verdict, pack_snapshot
from serve_app.mesh_steps import MeshSteps
from serve_app.pipeline import Options, advance_in_detail, deviations_of, replayer
from serve_app.runtime.storage import history_limit
from serve_app.settings import Settings
from serve_app.settings.store import HistorySettings
from serve_app.stores.archive import archive_updates
from serve_app.stores.cache import MeshCache
from serve_app.stores.history_writer import HistoryWriter
from serve_app.stores.repository import MeshRepository
from serve_app.stores.scored_snapshot import StoredVerdict
from serve_app.web.incidents import IncidentViews
from serve_app.web.past import PastQueries
from serve_app.web.queries import PageQueries
from tests.serve_app.stores.local import local_store

SECONDS = 0.0123  # recorded duration of a verdict


class Watched:
    """A store in a folder, and the views of it.

    Attributes:
        verdicts: all that were made.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.store = local_store(path)
        self._checkpoint = load()
        replay = replayer(Weights(self._checkpoint).of, Settings())
        self.meshes = MeshRepository(self.store, MeshCache(2**28), replay)
        self.steps = MeshSteps(self.store, self.meshes)
        self._history = HistoryWriter(self.store, history_limit(HistorySettings()))
        self.owners: tuple[tuple[str, Owner], ...] = ()  # patterns of the settings
        self.viewing = PageQueries(self.store, self.meshes, lambda _: self.owners)
        self.past = PastQueries(self.store, self.meshes)
        self.incidents = IncidentViews(self.store, self.meshes)
        self.verdicts: list[dict[str, Any]] = []

    def see(
        self,
        mesh: str,
        snapshots: Iterable[MeshSnapshot],
        window: int = 120,
        events: tuple[ClusterEvent, ...] = (),
        *,
        tidies: bool = True,
    ) -> list[dict[str, Any]]:
        """Score and store snapshots, and return their verdicts. ``events`` are known with each of them. Without
        ``tidies``, the session is killed before it does what is left for later."""
        options, known, verdicts = Options(window_size=window, owners=self.owners), self.meshes.get(mesh), []
        for snapshot in snapshots:
            step = advance_in_detail(self._checkpoint, known.mesh, snapshot, options, events=events)
            verdict = encode_verdict(step.verdict)
            document = verdict.model_dump_json().encode()
            deviations = deviations_of(step.prepared, step.calibrated, snapshot)
            stored = StoredVerdict(snapshot.num_nodes, document, deviations.pack(), SECONDS)
            packed = pack_snapshot(snapshot)
            incidents = archive_updates(self.store, mesh, verdict, stored, step.mesh.state.window, window)
            known = self.meshes.append(mesh, known, step.mesh, snapshot, packed, stored, incidents, keep=window)
            known = self._history.write(mesh, self.meshes.compact(mesh, known, window), window) if tidies else known
            self.meshes.cached.put(mesh, known)
            verdicts.append(msgspec.json.decode(document))
        self.verdicts += verdicts
        return verdicts
