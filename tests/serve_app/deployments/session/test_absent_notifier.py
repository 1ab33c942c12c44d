"""A session whose notifier is away answers as before, and counts what did not reach it."""

from collections.abc import Coroutine
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest
from ray.serve._private.common import DeploymentID
from ray.serve.exceptions import DeploymentUnavailableError

from lab.simulator.mesh.topology import MeshSpec
from serve_app.api.codec import pack_snapshot
from serve_app.deployments.session import mesh_session
from serve_app.deployments.session.mesh_session import MeshSession
from serve_app.exporter import PrometheusInstruments
from serve_app.runtime.deadline import Deadline
from serve_app.settings import Settings
from tests.builders import allow_deployments
from tests.serve_app.alerts.alerting import metric_value
from tests.serve_app.running import record_simulation
from tests.timing import PATIENCE_SECONDS


class Absent:
    """A method of a deployment without a replica."""

    deployment_name = "Notifier"

    async def _answer(self) -> NoReturn:
        raise DeploymentUnavailableError(DeploymentID(name=self.deployment_name))

    def remote(self, *_: object) -> Coroutine[Any, Any, NoReturn]:
        return self._answer()


async def test_verdicts_go_on_without_a_notifier_and_its_absence_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    allow_deployments(monkeypatch)
    instruments = PrometheusInstruments()
    monkeypatch.setattr(mesh_session, "open_instruments", lambda: instruments)
    impatient = {"deadline_seconds": 0.5}  # for which a session asks the notifier
    session = MeshSession(Settings(store={"path": tmp_path}, serve=impatient))
    with closing(session._meshes._store):
        monkeypatch.setattr(session, "_notifier", SimpleNamespace(accept_verdict=Absent()))
        for number, snapshot in enumerate(record_simulation(MeshSpec(services=30, seed=3), 3), 1):
            assert await session.push("shop", pack_snapshot(snapshot), Deadline.after(PATIENCE_SECONDS))
            while session._background:
                await next(iter(session._background))
            assert metric_value(instruments, "tagae_notices_failed_total", receiver="notifier") == number
