"""Seven real services behind real sidecars, with a real Prometheus and a real Alertmanager."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import numpy as np
import pytest

from model.snapshot import MeshSnapshot
from serve_app.alerts.annotations import ALERT_NAME
from serve_app.api.codec import snapshot_document
from serve_app.api.schemas.verdict import VerdictDocument
from serve_app.collect.prometheus.detect import MeshSource
from serve_app.settings import CollectorSettings
from tests.live.alertmanager import Alert, Alertmanager, alertmanager
from tests.live.mesh import NEEDS, LiveMesh
from tests.live.polls import open_source
from tests.live.programs import needs, own_share
from tests.live.shop import OUTSIDE, Measured
from tests.live.topology import ENTRY, NAMESPACE, SHOP, expected_rates, node
from tests.serve_app.sidecar.beside import Sidecar, start_sidecar
from tests.timing import PATIENCE_SECONDS

pytestmark = [
    pytest.mark.live,
    pytest.mark.slow,
    needs(*NEEDS),
]
PAGER = "prometheus-alertmanager"
RATE = 40.0  # requests a second from outside
LONGEST = 600.0  # s; the load ends even if the test does not
SHARE = 0.5  # share of a core that a process must get
SETTLED = 2.0  # s until an event is on the admin page, scraped and stored
CULPRIT, CALLER = "payment", "checkout"
# Time-lapse: the usual interval and window, 15 s and 60 s, take a tenth. Snapshots have the usual times.
LAPSE = 10.0
INTERVAL, WINDOW = 15.0 / LAPSE, 60.0 / LAPSE
QUIET, SICK = 35, 14  # snapshots before the fault, without an incident, and during it
HEALED = 60  # the incident ends within this number of snapshots after the fault
MOST = (
    130  # the mesh is quiet for a while within this number of snapshots; other load on the machine slows every service
)
Ends = tuple[str, str]


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveMesh]:
    """Run the mesh under load. On a busy machine latencies mean nothing and services time out."""
    until = time.monotonic() + PATIENCE_SECONDS
    while (share := own_share()) < SHARE:
        if time.monotonic() > until:
            pytest.skip(f"this machine is too busy: a process that works gets {share:.0%} of a core")
    with LiveMesh(tmp_path_factory.mktemp("mesh"), scrape_seconds=1.0) as running:
        running.load(RATE, LONGEST, seed=3)
        yield running


def open_mesh(mesh: LiveMesh, window: float) -> AbstractContextManager[MeshSource]:
    asking = CollectorSettings.model_construct(
        {"interval_seconds", "window_seconds"}, interval_seconds=INTERVAL, window_seconds=window
    )
    return open_source(mesh.prometheus, asking, "envoy")


def after(mesh: LiveMesh, seconds: float) -> tuple[MeshSnapshot, dict[Ends, Measured]]:
    """Return the snapshot of the period that begins now, and what clients measured in it."""
    until = time.time() + seconds
    time.sleep(seconds + SETTLED)
    with open_mesh(mesh, seconds) as source:
        poll = source.poll(datetime.fromtimestamp(until, UTC))
    assert poll.snapshot is not None, poll.why
    assert not poll.masked
    return poll.snapshot, mesh.measured(until - seconds, until)


@contextmanager
def apply_trouble(mesh: LiveMesh, begin: Callable[[], None]) -> Iterator[None]:
    """Inject a fault, and remove it at the end of the block."""
    begin()
    try:
        yield
    finally:
        mesh.heal()


def services(snapshot: MeshSnapshot, metric: int) -> dict[str, float]:
    """Return one metric by service; NaN if not observed."""
    values = np.where(snapshot.node_observed, snapshot.node_features, np.nan)[:, metric]
    return dict(zip(snapshot.node_ids, values.tolist(), strict=True))


def calls(snapshot: MeshSnapshot, metric: int) -> dict[Ends, float]:
    """Return one metric by source and destination; NaN if not observed."""
    values = np.where(snapshot.edge_observed, snapshot.edge_features, np.nan)[:, metric]
    names = [name.removeprefix("shop/") for name in snapshot.node_ids]
    return {(names[a], names[b]): value for (a, b), value in zip(snapshot.edge_index.T, values.tolist(), strict=True)}


@pytest.fixture(scope="module")
def healthy(mesh: LiveMesh) -> tuple[MeshSnapshot, dict[Ends, Measured]]:
    """Return twenty seconds without a fault, after the first few seconds of the processes."""
    time.sleep(4)
    return after(mesh, 20.0)


def test_all_services_and_calls_are_found(healthy: tuple[MeshSnapshot, dict[Ends, Measured]]) -> None:
    snapshot, measured = healthy
    assert set(snapshot.node_ids) == {node(service.name) for service in SHOP}
    assert set(calls(snapshot, 0)) == set(expected_rates(RATE)) == {ends for ends in measured if ends[0] != OUTSIDE}
    assert not snapshot.node_observed[:, 4:6].any()  # Envoy does not measure processors and memory
    assert (snapshot.node_features[:, 6] >= 1).all()  # connections to the service, kept open


def test_rates_are_the_rates_of_the_load(healthy: tuple[MeshSnapshot, dict[Ends, Measured]]) -> None:
    snapshot, measured = healthy
    rates, into = calls(snapshot, 0), services(snapshot, 0)
    for ends, wanted in expected_rates(RATE).items():
        assert rates[ends] == pytest.approx(measured[ends].requests / 20, rel=0.15), ends
        assert rates[ends] == pytest.approx(wanted, rel=0.3), ends  # Poisson: three sigma of 200 requests are 0.21
    assert into[node(ENTRY)] == pytest.approx(measured[OUTSIDE, ENTRY].requests / 20, rel=0.15)
    for service in SHOP[1:]:
        assert into[node(service.name)] == pytest.approx(
            sum(r for ends, r in rates.items() if ends[1] == service.name), rel=0.1
        )
    assert max(services(snapshot, 1).values()) == 0
    assert max(calls(snapshot, 1).values()) == 0


def test_latencies_are_as_clients_measured_them(healthy: tuple[MeshSnapshot, dict[Ends, Measured]]) -> None:
    """A client also waits for the processor, and a quantile can be anywhere in its bucket."""
    snapshot, measured = healthy
    p50, p99 = calls(snapshot, 2), calls(snapshot, 3)
    for ends in p50:
        assert 0.4 * measured[ends].p50 < p50[ends] < 1.5 * measured[ends].p50 + 1e-3, (ends, measured[ends])
        assert 0.2 * measured[ends].p99 < p99[ends] < 1.7 * measured[ends].p99 + 2e-3, (ends, measured[ends])
    own = services(snapshot, 2)
    assert all(0.7 * service.seconds < own[node(service.name)] for service in SHOP)
    assert own[node(CALLER)] > own[node(CULPRIT)]  # callers wait for their callees


def test_errors_are_seen_at_the_culprit_and_its_callers(mesh: LiveMesh) -> None:
    with apply_trouble(mesh, lambda: mesh.fail(CULPRIT, 0.5)):
        time.sleep(SETTLED)  # the counter of failures begins with the first failure, so the first value is no increase
        snapshot, measured = after(mesh, 10.0)
    failing, failed = services(snapshot, 1), calls(snapshot, 1)
    into = measured[CALLER, CULPRIT]
    assert failed[CALLER, CULPRIT] == pytest.approx(into.failures / into.requests, abs=0.1)
    assert failing[node(CULPRIT)] == pytest.approx(0.5, abs=0.2)
    assert failing[node(CALLER)] == pytest.approx(failing[node(CULPRIT)], abs=0.1)
    assert 0.02 < failing[node("storefront")] < failing[node(CALLER)] / 2  # a quarter of its requests are checkouts
    assert failing[node(ENTRY)] > 0.02
    assert all(failing[node(name)] == 0 for name in ("cart", "catalogue", "stock"))


@pytest.mark.parametrize("gone", ["pod", "service"])
def test_a_dead_service_is_seen_through_its_callers(mesh: LiveMesh, gone: str) -> None:
    with apply_trouble(mesh, lambda: (mesh.kill if gone == "pod" else mesh.stop)(CULPRIT)):
        time.sleep(SETTLED)
        snapshot, measured = after(mesh, 8.0)
    into = measured[CALLER, CULPRIT]
    assert into.failures == into.requests > 0
    assert calls(snapshot, 0)[CALLER, CULPRIT] == pytest.approx(into.requests / 8, rel=0.3)  # still called
    failing = services(snapshot, 1)
    assert calls(snapshot, 1)[CALLER, CULPRIT] == pytest.approx(1, abs=0.02)
    assert (failing[node(CULPRIT)], failing[node(CALLER)]) == pytest.approx((1, 1), abs=0.02)
    assert np.isnan(services(snapshot, 2)[node(CULPRIT)])  # no request was answered
    if gone == "pod":
        assert np.isnan(services(snapshot, 6)[node(CULPRIT)])  # and its connections are not counted


def test_all_values_are_normal_after_the_fault(mesh: LiveMesh) -> None:
    mesh.heal()
    until = time.monotonic() + PATIENCE_SECONDS  # a busy machine has a backlog
    while max(services((snapshot := after(mesh, WINDOW)[0]), 1).values()) > 0:
        assert time.monotonic() < until, snapshot
    assert set(snapshot.node_ids) == {node(service.name) for service in SHOP}


def lapse(mesh: LiveMesh, count: int, first: int) -> Iterator[MeshSnapshot]:
    """Yield snapshots when they are due, with the times that they would have at the usual pace."""
    began, stamp = time.time(), datetime(2026, 3, 2, 10, tzinfo=UTC)
    with open_mesh(mesh, WINDOW) as source:
        for i in range(count):
            due = began + (i + 1) * INTERVAL
            time.sleep(max(due - time.time(), 0))
            poll = source.poll(datetime.fromtimestamp(due - SETTLED, UTC))
            assert poll.snapshot is not None, poll.why
            yield replace(poll.snapshot, observed_at=stamp + timedelta(seconds=(first + i) * INTERVAL * LAPSE))


@contextmanager
def start_service(folder: Path, manager: Alertmanager) -> Iterator[Sidecar]:
    """The service in one process: it keeps the mesh's state and sends notifications of its incidents."""
    receivers = f'[{{url = "{manager.url}"}}]'
    with start_sidecar(settings={"store.path": str(folder / "state"), "notify.alertmanagers": receivers}) as service:
        yield service


