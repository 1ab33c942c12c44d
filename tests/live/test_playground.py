"""``make mesh``: TAGAE can watch the mesh with the settings that it writes, and its commands break the mesh."""

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil
import pytest
from typer.testing import CliRunner

from serve_app.cli import app
from serve_app.settings import load
from tests.live.mesh import NEEDS
from tests.live.programs import free_ports, needs
from tests.serve_app.running import eventually
from tests.timing import PATIENCE_SECONDS

pytestmark = [
    pytest.mark.live,
    needs(*NEEDS),
    pytest.mark.timeout(300),
]


@dataclass(frozen=True, slots=True)
class Playground:
    """A running mesh: its process, the folder of its settings, and its output until it was ready."""

    process: subprocess.Popen[str]
    folder: Path
    output: str

    @property
    def settings(self) -> Path:
        return self.folder / "tagae.toml"


@pytest.mark.parametrize("seconds", ["0", "-15", "often", "inf"])
def test_an_impossible_scrape_interval_is_refused(tmp_path: Path, seconds: str) -> None:
    command = [sys.executable, "-m", "tests.live.playground", "--folder", str(tmp_path), "--scrape-seconds", seconds]
    refused = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
    assert refused.returncode == 2
    assert f"expected a positive number of seconds, got '{seconds}'" in refused.stderr


def start(folder: Path, prometheus: int, control: int) -> subprocess.Popen[str]:
    ports = ["--prometheus-port", str(prometheus), "--control-port", str(control)]
    command = [sys.executable, "-m", "tests.live.playground", *ports, "--folder", str(folder)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


@pytest.fixture(scope="module")
def playground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Playground]:
    folder = tmp_path_factory.mktemp("playground") / "mesh"
    with start(folder, *free_ports(2)) as process:
        family = [psutil.Process(process.pid)]
        try:
            assert process.stdout is not None
            output = ""
            for line in process.stdout:
                output += line
                if "Ctrl-C" in line:
                    break
            assert process.poll() is None, output
            yield Playground(process, folder, output)
        finally:
            with suppress(psutil.NoSuchProcess):
                family += family[0].children(recursive=True)
            for one in family:
                with suppress(psutil.NoSuchProcess):
                    one.kill()


def test_its_settings_watch_it(playground: Playground) -> None:
    mesh = load(playground.settings).meshes["shop"]
    assert mesh.prometheus_url in playground.output

    def has_snapshot() -> bool:
        doctor = ["doctor", "--config", str(playground.settings), "--source", "shop", "--json"]
        found = json.loads(CliRunner().invoke(app, doctor).stdout)["findings"]
        return any(one["subject"] == "snapshot" and one["found"].startswith("7 services, 8 calls") for one in found)

    assert eventually(has_snapshot)


def test_its_commands_break_and_heal_it(playground: Playground) -> None:
    commands = re.findall(r"curl -X PUT (\S+) -d '(.+)'", playground.output)
    assert len(commands) == 3
    for url, body in commands:
        assert httpx.put(url, content=body).status_code == 200
    (heal,) = re.findall(r"curl -X DELETE (\S+)", playground.output)
    assert httpx.delete(heal).status_code == 200


def test_a_port_in_use_is_reported_with_what_to_do(playground: Playground, tmp_path: Path) -> None:
    used = int(load(playground.settings).meshes["shop"].prometheus_url.rpartition(":")[2])
    with start(tmp_path, used, *free_ports(1)) as second:
        output, _ = second.communicate(timeout=PATIENCE_SECONDS)
    assert second.returncode == 1
    assert f"port {used} is in use" in output
    assert "make mesh PORT=" in output


def test_it_runs_until_it_is_stopped_and_leaves_no_process(playground: Playground) -> None:
    assert playground.process.poll() is None
    family = psutil.Process(playground.process.pid).children(recursive=True)
    assert len(family) == 9  # seven Envoys, the shop, Prometheus
    playground.process.send_signal(signal.SIGINT)
    assert playground.process.wait(PATIENCE_SECONDS) == 0
    assert psutil.wait_procs(family, PATIENCE_SECONDS)[1] == []
