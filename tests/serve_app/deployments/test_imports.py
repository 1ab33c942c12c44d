"""Processes that do not score start without torch, which takes two seconds and 180 MB."""

import json
import subprocess
import sys

from tests.timing import PATIENCE_SECONDS

WITHOUT, WITH = ("gate", "http.ingress", "collector", "notifier", "session.api"), "session.mesh_session"
IMPORT_EACH = """
import importlib, json, sys

found = {}
for name in sys.argv[1:]:
    importlib.import_module(f"serve_app.deployments.{name}")
    found[name] = "torch" in sys.modules
print(json.dumps(found))
"""


def test_only_processes_that_score_import_torch() -> None:
    command = [sys.executable, "-c", IMPORT_EACH, *WITHOUT, WITH]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=2 * PATIENCE_SECONDS)
    assert json.loads(done.stdout) == {**dict.fromkeys(WITHOUT, False), WITH: True}
