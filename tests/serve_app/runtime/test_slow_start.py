"""A start on a busy machine: if a fixed time limit of Ray has passed, the start is attempted again."""

import gc
import os
import subprocess
import sys
from typing import Any

import psutil
import pytest
import ray

from serve_app.errors import NoCapacity
from serve_app.runtime import fork_server, local
from serve_app.runtime.forked_worker import ADDRESS

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
