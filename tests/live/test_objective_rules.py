"""promtool checks the rules for objectives of every kind of mesh, and runs them on a front door that fails."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from model.verdict import Objective
from serve_app.collect.prometheus.dialects.shipped import KNOWN
from serve_app.collect.prometheus.objective_rules import MeshObjectives, render_objective_rules
from tests.live.programs import needs
from tests.live.promtool import evaluate, expect, promtool

pytestmark = [pytest.mark.live, needs("promtool")]
AVAILABILITY = Objective("shop/front", 0.999)
LATENCY = Objective("shop/front", 0.99, latency_seconds=0.25)
LABELS = 'reporter="destination",destination_service_namespace="shop",destination_service_name="front"'
OTHER = LABELS.replace('"front"', '"cart"')
MINUTE = 2  # steps of 30 s


@pytest.mark.parametrize("kind", [name for name, one in KNOWN.items() if "buckets" in one.services])
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
    return {f"{metric}{{{labels}}}": " ".join(values)}


def run(
    tmp_path: Path, objective: Objective, inputs: Mapping[str, str], expected: dict[str, Any], *others: dict[str, Any]
) -> None:
    """Have promtool run the rules, and compare the alerts that fire at some minutes: window and severity of each."""
    file = tmp_path / "objectives.rules.yaml"
    file.write_text(render_objective_rules([MeshObjectives("shop", KNOWN["istio"], (objective,))]))
    firing = 'count by (window, severity) (ALERTS{alertname="TagaeErrorBudgetBurn",alertstate="firing"})'
    tests = [
        expect(firing, at, {f'{{severity="{severity}",window="{window}"}}': 1 for window, severity in alerts})
        for at, alerts in expected.items()
    ]
    evaluate(tmp_path, inputs, *tests, *others, interval="30s", rules=file.name)


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
        good | bad | elsewhere,
        {"59m": [], "80m": [fast, slow, *days], "90m": [slow, *days], "130m": days},
    )


def test_a_slow_loss_is_a_warning(tmp_path: Path) -> None:
    """0.4% of the requests fail: four times as many as allowed."""
    good = series(f'{LABELS},response_code="200"', (600, 99.6))
    bad = series(f'{LABELS},response_code="503"', (600, 0.4))
    run(tmp_path, AVAILABILITY, good | bad, {"9h": [("1d", "warning"), ("3d", "warning")]})


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
        requests | fast | every,
        {"59m": [], "80m": [("1d", "warning"), ("3d", "warning"), ("6h", "critical")]},
    )


@pytest.mark.parametrize("objective", [Objective("shop/nobody", 0.999), Objective("shop/front", 0.99, 30, 0.3)])
def test_an_objective_without_data_has_an_alert_of_its_own(objective: Objective, tmp_path: Path) -> None:
    """A wrong name, or a latency that is no bound of the histogram."""
    requests = series(f'{LABELS},response_code="503"', (180, 100))
    every = series(
        f'{LABELS},response_code="503",le="+Inf"', (180, 100), metric="istio_request_duration_milliseconds_bucket"
    )
    unknown = 'count by (alertname) (ALERTS{alertname="TagaeObjectiveUnknown",alertstate="firing"})'
    named = expect(unknown, "3h", {'{alertname="TagaeObjectiveUnknown"}': 1})
    run(tmp_path, objective, requests | every, {"3h": []}, named)
