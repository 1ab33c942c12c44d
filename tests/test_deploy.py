"""What deploy/ asks for is what the service tells."""

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml

from serve_app.collecting import Collected
from serve_app.metrics import METRICS, MeshGauges, PrometheusInstruments

RULES = sorted((Path(__file__).parents[1] / "deploy" / "prometheus").glob("*.rules.yaml"))


def told() -> set[str]:
    """Names of all series that the service exports."""
    instruments = PrometheusInstruments()
    for metric in METRICS:
        labels = dict.fromkeys(metric.labels, "x")
        if metric.buckets:
            instruments.observe(metric, 1.0, **labels)
        elif metric.gauge:
            instruments.set(metric, 1.0, **labels)
        else:
            instruments.count(metric, **labels)
    mesh = MeshGauges("shop", 3, 5, datetime.now(UTC), "normal", 1.0, 2.0, 0.5, 0)
    collected = Collected("shop", 1.0, 1.0, {"taken": 1}, {"late": 1})
    text = instruments.text([mesh], [collected]).decode()
    return {re.split(r"[{ ]", line)[0] for line in text.splitlines() if not line.startswith("#")}


@pytest.mark.parametrize("path", RULES, ids=lambda path: path.name)
def test_rules_ask_for_what_is_told(path: Path) -> None:
    known = told()
    rules = [rule for group in yaml.safe_load(path.read_text())["groups"] for rule in group["rules"]]
    asked = {name for rule in rules for name in re.findall(r"\b(?:ray_)?tagae_\w+", rule["expr"])}
    assert asked
    assert {name.removeprefix("ray_") for name in asked} <= known
    for rule in rules:
        assert {"summary", "description"} <= rule["annotations"].keys()
