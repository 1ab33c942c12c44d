"""What is known of one service or call: measured and expected values, callers and callees, and what happened to it."""

import json
from contextlib import closing
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from model.features import NODE_CHANNELS
from model.snapshot import EDGE_METRICS, NODE_METRICS, MeshSnapshot, Owner, ServicePolicy, Signal, SignalKind
from model.verdict import ClusterEvent
from serve_app.alerts.links import LEAD, Links
from serve_app.errors import InvalidParameter, UnknownInstant, UnknownMesh
from serve_app.web.details import MAX_NEIGHBOURS, MAX_SNAPSHOTS, span
from serve_app.web.documents import DetailsDocument
from serve_app.web.history import instant
from serve_app.web.period import Subject
from tests.serve_app.web.slow_service import DEPLOYED, FAULT_FROM, FAULT_TO, LENGTH, MESH, SLOW, SNAPSHOTS, SPEC
from tests.serve_app.web.watching import Watched

DURING, AFTER = 50, LENGTH - 1
LINKS = Links(
    templates={
        "dashboard": "https://grafana.example/d/x?var-service={service}&var-ns={namespace}&from={start_ms}&to={end_ms}",
        "runbook": "https://wiki.example/{kind}",
    }
)


def read(
    seen_mesh: Watched, service: str, source: str | None = None, index: int | None = None, mesh: str = MESH
) -> DetailsDocument:
    at = None if index is None else SNAPSHOTS[index].observed_at
    return DetailsDocument.model_validate_json(seen_mesh.viewing.details(mesh, Subject(service, source), at, LINKS))


def columns(document: DetailsDocument, metric: str) -> dict[str, Any]:
    (found,) = (history for history in document.metrics if history.metric == metric)
    return {
        name: np.array(getattr(found, name), float)  # null becomes NaN
        for name in ("observed", "expected", "low", "high")
    }


def test_the_metrics_of_a_service_are_those_of_the_snapshots(seen_mesh: Watched) -> None:
    document = read(seen_mesh, SLOW)
    assert [history.metric for history in document.metrics] == list(NODE_METRICS)
    assert [instant(at) for at in document.times] == [instant(snapshot.observed_at) for snapshot in SNAPSHOTS]
    for i, metric in enumerate(NODE_METRICS):
        measured = [snapshot.node_features[snapshot.node_ids.index(SLOW), i] for snapshot in SNAPSHOTS]
        np.testing.assert_allclose(columns(document, metric)["observed"], measured, rtol=1e-4)
    assert (document.state, document.source) == ("scored", None)
    assert document.measured_at == document.observed_at == SNAPSHOTS[-1].observed_at
    rate = SNAPSHOTS[-1].node_features[SNAPSHOTS[-1].node_ids.index(SLOW), 0]
    assert document.requests == pytest.approx(rate * SPEC.interval_seconds, rel=1e-3)


def test_a_service_has_its_signals_without_expected_values(tmp_path: Path) -> None:
    lag, kill = Signal(SignalKind.QUEUE_DEPTH, SLOW, 5200.0), Signal(SignalKind.OOM_KILLS, SLOW, 1.0)
    kept = Watched(tmp_path)
    with closing(kept.store):
        kept.see(MESH, [SNAPSHOTS[0], replace(SNAPSHOTS[1], signals=(lag, kill))])
        found, other = (read(kept, name) for name in (SLOW, DEPLOYED))
    assert found.signals == {"queue_depth": [None, 5200.0], "oom_kills": [0.0, 1.0]}
    assert [history.metric for history in found.metrics] == list(NODE_METRICS)
    assert other.signals == {}


def test_a_fault_leaves_the_usual_range_and_the_expected_value_stays(seen_mesh: Watched) -> None:
    slow = columns(read(seen_mesh, SLOW), "p50_latency")
    assert (slow["low"] < slow["expected"]).all()
    assert (slow["expected"] < slow["high"]).all()
    before, during = slice(20, FAULT_FROM), slice(FAULT_FROM + 2, FAULT_TO - 1)
    within = (slow["observed"] > slow["low"]) & (slow["observed"] < slow["high"])
    assert within[before].mean() > 0.9
    assert (slow["observed"][during] > slow["high"][during]).all()
    usual = np.median(slow["observed"][before])
    assert slow["expected"][during] == pytest.approx(usual, rel=0.1)
    assert np.median(slow["observed"][during]) > 1.5 * usual


