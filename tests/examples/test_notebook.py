"""examples/score_recording.ipynb: a valid notebook, whose cells run."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.serve_app.cli.command import tagae
from tests.site_pages import ROOT
from tests.timing import PATIENCE_SECONDS

NOTEBOOK: dict[str, Any] = json.loads((ROOT / "examples/score_recording.ipynb").read_text("utf-8"))


def source(cell: dict[str, Any]) -> str:
    return "".join(cell["source"])


def printed(cell: dict[str, Any]) -> str:
    return "".join("".join(output["text"]) for output in cell["outputs"] if output["output_type"] == "stream")


CODE = [cell for cell in NOTEBOOK["cells"] if cell["cell_type"] == "code"]


def test_it_is_a_notebook_with_the_outputs_of_one_run() -> None:
    assert (NOTEBOOK["nbformat"], NOTEBOOK["nbformat_minor"]) == (4, 5)
    assert NOTEBOOK["metadata"]["kernelspec"]["name"] == "python3"
    ids = [cell["id"] for cell in NOTEBOOK["cells"]]
    assert len(set(ids)) == len(ids)
    assert all(re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", one) for one in ids)
    for cell in NOTEBOOK["cells"]:
        required = {"id", "cell_type", "metadata", "source"}
        assert cell.keys() == required | ({"outputs", "execution_count"} if cell in CODE else set())
    assert [cell["execution_count"] for cell in CODE] == list(range(1, len(CODE) + 1))
    pictures = [output for cell in CODE for output in cell["outputs"] if "image/png" in output.get("data", {})]
    assert len(pictures) == 1


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_its_cells_run_and_print_what_it_shows(tmp_path: Path) -> None:
    (command,) = re.findall(r"^tagae (.+)$", source(NOTEBOOK["cells"][0]), re.MULTILINE)
    words = [str(tmp_path / word) if word == "out/try" else word for word in command.split()]
    assert tagae(*words).exit_code == 0
    code = "\n".join(source(cell) for cell in CODE)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "MPLBACKEND": "Agg", "MPLCONFIGDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-W", "error::UserWarning", "-c", code],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=4 * PATIENCE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "scores.png").read_bytes().startswith(b"\x89PNG")
    shown = "".join(printed(cell) for cell in CODE)
    first, second = done.stdout.splitlines()[:2], shown.splitlines()[:2]
    assert first == second
    assert "stock-2 is slow" in done.stdout
    assert "stock-2 is slow" in shown
