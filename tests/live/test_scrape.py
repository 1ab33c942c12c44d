"""The shipped scrape jobs in a real Prometheus: Ray's names become ours, and nothing is counted twice."""

from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from typing import Any

import httpx
import pytest

from serve_app.exporter import PrometheusInstruments
from serve_app.metrics import REFUSALS, STAGE, MeshGauges
from tests.http_server import QuietHandler, serve_in_thread
from tests.live.deployed import DEPLOY, jobs
from tests.live.monitor import Monitor
from tests.live.programs import LOOPBACK, needs
from tests.timing import PATIENCE_SECONDS

pytestmark = [pytest.mark.live, needs("prometheus")]
# In the format of Ray 2.60.
OF_ALL = (
    'Component="core_worker",NodeAddress="192.0.2.2",SessionName="session_2026-11-21_22-50-54",Version="2.60.0",'
    'WorkerId="{worker}",application="tagae",'
    'otel_scope_name="ray._private.telemetry.open_telemetry_metric_recorder",otel_scope_schema_url="",'
    'otel_scope_version=""'
)
FIRST, SECOND = (OF_ALL.format(worker=worker) for worker in ("12a8dfaf", "8f76e522"))
RAY = f"""\
# HELP ray_tagae_predictions_total Verdicts made, by status and weights.
# TYPE ray_tagae_predictions_total counter
ray_tagae_predictions_total{{{FIRST},deployment="MeshSession",model_version="8c",replica="s1",status="normal"}} 109.0
# TYPE ray_tagae_stage_seconds histogram
ray_tagae_stage_seconds_bucket{{{FIRST},deployment="MeshSession",le="0.005",replica="s1",stage="prepare"}} 92.0
ray_tagae_stage_seconds_bucket{{{FIRST},deployment="MeshSession",le="+Inf",replica="s1",stage="prepare"}} 109.0
ray_tagae_stage_seconds_bucket{{{SECOND},deployment="MeshSession",le="+Inf",replica="s2",stage="prepare"}} 1.0
# TYPE ray_tagae_notifications_waiting gauge
ray_tagae_notifications_waiting{{{FIRST},deployment="Notifier",receiver="webhook",replica="n1"}} 2.0
# TYPE ray_serve_num_router_requests_total counter
ray_serve_num_router_requests_total{{{FIRST},deployment="MeshSession",replica="s1"}} 109.0
"""


def ingress() -> str:
    """Return the ingress's metrics of the same verdicts."""
    instruments = PrometheusInstruments(replica="i1")
    instruments.count(REFUSALS, 3, code="unknown-mesh")
    instruments.observe(STAGE, 0.004, stage="total")
    return instruments.text(
        [MeshGauges("shop", 3, 109, None, "normal", score=1.0, threshold=2.0, probability=0.1)]
    ).decode()


def page(text: str) -> ThreadingHTTPServer:
    class Page(QuietHandler):
        def do_GET(self) -> None:
            self.send(200, text.encode(), content_type="text/plain; version=0.0.4; charset=utf-8")

    return ThreadingHTTPServer((LOOPBACK, 0), Page)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Run a Prometheus with the shipped jobs for both pages and the shipped alerts."""
    with serve_in_thread(page(RAY)) as of_ray, serve_in_thread(page(ingress())) as of_ingress:
        targets = {"tagae": of_ingress, "tagae-ray": of_ray}
        scrapes = jobs({name: [target.removeprefix("http://")] for name, target in targets.items()}, 0.5)
        alerts = DEPLOY / "prometheus" / "tagae.rules.yaml"
        with Monitor(tmp_path_factory.mktemp("scrape"), scrapes, rules=[alerts]) as monitor:
            monitor.program.wait_until(lambda: values(monitor.url, "up == 1") == {"tagae": 1.0, "tagae-ray": 1.0}, 60)
            yield monitor.url


def samples(url: str, query: str) -> list[dict[str, Any]]:
    answer = httpx.get(f"{url}/api/v1/query", params={"query": query}, trust_env=False, timeout=PATIENCE_SECONDS)
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["data"]["result"]
    return found


def values(url: str, query: str) -> dict[str, float]:
    return {one["metric"].get("job", ""): float(one["value"][1]) for one in samples(url, query)}


def test_rays_names_become_ours_with_the_replica_as_a_label(url: str) -> None:
    (one,) = samples(url, 'tagae_predictions_total{status="normal"}')
    labels = {name: one["metric"][name] for name in ("application", "deployment", "replica", "job", "model_version")}
    assert labels == {
        "application": "tagae",
        "deployment": "MeshSession",
        "replica": "s1",
        "job": "tagae-ray",
        "model_version": "8c",
    }
    assert one["value"][1] == "109"
    assert samples(url, '{__name__=~"ray_tagae_.+"}') == []
    assert len(samples(url, "ray_serve_num_router_requests_total")) == 1  # Ray's own metrics keep their names


def test_a_new_process_makes_no_new_series(url: str) -> None:
    label_names = {name for one in samples(url, '{__name__=~"tagae_.+"}') for name in one["metric"]}
    assert not {name for name in label_names if name.startswith("otel_")} | ({"WorkerId", "SessionName"} & label_names)
    stages = samples(url, 'tagae_stage_seconds_bucket{le="+Inf",stage="prepare"}')
    assert {one["metric"]["replica"]: one["value"][1] for one in stages} == {"s1": "109", "s2": "1"}


def test_metrics_of_both_jobs_are_counted_once(url: str) -> None:
    assert values(url, "sum by (job) (tagae_predictions_total)") == {"tagae-ray": 109.0}
    assert samples(url, "tagae_parts_missing_total") == []
    stages = samples(url, "count by (job, stage) (tagae_stage_seconds_count)")
    assert [(one["metric"]["job"], one["metric"]["stage"]) for one in stages] == [("tagae", "total")]
    assert values(url, "tagae_refusals_total") == {"tagae": 3.0}
    assert values(url, "tagae_mesh_services") == {"tagae": 3.0}


def test_alerts_use_rays_series(url: str) -> None:
    waiting = "ray_tagae_notifications_waiting > 0 or tagae_notifications_waiting > 0"
    assert waiting in (DEPLOY / "prometheus" / "tagae.rules.yaml").read_text()
    assert values(url, waiting) == {"tagae-ray": 2.0}
    rules = httpx.get(f"{url}/api/v1/rules", trust_env=False).json()["data"]["groups"][0]["rules"]
    assert {rule["health"] for rule in rules} <= {"ok", "unknown"}


def test_prometheus_reads_the_shipped_file(url: str) -> None:
    """Check all of it except the discovery of pods: Debian's Prometheus is built without Kubernetes."""
    text = (DEPLOY / "prometheus" / "scrape.yaml").read_text()
    assert "kubernetes_sd_configs:\n      - role: pod\n" in text
    given = httpx.get(f"{url}/api/v1/status/config", trust_env=False).json()["data"]["yaml"]
    assert "regex: ray_(tagae_.+)" in given
    assert "tagae;metrics" in given
