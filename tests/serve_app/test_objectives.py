"""Objectives from the settings to the documents, and the command that writes their rules."""

import math
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from lab.simulator.mesh.topology import MeshSpec
from model.checkpoint import load
from model.verdict import ErrorBudget, Objective
from serve_app.api.codec import encode_verdict
from serve_app.api.headline import budget_text
from serve_app.cli import app
from serve_app.pipeline import Mesh, advance, options
from serve_app.settings import Settings
from tests.serve_app.running import failing, record_simulation

SPEC = MeshSpec(services=30, seed=3)
CONFIG = """
[meshes.shop]
prometheus = "http://prometheus:9090"
source = "istio"
match = { cluster = "prod" }
[meshes.shop.objectives."shop/front"]
availability = 0.999
latency_ms = 250
[meshes.bank]
prometheus = "http://prometheus:9090"
"""


def settings_of(objectives: dict[str, Any]) -> Settings:
    return Settings.model_validate({"meshes": {"shop": {"objectives": objectives}}})


def test_an_incident_shows_what_it_uses_of_an_error_budget() -> None:
    culprit = failing(SPEC)
    settings = settings_of({culprit: {"availability": 0.999, "days": 7}, "shop/nobody": {"availability": 0.9}})
    mesh, checkpoint = Mesh(), load()
    used = []
    for snapshot in record_simulation(SPEC, 26, fault_from=16):
        verdict, mesh = advance(checkpoint, mesh, snapshot, options(settings, "shop"))
        used += [one.used for incident in verdict.alerts for one in incident.error_budgets]
    (incident,) = encode_verdict(verdict).incidents
    (budget,) = incident.error_budgets
    assert (budget.service, budget.objective, budget.target, budget.days) == (culprit, "availability", 0.999, 7)
    assert budget.latency_ms is None
    assert budget.used == used[-1] > 0
    assert used == sorted(used)
    assert f"of the 7-day error budget of {culprit} so far (availability 99.9%)" in budget.text


@pytest.mark.parametrize(
    ("budget", "seconds", "text"),
    [
        (
            ErrorBudget(Objective("shop/front", 0.999), 0.12, 900.0),
            math.inf,
            "has used 12% of the 30-day error budget of shop/front so far (availability 99.9%)",
        ),
        (
            ErrorBudget(Objective("shop/front", 0.999), 0.6, 900.0),
            1200.0,
            "has used 60% of the 30-day error budget of shop/front so far (availability 99.9%), at this rate all of it "
            "in about 13 min",
        ),
        (
            ErrorBudget(Objective("shop/front", 0.999), 0.01, 900.0),
            1200.0,
            "has used 1% of the 30-day error budget of shop/front so far (availability 99.9%)",
        ),
        (
            ErrorBudget(Objective("shop/front", 0.999), 0.6, 900.0),
            30.0,
            "has used 60% of the 30-day error budget of shop/front so far (availability 99.9%)",
        ),
        (
            ErrorBudget(Objective("shop/front", 0.9995, 7, 0.25), 1.4, 900.0),
            1200.0,
            "has used 140% of the 7-day error budget of shop/front so far (latency 99.95% within 250 ms)",
        ),
        (
            ErrorBudget(Objective("shop/front", 0.999), 0.0004, 1.0),
            1200.0,
            "has used below 1% of the 30-day error budget of shop/front so far (availability 99.9%)",
        ),
    ],
)
def test_the_share_reads_as_a_sentence(budget: ErrorBudget, seconds: float, text: str) -> None:
    assert budget_text(budget, seconds) == text


@pytest.mark.parametrize(
    ("objective", "problem"),
    [
        ({}, "expected availability, latency_ms or both, got neither"),
        ({"availability": 1.0}, "availability: Input should be less than 1"),
        ({"availability": 99.9}, "availability: Input should be less than 1"),
        ({"availability": 0.99, "latency_share": 0.9}, "latency_share: latency_ms is missing"),
        ({"latency_ms": 0}, "latency_ms: Input should be greater than 0"),
        ({"availability": 0.99, "days": 0}, "days: Input should be greater than or equal to 1"),
    ],
)
def test_wrong_objectives_are_refused(objective: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011  its text is compared
        settings_of({"shop/front": objective})
    assert problem.split(": ")[-1] in str(caught.value)


def test_settings_with_an_objective_can_be_handed_on() -> None:
    """A process hands its settings to others as a plain dict with all fields."""
    settings = settings_of({"shop/front": {"availability": 0.999}, "shop/api": {"latency_ms": 250}})
    assert Settings.model_validate(settings.model_dump()).meshes == settings.meshes


def run(folder: Path, config: str, *arguments: str) -> Any:
    file = folder / "tagae.toml"
    file.write_text(config)
    return CliRunner().invoke(app, ["rules", "--config", str(file), "--objectives", *arguments])


def test_rules_are_for_the_meshes_with_objectives(tmp_path: Path) -> None:
    result = run(tmp_path, CONFIG)
    assert result.exit_code == 0, result.stderr
    (group,) = yaml.safe_load(result.stdout)["groups"]
    assert group["name"] == "tagae-objectives-shop"
    kinds = {rule["labels"]["objective"] for rule in group["rules"]}
    assert kinds == {"availability", "latency"}
    recorded = [rule for rule in group["rules"] if rule.get("record") == "tagae_objective:requests:rate5m"]
    assert all('cluster="prod"' in rule["expr"] for rule in recorded)
    burns = {
        (rule["labels"]["severity"], rule["labels"]["window"], rule["expr"].split(" > ")[1].split("\n")[0])
        for rule in group["rules"]
        if rule.get("alert") == "TagaeErrorBudgetBurn" and rule["labels"]["objective"] == "availability"
    }
    assert burns == {
        ("critical", "1h", "14.4 * 0.001"),
        ("critical", "6h", "6 * 0.001"),
        ("warning", "1d", "3 * 0.001"),
        ("warning", "3d", "1 * 0.001"),
    }


@pytest.mark.parametrize(
    ("config", "arguments", "problem"),
    [
        ("", (), "expected at least one objective for rules, got none"),
        (CONFIG.replace('source = "istio"\n', ""), (), "expected one of istio-ambient, istio"),
        (CONFIG, ("--match", "cluster=prod"), "expected none with --objectives"),
    ],
)
def test_rules_without_what_they_need_say_what_to_do(
    config: str, arguments: tuple[str, ...], problem: str, tmp_path: Path
) -> None:
    result = run(tmp_path, config, *arguments)
    assert result.exit_code != 0
    assert problem in " ".join(result.stderr.replace("│", " ").split())


def test_the_option_names_the_kind_of_a_recognized_mesh(tmp_path: Path) -> None:
    result = run(tmp_path, CONFIG.replace('source = "istio"\n', ""), "--source", "linkerd")
    assert result.exit_code == 0, result.stderr
    assert "request_total" in result.stdout
