"""Files of deploy/ use the metrics, routes and limits of the service."""

import ast
import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

from serve_app.collect.loop import CollectorState
from serve_app.deployments.http.streams import EVENTS, WAIT_SECONDS
from serve_app.exporter import PrometheusInstruments
from serve_app.metrics import METRICS, MeshGauges
from serve_app.settings import Settings
from tests.live.deployed import DASHBOARDS, DEPLOY, dashboard_queries

SUFFIX = re.compile(r"_(bucket|sum|count|total)$")
BOARDS = {path.name: json.loads(path.read_text()) for path in DASHBOARDS}


@cache
def exported_series() -> set[str]:
    instruments = PrometheusInstruments()
    for metric in METRICS:
        labels: dict[str, Any] = dict.fromkeys(metric.labels, "x")
        if metric.buckets:
            instruments.observe(metric, 1.0, **labels)
        elif metric.gauge:
            instruments.set(metric, 1.0, **labels)
        else:
            instruments.count(metric, **labels)
    whole: dict[str, Any] = {
        "score": 1.0,
        "threshold": 2.0,
        "probability": 0.5,
        "reconstruction_loss": 0.1,
        "loss_threshold": 0.2,
        "embedding_displacement": 1.0,
        "displacement_threshold": 2.0,
    }
    mesh = MeshGauges("shop", 3, 5, datetime.now(UTC), "normal", exceeded=False, **whole)
    collected = CollectorState("shop", 1.0, 1.0, {"taken": 1}, {"late": 1}, replayed_share=0.5)
    text = instruments.text([mesh], [collected]).decode()
    return {re.split(r"[{ ]", line)[0] for line in text.splitlines() if not line.startswith("#")}


@cache
def ray_texts() -> set[str]:
    """Return every string in Ray's sources with names of metrics, with the protocol HTTP filled in."""
    spec = find_spec("ray")
    assert spec is not None
    assert spec.origin is not None
    ray = Path(spec.origin).parent
    files = [
        *(ray / "serve" / "_private").glob("*.py"),
        ray / "dashboard" / "modules" / "reporter" / "reporter_agent.py",
    ]
    return {text for path in files for text in _texts(ast.parse(path.read_text(encoding="utf-8")))}


def _texts(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "http" for part in node.values)


def test_alerts_use_exported_metrics() -> None:
    groups = yaml.safe_load((DEPLOY / "prometheus" / "tagae.rules.yaml").read_text())["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    asked = {name for rule in rules for name in re.findall(r"\b(?:ray_)?tagae_\w+", rule["expr"])}
    assert asked
    assert {name.removeprefix("ray_") for name in asked} <= exported_series()
    for rule in rules:
        assert {"summary", "description"} <= rule["annotations"].keys()


def test_dashboards_use_exported_metrics() -> None:
    ours = {name for query in dashboard_queries() for name in query.metrics if name.startswith("tagae_")}
    of_ray = {name for query in dashboard_queries() for name in query.metrics if name.startswith("ray_")}
    assert len(ours) > 20
    assert len(of_ray) > 5
    assert ours - exported_series() == set()
    assert {name for name in of_ray if SUFFIX.sub("", name).removeprefix("ray_") not in ray_texts()} == set()


def test_every_metric_has_a_panel() -> None:
    asked = {SUFFIX.sub("", name) for query in dashboard_queries() for name in query.metrics}
    assert {SUFFIX.sub("", name) for name in exported_series()} - asked == set()


def test_an_unknown_metric_is_found() -> None:
    assert "tagae_mesh_scores" not in exported_series()
    assert not {"serve_num_http_replies", "node_gram_free"} & ray_texts()


@pytest.mark.parametrize("name", BOARDS)
def test_panels_have_a_position_an_id_and_a_data_source_variable(name: str) -> None:
    board: dict[str, Any] = BOARDS[name]
    assert board["uid"] == Path(name).stem
    variables = {variable["name"] for variable in board["templating"]["list"]}
    taken: set[tuple[int, int]] = set()
    for panel in board["panels"]:
        place = panel["gridPos"]
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert place["x"] + place["w"] <= 24, panel["title"]
        assert not cells & taken, panel["title"]
        taken |= cells
        for target in panel.get("targets", ()):
            assert target["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
            used = set(re.findall(r"\$(\w+)", target["expr"])) - {"__rate_interval"}
            assert used <= variables, panel["title"]
    ids = [panel["id"] for panel in board["panels"]]
    assert len(set(ids)) == len(ids)
    assert all(panel["type"] == "row" or panel["targets"] for panel in board["panels"])


def test_provisioning_finds_the_dashboards() -> None:
    folder = DEPLOY / "grafana" / "provisioning"
    (provider,) = yaml.safe_load((folder / "dashboards" / "tagae.yaml").read_text())["providers"]
    assert (provider["type"], set(provider["options"])) == ("file", {"path"})
    (source,) = yaml.safe_load((folder / "datasources" / "tagae.yaml").read_text())["datasources"]
    interval = yaml.safe_load((DEPLOY / "prometheus" / "scrape.yaml").read_text())["global"]["scrape_interval"]
    assert (source["type"], source["jsonData"]["timeInterval"]) == ("prometheus", interval)


def test_the_proxy_has_the_limits_of_the_service() -> None:
    """tests/live/test_nginx.py checks that nginx accepts the file."""
    text = (DEPLOY / "nginx" / "tagae.conf").read_text()
    directives = dict(re.findall(r"^\s*([a-z_]+) ([^;\n]+);", text, re.MULTILINE))
    settings = Settings.model_construct()
    assert directives["client_max_body_size"] == f"{settings.limits.max_body_bytes // 2**20}m"
    assert directives["proxy_pass"] == f"http://127.0.0.1:{settings.serve.port}/"
    timeout = float(directives["proxy_read_timeout"].removesuffix("s"))
    assert timeout > max(settings.serve.deadline_seconds, 2 * WAIT_SECONDS)
    assert EVENTS not in directives["gzip_types"].split()
    assert directives["listen"].startswith("127.0.0.1:"), "there is no authentication"