def test_the_newest_expected_values_are_near_those_of_the_detector(seen_mesh: Watched) -> None:
    """The replay ends near the state that the detector reached, with all that it learned before the kept time."""
    state = seen_mesh.meshes.load_state(MESH)
    found, row = read(seen_mesh, DEPLOYED), state.node_ids.index(DEPLOYED)
    for c, metric in ((0, "request_rate"), (3, "p99_latency"), (5, "memory_utilization")):
        fast, slow = (NODE_CHANNELS[c].inverse(float(state.node_filters[slot, row, c])) for slot in (0, 2))
        last = columns(found, metric)["expected"][-1]
        assert min(fast, slow) * 0.9 <= last <= max(fast, slow) * 1.1, metric


def test_callers_and_callees_have_their_rate_errors_and_latency(seen_mesh: Watched) -> None:
    for index in (DURING, AFTER):
        snapshot, found = SNAPSHOTS[index], read(seen_mesh, SLOW, index=index)
        assert found.observed_at == found.neighbours_at == snapshot.observed_at
        row, edges = snapshot.node_ids.index(SLOW), snapshot.edge_index
        for mine, theirs, neighbours in ((1, 0, found.callers), (0, 1, found.callees)):
            calls = {snapshot.node_ids[edges[theirs, e]]: e for e in np.flatnonzero(edges[mine] == row)}
            assert {neighbour.service for neighbour in neighbours} == set(calls)
            rates = [neighbour.requests_per_second for neighbour in neighbours]
            assert rates == sorted(rates, reverse=True)
            for neighbour in neighbours:
                edge = calls[neighbour.service]
                values = np.where(snapshot.edge_observed[edge], snapshot.edge_features[edge], np.nan).tolist()
                near = [None if np.isnan(value) else pytest.approx(value, rel=1e-3, abs=1e-6) for value in values]
                assert [neighbour.requests_per_second, neighbour.error_rate, neighbour.p99_latency] == [
                    near[0],
                    near[1],
                    near[3],
                ]
                assert neighbour.requests == pytest.approx(values[0] * SPEC.interval_seconds, rel=1e-3)
                assert neighbour.deviation is not None
        assert found.callers_total == len(found.callers) > 0


def test_calls_have_metrics_of_their_own(seen_mesh: Watched) -> None:
    caller = read(seen_mesh, SLOW).callers[0].service
    document = read(seen_mesh, SLOW, caller, DURING)
    assert [history.metric for history in document.metrics] == list(EDGE_METRICS)
    assert (document.service, document.source, document.state) == (SLOW, caller, "scored")
    assert (document.callers, document.callees, document.neighbours_at) == ([], [], None)
    slow = columns(document, "p50_latency")
    assert slow["observed"][DURING] > slow["high"][DURING]
    assert document.requests is not None
    assert document.deviation is not None
    assert document.deviation > 3


def test_incidents_say_which_role_the_service_has_and_whether_they_are_open(seen_mesh: Watched) -> None:
    during, after = read(seen_mesh, SLOW, index=DURING), read(seen_mesh, SLOW)
    (incident,) = (incident for incident in during.incidents if incident.role == "first_suspect")
    assert incident.open
    assert incident.headline
    assert incident.kind == "slow"
    assert SNAPSHOTS[FAULT_FROM - 2].observed_at <= incident.since <= SNAPSHOTS[FAULT_FROM + 7].observed_at
    assert incident.last > SNAPSHOTS[FAULT_TO - 1].observed_at, "its end, which is known by now"
    assert [incident.id for incident in after.incidents] == [incident.id for incident in during.incidents]
    assert not any(incident.open for incident in after.incidents)
    assert after.incidents[0].headline == incident.headline, "not that it was recovering at its end"
    listed = {
        caller.service: [
            incident.id in {incident.id for incident in panel.incidents}
            for panel in (
                read(seen_mesh, SLOW, caller.service, DURING),
                read(seen_mesh, caller.service, index=DURING),
            )
        ]
        for caller in during.callers
    }
    assert {name for name, (of_calls, own) in listed.items() if of_calls != own} == set(), "calls, as their caller"
    assert {of_calls for of_calls, _ in listed.values()} == {True, False}, "of affected callers only"


