"""A service that sees a mesh for the first time knows its past, from a real Prometheus."""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from lab.simulator.events.faults import Fault, candidates
from lab.simulator.mesh.topology import MeshSpec
from lab.simulator.simulator import Simulator
from tests.live.history import prometheus_with_history
from tests.live.monitor import Monitor
from tests.live.programs import needs
from tests.live.series import Export
from tests.live.webhook import Webhook
from tests.serve_app.cli.command import tagae
from tests.serve_app.collect.prometheus.standin import start_server, url_of
from tests.serve_app.sidecar.beside import Sidecar, start_sidecar
from tests.timing import PATIENCE_SECONDS

pytestmark = [pytest.mark.live, pytest.mark.slow, pytest.mark.timeout(600), needs("prometheus", "promtool")]
HOURS, AHEAD_MINUTES = 4, 90  # of data before the start; and after it, however long the test takes
FAULTS: tuple[tuple[Any, int], ...] = (("error_burst", 80), ("latency_injection", 160))  # minute of their start
MINUTES = 12  # of each fault


@dataclass(frozen=True, slots=True)
class PastFaults:
    """A Prometheus, and the service and start of each fault in its past."""

    prometheus: Monitor
    faults: tuple[tuple[str, datetime], ...]


@pytest.fixture(scope="module")
def known_past(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PastFaults]:
    start = datetime.fromtimestamp(time.time() // 60 * 60, UTC) - timedelta(hours=HOURS)
    spec = MeshSpec(services=20, calls_per_service=2.5, seed=7, start=start, interval_seconds=60.0)
    simulator = Simulator(spec, snapshots=HOURS * 60 + AHEAD_MINUTES)
    found = []
    for number, (kind, minute) in enumerate(FAULTS):
        service = simulator.node_ids[candidates(simulator.mesh, kind)[number]]
        simulator.schedule(Fault(kind, service, minute, minute + MINUTES, (0.5, 8.0)[number]))
        found.append((service, start + timedelta(minutes=minute)))
    folder = tmp_path_factory.mktemp("past")
    with prometheus_with_history(list(simulator.snapshots()), folder, Export(60.0, reads=4)) as monitor:
        yield PastFaults(monitor, tuple(found))


def settings(past: PastFaults, folder: Path, **more: str) -> dict[str, str]:
    return {
        "meshes.shop.prometheus": past.prometheus.url,
        "store.path": str(folder / "state"),
        "collector.replay_hours": str(HOURS),
        **more,
    }


def newest_verdict(sidecar: Sidecar, is_wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    until = time.monotonic() + 10 * PATIENCE_SECONDS
    with httpx.Client(base_url=sidecar.url, timeout=PATIENCE_SECONDS) as http:
        while time.monotonic() < until:
            answer = http.get("/v1/meshes/shop/verdict")
            if answer.status_code == 200 and is_wanted(answer.json()):
                verdict: dict[str, Any] = answer.json()
                return verdict
            time.sleep(0.2)
    raise AssertionError("the verdict did not come")


def past_incidents(sidecar: Sidecar, since: datetime) -> list[dict[str, Any]]:
    """The incidents of a period, the oldest first."""
    with httpx.Client(base_url=sidecar.url, timeout=PATIENCE_SECONDS) as http:
        answer = http.get("/v1/meshes/shop/incidents", params={"since": since.isoformat()})
        assert answer.status_code == 200, answer.text
        found: list[dict[str, Any]] = answer.json()["incidents"]
        return sorted(found, key=lambda one: str(one["since"]))


def test_both_faults_of_the_past_are_in_the_history_and_no_notification_is_sent(
    known_past: PastFaults, tmp_path: Path
) -> None:
    receiver = Webhook()
    with (
        start_server(receiver) as server,
        start_sidecar(
            settings=settings(
                known_past,
                tmp_path,
                **{"notify.receivers": f'[{{kind = "webhook", options = {{url = "{url_of(server)}"}}}}]'},
            )
        ) as sidecar,
    ):
        first = newest_verdict(sidecar, lambda verdict: not verdict["replayed"])
        since = known_past.faults[0][1] - timedelta(hours=1)
        alerts = [one for one in past_incidents(sidecar, since) if one["severity"] != "notice" and one["replayed"]]
    assert first["status"] in ("normal", "anomalous")  # no time of learning
    assert [one["suspects"][0]["service"] for one in alerts] == [service for service, _ in known_past.faults]
    for one, (_, began) in zip(alerts, known_past.faults, strict=True):
        assert abs(datetime.fromisoformat(one["since"]) - began) <= timedelta(minutes=2)
    assert not receiver.events


def test_a_service_that_is_killed_while_it_reads_the_past_continues_where_it_was(
    known_past: PastFaults, tmp_path: Path
) -> None:
    chosen = settings(known_past, tmp_path)
    with start_sidecar(settings=chosen) as sidecar:
        before = newest_verdict(sidecar, lambda verdict: verdict["replayed"] and verdict["sequence"] >= 20)
        sidecar.process.kill()
        sidecar.process.wait(PATIENCE_SECONDS)
    with start_sidecar(settings=chosen) as sidecar:
        newest_verdict(sidecar, lambda verdict: not verdict["replayed"])
        live = newest_verdict(sidecar, lambda verdict: not verdict["replayed"])
        since = known_past.faults[0][1] - timedelta(hours=1)
        alerts = [one for one in past_incidents(sidecar, since) if one["severity"] != "notice" and one["replayed"]]
    assert live["sequence"] > before["sequence"]
    assert len(alerts) == len(known_past.faults)


def test_the_same_faults_are_found_without_a_service(known_past: PastFaults, tmp_path: Path) -> None:
    output = tmp_path / "yesterday.jsonl"
    tagae("score", "--prometheus", known_past.prometheus.url, "--since", f"{HOURS}h", "-o", output)
    verdicts = [json.loads(line) for line in output.read_text().splitlines()]
    assert len(verdicts) == pytest.approx(HOURS * 60 + 1, abs=3)
    first = {one["id"]: one for verdict in verdicts for one in verdict["incidents"] if one["severity"] != "notice"}
    found = sorted(first.values(), key=lambda one: str(one["since"]))
    assert [one["suspects"][0]["service"] for one in found] == [service for service, _ in known_past.faults]
