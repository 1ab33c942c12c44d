"""A state that is stored step by step is rebuilt bit for bit, after any snapshot."""

import asyncio
import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from functools import partial
from itertools import islice
from threading import Event
from typing import Any, ParamSpec, TypeVar

import numpy as np
import pytest

from lab.simulator.mesh.topology import MeshSpec
from lab.simulator.scenario import plan_scenario
from lab.simulator.simulator import Simulator
from model.checkpoint import load
from model.mesh_weights import Weights
from model.snapshot import MeshSnapshot
from model.state.serialization import pack_state
from serve_app.actions.mutes import add_mute
from serve_app.api.codec import pack_snapshot
from serve_app.api.schemas.actions import MuteDocument
from serve_app.errors import DeadlineExceeded, UnknownMesh
from serve_app.exporter import PrometheusInstruments
from serve_app.mesh_steps import MeshSteps, NextSnapshot
from serve_app.pipeline import LocalRunner, options, prepare, replayer, run_now
from serve_app.settings import ModelSettings, Settings, StoreSettings
from serve_app.stores.archive import unpack_document
from serve_app.stores.cache import CachedMesh, MeshCache
from serve_app.stores.documents import Connections
from serve_app.stores.opening import open_store
from serve_app.stores.records import IncidentFilter, StoredState
from serve_app.stores.repository import FEW_STEPS, MAX_STEPS, MeshRepository
from serve_app.stores.scored_snapshot import gauges
from serve_app.stores.state_store import StateStore
from tests.serve_app.stores.local import locally
from tests.timing import PATIENCE_SECONDS

CHECKPOINT = load()
P = ParamSpec("P")
T = TypeVar("T")


class Session:
    """Steps over a store, with a cache that is lost with the session."""

    def __init__(
        self,
        store: StateStore,
        settings: Settings,
        mesh: str = "prod",
        *,
        instruments: PrometheusInstruments | None = None,
        budget: int = 2**28,
    ) -> None:
        self.mesh, self._options = mesh, options(settings, mesh)
        cache = MeshCache(budget, instruments=instruments)
        self.meshes = MeshRepository(store, cache, replayer(Weights(CHECKPOINT).of, settings), instruments)
        self.steps = MeshSteps(store, self.meshes)

    def push(self, snapshot: MeshSnapshot, **more: Any) -> bytes:
        push = NextSnapshot(self.mesh, pack_snapshot(snapshot), **more)
        return run_now(self.steps.push(push, self._options, LocalRunner(CHECKPOINT))).document

    def tidy(self) -> None:
        asyncio.run(self.steps.tidy(self.mesh, self.meshes.get(self.mesh), self._options))


def busy_mesh(snapshots: int, interval_seconds: float = 28) -> Iterator[MeshSnapshot]:
    """Return a mesh with newcomers, canaries, deploys, silences, missing snapshots, a fault, and a pause. By default, a
    block of the history has four snapshots."""
    spec = MeshSpec(
        services=24,
        calls_per_service=3,
        seed=3,
        latent=0.5,
        interval_seconds=interval_seconds,
        silences_per_hour=20,
    )
    faults, changes = plan_scenario(
        spec, ("error_burst",), 3, snapshots=snapshots, first=30, duration=(16, 20), quiet=(16, 20), churn_per_hour=60
    )
    simulator = Simulator(spec, faults, changes, snapshots)
    scraped = (snapshot for i, snapshot in enumerate(simulator.snapshots()) if i % 23 not in (11, 12))
    for i, snapshot in enumerate(scraped):
        late = timedelta(minutes=5) if i >= 90 else timedelta(0)
        yield replace(snapshot, observed_at=snapshot.observed_at + late)


def assert_equal(ours: CachedMesh, theirs: CachedMesh) -> None:
    a, b = ours.mesh.state, theirs.mesh.state
    assert pack_state(a) == pack_state(b)
    assert [snapshot.digest for snapshot in a.window] == [snapshot.digest for snapshot in b.window]
    assert (ours.revision, ours.full and ours.full.sequence) == (theirs.revision, theirs.full and theirs.full.sequence)


