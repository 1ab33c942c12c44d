"""Signals collected from a Prometheus that has their series, and from one that does not."""

from collections.abc import Mapping

import pytest

from model.snapshot import MeshSnapshot, Signal, SignalKind
from serve_app.collect.base import Poll
from serve_app.collect.prometheus.combine import KUBERNETES
from serve_app.collect.prometheus.keys import Column, Key, KeyTable
from serve_app.collect.prometheus.signals import (
    DISK,
    PENDING,
    PODS,
    QUEUES,
    RESTARTS,
    Queues,
    read_cancellations,
    read_signals,
    signal_queries,
)
from tests.serve_app.collect.prometheus import standin
from tests.serve_app.collect.prometheus.istio_standin import SIGNALS, IstioMesh, find_snapshot
from tests.serve_app.collect.prometheus.standin import Samples
from tests.serve_app.collect.prometheus.test_prometheus_source import FIRST, SNAPSHOTS, diagnose, open_source

CART, STORE, OTHER = SNAPSHOTS[0].node_ids[:3]
SERVICES = [("shop", "cart"), ("shop", "store")]


def pods(*containers: tuple[str, str, str, float]) -> Samples:
    """Return samples of the query of pods: service, container, signal, value."""
    return [
        (
            {
                "namespace": service.split("/")[0],
                "pod": f"{service.split('/')[1]}-v1-0",
                "container": container,
                "signal": signal,
            },
            str(value),
        )
        for service, container, signal, value in containers
    ]


def snapshot_of(poll: Poll) -> MeshSnapshot:
    assert poll.snapshot is not None, poll.why
    return poll.snapshot


def signals_of_pods_and_queues(poll: Poll) -> tuple[Signal, ...]:
    """Return all signals that proxies do not measure."""
    return tuple(one for one in snapshot_of(poll).signals if one.kind is not SignalKind.CANCELLED)


def found(columns: Mapping[str, Mapping[tuple[str, ...], float]], **more: object) -> dict[tuple[str, str], float]:
    keys = KeyTable()
    read = {role: Column.of(values, keys) for role, values in columns.items()}
    signals, _ = read_signals(read, {}, SERVICES, Queues())
    return {(one.kind.value, one.service): one.value for one in signals}


def test_a_mesh_without_any_series_has_no_signals() -> None:
    with open_source(IstioMesh(find_snapshot(SNAPSHOTS))) as source:
        polls = [source.poll(snapshot.observed_at) for snapshot in SNAPSHOTS[:3]]
    assert [signals_of_pods_and_queues(poll) for poll in polls] == [()] * 3


def test_signals_of_workloads_and_queues_belong_to_their_services() -> None:
    name = OTHER.split("/")[1]
    mesh = IstioMesh(
        find_snapshot(SNAPSHOTS),
        signals={
            PODS: pods(
                (CART, "app", "throttled", 6),
                (CART, "app", "periods", 10),
                (CART, "log", "throttled", 0),
                (CART, "log", "periods", 10),
                (STORE, "app", "restarted", 2),
                (STORE, "app", "killed", 1),
            ),
            DISK: [({"namespace": STORE.split("/")[0], "pod": f"{STORE.split('/')[1]}-v1-0"}, "0.97")],
            QUEUES: [({"queue": "orders"}, "5000"), ({"queue": name}, "7"), ({"queue": "mails"}, "1")],
        },
    )
    with open_source(mesh, queues={"orders": CART}) as source:
        poll = source.poll(FIRST)
    assert set(signals_of_pods_and_queues(poll)) == {
        Signal(SignalKind.CPU_THROTTLING, CART, 0.6),
        Signal(SignalKind.QUEUE_DEPTH, CART, 5000.0),
        Signal(SignalKind.OOM_KILLS, STORE, 1.0),
        Signal(SignalKind.RESTARTS, STORE, 2.0),
        Signal(SignalKind.DISK_PRESSURE, STORE, 0.97),
        Signal(SignalKind.QUEUE_DEPTH, OTHER, 7.0),
    }
    assert poll.unmapped_queues == ("mails",)


def test_events_of_a_failed_query_are_counted_once_by_the_next() -> None:
    mesh = IstioMesh(find_snapshot(SNAPSHOTS), signals={PODS: pods((CART, "app", "restarted", 1))})
    role = (KUBERNETES, PODS)
    asked: list[str] = []

    def behave(request: standin.Request) -> None:
        asked.append(request.query["query"])
        mesh(request)

    with open_source(behave) as source:
        first = source.poll(FIRST)
        mesh.broken = {role}
        failed = source.poll(SNAPSHOTS[1].observed_at)
        mesh.broken = set()
        last = source.poll(SNAPSHOTS[2].observed_at)
    assert [len(signals_of_pods_and_queues(poll)) for poll in (first, failed, last)] == [1, 0, 1]
    assert role in failed.masked
    signals = [text for text in asked if text.startswith(SIGNALS[PODS])]
    assert ["offset 30000ms" in text for text in signals] == [False, False, True]


