"""Views of a mesh in a session: cached maps, stable positions, stored instants."""

import asyncio
import zlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import pytest

from lab.simulator.events.faults import Fault
from lab.simulator.events.operations import BenignChange
from lab.simulator.events.wiring import eligible_services
from lab.simulator.mesh.topology import GATEWAYS, MeshSpec
from lab.simulator.simulator import Simulator
from model.checkpoint import load
from model.mesh_weights import Weights
from model.snapshot import MeshSnapshot
from serve_app.api.schemas.verdict import VerdictDocument
from serve_app.api.schemas.views import GraphDocument
from serve_app.deployments.session import reader as session_reader
from serve_app.deployments.session.api import SessionApi
from serve_app.deployments.session.reader import Reader, VerdictSignal
from serve_app.errors import InvalidParameter, UnknownInstant, UnknownMesh
from serve_app.pipeline import Options
from serve_app.settings import Settings
from serve_app.web import queries as viewing
from serve_app.web.assets import GZIP
from serve_app.web.documents import MapDocument
from serve_app.web.graph.map import map_document
from serve_app.web.history import instant
from serve_app.web.moment import Moment
from tests.builders import served_models
from tests.serve_app.running import failing
from tests.serve_app.web.watching import Watched

SPEC = MeshSpec(services=40, seed=3, latent=0.1)
MESH = "shop"


def recording(snapshots: int, *faults: Fault, changes: tuple[BenignChange, ...] = ()) -> list[MeshSnapshot]:
    return list(Simulator(SPEC, faults, changes, snapshots=snapshots).snapshots())


def reader_of(watched: Watched, signal: VerdictSignal) -> Reader:
    return Reader(watched.store, watched.meshes, served_models(Settings(), Weights(load())), Options(), signal, {})


def read_map(
    watched: Watched, mesh: str = MESH, at: datetime | None = None, expand: tuple[str, ...] = ()
) -> MapDocument:
    return MapDocument.model_validate_json(zlib.decompress(watched.viewing.map(mesh, at, expand), GZIP))


def places(document: MapDocument) -> dict[str, tuple[float, float]]:
    return dict(zip(document.nodes.name, zip(document.nodes.x, document.nodes.y, strict=True), strict=True))


def test_a_map_is_of_the_newest_snapshot_or_of_the_requested_instant(watched_mesh: Watched) -> None:
    snapshots = recording(15)
    verdicts = watched_mesh.see(MESH, snapshots)
    for at, snapshot, verdict in (
        (None, snapshots[-1], verdicts[-1]),
        (snapshots[4].observed_at, snapshots[4], verdicts[4]),
    ):
        drawn = read_map(watched_mesh, at=at)
        assert (instant(drawn.observed_at), drawn.status) == (verdict["observed_at"], verdict["status"])
        assert tuple(drawn.nodes.name) == snapshot.node_ids
        seen = watched_mesh.meshes.load_scored(MESH, watched_mesh.meshes.load_state(MESH), at)
        assert seen.snapshot.digest == snapshot.digest
        deviations = seen.deviations.services
        assert drawn.nodes.deviation == [None if np.isnan(d) else round(float(d), 2) for d in deviations]
    assert places(read_map(watched_mesh)) == places(read_map(watched_mesh, at=snapshots[4].observed_at))


def test_a_mesh_that_an_upgrade_sets_aside_has_no_stored_snapshots(watched_mesh: Watched) -> None:
    watched_mesh.see(MESH, recording(12))
    stored = watched_mesh.store.load(MESH)
    assert stored is not None
    watched_mesh.store.replace(MESH, b"of another version", revision=stored.revision)
    with pytest.raises(UnknownMesh, match="nothing is stored under this name"):
        watched_mesh.viewing.timeline(MESH, None, 100)


def test_unknown_instants_are_not_found(watched_mesh: Watched) -> None:
    snapshots = recording(14)
    watched_mesh.see(MESH, snapshots, window=10)
    for at in (snapshots[3].observed_at, snapshots[-1].observed_at + timedelta(seconds=1)):
        with pytest.raises(UnknownInstant, match=r"no snapshot of .* is kept"):
            watched_mesh.viewing.map(MESH, at, ())
        with pytest.raises(UnknownInstant):
            watched_mesh.meshes.load_verdict(MESH, at)
        with pytest.raises(UnknownInstant):
            watched_mesh.meshes.load_scored(MESH, watched_mesh.meshes.load_state(MESH), at)
    assert read_map(watched_mesh, at=snapshots[4].observed_at).services
    for moment in (None, snapshots[0].observed_at):
        with pytest.raises(UnknownMesh):
            watched_mesh.viewing.map("nowhere", moment, ())
        with pytest.raises(UnknownMesh):
            watched_mesh.meshes.load_verdict("nowhere", at)


