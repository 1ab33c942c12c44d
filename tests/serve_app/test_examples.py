"""The examples that push, against a running service."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.serve_app.running import Service
from tests.site_pages import ROOT
from tests.timing import PATIENCE_SECONDS

pytestmark = [pytest.mark.ray]
EXAMPLES = ROOT / "examples"


def run(command: list[str], *, stdin: Path | None = None, variables: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        command,
        env={**os.environ, "PYTHONPATH": str(ROOT), **(variables or {})},
        input=stdin.read_text("utf-8") if stdin else None,
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_file_of_measurements_is_pushed(service: Service) -> None:
    file = str(EXAMPLES / "measurements.csv")
    lines = run(
        [sys.executable, str(EXAMPLES / "push.py"), file, "--url", service.url, "--mesh", "ex-csv"]
    ).splitlines()
    assert [line.split()[1] for line in lines] == ["warming_up"] * 9 + ["normal"] * 3
    verdict = service.http.get("/v1/meshes/ex-csv/graph").raise_for_status().json()
    assert {f"{one['namespace']}/{one['name']}" for one in verdict["services"]} == {"library/catalogue", "library/desk"}


@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl here")
@pytest.mark.parametrize("token", ["", "a-token-that-is-not-needed"])
def test_a_snapshot_is_pushed_with_curl(service: Service, tmp_path: Path, token: str) -> None:
    (tmp_path / "token").write_text(token)
    variables = {"TAGAE_URL": service.url, "TAGAE_TOKEN_FILE": str(tmp_path / "token") if token else ""}
    answer = run([str(EXAMPLES / "push.sh"), "ex-curl", "batch", "mailer", "4.2", "0.001", "0.35"], variables=variables)
    assert '"status":"warming_up"' in answer


def test_a_log_is_pushed_as_snapshots(service: Service) -> None:
    command = [sys.executable, str(EXAMPLES / "access_log.py"), "--url", service.url, "--mesh", "ex-log"]
    lines = run(command, stdin=EXAMPLES / "access.jsonl").splitlines()
    assert [line.split()[1] for line in lines] == ["warming_up"] * 9 + ["normal"] * 3
    graph = service.http.get("/v1/meshes/ex-log/graph").raise_for_status().json()
    assert [(call["source"], call["destination"]) for call in graph["calls"]] == [("shop/web", "shop/cart")]
