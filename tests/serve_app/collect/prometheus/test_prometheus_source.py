"""A mesh collected from a correct Prometheus, and from a faulty one."""

from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import timedelta
from typing import Any

import numpy as np
import pytest

from lab.simulator.mesh.topology import MeshSpec
from lab.simulator.simulator import Simulator
from model.snapshot import NODE_METRICS, MeshSnapshot, Owner, Sensitivity, ServicePolicy
from serve_app.collect.base import Finding
from serve_app.collect.prometheus.combine import CALLS, KUBERNETES, SERVICES
from serve_app.collect.prometheus.detect import MeshSource
from serve_app.collect.prometheus.keys import Key
from serve_app.collect.prometheus.kubernetes import read_annotations
from serve_app.collect.prometheus.workloads import read_serving
from serve_app.doctor.telemetry import check_telemetry
from serve_app.settings import CollectorSettings, MeshSettings
from tests.serve_app.collect.prometheus import standin
from tests.serve_app.collect.prometheus.istio_standin import IstioMesh, find_snapshot
from tests.serve_app.collect.prometheus.standin import Samples

SNAPSHOTS = list(Simulator(MeshSpec(services=30, calls_per_service=3.0, seed=5), snapshots=12).snapshots())
FIRST = SNAPSHOTS[0].observed_at
PATIENT = CollectorSettings(deadline_seconds=60)  # a busy machine must not cause a gap


def open_source(mesh: standin.Behaviour, **settings: Any) -> AbstractContextManager[MeshSource]:
    return standin.start_source(mesh, PATIENT, **settings)


def diagnose(mesh: IstioMesh, **settings: Any) -> dict[str, Finding]:
    """Return what the doctor finds in a mesh, by subject."""
    with standin.start_server(mesh) as server:
        given = MeshSettings.model_validate({"prometheus": standin.url_of(server), **settings})
        return {one.subject: one for one in check_telemetry(given, PATIENT, FIRST).findings}


def snapshot_of(mesh: IstioMesh) -> MeshSnapshot:
    with open_source(mesh) as source:
        poll = source.poll(FIRST)
    assert poll.snapshot is not None, poll.why
    return poll.snapshot


def column(snapshot: MeshSnapshot, metric: str) -> dict[str, float]:
    """Return a metric by service; NaN if not observed."""
    place = NODE_METRICS.index(metric)
    values = np.where(snapshot.node_observed[:, place], snapshot.node_features[:, place], np.nan)
    return dict(zip(snapshot.node_ids, values.tolist(), strict=True))


def assert_alike(came: MeshSnapshot, wanted: MeshSnapshot) -> None:
    """Check for the same services, calls and values, in any order."""
    assert set(came.node_ids) == set(wanted.node_ids)
    for metric in NODE_METRICS:
        if metric == "error_rate":  # the larger of two views: the callers' errors may be larger
            assert all(v >= column(wanted, metric)[k] - 1e-5 for k, v in column(came, metric).items())
            continue
        assert column(came, metric) == pytest.approx(column(wanted, metric), rel=1e-4, abs=1e-6, nan_ok=True), metric
    calls = [
        {
            (s.node_ids[a], s.node_ids[b]): row
            for (a, b), row in zip(s.edge_index.T, np.where(s.edge_observed, s.edge_features, np.nan), strict=True)
        }
        for s in (came, wanted)
    ]
    assert calls[0].keys() == {key for key, row in calls[1].items() if row[0] > 0}
    for key, row in calls[0].items():
        failing = np.nan_to_num(calls[1][key][1])  # without a series of failures there are no errors
        wanted_row = np.concatenate([calls[1][key][:1], [failing], calls[1][key][2:]])
        np.testing.assert_allclose(row, wanted_row, rtol=1e-4, atol=1e-6)


def test_a_poll_returns_the_snapshot_of_the_mesh() -> None:
    assert_alike(snapshot_of(IstioMesh(find_snapshot(SNAPSHOTS))), SNAPSHOTS[0])


def test_an_instant_without_any_series_has_no_snapshot_but_a_reason() -> None:
    with open_source(IstioMesh(lambda _: None)) as source:
        poll = source.poll(FIRST)
    assert poll.snapshot is None
    assert "no service has a request rate over the last 60 s" in poll.why