async def push_and_alert(service: Sidecar, mesh: LiveMesh, count: int, first: int) -> AsyncIterator[VerdictDocument]:
    """Push snapshots when they are due and yield their verdicts. Notifications are sent at the same time."""
    snapshots, route = lapse(mesh, count, first), f"{service.url}/v1/meshes/{NAMESPACE}/snapshots"
    async with httpx.AsyncClient(trust_env=False, timeout=PATIENCE_SECONDS) as client:
        while (snapshot := await asyncio.to_thread(next, snapshots, None)) is not None:
            answer = await client.post(route, json=snapshot_document(snapshot))
            yield VerdictDocument.model_validate_json(answer.raise_for_status().content)


async def eventually(manager: Alertmanager, severities: list[str]) -> list[Alert]:
    """Wait until the active alerts have these severities, and return them. They are not sent with the verdicts."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            found = await asyncio.to_thread(manager.alerts)
            if [alert["labels"]["severity"] for alert in found] == severities:
                return found
            await asyncio.sleep(0.1)


def describe_verdicts(verdicts: Sequence[VerdictDocument]) -> str:
    return "\n".join(
        f"{v.sequence:3d} {v.status:10} score {v.mesh_score:6.2f} p {v.probability:.3f} incidents {len(v.incidents)} "
        + " ".join(f"{s.service}={s.score:.2f}({s.reasons[0].metric if s.reasons else '-'})" for s in v.suspects[:3])
        for v in verdicts
    )


@needs(PAGER)
async def test_a_slow_service_is_one_alert_that_names_it_and_ends_with_it(mesh: LiveMesh, tmp_path: Path) -> None:
    verdicts: list[VerdictDocument] = []
    with alertmanager(tmp_path) as manager, start_service(tmp_path, manager) as service:
        async for verdict in push_and_alert(service, mesh, MOST, 0):
            verdicts.append(verdict)
            if len(verdicts) >= QUIET and all(v.status == "normal" for v in verdicts[-QUIET:]):
                break
        else:
            pytest.fail(f"this machine is too busy to tell a fault of ours from its own\n{describe_verdicts(verdicts)}")
        await eventually(manager, [])
        healthy = len(verdicts)
        with apply_trouble(mesh, lambda: mesh.slow(CULPRIT, 0.4)):
            verdicts += [verdict async for verdict in push_and_alert(service, mesh, SICK, healthy)]
            assert len(verdicts[-1].incidents) == 1, describe_verdicts(verdicts)
            (last,) = verdicts[-1].incidents
            (alert,) = await eventually(manager, [last.severity])
        async for verdict in push_and_alert(service, mesh, HEALED, len(verdicts)):
            verdicts.append(verdict)
            if not verdict.incidents:
                break
        print(describe_verdicts(verdicts))
        assert not verdicts[-1].incidents, describe_verdicts(verdicts)
        await eventually(manager, [])
    paged = [v for v in verdicts[healthy:] if v.incidents]
    assert len({incident.id for v in paged for incident in v.incidents}) == 1, describe_verdicts(verdicts)
    assert {node(CULPRIT), node(CALLER)} <= set(last.affected), last
    assert alert["labels"] == {
        "alertname": ALERT_NAME,
        "cluster": "default",
        "mesh": NAMESPACE,
        "incident": last.id,
        "namespace": NAMESPACE,
        "service": CULPRIT,
        "severity": last.severity,
    }
    assert f"{node(CULPRIT)} (" in alert["annotations"]["description"]
    assert abs(datetime.fromisoformat(alert["startsAt"]) - last.since) < timedelta(seconds=1)
