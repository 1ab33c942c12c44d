"""A mesh behind a Prometheus, a service that is told of it in its settings, and the alert that comes out at the end."""

import re
import time
from datetime import datetime
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from running import Alertmanager, recorded, serving

from serve_app.sources.topology import MeshSpec
from tests.serve_app.sources.prometheus import standin
from tests.serve_app.sources.prometheus.istio_standin import IstioMesh

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(600)]
QUIET = 25  # snapshots before the fault


def settings(prometheus: ThreadingHTTPServer, alertmanager: ThreadingHTTPServer, folder: Path) -> str:
    """A second stands for fifteen."""
    return f"""
        serve.port = 0
        store.path = "{folder / "state"}"
        scorer.device = "cpu"
        [collector]
        interval_seconds = 1
        behind_seconds = 1
        deadline_seconds = 60
        [collector.meshes.shop]
        prometheus = "{standin.url_of(prometheus)}"
        [[notify.alertmanagers]]
        url = "{standin.url_of(alertmanager)}"
    """


def test_a_fault_in_a_collected_mesh_is_an_alert_with_its_culprit(tmp_path: Path) -> None:
    snapshots = recorded(MeshSpec(services=40, calls_per_service=3.0, seed=4), 60, fault_from=QUIET)
    began: list[float] = []

    def at(instant: float) -> Any:
        began.append(instant)
        return snapshots[min(int(instant - began[0]), len(snapshots) - 1)]

    manager = Alertmanager()
    with standin.running(IstioMesh(at)) as prometheus, standin.running(manager) as alertmanager:
        config = tmp_path / "tagae.toml"
        config.write_text(settings(prometheus, alertmanager, tmp_path))
        with serving("--config", str(config)) as (_, url), httpx.Client(base_url=url, timeout=60) as http:
            alert = manager.until(lambda one: one["labels"]["mesh"] == "shop")
            verdict = http.get("/v1/meshes/shop/verdict").json()
            metrics = http.get("/metrics").text
            polls = re.search(r'tagae_collector_polls_total\{mesh="shop",outcome="taken"\} (\S+)', metrics)
            http.delete("/v1/meshes/shop")
            manager.until(
                lambda one: one["labels"] == alert["labels"] and _seconds(one["endsAt"]) <= time.time(), within=60
            )
    assert polls is not None
    assert float(polls.group(1)) >= QUIET
    assert alert["labels"]["alertname"] == "TagaeIncident"
    assert alert["labels"]["incident"] in {incident["id"] for incident in verdict["incidents"]}
    assert alert["startsAt"] < alert["endsAt"]
    assert 'tagae_collector_masked_queries{mesh="shop"} 0.0' in metrics


def _seconds(instant: str) -> float:
    return datetime.fromisoformat(instant).timestamp()