def test_old_values_replace_a_failed_query_until_they_are_too_old() -> None:
    mesh = IstioMesh(find_snapshot(SNAPSHOTS))
    slow = (CALLS, "buckets")
    with open_source(mesh) as source:
        source.poll(FIRST)
        mesh.broken = {slow}
        polls = [source.poll(SNAPSHOTS[i].observed_at) for i in (1, 3, 4, 5)]
        mesh.broken = set()
        well = source.poll(SNAPSHOTS[6].observed_at)
    assert [poll.stale_seconds.get(slow) for poll in polls] == [15.0, 45.0, None, None]
    assert [slow in poll.masked for poll in polls] == [False, False, True, True]
    seen = [poll.snapshot.edge_observed[:, 2].any() for poll in polls if poll.snapshot]
    assert seen == [True, True, False, False]
    assert (well.masked, dict(well.stale_seconds)) == ((), {})
    assert well.snapshot is not None
    assert_alike(well.snapshot, SNAPSHOTS[6])


@pytest.mark.parametrize("lost", [(SERVICES, "requests"), (CALLS, "requests")])
def test_without_requests_there_is_no_snapshot_rather_than_an_empty_mesh(lost: tuple[str, str]) -> None:
    with open_source(IstioMesh(find_snapshot(SNAPSHOTS), broken={lost})) as source:
        poll = source.poll(FIRST)
    assert poll.snapshot is None
    assert lost[0] in poll.why
    assert "overloaded" in poll.why


def test_without_failures_there_is_no_series_and_no_error() -> None:
    snapshot = snapshot_of(IstioMesh(find_snapshot(SNAPSHOTS), altered={(SERVICES, "failures"): lambda _: []}))
    assert all(rate >= 0 for rate in column(snapshot, "error_rate").values())
    alone = snapshot_of(
        IstioMesh(find_snapshot(SNAPSHOTS), altered={(of_, "failures"): lambda _: [] for of_ in (SERVICES, CALLS)})
    )
    observed = [rate for rate in column(alone, "error_rate").values() if not np.isnan(rate)]
    assert observed
    assert set(observed) == {0.0}


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-Inf"])
def test_a_value_without_information_is_not_observed(value: str) -> None:
    def spoil(samples: Samples) -> Samples:
        return [(labels, value if i == 0 else text) for i, (labels, text) in enumerate(samples)]

    roles = [(SERVICES, "in_flight"), (KUBERNETES, "cpu_usage"), (SERVICES, "buckets")]
    snapshot = snapshot_of(IstioMesh(find_snapshot(SNAPSHOTS), altered=dict.fromkeys(roles, spoil)))
    first = SNAPSHOTS[0].node_ids[0]
    assert np.isnan(column(snapshot, "cpu_utilization")[first])
    assert np.isnan(column(snapshot, "active_connections")[first])
    assert np.isfinite(snapshot.node_features).all()


def test_duplicate_series_are_one_service_and_series_without_a_name_none() -> None:
    """After a relabelling each service has two series for a while: with the old and the new labels."""

    def twice(samples: Samples) -> Samples:
        return [*samples, *samples, ({"destination_service_namespace": "shop"}, "5"), ({}, "5")]

    snapshot = snapshot_of(IstioMesh(find_snapshot(SNAPSHOTS), altered={(SERVICES, "requests"): twice}))
    assert set(snapshot.node_ids) == set(SNAPSHOTS[0].node_ids)
    wanted = {name: 2 * rate for name, rate in column(SNAPSHOTS[0], "request_rate").items()}
    assert column(snapshot, "request_rate") == pytest.approx(wanted, rel=1e-4)


def test_a_dead_service_is_seen_by_its_callers() -> None:
    dead = SNAPSHOTS[0].node_ids[int(np.bincount(SNAPSHOTS[0].edge_index[1]).argmax())]
    name = dead.split("/")[1]

    def without(samples: Samples) -> Samples:
        return [one for one in samples if one[0].get("destination_service_name") != name]

    def all_fail(samples: Samples) -> Samples:
        requests = IstioMesh.samples(mesh, SNAPSHOTS[0], (CALLS, "requests"))
        return [one for one in requests if one[0]["destination_service_name"] == name]

    mesh = IstioMesh(find_snapshot(SNAPSHOTS))
    mesh.altered = {(SERVICES, role): without for role in ("requests", "failures", "buckets", "in_flight")}
    mesh.altered[(CALLS, "failures")] = all_fail
    snapshot = snapshot_of(mesh)
    assert column(snapshot, "error_rate")[dead] == pytest.approx(1.0)
    assert column(snapshot, "request_rate")[dead] > 0
    assert np.isnan(column(snapshot, "p99_latency")[dead])