@pytest.mark.parametrize("tidy", [False, True])
@pytest.mark.parametrize(
    ("place", "window", "interval"),
    [("local", 120, 28), ("local", 120, 1), ("local", 12, 28), ("local", 10, 28), ("local", 10, 12), ("redis", 10, 28)],
    indirect=["place"],
)
def test_a_rebuilt_state_is_the_same_to_the_bit(place: StoreSettings, window: int, interval: float, tidy: bool) -> None:
    settings = Settings(model=ModelSettings(window_size=window))
    sizes, replayed, topologies = [], 0, set()
    with closing(open_store(place)) as store:
        session = Session(store, settings)
        for i, snapshot in enumerate(busy_mesh(130 if interval == 1 else 110, interval)):
            session.push(snapshot, is_counted=i >= 5)
            if i == 50:
                end = snapshot.observed_at + timedelta(minutes=10)
                mute = MuteDocument(services=[snapshot.node_ids[0]], end=end, reason="load test")
                asyncio.run(session.steps.change("prod", partial(add_mute, document=mute)))
            if tidy:
                session.tidy()
            ours, theirs = session.meshes.get("prod"), Session(store, settings).meshes.get("prod")
            assert_equal(theirs, ours)
            assert ours.full is not None
            replayed += (steps := ours.mesh.state.sequence - ours.full.sequence) > 0
            sizes.append(steps)
            topologies.add(ours.mesh.state.edge_index.shape[1])
    assert interval == 1 or len(topologies) > 3, "in two minutes, no call changes"
    limit = min(MAX_STEPS, window // 2)
    assert 0 < max(sizes) < limit // 2 if tidy else limit // 2 < max(sizes) <= limit
    assert replayed > (15 if tidy else 60)


def test_a_connected_mesh_that_is_deleted_while_it_is_polled_stays_deleted(place: StoreSettings) -> None:
    snapshots = list(busy_mesh(3))
    with closing(open_store(place)) as store:
        session, connections = Session(store, Settings()), Connections(store)
        connections.add("prod", "http://prometheus:9090")
        session.push(snapshots[0], is_connected=True)
        assert connections.remove("prod")
        session.meshes.delete("prod")
        with pytest.raises(UnknownMesh, match="it was deleted while its Prometheus was read"):
            session.push(snapshots[1], is_connected=True)
        assert not session.meshes.get("prod").revision
        session.push(snapshots[2])  # someone pushes it


def test_a_session_that_starts_after_any_snapshot_gives_the_same_verdicts(place: StoreSettings) -> None:
    with closing(open_store(place)) as first_store, closing(open_store(place)) as second_store:
        session, settings = Session(first_store, Settings()), Settings()
        for snapshot in busy_mesh(70):
            ours, theirs = session.push(snapshot), Session(second_store, settings, mesh="other").push(snapshot)
            assert np.array_equal(np.frombuffer(ours, np.uint8), np.frombuffer(theirs, np.uint8))


def test_a_push_waits_for_no_full_state(place: StoreSettings) -> None:
    """A full state of some snapshots ago is stored while newer ones are pushed."""
    with closing(open_store(place)) as store:
        session, sizes = Session(store, Settings()), []
        behind: CachedMesh | None = None
        for i, snapshot in enumerate(busy_mesh(60)):
            session.push(snapshot)
            if i % 12 == 5:
                behind = session.meshes.get("prod")
            if i % 12 == 8 and behind is not None:
                full = session.meshes.compact("prod", behind, keep=8).full
                assert full != behind.full
                session.meshes.cached.put("prod", replace(session.meshes.get("prod"), full=full))
                # Its predecessor is no longer there, or the store recognises the write, as of an answer that was lost.
                assert session.meshes.compact("prod", behind, keep=8).full in (behind.full, full)
            ours = session.meshes.get("prod")
            assert_equal(Session(store, Settings()).meshes.get("prod"), ours)
            assert ours.full is not None
            sizes.append(ours.mesh.state.sequence - ours.full.sequence)
    assert (min(sizes[6:]), max(sizes)) == (3, 14)


def test_a_mesh_that_another_session_deleted_during_an_incident_starts_again(place: StoreSettings) -> None:
    with closing(open_store(place)) as store:
        session, other = Session(store, Settings()), Session(store, Settings())
        snapshots = busy_mesh(110)
        for snapshot in snapshots:
            if json.loads(session.push(snapshot))["incidents"]:
                break
        other.meshes.delete("prod")
        sequences = [json.loads(session.push(snapshot))["sequence"] for snapshot in islice(snapshots, 3)]
        assert sequences == [1, 2, 3]


@locally
def test_an_incident_of_the_replayed_past_says_so_in_the_archive_and_a_live_one_does_not(place: StoreSettings) -> None:
    spec = MeshSpec(services=24, calls_per_service=3, seed=3)
    faults, changes = plan_scenario(
        spec, ("error_burst",), 2, snapshots=130, first=30, duration=(16, 20), quiet=(24, 28), churn_per_hour=0
    )
    with closing(open_store(place)) as store:
        session, first_end = Session(store, Settings()), max(faults[0].end, 30) + 12
        for i, snapshot in enumerate(Simulator(spec, faults, changes, 130).snapshots()):
            verdict = json.loads(session.push(snapshot, is_replay=i < first_end))
            assert verdict["replayed"] == (i < first_end)
            (gauge,) = map(gauges, store.meshes())
            assert (gauge.status == "warming_up") == (i < first_end)
        incidents = store.incidents("prod", IncidentFilter())
    assert [unpack_document(incident.document).replayed for incident in incidents] == [False, True]  # the newest first


@locally
def test_an_incident_that_the_replayed_past_shares_with_the_present_is_a_live_one(place: StoreSettings) -> None:
    """People are notified of it with the first live verdict."""
    spec = MeshSpec(services=24, calls_per_service=3, seed=3)
    faults, changes = plan_scenario(
        spec, ("error_burst",), 1, snapshots=90, first=30, duration=(30, 30), quiet=(24, 28), churn_per_hour=0
    )
    with closing(open_store(place)) as store:
        session, is_live = Session(store, Settings()), False
        for snapshot in Simulator(spec, faults, changes, 90).snapshots():
            verdict = json.loads(session.push(snapshot, is_replay=not is_live))
            (gauge,) = map(gauges, store.meshes())
            assert (gauge.incidents > 0) == (is_live and bool(verdict["incidents"]))
            is_live = is_live or bool(verdict["incidents"])
        (incident,) = store.incidents("prod", IncidentFilter())
    assert not unpack_document(incident.document).replayed


@locally
def test_services_and_calls_that_stay_are_checked_once(place: StoreSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    """A push is checked where it is decoded. The session shares the services and calls of the snapshot before it."""
    first, *later = islice(Simulator(MeshSpec(services=20, calls_per_service=2, latent=0)).snapshots(), 3)
    with closing(open_store(place)) as store:
        session = Session(store, Settings())
        session.push(first)
        monkeypatch.setattr(MeshSnapshot, "create", None)
        for snapshot in later:
            session.push(snapshot)
        _, before, after = session.meshes.get("prod").mesh.state.window
    assert [snapshot.digest for snapshot in (before, after)] == [snapshot.digest for snapshot in later]
    assert after.node_ids is before.node_ids
    assert after.edge_index is before.edge_index


@locally
def test_steps_are_small(place: StoreSettings) -> None:
    with closing(open_store(place)) as store:
        session = Session(store, Settings())
        for snapshot in Simulator(MeshSpec(services=200, seed=1), snapshots=12).snapshots():
            session.push(snapshot)
        stored = store.load_state("prod")
        assert stored is not None
        assert len(stored.steps) == 11
        assert max(map(len, stored.steps)) < len(stored.state) / 50


@locally
def test_meshes_that_do_not_fit_into_memory_continue_with_the_same_bits(place: StoreSettings) -> None:
    """Three meshes push in turn. One session holds all of them, the other one of them at a time."""
    with closing(open_store(place)) as first_store, closing(open_store(place)) as second_store:
        settings, instruments = Settings(), PrometheusInstruments()
        names = ("a", "b", "c")
        roomy = [Session(first_store, settings, name) for name in names]
        tight = Session(second_store, settings, instruments=instruments, budget=1)
        snapshots = list(busy_mesh(60))
        for snapshot in snapshots:
            for ours, name in zip(roomy, names, strict=True):
                tight.mesh = f"tight-{name}"
                assert tight.push(snapshot) == ours.push(snapshot)
        text = instruments.text().decode()
        for ours, name in zip(roomy, names, strict=True):
            a, b = ours.meshes.get(name).mesh.state, tight.meshes.get(f"tight-{name}").mesh.state
            assert pack_state(a) == pack_state(b)
            assert [snapshot.digest for snapshot in a.window] == [snapshot.digest for snapshot in b.window]
        again = len(snapshots) - 1
        assert len(tight.meshes.cached) == 1
        assert f'tagae_session_lookups_total{{outcome="hit"}} {again}.0' in text  # the first mesh stays, see cache.py
        assert f'tagae_session_lookups_total{{outcome="miss"}} {2 * again + 3}.0' in text
        assert f"tagae_session_load_seconds_count {2 * again}.0" in text


def test_a_mesh_that_is_read_for_each_snapshot_is_soon_stored_in_full(place: StoreSettings) -> None:
    with closing(open_store(place)) as store:
        steps = []
        for snapshot in busy_mesh(30):
            Session(store, Settings()).push(snapshot)
            stored = store.load_state("prod")
            assert stored is not None
            steps.append(len(stored.steps))
        assert max(steps) == FEW_STEPS


class LateRunner(LocalRunner):
    """Has time for the mesh to be read, and for nothing after it."""

    async def run(self, stage: str, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        if function is prepare:
            raise DeadlineExceeded("too late")
        return await super().run(stage, function, *args, **kwargs)


@locally
def test_a_mesh_that_was_read_too_slowly_for_one_snapshot_is_in_memory_for_the_next(place: StoreSettings) -> None:
    settings, snapshots = Settings(), list(busy_mesh(12))
    with closing(open_store(place)) as store:
        before = Session(store, settings)
        for snapshot in snapshots[:-1]:
            before.push(snapshot)
        after = Session(store, settings)
        push = NextSnapshot(after.mesh, pack_snapshot(snapshots[-1]))
        with pytest.raises(DeadlineExceeded):
            run_now(after.steps.push(push, options(settings, after.mesh), LateRunner(CHECKPOINT)))
        held = after.meshes.cached.get(after.mesh)
        assert held is not None
        assert_equal(held, before.meshes.get(before.mesh))
        assert after.meshes.get(after.mesh) is held
        assert json.loads(after.push(snapshots[-1]))["sequence"] == len(snapshots)


@locally
def test_a_mesh_without_new_data_is_read_once_for_all_who_look_at_it(place: StoreSettings) -> None:
    settings = Settings()
    with closing(open_store(place)) as store:
        before = Session(store, settings)
        for snapshot in islice(busy_mesh(12), 12):
            before.push(snapshot)
        restarted = Session(store, settings, instruments=(instruments := PrometheusInstruments()))
        first, second, third = (restarted.meshes.load(restarted.mesh) for _ in range(3))
        assert_equal(first, before.meshes.get(before.mesh))
        assert first is second is third
        assert "tagae_session_load_seconds_count 1.0" in instruments.text().decode()


@locally
def test_a_mesh_is_read_once_for_all_who_wait_for_it(place: StoreSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings()
    with closing(open_store(place)) as store:
        Session(store, settings).push(next(busy_mesh(1)))
        session, begun, may_end = Session(store, settings), Event(), Event()
        read, reads = store.load_state, []

        def read_slowly(mesh: str) -> StoredState | None:
            reads.append(mesh)
            begun.set()
            assert may_end.wait(PATIENCE_SECONDS)
            return read(mesh)

        monkeypatch.setattr(store, "load_state", read_slowly)
        with ThreadPoolExecutor(2) as pool:
            first = pool.submit(session.meshes.get, session.mesh)
            assert begun.wait(PATIENCE_SECONDS)
            second = pool.submit(session.meshes.get, session.mesh)
            may_end.set()
            assert first.result(PATIENCE_SECONDS) is second.result(PATIENCE_SECONDS)
        assert reads == [session.mesh]
