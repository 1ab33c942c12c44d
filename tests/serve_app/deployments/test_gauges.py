"""Ray drops a gauge that is not set again within seconds, so health checks set all of them."""

from contextlib import closing
from pathlib import Path

import pytest

from serve_app import metrics
from serve_app.deployments.scoring import meta, scorer
from serve_app.deployments.scoring.meta import MetaModel
from serve_app.deployments.scoring.scorer import Scorer
from serve_app.deployments.session import mesh_session
from serve_app.deployments.session.mesh_session import MeshSession
from serve_app.exporter import PrometheusInstruments
from serve_app.metrics import Metric
from serve_app.settings import Settings
from tests.builders import allow_deployments

# A replica sets these where they are measured: delivery every few seconds, a scorer in each pass on a GPU.
ELSEWHERE = {
    metrics.NOTIFICATIONS_WAITING,
    metrics.RECEIVER_FAILING,
    metrics.GPU_MEMORY_PEAK,
    metrics.GPU_MEMORY_RESERVED,
    metrics.GPU_MEMORY_FRAGMENTED,
}


class ListedGauges(PrometheusInstruments):
    """Instruments that list the gauges that were set."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def set(self, metric: Metric, value: float, **labels: str) -> None:
        super().set(metric, value, **labels)
        self.names.add(metric.name)


async def test_health_checks_set_every_gauge_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    allow_deployments(monkeypatch)
    instruments = ListedGauges()
    for module in (mesh_session, meta, scorer):
        monkeypatch.setattr(module, "open_instruments", lambda: instruments)
    session = MeshSession(Settings(store={"path": tmp_path}), gpu_unused="torch")
    with closing(session._store):
        replicas = session, Scorer(Settings(), "cpu"), MetaModel(Settings())
        for _ in range(2):
            instruments.names.clear()
            for replica in replicas:
                await replica.check_health()
            assert instruments.names == {one.name for one in metrics.METRICS if one.gauge and one not in ELSEWHERE}
    assert b'tagae_gpu_unused{reason="torch"} 1.0' in instruments.text()