def test_decisions_become_planned_changes_of_the_services_once() -> None:
    service, leaving = SNAPSHOTS[0].node_ids[3:5]
    workload = f"{service}-v1"
    mesh = IstioMesh(
        find_snapshot(SNAPSHOTS), replicas={workload: (2, 1), "shop/other": (1, 1), f"{leaving}-v1": (2, 1)}
    )
    story = [(2, 1), (4, 2), (4, 2), (4, 3), (1, 4), (0, 5)]
    changes = []
    with open_source(mesh) as source:
        for snapshot, decided in zip(SNAPSHOTS, story, strict=False):
            mesh.replicas[workload] = decided
            poll = source.poll(snapshot.observed_at)
            assert poll.snapshot is not None
            changes.append([(c.kind, c.service) for c in poll.snapshot.changes])
        mesh.replicas = {}  # kube-state-metrics is down: no decision is known
        away = source.poll(SNAPSHOTS[6].observed_at)
        mesh.replicas = {"shop/other": (1, 1)}
        back = source.poll(SNAPSHOTS[7].observed_at)
    kinds = ["scale_out", "deploy", "scale_in", "retirement"]
    assert changes == [[], [("scale_out", service)], [], *[[(kind, service)] for kind in kinds[1:]]]
    assert away.snapshot is not None
    assert back.snapshot is not None
    assert away.snapshot.changes == ()
    assert [(c.kind, c.service) for c in back.snapshot.changes] == [
        ("deletion", leaving)
    ]  # the other service had no workload


def test_decisions_just_before_the_first_instant_are_reported() -> None:
    """After a restart the collector resumes at its last instant."""
    service, decided_at = SNAPSHOTS[0].node_ids[3], SNAPSHOTS[4].observed_at

    def at(instant: float) -> MeshSnapshot | None:
        mesh.replicas[f"{service}-v1"] = (2, 2 if instant >= decided_at.timestamp() else 1)
        return find_snapshot(SNAPSHOTS)(instant)

    mesh = IstioMesh(at)
    with open_source(mesh) as source:
        first = source.poll(decided_at)
    assert first.snapshot is not None
    assert [(c.kind, c.service) for c in first.snapshot.changes] == [("deploy", service)]


def test_pods_that_crash_are_no_planned_change() -> None:
    mesh = IstioMesh(find_snapshot(SNAPSHOTS), replicas={f"{SNAPSHOTS[0].node_ids[0]}-v1": (2, 1)})
    with open_source(mesh) as source:
        source.poll(FIRST)
        lost = replace(SNAPSHOTS[1], observed_at=FIRST + timedelta(seconds=15))
        mesh.at = lambda _: lost.take(np.arange(1, 30), np.flatnonzero((lost.edge_index > 0).all(axis=0)))
        poll = source.poll(lost.observed_at)
    assert poll.snapshot is not None
    assert len(poll.snapshot.node_ids) == 29
    assert poll.snapshot.changes == ()