def test_services_keep_their_positions_when_others_come_and_go(watched_mesh: Watched) -> None:
    mesh = Simulator(SPEC).mesh
    newcomer, leaver = (
        mesh.topology.node_ids[eligible_services(mesh, kind)[0]] for kind in ("new_service", "deletion")
    )
    changes = (BenignChange("new_service", newcomer, 14), BenignChange("deletion", leaver, 20))
    snapshots = recording(30, changes=changes)
    watched_mesh.see(MESH, snapshots[:13])
    before = places(read_map(watched_mesh))
    watched_mesh.see(MESH, snapshots[13:18])
    joined = places(read_map(watched_mesh))
    assert newcomer in joined
    assert newcomer not in before
    assert joined | before == joined, "a new service moves no other service"
    watched_mesh.see(MESH, snapshots[18:])
    left = read_map(watched_mesh)
    assert leaver not in snapshots[-1].node_ids
    assert {name: at for name, at in places(left).items() if name in joined} == {
        name: joined[name] for name in left.nodes.name if name in joined
    }
    assert places(read_map(watched_mesh, at=snapshots[12].observed_at)) == before, "a look at the past moves no service"


def test_a_vanished_service_is_drawn_at_its_last_position(watched_mesh: Watched) -> None:
    culprit = failing(SPEC, "disappearance")
    snapshots = recording(32, Fault("disappearance", culprit, 24, 32))
    watched_mesh.see(MESH, snapshots[:24])
    before = places(read_map(watched_mesh))
    verdicts = watched_mesh.see(MESH, snapshots[24:])
    named = {suspect["service"] for suspect in verdicts[-1]["suspects"]}
    assert culprit in named - set(snapshots[-1].node_ids)
    drawn = read_map(watched_mesh)
    at = drawn.nodes.name.index(culprit)
    assert (drawn.nodes.gone[at], drawn.nodes.deviation[at]) == (True, None)
    assert places(drawn)[culprit] == before[culprit]
    last = next(s for s in reversed(snapshots) if culprit in s.node_ids)
    callers = {last.node_ids[s] for s, d in last.edge_index.T if last.node_ids[d] == culprit} & set(drawn.nodes.name)
    lost = {
        drawn.nodes.name[s]
        for s, d, rate in zip(drawn.edges.source, drawn.edges.destination, drawn.edges.requests_per_second, strict=True)
        if d == at and rate is None
    }
    assert lost == callers
    assert lost


def test_the_usual_values_of_the_front_door_leave_out_an_incident_that_is_over(watched_mesh: Watched) -> None:
    entry = next(name for name in Simulator(SPEC).node_ids if name.split("/")[1].startswith(GATEWAYS))
    verdicts = watched_mesh.see(MESH, recording(80, Fault("error_burst", entry, 40, 50, 0.9)))
    opened = [verdict["observed_at"] for verdict in verdicts if verdict["incidents"]]
    assert opened
    assert not verdicts[-1]["incidents"]
    door = read_map(watched_mesh).front_door
    assert door is not None
    errors = next(history for history in door.metrics if history.metric == "error_rate")
    during = [value for at, value in zip(door.times, errors.observed, strict=True) if instant(at) in opened]
    assert max(value for value in during if value is not None) > 5 * (errors.high[-1] or 0)


def test_in_an_incident_longer_than_the_window_the_stored_minutes_before_it_are_usual(watched_mesh: Watched) -> None:
    fault = Fault("latency_injection", failing(SPEC, "latency_injection"), 60, 160, 8.0)
    made, window = recording(140, fault), 60
    watched_mesh.see(MESH, made, window=window)
    (incident,) = watched_mesh.verdicts[-1]["incidents"]
    assert datetime.fromisoformat(incident["since"]) < made[-window].observed_at, "the window holds the incident only"
    door = read_map(watched_mesh).front_door
    assert door is not None
    assert all(None not in (history.low[-1], history.high[-1]) for history in door.metrics)
    (p99,) = (history for history in door.metrics if history.metric == "p99_latency")
    assert (p99.high[-1] or 0) < (p99.observed[-1] or 0), "the incident itself is not usual"


