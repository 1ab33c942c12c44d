"""A session counts its verdicts, each once."""

from contextlib import closing
from pathlib import Path

import pytest

from lab.simulator.mesh.topology import MeshSpec
from serve_app.api.codec import pack_snapshot
from serve_app.deployments.session import mesh_session
from serve_app.deployments.session.mesh_session import MeshSession
from serve_app.exporter import PrometheusInstruments
from serve_app.runtime.rpc import Deadline
from serve_app.settings import Settings
from tests.builders import allow_deployments
from tests.serve_app.alerts.alerting import metric_value
from tests.serve_app.running import record_simulation
from tests.timing import PATIENCE_SECONDS

STAGES = {"prepare", "score", "gather", "decide", "store"}


async def test_each_verdict_has_its_status_stages_and_confidence_in_the_metrics_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    allow_deployments(monkeypatch)
    instruments = PrometheusInstruments()
    monkeypatch.setattr(mesh_session, "open_instruments", lambda: instruments)
    session = MeshSession(Settings(store={"path": tmp_path}))
    packed = [pack_snapshot(one) for one in record_simulation(MeshSpec(services=30, seed=3), 12)]
    with closing(session._store):
        for one in (*packed, packed[-1]):  # the last one again, which counts nothing
            answer = await session.push("shop", one, Deadline.after(PATIENCE_SECONDS))
        while session._background_tasks:
            await next(iter(session._background_tasks))
        model = (await session._runner("shop", Deadline.after(PATIENCE_SECONDS))).checkpoint.digest
    assert answer.seconds == {}, "a repeated snapshot"

    def value(name: str, **labels: str) -> float | None:
        return metric_value(instruments, name, **labels)

    assert value("tagae_predictions_total", model_version=model, status="warming_up") == 9
    assert value("tagae_predictions_total", model_version=model, status="normal") == 3
    assert value("tagae_prediction_confidence_ratio_count", model_version=model) == 3
    for stage in STAGES:
        assert value("tagae_stage_seconds_count", stage=stage) == 12, stage
    assert value("tagae_parts_missing_total") == 0
