"""Autoscaling by the requests that a replica works on.

Serve's own count has every request. Open pages wait for verdicts at the ingress and at the sessions, so many pages
would look like much load.
"""

from typing import Any

from ray.serve.config import AutoscalingConfig, AutoscalingContext, AutoscalingPolicy

from serve_app.deployments.load import REQUESTS
from serve_app.settings import ServeSettings

UPSCALE_SECONDS = 10.0  # how long the load must be higher, before there are more replicas


def choose_replicas(context: AutoscalingContext) -> tuple[float, dict[str, Any]]:
    """The number of replicas that the load needs: a policy of Serve, which applies limits and delays to it."""
    loads = (context.aggregated_metrics or {}).get(REQUESTS, {})
    if not loads:  # no replica has reported yet
        return float(context.target_num_replicas), {}
    return sum(loads.values()) / context.config.target_ongoing_requests, {}


def replica_options(
    front: ServeSettings, fewest: int, most: int | None, *, reports_load: bool = True
) -> dict[str, Any]:
    """Options of a deployment: ``fewest`` replicas, or up to ``most`` by the requests that it works on.

    Args:
        front: how many requests each replica should have, and how long the load must be lower.
        most: None: the number is fixed. It wins over ``fewest``.
        reports_load: whether its class reports a :class:`RequestLoad` with ``record_autoscaling_stats``. Otherwise
            Serve's own count decides.
    """
    if most is None:
        return {"num_replicas": fewest}
    policy = {"policy": AutoscalingPolicy(policy_function=choose_replicas)} if reports_load else {}
    chosen = AutoscalingConfig(
        min_replicas=min(fewest, most),
        max_replicas=most,
        target_ongoing_requests=front.target_requests,
        upscale_delay_s=UPSCALE_SECONDS,
        downscale_delay_s=front.downscale_seconds,
        **policy,
    )
    return {"autoscaling_config": chosen}
