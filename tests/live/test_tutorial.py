"""docs/tutorial.md: its commands, in its order, find the fault that it describes."""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import psutil
import pytest

from tests.live.mesh import NEEDS
from tests.live.programs import needs
from tests.timing import PATIENCE_SECONDS, TIME_FACTOR

PAGE = Path(__file__).parents[2] / "docs" / "tutorial.md"
ROOT = PAGE.parents[1]
PORTS = (9090, 9095, 8000)  # of Prometheus, of the faults, of TAGAE
CALM_SNAPSHOTS = 14  # ten to warm up, and "a minute more"
QUIET_SECONDS = 0.1  # p50 of a service that needs 0.02 s; above that, the machine itself is slower than the fault
FOUND_SECONDS = 600.0 * TIME_FACTOR  # snapshots come every 15 s

pytestmark = [
    pytest.mark.live,
    pytest.mark.timeout(1500),
    needs(*NEEDS),
    pytest.mark.skipif(shutil.which("curl") is None, reason="the page uses curl, which is not here"),
]


def commands() -> list[str]:
    return [text.strip() for text in re.findall(r"^```bash\n(.*?)^```$", PAGE.read_text("utf-8"), re.M | re.S)]


def environment() -> dict[str, str]:
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    return {**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1", "COLUMNS": "160"}


@contextmanager
def running(name: str, command: str, sign: str, folder: Path) -> Iterator[None]:
    """Run a command that does not end, from the line with this text on, and end it with its children."""
    log = folder / f"{name}.log"
    with log.open("w") as output:
        process = subprocess.Popen(
            ["bash", "-c", f"exec {command}"], cwd=folder, env=environment(), stdout=output, stderr=subprocess.STDOUT
        )
    family = psutil.Process(process.pid)
    try:
        until(lambda: sign in log.read_text() or process.poll() is not None, 4 * PATIENCE_SECONDS)
        assert process.poll() is None, log.read_text()
        yield
    finally:
        children = [family, *family.children(recursive=True)] if process.poll() is None else []
        process.terminate()
        psutil.wait_procs(children, PATIENCE_SECONDS)
        for child in children:
            if child.is_running():
                child.kill()
        process.wait(PATIENCE_SECONDS)


def until(is_true: Callable[[], bool], seconds: float) -> None:
    ends = time.monotonic() + seconds
    while not is_true():
        assert time.monotonic() < ends, "the condition did not become true"
        time.sleep(1.0)


def run(command: str, folder: Path, *, may_fail: bool = False) -> str:
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", command],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE_SECONDS,
        check=False,
    )
    assert may_fail or done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_the_page_finds_the_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if taken := [port for port in PORTS if not _is_free(port)]:
        pytest.skip(f"ports that the page uses are taken here: {taken}")
    (tmp_path / ".venv").symlink_to(sys.prefix)
    monkeypatch.setenv("HOME", str(tmp_path))
    setup, mesh, doctor, serve, meshes, slow, incidents, report, heal = commands()
    assert (setup, mesh) == ("make setup", "make mesh")  # the second one runs this module:

    def newest() -> dict[str, object]:
        (one,) = json.loads(run(meshes, tmp_path))
        return dict(one)

    def read_p50() -> list[float]:
        url = "http://127.0.0.1:8000/v1/meshes/shop/details?service=shop/payment"
        answer = json.loads(run(f"curl -sS '{url}'", tmp_path))
        (p50,) = [one for one in answer["metrics"] if one["metric"] == "p50_latency"]
        return [value for value in p50["observed"] if value is not None]

    with ExitStack() as programs:
        programs.enter_context(running("mesh", f"{sys.executable} -m tests.live.playground", "Ctrl-C", tmp_path))
        until(lambda: "7 services, 8 calls" in run(doctor, tmp_path, may_fail=True), 2 * PATIENCE_SECONDS)
        programs.enter_context(running("serve", serve, "Stop with Ctrl-C", tmp_path))
        until(lambda: int(str(newest().get("sequence") or 0)) >= CALM_SNAPSHOTS, FOUND_SECONDS)
        if (slowest := max(read_p50())) > QUIET_SECONDS:
            pytest.skip(f"this machine is busy: without a fault, the p50 of payment was {slowest:.2f} s")
        assert newest()["status"] == "normal"
        run(slow, tmp_path)
        until(lambda: bool(newest()["incidents"]), FOUND_SECONDS)
        assert "shop/payment is slow" in " ".join(run(incidents, tmp_path).split())
        found = run(report, tmp_path)
        assert re.search(r"^1\. \*\*shop/payment\*\*", found, re.MULTILINE), found
        run(heal, tmp_path)
        until(lambda: newest()["status"] == "normal", FOUND_SECONDS)
    assert all(_is_free(port) for port in PORTS)


def _is_free(port: int) -> bool:
    with closing(socket.socket()) as probe:
        return bool(probe.connect_ex(("127.0.0.1", port)))
