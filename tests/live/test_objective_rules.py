"""promtool checks the rules for objectives of every kind of mesh, and runs them on a front door that fails."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from model.verdict import Objective
from serve_app.collect.prometheus.dialects.known import KNOWN
from serve_app.collect.prometheus.objective_rules import MeshObjectives, render_objective_rules
from tests.live.programs import find_program, needs
from tests.timing import PATIENCE_SECONDS

pytestmark = [pytest.mark.live, needs("promtool")]
AVAILABILITY = Objective("shop/front", 0.999)
LATENCY = Objective("shop/front", 0.99, latency_seconds=0.25)
LABELS = 'reporter="destination",destination_service_namespace="shop",destination_service_name="front"'
OTHER = LABELS.replace('"front"', '"cart"')
MINUTE = 2  # steps of 30 s


def promtool(*arguments: str) -> None:
    program = find_program("promtool")
    assert program is not None
    done = subprocess.run(
        [program, *arguments], capture_output=True, text=True, timeout=4 * PATIENCE_SECONDS, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("kind", KNOWN)
def test_promtool_accepts_the_rules_of_every_kind(kind: str, tmp_path: Path) -> None:
    file = tmp_path / "objectives.rules.yaml"
    file.write_text(render_objective_rules([MeshObjectives("shop", KNOWN[kind], (AVAILABILITY, LATENCY))]))
    promtool("check", "rules", str(file))


def series(labels: str, *phases: tuple[int, float], metric: str = "istio_requests_total") -> dict[str, str]:
    """Return a counter that grows by this many per second, in each phase of so many minutes."""
    values, last = ["0"], 0.0
    for minutes, rate in phases:
        values += [f"{last + 30 * rate * (i + 1):g}" for i in range(minutes * MINUTE)]
        last += 30 * rate * minutes * MINUTE
    return {"series": f"{metric}{{{labels}}}", "values": " ".join(values)}


def run(tmp_path: Path, objective: Objective, inputs: list[dict[str, str]], expected: dict[str, Any]) -> None:
    """Have promtool run the rules, and compare the alerts that fire at some minutes: window and severity of each."""
    (tmp_path / "objectives.rules.yaml").write_text(
        render_objective_rules([MeshObjectives("shop", KNOWN["istio"], (objective,))])
    )
    firing = 'count by (window, severity) (ALERTS{alertname="TagaeErrorBudgetBurn",alertstate="firing"})'
    tests = [
        {
            "expr": firing,
            "eval_time": at,
            "exp_samples": [
                {"labels": f'{{severity="{severity}",window="{window}"}}', "value": 1} for window, severity in alerts
            ],
        }
        for at, alerts in expected.items()
    ]
    document = {
        "rule_files": ["objectives.rules.yaml"],
        "evaluation_interval": "30s",
        "tests": [{"interval": "30s", "input_series": inputs, "promql_expr_test": tests}],
    }
    file = tmp_path / "objectives.test.yaml"
    file.write_text(yaml.safe_dump(document))
    promtool("test", "rules", str(file))


def test_failing_requests_raise_the_alert_and_it_ends_soon_after(tmp_path: Path) -> None:
    """A tenth of the requests fails for 20 minutes. Another service fails all the time, and is none of its business."""
    good = series(f'{LABELS},response_code="200"', (60, 100), (20, 90), (60, 100))
    bad = series(f'{LABELS},response_code="503"', (60, 0), (20, 10), (60, 0))
    elsewhere = series(f'{OTHER},response_code="503"', (140, 50))
    fast, slow = ("1h", "critical"), ("6h", "critical")
    days = [("1d", "warning"), ("3d", "warning")]
    run(
        tmp_path,
        AVAILABILITY,
        [good, bad, elsewhere],
        {"59m": [], "80m": [fast, slow, *days], "90m": [slow, *days], "130m": days},
    )


def test_a_slow_loss_is_a_warning(tmp_path: Path) -> None:
    """0.4% of the requests fail: four times as many as allowed."""
    good = series(f'{LABELS},response_code="200"', (600, 99.6))
    bad = series(f'{LABELS},response_code="503"', (600, 0.4))
    run(tmp_path, AVAILABILITY, [good, bad], {"9h": [("1d", "warning"), ("3d", "warning")]})


def test_slow_requests_raise_the_alert_of_latency(tmp_path: Path) -> None:
    """Bounds are in milliseconds there, and written with or without a decimal point."""
    phases = [(60, 100.0), (20, 70.0)]
    metric = "istio_request_duration_milliseconds_bucket"
    requests = series(f'{LABELS},response_code="200"', (80, 100))
    fast = series(f'{LABELS},response_code="200",le="250.0"', *phases, metric=metric)
    every = series(f'{LABELS},response_code="200",le="+Inf"', (80, 100), metric=metric)
    run(
        tmp_path,
        LATENCY,
        [requests, fast, every],
        {"59m": [], "80m": [("1d", "warning"), ("3d", "warning"), ("6h", "critical")]},
    )


@pytest.mark.parametrize("objective", [Objective("shop/nobody", 0.999), Objective("shop/front", 0.99, 30, 0.3)])
def test_an_objective_without_data_has_an_alert_of_its_own(objective: Objective, tmp_path: Path) -> None:
    """A wrong name, or a latency that is no bound of the histogram."""
    requests = series(f'{LABELS},response_code="503"', (180, 100))
    every = series(
        f'{LABELS},response_code="503",le="+Inf"', (180, 100), metric="istio_request_duration_milliseconds_bucket"
    )
    run(tmp_path, objective, [requests, every], {"3h": []})
    file = tmp_path / "objectives.test.yaml"
    document = yaml.safe_load(file.read_text())
    document["tests"][0]["promql_expr_test"] = [
        {
            "expr": 'count by (alertname) (ALERTS{alertname="TagaeObjectiveUnknown",alertstate="firing"})',
            "eval_time": "3h",
            "exp_samples": [{"labels": '{alertname="TagaeObjectiveUnknown"}', "value": 1}],
        }
    ]
    file.write_text(yaml.safe_dump(document))
    promtool("test", "rules", str(file))