def test_ten_pages_cost_as_much_as_one(watched_mesh: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    watched_mesh.see(MESH, recording(12))
    made: list[Moment] = []

    def counted(moment: Moment, *arguments: Any) -> bytes:
        made.append(moment)
        return map_document(moment, *arguments)

    monkeypatch.setattr(viewing, "map_document", counted)
    used: dict[str, Any] = dict.fromkeys(field.name for field in fields(SessionApi))
    used |= {"pages": watched_mesh.viewing, "page_thread": ThreadPoolExecutor(1)}
    api = SessionApi(**used)

    async def ten() -> list[bytes]:
        return await asyncio.gather(*(api.call("pages", "map", MESH, None, ()) for _ in range(10)))

    maps = asyncio.run(ten())
    assert len(made) == 1
    assert set(maps) == {maps[0]}
    watched_mesh.see(MESH, recording(13)[12:])
    assert set(asyncio.run(ten())) != {maps[0]}
    assert len(made) == 2


def test_of_a_large_mesh_only_the_surroundings_of_a_service_are_returned(
    watched_mesh: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshot = recording(1)[0]
    watched_mesh.see(MESH, [snapshot])
    reader = reader_of(watched_mesh, VerdictSignal())
    monkeypatch.setattr(session_reader, "MAX_IN_GRAPH", snapshot.num_nodes)
    whole = reader.graph(MESH, None)
    assert whole.snapshot.num_nodes == snapshot.num_nodes
    monkeypatch.setattr(session_reader, "MAX_IN_GRAPH", snapshot.num_nodes - 1)
    with pytest.raises(InvalidParameter, match=r"service or incidents=true .* of more than 39 services"):
        reader.graph(MESH, None)
    source, destination = snapshot.edge_index
    row = int(source[0])
    pages = watched_mesh.viewing
    part = GraphDocument.model_validate_json(pages.graph(MESH, snapshot.observed_at, snapshot.node_ids[row]))
    assert len(part.calls) == ((source == row) | (destination == row)).sum()
    of_incidents = pages.graph(MESH, None, None)
    assert GraphDocument.model_validate_json(of_incidents).services == [], "no incident is open"
    with pytest.raises(InvalidParameter, match="got 'no/such'"):
        pages.graph(MESH, None, "no/such")


def test_cached_maps_and_layouts_are_limited(watched_mesh: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(viewing, "MAX_MESHES", 2)
    snapshots = recording(viewing.MAX_MAPS + 3)
    watched_mesh.see(MESH, snapshots)
    for snapshot in snapshots:
        read_map(watched_mesh, at=snapshot.observed_at)
    held = watched_mesh.viewing._caches
    assert len(held[MESH].maps) == viewing.MAX_MAPS
    for name in ("one", "two"):
        watched_mesh.see(name, snapshots[:1])
        read_map(watched_mesh, name)
    assert list(held) == ["one", "two"]
    watched_mesh.viewing.forget("one")
    watched_mesh.viewing.forget("one")
    assert list(held) == ["two"]


def test_moments_have_snapshot_and_verdict(watched_mesh: Watched) -> None:
    snapshots = recording(14)
    verdicts = watched_mesh.see(MESH, snapshots, window=10)
    moments = watched_mesh.viewing.moments(MESH)
    assert [moment.snapshot.digest for moment in moments] == [snapshot.digest for snapshot in snapshots[4:]]
    assert [instant(moment.verdict.observed_at) for moment in moments] == [v["observed_at"] for v in verdicts[4:]]
    with pytest.raises(UnknownMesh):
        watched_mesh.viewing.moments("nowhere")


# new verdicts


async def test_a_signal_wakes_waiting_tasks_and_leave_no_state() -> None:
    signal = VerdictSignal()
    waiting = [asyncio.create_task(signal.next_verdict("a").wait()) for _ in range(3)]
    other = asyncio.create_task(signal.next_verdict("b").wait())
    await asyncio.sleep(0)
    signal.notify("a")
    await asyncio.gather(*waiting)
    assert not other.done()
    other.cancel()
    await asyncio.wait([other])
    del waiting, other
    assert dict(signal._awaited) == {}
    signal.notify("nobody")


async def test_a_waiting_request_gets_later_verdicts_once(watched_mesh: Watched) -> None:
    snapshots = recording(6)
    pushed = [verdict["observed_at"] for verdict in watched_mesh.see(MESH, snapshots[:3])]
    signal = VerdictSignal()
    reader = reader_of(watched_mesh, signal)

    def times(found: tuple[list[bytes], int]) -> list[str]:
        assert found[1] == watched_mesh.store.revision(MESH)
        return [instant(VerdictDocument.model_validate_json(document).observed_at) for document in found[0]]

    assert times(await reader.new_verdicts(MESH, None, 10, 0.0)) == pushed[-1:]
    assert times(await reader.new_verdicts(MESH, snapshots[0].observed_at, 10, 60.0)) == pushed[1:]
    assert times(await reader.new_verdicts(MESH, snapshots[0].observed_at, 1, 60.0)) == pushed[1:2]
    seen, revision = snapshots[2].observed_at, watched_mesh.store.revision(MESH)
    assert times(await reader.new_verdicts(MESH, seen, 10, 0.01, revision)) == []
    assert times(await reader.new_verdicts(MESH, seen, 10, 60.0, revision - 1)) == [], "another revision is news"
    waiting = [asyncio.create_task(reader.new_verdicts(MESH, seen, 10, 60.0)) for _ in range(3)]
    while not signal._awaited:
        await asyncio.sleep(0)
    came = await asyncio.to_thread(watched_mesh.see, MESH, snapshots[3:4])
    signal.notify(MESH)
    for found in await asyncio.wait_for(asyncio.gather(*waiting), 10):
        assert times(found) == [came[0]["observed_at"]]
    for since in (None, snapshots[0].observed_at):
        with pytest.raises(UnknownMesh):
            await reader.new_verdicts("nowhere", since, 10, 60.0)