def test_incidents_from_before_the_kept_snapshots_are_listed_too(watched_mesh: Watched) -> None:
    """A week later, when no kept verdict has them."""
    later = [replace(snapshot, observed_at=snapshot.observed_at + timedelta(days=7)) for snapshot in SNAPSHOTS[:12]]
    watched_mesh.see(MESH, SNAPSHOTS[: FAULT_TO + 2])
    (incident,) = (incident for incident in read(watched_mesh, SLOW).incidents if incident.role == "first_suspect")
    watched_mesh.see(MESH, [*SNAPSHOTS[FAULT_TO + 2 :], *later], window=12)
    document = read(watched_mesh, SLOW)
    inside = {*json.loads(watched_mesh.incidents.detail(MESH, incident.id))["affected"]}
    caller = next(caller.service for caller in document.callers if caller.service in inside)
    affected, calls = read(watched_mesh, caller), read(watched_mesh, SLOW, caller)
    calm = read(watched_mesh, DEPLOYED)
    (earlier,) = (one for one in document.incidents if one.id == incident.id)
    assert (earlier.since, earlier.role, earlier.kind) == (incident.since, "first_suspect", "slow")
    assert earlier.headline
    assert earlier.last < document.times[0]
    assert not earlier.open
    assert incident.id in {incident.id for incident in affected.incidents}
    assert incident.id in {incident.id for incident in calls.incidents}
    assert incident.id not in {incident.id for incident in calm.incidents}


def test_a_change_is_listed_at_its_service_only(seen_mesh: Watched) -> None:
    (change,) = (change for change in read(seen_mesh, DEPLOYED).changes if change.kind == "deploy")
    assert (change.service, change.at) == (DEPLOYED, SNAPSHOTS[25].observed_at)
    assert all(change.service == SLOW for change in read(seen_mesh, SLOW).changes)


def test_a_kubernetes_event_is_listed_once(watched_mesh: Watched) -> None:
    seen = SNAPSHOTS[FAULT_FROM].observed_at
    event = ClusterEvent("BackOff", SLOW, "Pod cart-x", "restarting", seen, seen, 3)
    other = replace(event, service=DEPLOYED)
    watched_mesh.see(MESH, SNAPSHOTS[:DURING], events=(event, other))
    found = read(watched_mesh, SLOW).events
    assert [(event.kind, event.service, event.count) for event in found] == [("BackOff", SLOW, 3)]


def test_mutes_in_force_are_those_of_the_service(watched_mesh: Watched) -> None:
    namespace = SLOW.split("/")[0]
    policies = (ServicePolicy(f"{namespace}/*", mute="a migration"), ServicePolicy("elsewhere/*", mute="another one"))
    watched_mesh.see(MESH, [replace(snapshot, policies=policies) for snapshot in SNAPSHOTS[:14]])
    assert [mute.reason for mute in read(watched_mesh, SLOW).muted] == ["a migration"]
    other = next(name for name in SNAPSHOTS[0].node_ids if not name.startswith(f"{namespace}/"))
    assert read(watched_mesh, other).muted == []


def test_the_owner_is_that_of_the_settings_else_of_the_snapshot(watched_mesh: Watched) -> None:
    policies = (ServicePolicy(f"{SLOW.split('/')[0]}/*", owner=Owner("checkout", "#checkout")),)
    watched_mesh.see(MESH, [replace(snapshot, policies=policies) for snapshot in SNAPSHOTS[:12]])
    assert (read(watched_mesh, SLOW).team, read(watched_mesh, SLOW).contact) == ("checkout", "#checkout")
    watched_mesh.owners = (("*/*", Owner("platform")),)
    assert (read(watched_mesh, SLOW).team, read(watched_mesh, SLOW).contact) == ("platform", "")


def without_service(snapshot: MeshSnapshot, *, silent: str = "", without: str = "") -> MeshSnapshot:
    """The snapshot without the metrics of one service, and without another service."""
    names = np.array(snapshot.node_ids)
    keep = np.flatnonzero(names != without)
    measured = replace(snapshot, node_observed=snapshot.node_observed & (names != silent)[:, None])
    return measured.take(keep, np.flatnonzero(np.isin(snapshot.edge_index, keep).all(axis=0)))


