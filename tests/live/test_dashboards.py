"""Every query of Grafana's dashboards against a Prometheus that scrapes a running service, as shipped."""

import json
import re
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from lab.simulator.mesh.topology import MeshSpec
from model.checkpoint import SHIPPED, load, save
from model.snapshot import MeshSnapshot
from serve_app.access import Scope, editing
from serve_app.api.codec import snapshot_document
from serve_app.collect.prometheus.combine import KUBERNETES
from serve_app.models.registry import Registry
from tests.builders import add_model
from tests.live.deployed import DEPLOY, Drawn, dashboard_queries, jobs
from tests.live.monitor import Monitor
from tests.live.programs import free_ports, needs
from tests.serve_app.collect.prometheus import standin
from tests.serve_app.collect.prometheus.istio_standin import IstioMesh
from tests.serve_app.running import record_simulation, start_service
from tests.serve_app.test_kills import await_that
from tests.timing import PATIENCE_SECONDS, TIME_FACTOR

pytestmark = [
    pytest.mark.live,
    pytest.mark.ray,
    pytest.mark.slow,
    pytest.mark.timeout(1200),  # a start takes minutes on a busy machine
    needs("prometheus"),
]
QUIET = 45  # snapshots before the fault: the threshold of the displacement needs thirty
SCRAPE_SECONDS, WINDOW_SECONDS = 2.0, 60.0
WITHIN_SECONDS = 240.0 * TIME_FACTOR
# Empty for a healthy service, or on a machine without a GPU.
MAY_BE_EMPTY = {
    "ray_node_gpus_utilization",
    "ray_node_gram_used",
    "ray_node_gram_available",
    "tagae_gpu_memory_peak_bytes",
    "tagae_gpu_memory_reserved_bytes",
    "tagae_gpu_memory_fragmented_ratio",
    "tagae_gpu_unused",
    "tagae_gpu_fallbacks_total",
    "ray_serve_deployment_error_counter_total",
    "tagae_parts_missing_total",
    "tagae_groups_refused_total",
    "tagae_collector_replayed",
    "tagae_snapshots_dropped_total",
    "tagae_session_evictions_total",
    "tagae_session_load_seconds_bucket",
    "tagae_retries_total",
    "tagae_spans_dropped_total",
}


def settings(folder: Path, metrics_port: int, **urls: str) -> str:
    """Return settings in which a second stands for fifteen, and one of four receivers accepts notices."""
    return f"""
        serve.port = 0
        serve.tokens_file = "{folder / "tokens.toml"}"
        serve.metrics_port = {metrics_port}
        store.path = "{folder / "state"}"
        scorer.device = "cpu"
        scorer.place = "replicas"  # a panel shows their batches
        models.registry = "{folder / "models"}"
        [collector]
        interval_seconds = 1
        behind_seconds = 1
        deadline_seconds = 60
        replay_hours = 0
        [meshes.shop]
        prometheus = "{urls["prometheus"]}"
        [notify]
        [[notify.alertmanagers]]
        url = "{urls["well"]}"
        [[notify.alertmanagers]]
        url = "{urls["busy"]}"
        [[notify.receivers]]
        kind = "webhook"
        options = {{ url = "{urls["well"]}/hook" }}
        [[notify.receivers]]
        kind = "webhook"
        options = {{ url = "{urls["refusing"]}/hook" }}
    """


def add_candidate(folder: Path) -> str:
    """Add weights with a slightly higher page level to the registry in a folder, and return their version."""
    weights, shipped = folder / "candidate.safetensors", load(SHIPPED)
    save(replace(shipped, page_offset=shipped.page_offset + 0.01), weights)
    return add_model(Registry(str(folder / "models")), weights).version