def test_throttling_is_that_of_the_worst_container_over_all_pods() -> None:
    shares: dict[tuple[str, ...], float] = {
        ("shop", "cart", "app", "throttled"): 3.0,
        ("shop", "cart", "app", "periods"): 4.0,
        ("shop", "cart", "log", "throttled"): 1.0,
        ("shop", "cart", "log", "periods"): 100.0,
        ("shop", "store", "app", "throttled"): 0.0,
        ("shop", "store", "app", "periods"): 9.0,
        ("shop", "store", "idle", "throttled"): 0.0,
        ("shop", "store", "idle", "periods"): 0.0,
    }
    assert found({PODS: shares}) == {("cpu_throttling", "shop/cart"): 0.75}


def test_without_throttling_one_service_shows_that_it_was_measured() -> None:
    containers = [
        ("shop", service, "app", signal) for service in ("store", "cart") for signal in ("throttled", "periods")
    ]
    assert found({PODS: {key: 0.0 if key[3] == "throttled" else 9.0 for key in containers}}) == {
        ("cpu_throttling", "shop/cart"): 0.0
    }


def test_two_counts_of_the_same_kills_are_one() -> None:
    counts: dict[tuple[str, ...], float] = {
        ("shop", "cart", "app", "killed"): 1.0,
        ("shop", "cart", "app", "oom_events"): 2.0,
        ("shop", "cart", "app", "restarted"): 1.0,
        ("shop", "store", "pod", "pending"): 3.0,
        ("shop", "elsewhere", "app", "restarted"): 1.0,
    }
    assert found({PODS: counts, DISK: {("shop", "store"): 1.02}}) == {
        ("oom_kills", "shop/cart"): 2.0,
        ("restarts", "shop/cart"): 1.0,
        ("pending_pods", "shop/store"): 3.0,
        ("disk_pressure", "shop/store"): 1.0,
    }


@pytest.mark.parametrize(
    ("queue", "service"),
    [
        ("cart", "shop/cart"),  # the name of a service
        ("shop/cart", "shop/cart"),
        ("cart-worker", "shop/cart"),  # the name of its workload
        ("twin", None),  # two services have this name
        ("orders", "shop/store"),  # by the settings
        ("bank queue", "shop/bank~20~queue"),  # the original name of a service
        ("cart-old", None),  # by the settings, to a service that is not in the mesh
    ],
)
def test_a_queue_belongs_to_the_service_of_its_name_or_of_the_settings(queue: str, service: str | None) -> None:
    services = [*SERVICES, ("shop", "bank~20~queue"), ("a", "twin"), ("b", "twin")]
    columns = {QUEUES: Column.of({(queue,): 12.0})}
    settings = Queues({"orders": "shop/store", "cart-old": "shop/gone"})
    signals, unmapped = read_signals(columns, {("shop", "cart-worker"): [("shop", "cart")]}, services, settings)
    assert signals == ([Signal(SignalKind.QUEUE_DEPTH, service, 12.0)] if service else [])
    assert [one.split(" (")[0] for one in unmapped] == ([] if service else [queue])


def test_queues_of_the_settings_are_read_beside_those_of_known_brokers() -> None:
    assert signal_queries(Queues(promql="jobs"))[QUEUES].promql.endswith(" or sum by (queue) (jobs)")


def test_the_doctor_lists_missing_sources_and_queues_without_a_service() -> None:
    mesh = IstioMesh(
        find_snapshot(SNAPSHOTS), sources={RESTARTS, PENDING, "kafka"}, signals={QUEUES: [({"queue": "mails"}, "1")]}
    )
    by = diagnose(mesh)
    assert by["signals"].found == "kafka, pending, restarts"
    assert by["signals throttling"].outcome == "warning"
    assert "signals restarts" not in by
    assert by["queues"].found == "mails: no service of the mesh reads them"
    assert by["kubernetes pods"].outcome == "ok"


def cancelled(rates: Mapping[str, float] | None, requests: Mapping[str, float]) -> dict[str, float]:
    """Return the signals of cancelled requests by service, for rates in a window of 60 s."""
    columns: list[dict[Key, float] | None] = [
        None if of is None else {("shop", name): rate for name, rate in of.items()} for of in (rates, requests)
    ]
    assert columns[1] is not None
    services = [("shop", name) for name in requests]
    return {one.service: one.value for one in read_cancellations(columns[0], columns[1], services, 60.0)}


def test_cancelled_requests_are_a_share_of_the_requests() -> None:
    shares = cancelled({"cart": 1.2, "gone": 5.0, "store": 0.02}, {"cart": 10.0, "store": 2.5, "web": 100.0})
    assert shares == {"shop/cart": pytest.approx(0.12)}


def test_few_cancelled_requests_are_chance() -> None:
    assert cancelled({"cart": 2 / 60}, {"cart": 3 / 60}) == {"shop/cart": 0.0}
    assert cancelled({"cart": 3 / 60}, {"cart": 3 / 60}) == {"shop/cart": pytest.approx(1.0)}


def test_without_cancelled_requests_one_service_shows_that_they_are_counted() -> None:
    assert cancelled({}, {"store": 2.0, "cart": 1.0, "idle": 0.0}) == {"shop/cart": 0.0}
    assert cancelled(None, {"store": 2.0}) == {}