def test_a_service_without_telemetry_or_without_a_score_says_so(watched_mesh: Watched) -> None:
    watched_mesh.see(MESH, SNAPSHOTS[:8])
    assert read(watched_mesh, SLOW).state == "warming_up"
    watched_mesh.see(MESH, SNAPSHOTS[8:20])
    watched_mesh.see(MESH, [without_service(snapshot, silent=SLOW) for snapshot in SNAPSHOTS[20:23]])
    silent = read(watched_mesh, SLOW)
    assert (silent.state, silent.measured_at) == ("silent", SNAPSHOTS[19].observed_at)
    assert np.isnan(columns(silent, "p99_latency")["observed"][-3:]).all()
    assert silent.requests is None
    watched_mesh.see(MESH, [without_service(snapshot, without=SLOW) for snapshot in SNAPSHOTS[23:26]])
    absent = read(watched_mesh, SLOW)
    assert (absent.state, absent.deviation) == ("absent", None)
    assert absent.neighbours_at == SNAPSHOTS[22].observed_at
    assert absent.callers
    assert all(caller.deviation is None for caller in absent.callers)
    assert read(watched_mesh, SLOW, index=19).state == "scored"


def test_links_lead_to_the_time_of_the_open_incident(seen_mesh: Watched) -> None:
    (incident,) = (incident for incident in read(seen_mesh, SLOW, index=DURING).incidents if incident.open)
    namespace, name = SLOW.split("/")
    to = round(1000 * SNAPSHOTS[DURING].observed_at.timestamp())
    start = round(1000 * (incident.since - LEAD).timestamp())
    assert read(seen_mesh, SLOW, index=DURING).links == {
        "dashboard": f"https://grafana.example/d/x?var-service={name}&var-ns={namespace}&from={start}&to={to}",
        "runbook": "https://wiki.example/slow",
    }
    calm = read(seen_mesh, SLOW).links
    assert set(calm) == {"dashboard"}, "without an incident there is no kind"
    own = Links(templates={"logs": "https://logs"}, templates_by_mesh={MESH: {"logs": "https://own-logs"}})
    document = seen_mesh.viewing.details(MESH, Subject(SLOW), None, own)
    assert DetailsDocument.model_validate_json(document).links == {"logs": "https://own-logs"}


def test_what_is_not_there_is_refused(seen_mesh: Watched) -> None:
    for subject, what in (
        (Subject("shop/none"), "service 'shop/none'"),
        (Subject(SLOW, "shop/none"), f"calls 'shop/none' -> {SLOW!r}"),
        (Subject(SLOW, SLOW), f"calls {SLOW!r} -> {SLOW!r}"),
    ):
        with pytest.raises(InvalidParameter, match=f"{what}: .*got none; take a name from the graph"):
            seen_mesh.viewing.details(MESH, subject, None, LINKS)
    with pytest.raises(UnknownInstant):
        seen_mesh.viewing.details(MESH, Subject(SLOW), SNAPSHOTS[3].observed_at + timedelta(seconds=1), LINKS)
    with pytest.raises(UnknownMesh):
        seen_mesh.viewing.details("nowhere", Subject(SLOW), None, LINKS)


def test_charts_of_a_long_window_show_the_moment(seen_mesh: Watched) -> None:
    start = SNAPSHOTS[0].observed_at
    window = [replace(SNAPSHOTS[0], observed_at=start + timedelta(seconds=15 * i)) for i in range(2000)]
    for index, first in ((1999, 1760), (1800, 1680), (900, 780), (5, 0)):
        shown = span(window, window[index].observed_at)
        assert (len(shown), shown[0].observed_at) == (MAX_SNAPSHOTS, window[first].observed_at)
        assert window[index] in shown


def test_the_lists_of_a_hub_are_bounded(watched_mesh: Watched) -> None:
    count = 2 * MAX_NEIGHBOURS
    rng = np.random.default_rng(0)
    names = [f"big/s{i}" for i in range(count + 1)]
    ends = np.array([[i, count] for i in range(count)]).T
    start = datetime.fromisoformat("2026-03-01T00:00:00Z")
    snapshots = [
        MeshSnapshot.create(
            node_ids=names,
            edge_index=ends,
            node_features=rng.uniform(0.1, 0.2, (count + 1, len(NODE_METRICS))),
            edge_features=rng.uniform(0.1, 0.2, (count, len(EDGE_METRICS))),
            observed_at=start + timedelta(seconds=15 * i),
        )
        for i in range(12)
    ]
    watched_mesh.see(MESH, snapshots)
    document = read(watched_mesh, names[-1])
    assert (len(document.callers), document.callers_total, document.callees_total) == (MAX_NEIGHBOURS, count, 0)
    assert document.callers[0].requests_per_second == pytest.approx(snapshots[-1].edge_features[:, 0].max(), rel=1e-3)
