"""A start of Ray: on a busy machine it is attempted again, and configured ports that cannot be opened are refused."""

import gc
import os
import socket
import subprocess
import sys
from typing import Any

import psutil
import pytest
import ray

from serve_app.errors import BadSettings, NoCapacity
from serve_app.runtime import fork_server, local
from serve_app.runtime.forked_worker import ADDRESS
from serve_app.settings import Settings

LATE = "The current node timed out during startup. This could happen because some of the raylet failed to startup"


def start_with(monkeypatch: pytest.MonkeyPatch, *outcomes: Exception | None) -> list[dict[str, Any]]:
    """Start Ray with these results of its attempts, repeating the last one, and return the number of attempts."""
    attempts: list[dict[str, Any]] = []

    def init(**options: Any) -> None:
        attempts.append(options)
        if (error := outcomes[min(len(attempts), len(outcomes)) - 1]) is not None:
            raise error

    monkeypatch.setattr(ray, "init", init)
    local._start_ray(num_cpus=3)
    return attempts


def test_ray_is_started_again_if_its_time_limit_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert start_with(monkeypatch, Exception(LATE), Exception(LATE), None) == [{"num_cpus": 3}] * 3


def test_nothing_is_left_of_an_attempt_that_was_too_late(monkeypatch: pytest.MonkeyPatch) -> None:
    started, complaints = list[int](), list[Any]()

    def init(**_: Any) -> None:
        if not started:
            process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])
            started.append(process.pid)
            raise Exception(LATE)

    monkeypatch.setattr(ray, "init", init)
    monkeypatch.setattr(sys, "unraisablehook", complaints.append)
    local._start_ray()
    gc.collect()
    assert not psutil.pid_exists(started[0])
    assert complaints == []


@pytest.mark.skipif(sys.platform != "linux", reason="workers are forked on Linux")
def test_each_attempt_has_its_own_fork_server(monkeypatch: pytest.MonkeyPatch) -> None:
    running = list[Any]()
    monkeypatch.setattr(fork_server, "_running", running)
    monkeypatch.setenv(ADDRESS, "")  # so that its value is restored
    fork_server.start()
    try:
        (first,), address = running, os.environ[ADDRESS]
        start_with(monkeypatch, Exception(LATE), None)
        assert first.poll() is not None
        assert running[0].poll() is None
        assert os.environ[ADDRESS] != address
    finally:
        fork_server.stop()


def test_a_machine_that_is_too_busy_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NoCapacity, match=f"in {local.START_ATTEMPTS} attempts, because this machine is too busy"):
        start_with(monkeypatch, Exception(LATE))


def test_other_errors_of_ray_are_not_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="no such resource"):
        start_with(monkeypatch, ValueError("no such resource"), None)


@pytest.mark.parametrize("name", ["port", "metrics_port"])
def test_a_port_that_is_taken_is_refused_before_anything_starts(name: str) -> None:
    before = ray.is_initialized()
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)  # as Ray's proxy holds its port
        held.bind(("127.0.0.1", 0))
        held.listen()
        port = held.getsockname()[1]
        with pytest.raises(BadSettings, match=rf"serve\.{name}: expected a free port, {port} is in use"):
            local.start(Settings(serve={"port": 0, name: port}))
    assert ray.is_initialized() == before


def test_an_address_of_another_machine_is_refused() -> None:
    with pytest.raises(BadSettings, match=r"serve\.host: expected an address of this machine, got '192\.0\.2\.1'"):
        local.start(Settings(serve={"host": "192.0.2.1"}))