def test_annotations_are_in_the_snapshot_and_hold_without_kube_state_metrics() -> None:
    one, other = SNAPSHOTS[0].node_ids[:2]
    mesh = IstioMesh(find_snapshot(SNAPSHOTS), replicas={f"{one}-v1": (2, 1)})
    with open_source(mesh) as source:
        before = source.poll(FIRST)
        mesh.annotations = {f"{one}-v1": {"mute": " being moved ", "sensitivity": "low"}, f"{other}-v1": {"mute": "no"}}
        annotated = source.poll(SNAPSHOTS[1].observed_at)
        mesh.annotations, mesh.replicas = {}, {}
        away = source.poll(SNAPSHOTS[2].observed_at)
        mesh.broken = {(KUBERNETES, "annotations")}
        broken = source.poll(SNAPSHOTS[11].observed_at)
        mesh.replicas, mesh.broken = {f"{one}-v1": (2, 1)}, set()
        over = source.poll(SNAPSHOTS[11].observed_at)
    assert all(poll.snapshot for poll in (before, annotated, away, broken, over))
    found = [poll.snapshot.policies for poll in (before, annotated, away, broken, over) if poll.snapshot]
    wanted = (ServicePolicy(one, Sensitivity.LOW, "being moved"),)
    assert found == [(), wanted, wanted, wanted, ()]
    (ignored,) = annotated.ignored_annotations
    assert f"{other}-v1: tagae.io/mute: expected the reason" in ignored
    assert (before.ignored_annotations, over.ignored_annotations) == ((), ())


def test_owners_are_in_the_snapshot_and_hold_without_kube_state_metrics() -> None:
    one, other = SNAPSHOTS[0].node_ids[:2]
    namespace = f"{other.split('/')[0]}/"
    mesh = IstioMesh(find_snapshot(SNAPSHOTS), replicas={f"{one}-v1": (2, 1)})
    with open_source(mesh) as source:
        mesh.labels = {f"{one}-v1": {"label_team": "checkout", "annotation_a8r_io_chat": "#checkout"}}
        mesh.labels |= {namespace: {"label_owner": "platform"}}
        owned = source.poll(FIRST)
        mesh.labels, mesh.replicas = {}, {}
        away = source.poll(SNAPSHOTS[1].observed_at)
        mesh.replicas = {f"{one}-v1": (2, 1)}
        over = source.poll(SNAPSHOTS[2].observed_at)
    wanted = (
        ServicePolicy(f"{namespace}*", owner=Owner("platform")),
        ServicePolicy(one, owner=Owner("checkout", "#checkout")),
    )
    found = [poll.snapshot.policies for poll in (owned, away, over) if poll.snapshot]
    assert [sorted(policies, key=lambda policy: policy.service) for policies in found] == [
        sorted(wanted, key=lambda policy: policy.service),
        sorted(wanted, key=lambda policy: policy.service),
        [],
    ]


@pytest.mark.parametrize(
    ("labels", "owners", "outcome", "words"),
    [
        ({}, {}, "ok", "no service has a team"),
        ({}, {"*/*": {"team": "platform"}}, "ok", "all 30 services have a team"),
        ({"label_team": "checkout"}, {}, "warning", "29 of 30 services have no team: "),
        ({"label_a8r_io_chat": "#nobody"}, {}, "ok", "no service has a team"),
    ],
)
def test_the_doctor_counts_services_without_a_team(
    labels: dict[str, str], owners: dict[str, Any], outcome: str, words: str
) -> None:
    mesh = IstioMesh(find_snapshot(SNAPSHOTS), labels={f"{SNAPSHOTS[0].node_ids[0]}-v1": labels})
    teams = diagnose(mesh, owners=owners)["teams"]
    assert (teams.outcome, bool(teams.remedy)) == (outcome, outcome == "warning")
    assert teams.found.startswith(words)


@pytest.mark.parametrize(
    ("annotated", "wanted"),
    [
        ([("v1", "sensitivity", "low")], ServicePolicy("shop/cart", Sensitivity.LOW)),
        ([("v1", "sensitivity", "low"), ("v2", "sensitivity", "high")], ServicePolicy("shop/cart", Sensitivity.HIGH)),
        ([("v1", "mute", "one"), ("v2", "mute", "two")], ServicePolicy("shop/cart", mute="one")),
        ([("v2", "mute", "two"), ("v1", "sensitivity", "x")], ServicePolicy("shop/cart", mute="two")),
        ([("v1", "sensitivity", "Low")], None),
        ([("v1", "mute", "x" * 201)], None),
        ([("v1", "mute", "True")], None),
    ],
)
def test_annotations_of_the_workloads_of_a_service(
    annotated: list[tuple[str, str, str]], wanted: ServicePolicy | None
) -> None:
    pairs: dict[Key, float] = {("shop", workload, "shop", "cart"): 1.0 for workload in ("v1", "v2")}
    found: dict[Key, float] = {("shop", *one): 1.0 for one in annotated}
    policies, ignored = read_annotations([found, None], read_serving(pairs))
    assert policies == ([wanted] if wanted else [])
    assert len(ignored) == sum(value in ("x", "Low", "x" * 201, "True") for _, _, value in annotated)


