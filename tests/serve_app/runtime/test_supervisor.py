"""A service that loses processes recovers or exits. It never keeps running without working."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from lab.simulator.mesh.topology import MeshSpec
from serve_app.api.client import Client
from serve_app.runtime.environment import FOREIGN_VARIABLES
from serve_app.runtime.supervisor import reason_to_restart
from tests.serve_app.running import record_simulation, start_service
from tests.timing import TIME_FACTOR

WHOLE = {"gcs_server", "raylet", "ray::ProxyActor"}


@pytest.mark.parametrize("name", ["gcs_server", "raylet"])
def test_a_lost_process_without_replacement_is_a_reason_to_restart_at_once(name: str) -> None:
    assert reason_to_restart(WHOLE - {name}, 0.0) == f"{name} ended, and nothing replaces it"


def test_a_service_that_stays_silent_with_all_its_processes_starts_again() -> None:
    assert reason_to_restart(WHOLE, 179.0) == ""
    assert reason_to_restart(WHOLE, 181.0) == "the service has not answered for 181 s"


KILL_DURING_CALLS = """
import os, threading, time
import ray
from serve_app.runtime.supervisor import kill_all_below

def write() -> None:
    while True:
        ray.put(bytes(2_000_000))

ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False)
threading.Thread(target=write, daemon=True).start()
kill_all_below()
time.sleep(2)  # as a slow machine does; a raylet that is gone would end this process meanwhile
os._exit(7)
"""


def list_descendants(process: psutil.Process) -> list[psutil.Process]:
    return process.children(recursive=True)


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_service_that_loses_its_ray_starts_again_with_its_address_and_its_state(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The environment is of a job of another Ray. After the end, no process is left."""
    monkeypatch.setenv("HOME", str(tmp_path))  # Ray must not write a token there
    for name in [name for name in os.environ if name.startswith("RAY_")]:
        monkeypatch.delenv(name)
    for name in FOREIGN_VARIABLES:
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("RAY_ADDRESS", "192.0.2.1:6379")
    monkeypatch.setenv("RAY_RUNTIME_ENV_HOOK", "nowhere.hook")
    monkeypatch.setenv("RAY_JOB_CONFIG_JSON_ENV_VAR", '{"runtime_env": {"working_dir": "gcs://nowhere.zip"}}')
    monkeypatch.setenv("RAY_OVERRIDE_RESOURCES", '{"CPU": 1}')
    monkeypatch.setenv("RAY_JOB_ID", "02000000")
    monkeypatch.setenv("RAY_RAYLET_PID", "1")
    snapshots = record_simulation(MeshSpec(services=30, seed=3), 4)
    settings = ("--set", f"store.path={tmp_path}", "--set", "scorer.device=cpu", "--port", "0")
    with start_service(*settings) as (process, url):
        assert not (tmp_path / ".ray").exists()
        families = []
        with Client(url, timeout_seconds=240 * TIME_FACTOR, patience_seconds=480 * TIME_FACTOR) as client:
            assert client.push("kept", snapshots[0]).sequence == 1
            for number, lost in enumerate(("gcs_server", "raylet", "command"), 2):
                families.append(list_descendants(process))
                [command] = process.children()  # of the keeper
                [victim] = [command] if lost == "command" else [one for one in families[-1] if one.name() == lost]
                victim.kill()
                assert psutil.wait_procs(families[-1], timeout=120 * TIME_FACTOR)[1] == [], f"without its {lost}"
                assert client.push("kept", snapshots[number - 1]).sequence == number
        process.send_signal(signal.SIGTERM)
        assert process.wait(240 * TIME_FACTOR) == 0
        assert psutil.wait_procs(families[-1], timeout=120 * TIME_FACTOR)[1] == []
    assert not (tmp_path / ".ray").exists()


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_sigterm_ends_a_service_whose_ray_hangs(tmp_path: Path) -> None:
    settings = ("--set", f"store.path={tmp_path}", "--set", "scorer.device=cpu", "--port", "0")
    with start_service(*settings) as (process, _):
        family = list_descendants(process)
        for one in family:
            if one.name() in ("gcs_server", "raylet"):
                one.suspend()
        process.send_signal(signal.SIGTERM)
        try:
            assert process.wait(240 * TIME_FACTOR) == 0
            assert psutil.wait_procs(family, timeout=120 * TIME_FACTOR)[1] == []
        finally:
            for one in family:
                with suppress(psutil.NoSuchProcess):
                    one.kill()


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_rays_library_does_not_choose_the_exit_code_of_a_forced_end() -> None:
    with subprocess.Popen([sys.executable, "-c", KILL_DURING_CALLS]) as it:
        family: list[psutil.Process] = []
        while it.poll() is None:
            with suppress(psutil.NoSuchProcess):
                family = list_descendants(psutil.Process(it.pid)) or family
            time.sleep(0.05)
        assert it.returncode == 7
    assert psutil.wait_procs(family, timeout=120 * TIME_FACTOR)[1] == []
