"""promtool: checks of rules, and queries over a few series."""

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from tests.live.programs import find_program
from tests.timing import PATIENCE_SECONDS


def promtool(*arguments: str) -> None:
    """Run it; it must succeed."""
    command = [find_program("promtool") or "promtool", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=4 * PATIENCE_SECONDS, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def expect(expr: str, at: str, wanted: Mapping[str, float]) -> dict[str, Any]:
    """Return a test of promtool: the query has these values at this time, by labels."""
    samples = [{"labels": labels, "value": value} for labels, value in wanted.items()]
    return {"expr": expr, "eval_time": at, "exp_samples": samples}


def evaluate(
    folder: Path, series: Mapping[str, str], *tests: Mapping[str, Any], interval: str = "15s", rules: str = ""
) -> None:
    """Have promtool evaluate queries over series in its notation, after the rules of a file in the same folder."""
    test = {
        "interval": interval,
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": tests,
    }
    document = {"rule_files": [rules] if rules else [], "evaluation_interval": interval, "tests": [test]}
    file = folder / "promtool.test.yaml"
    file.write_bytes(msgspec.json.encode(document))  # JSON is YAML
    promtool("test", "rules", str(file))