def test_the_doctor_reports_annotations_without_effect() -> None:
    workload = f"{SNAPSHOTS[0].node_ids[0]}-v1"
    by = diagnose(IstioMesh(find_snapshot(SNAPSHOTS), annotations={workload: {"sensitivity": "loud"}}))
    assert by["annotations"].outcome == "warning"
    assert f"{workload}: tagae.io/sensitivity: expected low, normal, high, got 'loud'" in by["annotations"].found
    assert by["kubernetes annotations"].outcome == "ok"


def test_the_doctor_names_what_labels_hold_beside_services() -> None:
    def add(samples: Samples) -> Samples:
        labels, rate = samples[0]
        names = [*(f"203.0.113.{i}" for i in range(5)), "cart-7d9f8b6c5d-x7k2p"]
        return [*samples, *(({**labels, "destination_service_name": name}, rate) for name in names)]

    with standin.start_server(IstioMesh(find_snapshot(SNAPSHOTS), altered={(CALLS, "requests"): add})) as server:
        found = check_telemetry(MeshSettings(prometheus=standin.url_of(server)), PATIENT, FIRST).findings
    assert [(one.outcome, one.found) for one in found if one.subject == "names"] == [
        (
            "ok",
            "addresses: 203.0.113.0, 203.0.113.1, 203.0.113.2 and 2 more; "
            "those that are called are external/addresses, those that call are no service",
        ),
        ("ok", "pods: cart-7d9f8b6c5d-x7k2p; they count for the service that they name"),
    ]


def test_the_kind_of_mesh_is_set_or_detected_and_never_guessed() -> None:
    mesh = IstioMesh(find_snapshot(SNAPSHOTS))
    with open_source(mesh, source="istio") as source:
        assert source.poll(FIRST).snapshot is not None
    with open_source(standin.respond_with([])) as source:
        poll = source.poll(FIRST)
    assert poll.snapshot is None
    assert "istio_requests_total" in poll.why
    assert "generic" in poll.why


def test_another_kind_of_mesh_is_detected_by_its_queries() -> None:
    def answers(request: standin.Request) -> None:
        known: dict[str, Samples] = {
            "rate(req[60000ms])": [({"app": "cart"}, "10"), ({"app": "web"}, "5")],
            "rate(err[60000ms])": [({"app": "cart"}, "1")],
            "lat_p99": [({"app": "cart"}, "0.25")],
            'rate(out{from!="outside"}[60000ms])': [({"from": "web", "to": "cart"}, "4")],
        }
        request.send(200, standin.vector(known.get(request.query["query"], [])))

    generic = {
        "service_labels": ("=shop", "app"),
        "call_labels": ("=shop", "from", "=shop", "to"),
        "services": {
            "requests": "rate(req[$window])",
            "failures": "rate(err[$window])",
            "p99": "lat_p99",
        },
        "calls": {"requests": 'rate(out{from!="outside"}[$window])'},
    }
    with open_source(answers, source="generic", generic=generic) as source:
        snapshot = source.poll(FIRST).snapshot
    assert snapshot is not None
    assert set(snapshot.node_ids) == {"shop/cart", "shop/web"}
    assert snapshot.num_edges == 1
    assert column(snapshot, "error_rate") == pytest.approx({"shop/cart": 0.1, "shop/web": 0.0})
    assert column(snapshot, "p99_latency")["shop/cart"] == pytest.approx(0.25)


def test_the_doctor_reports_missing_metrics_and_their_effect() -> None:
    mesh = IstioMesh(find_snapshot(SNAPSHOTS), broken={(CALLS, "buckets")})
    by = diagnose(mesh)
    assert by["mesh"].outcome == "ok"
    assert by["calls buckets"].outcome == "warning"
    assert "root cause is found less often" in by["calls buckets"].remedy
    assert by["kubernetes desired"].outcome == "warning"  # no series: planned scaling is unknown
    assert by["services requests"].found.startswith("30 series")
    assert by["snapshot"].found.startswith("30 services")
