"""All benign behaviour together must not cause a brownout."""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pytest

from lab.simulator.mesh.topology import MeshSpec
from lab.simulator.scenario import plan_scenario
from lab.simulator.simulator import Simulator
from model.snapshot import NODE_METRICS, MeshSnapshot

RATE, ERRORS, P50, CPU = (
    NODE_METRICS.index(name) for name in ("request_rate", "error_rate", "p50_latency", "cpu_utilization")
)
LENGTH = 240


def by_service(snapshots: Iterable[MeshSnapshot]) -> dict[str, np.ndarray]:
    """Return metrics ``[T, 7]`` of each service; NaN while it does not exist or a metric is not observed."""
    series: dict[str, np.ndarray] = {}
    for t, snapshot in enumerate(snapshots):
        values = np.where(snapshot.node_observed, snapshot.node_features, np.nan)
        for name, row in zip(snapshot.node_ids, values, strict=True):
            series.setdefault(name, np.full((LENGTH, len(NODE_METRICS)), np.nan))[t] = row
    return series


@pytest.mark.parametrize("seed", [0, 3])
def test_churn_crowds_and_batches_together_cause_no_brownout(seed: int) -> None:
    spec = MeshSpec(services=80, seed=seed, without_resources=0.0, dropout=0.0, hiccups_per_hour=0.0)
    _, changes = plan_scenario(spec, [], seed, snapshots=LENGTH, churn_per_hour=120.0)
    assert len(changes) > 80
    kinds = {change.kind for change in changes}
    assert kinds >= {"deploy", "scale_out", "scale_in", "canary", "node_drain", "new_service"}
    calm = by_service(Simulator(spec, snapshots=LENGTH).snapshots())
    lively = by_service(
        Simulator(replace(spec, crowds_per_day=48.0, batches=0.05), changes=changes, snapshots=LENGTH).snapshots()
    )
    slower = []
    for name, usual in calm.items():
        if np.nanmean(usual[:, RATE]) < 2:
            continue
        series = lively[name]
        failing = (series[:, ERRORS] > np.nanmean(usual[:, ERRORS]) + 0.05) & (series[:, RATE] * 15 > 50)
        lasting = failing[2:] & failing[1:-1] & failing[:-2]
        assert not lasting.any(), f"{name} fails for three snapshots"
        assert np.nanmax(series[:, CPU]) < 0.95
        slower.append(np.nanmedian(series[:, P50]) / np.nanmedian(usual[:, P50]))
    assert any((lively[name][:, RATE] > 1.4 * usual[:, RATE]).any() for name, usual in calm.items()), "surges show"
    # A caller of a new service is slower from then on, which is correct.
    assert np.quantile(slower, 0.9) < 1.3
    assert max(slower) < 5
