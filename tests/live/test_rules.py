"""promtool checks and tests the shipped alert rules."""

from pathlib import Path

import pytest
import yaml

from tests.live.programs import needs
from tests.live.promtool import promtool

FOLDER = Path(__file__).parents[2] / "deploy" / "prometheus"
pytestmark = [pytest.mark.live, needs("promtool")]


@pytest.mark.parametrize(
    "arguments",
    [
        ["check", "rules", *map(str, sorted(FOLDER.glob("*.rules.yaml")))],
        ["test", "rules", *map(str, sorted(FOLDER.glob("*.test.yaml")))],
    ],
    ids=["check", "test"],
)
def test_promtool_accepts_the_rules(arguments: list[str]) -> None:
    promtool(*arguments)


def test_every_alert_has_a_case_in_which_it_fires_and_one_in_which_it_does_not() -> None:
    rules, cases = (
        yaml.safe_load((FOLDER / name).read_text()) for name in ("tagae.rules.yaml", "tagae.rules.test.yaml")
    )
    alerts = {rule["alert"] for group in rules["groups"] for rule in group["rules"]}
    tested = [case for test in cases["tests"] for case in test.get("alert_rule_test", ())]
    assert {case["alertname"] for case in tested if case.get("exp_alerts")} == alerts
    assert {case["alertname"] for case in tested if not case.get("exp_alerts")} >= alerts - {"TagaeWatchdog"}
