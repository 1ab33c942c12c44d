"""Autoscaling by the requests that replicas work on."""

from types import SimpleNamespace
from typing import Any

import pytest
from ray.serve._private.common import DeploymentID, ReplicaID
from ray.serve.config import AutoscalingContext, AutoscalingPolicy
from starlette.types import Message, Receive, Scope, Send

from serve_app.deployments.http.interface import count_requests
from serve_app.deployments.load import REQUESTS, RequestLoad
from serve_app.deployments.scaling import choose_replicas, replica_options
from serve_app.runtime import replica
from serve_app.settings import ServeSettings
from tests.builders import Clock


def test_the_load_is_an_average_since_the_last_report() -> None:
    clock = Clock(100.0)
    load = RequestLoad(clock)
    with load.work():
        clock.now += 3.0
        with load.work():
            clock.now += 1.0
    clock.now += 6.0
    assert load.report() == {REQUESTS: pytest.approx((3.0 + 2.0) / 10.0)}
    clock.now += 10.0
    assert load.report() == {REQUESTS: 0.0}


def test_a_request_that_fails_counts_no_longer() -> None:
    clock = Clock(100.0)
    load = RequestLoad(clock)
    with pytest.raises(ValueError, match="bad"), load.work():
        raise ValueError("bad")
    load.report()
    clock.now += 1.0
    assert load.report() == {REQUESTS: 0.0}


async def test_a_stream_counts_until_its_answer_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, seen = Clock(100.0), list[float]()
    load = RequestLoad(clock)

    async def answer(_scope: Scope, _receive: Receive, send: Send) -> None:
        clock.now += 1.0  # looks up the mesh
        await send({"type": "http.response.start", "status": 200})
        clock.now += 99.0  # an open page
        await send({"type": "http.response.body", "body": b""})

    async def send(_message: Message) -> None:
        seen.append(clock.now)

    async def receive() -> Message:
        raise AssertionError("nothing to receive")

    monkeypatch.setattr(replica, "ingress", lambda: SimpleNamespace(load=load))
    await count_requests(answer)({"type": "http"}, receive, send)
    assert seen == [101.0, 200.0]
    assert load.report() == {REQUESTS: pytest.approx(1.0 / 100.0)}


FRONT = ServeSettings(target_requests=0.5, downscale_seconds=300.0)


def context(loads: dict[str, float], target: int = 2) -> AutoscalingContext:
    """What Serve hands to a policy: three replicas at most, and 0.5 requests for each."""
    deployment = DeploymentID("MeshSession", "tagae")
    metrics = {REQUESTS: {ReplicaID(name, deployment): load for name, load in loads.items()}} if loads else {}
    chosen: dict[str, Any] = {
        "deployment_id": deployment,
        "deployment_name": "MeshSession",
        "app_name": "tagae",
        "current_num_replicas": target,
        "target_num_replicas": target,
        "running_replicas": [],
        "total_num_requests": 1000.0,  # open pages
        "total_queued_requests": 0.0,
        "aggregated_metrics": metrics,
        "raw_metrics": None,
        "capacity_adjusted_min_replicas": 1,
        "capacity_adjusted_max_replicas": 3,
        "policy_state": {},
        "last_scale_up_time": None,
        "last_scale_down_time": None,
        "current_time": None,
        "config": replica_options(FRONT, 1, 3)["autoscaling_config"],
    }
    return AutoscalingContext(**chosen)


@pytest.mark.parametrize(("loads", "wanted"), [({"a": 0.0, "b": 0.0}, 0.0), ({"a": 0.4, "b": 0.9}, 2.6), ({}, 2.0)])
def test_replicas_follow_the_work_and_not_the_open_pages(loads: dict[str, float], wanted: float) -> None:
    assert choose_replicas(context(loads))[0] == pytest.approx(wanted)


def test_the_least_number_is_within_the_limit() -> None:
    chosen = replica_options(FRONT, 4, 2)["autoscaling_config"]
    assert (chosen.min_replicas, chosen.max_replicas) == (2, 2)


def test_a_deployment_that_reports_no_load_is_scaled_by_the_count_of_serve() -> None:
    options = (replica_options(FRONT, 1, 2, reports_load=reports) for reports in (True, False))
    ours, serves = (one["autoscaling_config"] for one in options)
    assert ours.policy.policy_function == f"{choose_replicas.__module__}.{choose_replicas.__name__}"
    assert serves.policy == AutoscalingPolicy()
