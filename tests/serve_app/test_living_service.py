"""A mesh behind a Prometheus, a service that collects it, and the resulting alert."""

import re
import time
from datetime import datetime
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from lab.simulator.mesh.topology import MeshSpec
from tests.serve_app.collect.kubernetes.api_server import ApiServer, event, start_api
from tests.serve_app.collect.prometheus import standin
from tests.serve_app.collect.prometheus.istio_standin import IstioMesh
from tests.serve_app.running import Alertmanager, eventually, failing, record_simulation, start_service
from tests.timing import PATIENCE_SECONDS

pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]
QUIET = 25  # snapshots before the fault


def settings(prometheus: ThreadingHTTPServer, api: ApiServer, alertmanager: ThreadingHTTPServer, folder: Path) -> str:
    """Return settings in which a second stands for fifteen, with a budget for an alert soon after a deploy."""
    (folder / "token").write_text(api.token)
    return f"""
        serve.port = 0
        store.path = "{folder / "state"}"
        scorer.device = "cpu"
        alert.false_pages_per_day = 300
        [collector]
        interval_seconds = 1
        behind_seconds = 1
        deadline_seconds = 60
        replay_hours = 0
        [meshes.shop]
        prometheus = "{standin.url_of(prometheus)}"
        kubernetes = {{ url = "{api.url}", bearer_token_file = "{folder / "token"}" }}
        [meshes.silent]
        prometheus = "http://127.0.0.1:9"
        [[notify.alertmanagers]]
        url = "{standin.url_of(alertmanager)}"
    """


@pytest.mark.slow
def test_a_fault_in_a_collected_mesh_is_an_alert_with_its_culprit_and_nearby_changes(tmp_path: Path) -> None:
    spec = MeshSpec(services=40, calls_per_service=3.0, seed=4)
    snapshots, culprit = record_simulation(spec, 60, fault_from=QUIET), failing(spec)
    began: list[float] = []

    def at(instant: float) -> Any:
        began.append(instant)
        index = int(instant - began[0])
        mesh.replicas = {f"{culprit}-v1": (2, 2 if index >= QUIET - 2 else 1)}
        return snapshots[min(index, len(snapshots) - 1)]

    manager, mesh, api = Alertmanager(), IstioMesh(at), ApiServer()
    namespace, service = culprit.split("/")
    api.tell(event("Unhealthy", f"{service}-v1-5f7c9d8b64-x7k2p", namespace=namespace, message="Probe failed"))
    with standin.start_server(mesh) as prometheus, start_api(api), standin.start_server(manager) as alertmanager:
        config = tmp_path / "tagae.toml"
        config.write_text(settings(prometheus, api, alertmanager, tmp_path))
        with (
            start_service("--config", str(config)) as (_, url),
            httpx.Client(base_url=url, timeout=PATIENCE_SECONDS) as http,
        ):
            alert = manager.until(lambda one: one["labels"]["mesh"] == "shop")
            verdict = http.get("/v1/meshes/shop/verdict").json()
            (incident,) = [one for one in verdict["incidents"] if one["id"] == alert["labels"]["incident"]]
            metrics = read_collector_metrics(http)
            listed: dict[str, Any] = {}
            # A busy machine may list the meshes before the collector answers.
            assert eventually(lambda: listed.update(meshes_by_name(http)) or "silent" in listed)
            silent = listed["silent"]
            assert (silent["sequence"], silent["observed_at"], silent["status"]) == (0, None, "warming_up")
            assert "127.0.0.1" in http.get("/v1/meshes/silent").json()["source"]["problem"]
            source = http.get("/v1/meshes/shop").json()["source"]
            assert source["collected"]
            assert abs(time.time() - _seconds(source["handed_on"])) < 60
            http.delete("/v1/meshes/shop")
            manager.until(
                lambda one: one["labels"] == alert["labels"] and _seconds(one["endsAt"]) <= time.time(), within=60
            )
    polls = re.search(r'tagae_collector_polls_total\{mesh="shop",outcome="taken"\} (\S+)', metrics)
    assert polls is not None
    assert float(polls.group(1)) >= QUIET
    assert alert["labels"]["alertname"] == "TagaeIncident"
    assert (alert["labels"]["namespace"], alert["labels"]["service"]) == (namespace, service)
    description = alert["annotations"]["description"]
    assert re.search(rf"Planned: began .* deploy of {culprit} \({service}-v1: generation 1 to 2\)", description)
    assert f"Kubernetes: Unhealthy of {culprit} (Probe failed), " in description
    assert ("deploy", culprit) in {(near["kind"], near["service"]) for near in incident["changes"]}
    assert ("Unhealthy", culprit) in {(near["kind"], near["service"]) for near in incident["events"]}
    assert 'tagae_collector_events_followed{mesh="shop"} 1.0' in metrics
    assert alert["startsAt"] < alert["endsAt"]
    assert 'tagae_collector_masked_queries{mesh="shop"} 0.0' in metrics


def meshes_by_name(http: httpx.Client) -> dict[str, Any]:
    return {one["mesh"]: one for one in http.get("/v1/meshes").json()}


def read_collector_metrics(http: httpx.Client, within: float = PATIENCE_SECONDS) -> str:
    """Return metrics that include the collector's. On a busy machine these may be late."""
    until = time.monotonic() + within
    while "tagae_collector" not in (text := http.get("/metrics").text):
        assert time.monotonic() < until, text
        time.sleep(0.5)
    return text


def _seconds(instant: str) -> float:
    return datetime.fromisoformat(instant).timestamp()