def takes(request: standin.Request) -> None:
    request.send(200, b"{}")


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Run a Prometheus that scrapes a service.

    The service collects one mesh and gets another pushed. It refuses requests, and a fault raises an alert. A candidate
    scores both in the shadow.
    """
    folder = tmp_path_factory.mktemp("dashboards")
    snapshots = record_simulation(MeshSpec(services=40, calls_per_service=3.0, seed=4), 80, fault_from=QUIET)
    began: list[float] = []

    def at(instant: float) -> MeshSnapshot:
        began.append(instant)
        if len(began) > 100:  # from now on a query fails, and there are no older values to use instead
            mesh.broken = {(KUBERNETES, "desired")}
        return snapshots[min(int(instant - began[0]), len(snapshots) - 1)]

    mesh = IstioMesh(at)
    with ExitStack() as open_until_the_end:
        behaviours: dict[str, standin.Behaviour] = {
            "prometheus": mesh,
            "well": takes,
            "busy": standin.fails(503),
            "refusing": standin.fails(400),
        }
        urls = {
            name: standin.url_of(open_until_the_end.enter_context(standin.start_server(behaviour)))
            for name, behaviour in behaviours.items()
        }
        config, (port,) = folder / "tagae.toml", free_ports(1)
        token, token_file = editing.create(folder / "tokens.toml", "test", [Scope.ADMIN]), folder / "token"
        token_file.write_text(token)
        candidate = add_candidate(folder)
        config.write_text(settings(folder, port, **urls))
        _, service = open_until_the_end.enter_context(start_service("--config", str(config)))
        targets = {"tagae": [service.removeprefix("http://")], "tagae-ray": [f"127.0.0.1:{port}"]}
        alerts = DEPLOY / "prometheus" / "tagae.rules.yaml"
        scrapes = jobs(targets, SCRAPE_SECONDS, token_file)
        monitor = open_until_the_end.enter_context(Monitor(folder, scrapes, rules=[alerts]))
        http, without_token = (
            open_until_the_end.enter_context(
                httpx.Client(
                    base_url=service,
                    headers=headers,
                    timeout=PATIENCE_SECONDS,
                    trust_env=False,
                    transport=httpx.HTTPTransport(local_address=address),
                )
            )
            for address, headers in (
                ("127.0.0.1", {"authorization": f"Bearer {token}"}),
                ("127.0.0.2", {}),  # failed logins block only the address they come from
            )
        )
        http.post(f"/v1/models/{candidate}/canary", json={"share": 0.0}).raise_for_status()
        use_service(http, without_token, snapshots, monitor.url)
        yield monitor.url


def use_service(http: httpx.Client, without_token: httpx.Client, snapshots: list[MeshSnapshot], url: str) -> None:
    """Use the service until every panel has data. One client has no token."""
    until, i = time.monotonic() + WITHIN_SECONDS, 0
    wanted = [query for query in dashboard_queries() if not query.metrics & MAY_BE_EMPTY]
    while wanted and time.monotonic() < until:
        document = json.dumps(snapshot_document(snapshots[min(i, QUIET)]))
        http.post(
            "/v1/meshes/pushed/snapshots", content=document
        )  # a repeated snapshot is answered 200, a different one 409
        http.get("/v1/meshes/unknown/verdict")
        without_token.post("/login", json={"token": "wrong"})
        wanted = [query for query in wanted if not query_series(url, query)]
        i += 1


def query_series(url: str, query: Drawn) -> list[dict[str, Any]]:
    """Return the series that a panel would draw."""
    sent = {"query": query.at(WINDOW_SECONDS)}
    answer = httpx.get(f"{url}/api/v1/query", params=sent, trust_env=False, timeout=PATIENCE_SECONDS).json()
    assert answer["status"] == "success", (query, answer)
    found: list[dict[str, Any]] = answer["data"]["result"]
    return found


@pytest.mark.parametrize("query", [*dashboard_queries()], ids=lambda query: f"{query.panel}-{query.legend}")
def test_a_panel_draws_something(prometheus: str, query: Drawn) -> None:
    until = time.monotonic() + PATIENCE_SECONDS
    while not (found := query_series(prometheus, query)) and not query.metrics & MAY_BE_EMPTY:
        assert time.monotonic() < until, query.expr
        time.sleep(SCRAPE_SECONDS)  # a gauge is gone for a while if a poll takes long
    for series in found:
        assert query.labels <= series["metric"].keys(), series["metric"]


def test_panels_of_errors_show_errors(prometheus: str) -> None:
    """Panels of errors have series with errors, and no others."""

    def labels(expr: str, label: str) -> set[str]:
        query = Drawn("", "", expr, "")
        return {series["metric"][label] for series in query_series(prometheus, query) if float(series["value"][1]) > 0}

    assert "alertmanager" in labels("tagae_notifications_failed_total", "receiver")
    assert labels("tagae_notifications_dropped_total", "receiver") == {"webhook"}
    assert labels("tagae_notifications_waiting", "receiver") == {"alertmanager"}
    assert "unknown-mesh" in labels("tagae_refusals_total", "code")
    assert labels("tagae_collector_query_failures_total", "why") == {"overloaded"}


@pytest.mark.parametrize(
    ("panel", "legend", "low", "high"),
    [
        ("Groups of parts in a batch", "groups", 1, 2),  # two clients push one snapshot at a time
        ("Neighbours in a pass", "fetched", 1, 1000),  # of 40 services with 3 calls each
        ("Neighbours in a pass", "computed again", 0, 0),  # a mesh in one part
    ],
)
def test_panels_of_sums_are_exact(prometheus: str, panel: str, legend: str, low: float, high: float) -> None:
    """Ray's sum of a histogram is one of the middles of its buckets: half a group, 650 neighbours in place of none."""
    (query,) = [one for one in dashboard_queries() if (one.panel, one.legend) == (panel, legend)]
    (found,) = query_series(prometheus, query)
    assert low <= float(found["value"][1]) <= high, query.expr


