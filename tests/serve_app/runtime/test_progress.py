"""The report on the start of the replicas."""

import threading
from types import SimpleNamespace
from typing import Any

import pytest
from ray.serve.exceptions import RayServeException

from serve_app.runtime import progress
from tests.timing import PATIENCE_SECONDS


def test_each_change_of_the_number_of_running_replicas_is_reported_once(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = iter([None, {"STARTING": 3}, {"STARTING": 2, "RUNNING": 1}, {"STARTING": 2, "RUNNING": 1}, {"RUNNING": 3}])

    def status() -> Any:
        found = next(counts, {"RUNNING": 3})
        if found is None:
            raise RayServeException("it does not know them yet")
        deployments = {"Scorer": SimpleNamespace(replica_states=found)}
        return SimpleNamespace(applications={"tagae": SimpleNamespace(deployments=deployments)})

    monkeypatch.setattr(progress, "PERIOD_SECONDS", 0.01)
    monkeypatch.setattr("ray.serve.status", status)
    reports: list[str] = []
    reported = threading.Event()

    def report(words: str) -> None:
        reports.append(words)
        if words.startswith("3"):
            reported.set()

    with progress.report_replicas(report):
        assert reported.wait(PATIENCE_SECONDS)
    assert reports == ["1 of 3 replicas run", "3 of 3 replicas run"]
