"""Processes that do not score start without torch, which takes two seconds and 180 MB."""

import subprocess
import sys

import pytest

from tests.timing import PATIENCE_SECONDS

WITHOUT = ("gate", "http.ingress", "collector", "notifier", "session.doors")


@pytest.mark.parametrize("deployment", [*WITHOUT, "session.mesh_session"])
def test_only_processes_that_score_import_torch(deployment: str) -> None:
    code = f"import sys, serve_app.deployments.{deployment}; print('torch' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=2 * PATIENCE_SECONDS
    )
    assert done.stdout.strip() == str(deployment not in WITHOUT)