def test_no_sum_of_ray_is_kept(prometheus: str) -> None:
    """The service's own page has exact sums; of Ray's, every panel and alert needs none."""
    found = query_series(prometheus, Drawn("", "", '{__name__=~"tagae_.+_sum",job="tagae-ray"}', ""))
    assert found == []
    shipped = [query.expr for query in dashboard_queries()] + [(DEPLOY / "prometheus/tagae.rules.yaml").read_text()]
    assert not [text for text in shipped if re.search(r"tagae_\w+_sum\b", text)]


def test_alerts_fire_for_what_is_wrong_with_the_service(prometheus: str) -> None:
    """Of the service of this file: a receiver is busy, a query fails, and the pushed mesh is of another time."""

    def active() -> set[str]:
        answer = httpx.get(f"{prometheus}/api/v1/rules", trust_env=False, timeout=PATIENCE_SECONDS).json()["data"]
        states = {rule["name"]: rule["state"] for group in answer["groups"] for rule in group["rules"]}
        return {name for name, state in states.items() if state != "inactive"}

    wanted = {"TagaeWatchdog", "TagaeNoticesWaiting", "TagaeReceiverFailing", "TagaeSourceDegraded"}
    await_that(lambda: active() >= wanted, f"alerts {wanted}", 5 * PATIENCE_SECONDS)
    assert not active() & {"TagaeStoreGone", "TagaeNotifierGone", "TagaeSourceDown", "TagaeStaleModel", "TagaeGpuHot"}


def test_waiting_alerts_have_no_gap(prometheus: str) -> None:
    """Ray forgets gauges. Then an alert that needs five minutes of data would never fire."""
    waiting, scraped = (
        float(query_series(prometheus, Drawn("", "", f"min(count_over_time({series}[30s]))", ""))[0]["value"][1])
        for series in ("tagae_notifications_waiting", 'up{job="tagae-ray"}')
    )
    assert waiting >= scraped - 1


def test_meshes_and_their_thresholds_are_distinguishable(prometheus: str) -> None:
    for name in ("score", "threshold", "services"):
        found = query_series(prometheus, Drawn("", "", f"tagae_mesh_{name}", ""))
        assert {series["metric"]["mesh"] for series in found} == {"shop", "pushed"}
