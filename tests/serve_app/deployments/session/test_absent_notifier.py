"""A session whose notifier is away answers as before, and counts what did not reach it."""

from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import NoReturn

import pytest
from ray import serve

from lab.simulator.mesh.topology import MeshSpec
from serve_app.api.codec import pack_snapshot
from serve_app.deployments.session import mesh_session
from serve_app.deployments.session.mesh_session import MeshSession
from serve_app.errors import NoCapacity
from serve_app.exporter import PrometheusInstruments
from serve_app.runtime.deadline import Deadline
from serve_app.settings import Settings
from tests.serve_app.alerts.alerting import metric_value
from tests.serve_app.running import record_simulation
from tests.timing import PATIENCE_SECONDS


async def test_verdicts_go_on_without_a_notifier_and_its_absence_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_: object) -> NoReturn:
        raise NoCapacity("Notifier: no replica could answer")

    context = SimpleNamespace(replica_id=SimpleNamespace(unique_id="replica"))
    monkeypatch.setattr(serve, "get_replica_context", lambda: context)
    instruments = PrometheusInstruments()
    monkeypatch.setattr(mesh_session, "RayInstruments", lambda: instruments)
    session = MeshSession(Settings(store={"path": tmp_path}, adapt={"enabled": False}))
    with closing(session._meshes._store):
        monkeypatch.setattr(session, "_notifier", SimpleNamespace(accept_verdict=refuse))
        for number, snapshot in enumerate(record_simulation(MeshSpec(services=30, seed=3), 3), 1):
            assert await session.push("shop", pack_snapshot(snapshot), Deadline.after(PATIENCE_SECONDS))
            while session._background:
                await next(iter(session._background))
            assert metric_value(instruments, "tagae_notices_failed_total", receiver="notifier") == number
