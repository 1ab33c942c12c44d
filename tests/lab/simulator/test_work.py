"""Work beside the requests of a service: jobs, and processes that take the CPU."""

from collections.abc import Sequence

import numpy as np
import pytest

from lab.simulator.events.work import Work
from lab.simulator.mesh.parameters import build_mesh
from lab.simulator.mesh.topology import MeshSpec
from lab.simulator.simulator import Simulator
from model.snapshot import NODE_METRICS, EdgeMetric, MeshSnapshot

SPEC = MeshSpec(seed=1, hiccups_per_hour=0.0, without_resources=0.0, without_call_latency=0.0, dropout=0.0)
MESH = build_mesh(SPEC)
NAMES = MESH.topology.node_ids
_FLOW = MESH.usual_rate[MESH.topology.source] * MESH.topology.calls_per_request * ~MESH.topology.latent_calls
_BUSY = int(np.argmax(_FLOW * (MESH.usual_utilisation[MESH.topology.destination] < 0.1)))
CALLER, SERVICE = (NAMES[ends[_BUSY]] for ends in (MESH.topology.source, MESH.topology.destination))


def run(*work: Work) -> list[MeshSnapshot]:
    return list(Simulator(SPEC, snapshots=20, others=work).snapshots())


def values(snapshots: Sequence[MeshSnapshot], metric: str) -> list[float]:
    column = NODE_METRICS.index(metric)
    return [float(snapshot.node_features[snapshot.node_ids.index(SERVICE), column]) for snapshot in snapshots]


def calls(snapshots: Sequence[MeshSnapshot]) -> list[float]:
    notices = []
    for snapshot in snapshots:
        ends = [[snapshot.node_ids[i] for i in pair] for pair in snapshot.edge_index.T]
        notices.append(float(snapshot.edge_features[ends.index([CALLER, SERVICE]), EdgeMetric.REQUESTS_PER_SECOND]))
    return notices


def test_work_uses_cpu_without_harm() -> None:
    calm, busy = run(), run(Work(SERVICE, 5, 4, cpu=0.9))
    cpu = values(busy, "cpu_utilization")
    assert all((value > 0.8) is (5 <= i < 9) for i, value in enumerate(cpu))
    for metric in ("p99_latency", "error_rate", "request_rate"):
        assert values(calm, metric) == values(busy, metric)


def test_requests_wait_for_the_cpu() -> None:
    calm, busy = (values(run(*work), "p99_latency") for work in ((), (Work(SERVICE, 5, 15, cpu=1.0, wait=0.5),)))
    assert busy[:5] == calm[:5]
    assert min(busy[5:]) > 0.5 > max(calm)


def test_a_job_runs_on_schedule_and_its_caller_sends_more() -> None:
    calm, busy = run(), run(Work(SERVICE, 3, 2, every=8, cpu=0.7, caller=CALLER, calls=6.0))
    ratio = np.array(calls(busy)) / np.array(calls(calm))
    running = {3, 4, 11, 12, 19}
    assert {i for i, value in enumerate(ratio) if value > 3} == running
    assert {i for i, value in enumerate(values(busy, "cpu_utilization")) if value > 0.6} == running


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"ticks": 0}, "every: expected 0 or more than the 0 snapshots"),
        ({"every": 3}, "every: expected 0 or more than the 4 snapshots of a run, got 3"),
        ({"cpu": 1.5}, r"cpu: expected 0 to 1, got 1\.5"),
        ({"wait": -1.0}, "expected a wait of 0 or more"),
        ({"calls": 0.0}, "a factor above 0"),
    ],
)
def test_wrong_work_is_refused(values: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Work(**{"service": SERVICE, "start": 1, "ticks": 4, **values})


def test_work_of_an_unknown_service_or_caller_is_refused() -> None:
    with pytest.raises(ValueError, match="work: 'a/b' is not among"):
        run(Work("a/b", 1, 2))
    with pytest.raises(ValueError, match=f"caller: expected a service that calls '{SERVICE}', got 'a/b'"):
        run(Work(SERVICE, 1, 2, caller="a/b"))
