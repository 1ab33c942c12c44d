"""promtool checks and tests the shipped alert rules."""

from pathlib import Path

import pytest

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
