"""What processes of Ray inherit, and variables that are meant for another Ray than the one that `tagae serve` starts.

test_supervisor.py starts a service among them.
"""

import json
import logging
import os
from pathlib import Path

import pytest
import ray

from serve_app.runtime import local
from serve_app.runtime.environment import (
    FOREIGN_VARIABLES,
    SETTINGS,
    cluster_address,
    handed_settings,
    leave_other_clusters,
)
from serve_app.settings import Settings

TUNING = {
    "RAY_TMPDIR": "/var/tmp/ray",
    "RAY_SERVE_THROUGHPUT_OPTIMIZED": "1",
    "RAY_SERVE_PROXY_HEALTH_CHECK_TIMEOUT_S": "7",
    "RAY_USE_TLS": "1",
    "RAY_object_spilling_directory": "/var/tmp/spill",
    "RAY_BACKEND_LOG_LEVEL": "debug",
}


@pytest.fixture(autouse=True)
def no_ray_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("RAY_")]:
        monkeypatch.delenv(name)


@pytest.mark.parametrize(
    ("given", "address"),
    [
        (None, None),
        ("", None),  # as a template without a value writes it
        (" ", None),
        ("local", None),
        ("auto", "auto"),
        ("10.1.2.3:6379", "10.1.2.3:6379"),
        ("ray://head.ray:10001", "ray://head.ray:10001"),
    ],
)
def test_only_the_address_of_a_cluster_is_one(
    monkeypatch: pytest.MonkeyPatch, given: str | None, address: str | None
) -> None:
    if given is not None:
        monkeypatch.setenv("RAY_ADDRESS", given)
    assert cluster_address() == address


@pytest.mark.parametrize("address", ["auto", "10.1.2.3:6379", "ray://head.ray:10001"])
def test_the_address_of_a_cluster_is_ignored_and_the_log_says_how_to_use_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, address: str
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", address)
    with caplog.at_level(logging.WARNING):
        leave_other_clusters()
    [message] = caplog.messages
    assert f"RAY_ADDRESS={address} is ignored" in message
    assert "serve run serve_app.app:build" in message
    assert "RAY_ADDRESS" not in os.environ


def test_all_that_is_meant_for_another_cluster_is_removed_and_named_in_one_line(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in FOREIGN_VARIABLES:
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("RAY_JOB_ID", "01000000")
    with caplog.at_level(logging.WARNING):
        leave_other_clusters()
    [message] = caplog.messages
    assert all(name in message for name in FOREIGN_VARIABLES)
    assert [name for name in os.environ if name.startswith("RAY_")] == []


@pytest.mark.parametrize("environment", [{}, {"RAY_ADDRESS": ""}, TUNING])
def test_tuning_stays_in_force_and_nothing_is_said(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, environment: dict[str, str]
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with caplog.at_level(logging.WARNING):
        leave_other_clusters()
    assert caplog.messages == []
    kept = {name: value for name, value in environment.items() if value}
    assert {name: value for name, value in os.environ.items() if name.startswith("RAY_")} == kept


@pytest.mark.parametrize(
    ("address", "connects"), [("10.1.2.3:6379", True), ("auto", True), ("local", False), ("", False)]
)
def test_serve_run_connects_to_a_cluster_and_otherwise_starts_ray(
    monkeypatch: pytest.MonkeyPatch, address: str, connects: bool
) -> None:
    done = []
    monkeypatch.setenv("RAY_ADDRESS", address)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", lambda **_: done.append(os.environ["RAY_ADDRESS"]))
    monkeypatch.setattr(local, "start", lambda *_, **__: done.append("start"))
    local.connect(Settings())
    assert done == [address if connects else "start"]


def test_each_variable_is_one_that_ray_reads() -> None:
    """A misspelt one would stay in force."""
    source = Path(ray.__file__).parent
    files = ("ray_constants.py", "node.py", "worker.py", "client_mode_hook.py", "../serve/_private/constants.py")
    text = "".join((source / "_private" / file).read_text() for file in files)
    not_in_python = {"RAY_external_storage_namespace"}  # of Ray's configuration in C++
    lower = {"RAY_gcs_storage", "RAY_gcs_storage_path"}
    assert [name for name in FOREIGN_VARIABLES if name not in text and name not in not_in_python | lower] == []


def test_the_settings_reach_rays_processes_unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    given = Settings(serve={"port": 0}, limits={"max_ahead_seconds": float("inf")})
    monkeypatch.setenv(SETTINGS, json.dumps(given.model_dump(), default=str))
    assert handed_settings() == given
