"""Autoscaling by the number of running requests per replica.

Serve itself counts every request. Open pages wait for verdicts in the ingress and the sessions, so many pages would
look like a high load.
"""

from typing import Any

from ray.serve.config import AutoscalingConfig, AutoscalingContext, AutoscalingPolicy

from serve_app.deployments.load import REQUESTS
from serve_app.settings import ServeSettings

UPSCALE_SECONDS = 10.0  # how long the load must be higher before replicas are added


def choose_replicas(context: AutoscalingContext) -> tuple[float, dict[str, Any]]:
    """The number of replicas that the load needs. It is a Serve policy, to which Serve applies limits and delays."""
    loads = (context.aggregated_metrics or {}).get(REQUESTS, {})
    if not loads:  # no replica has reported yet
        return float(context.target_num_replicas), {}
    return sum(loads.values()) / context.config.target_ongoing_requests, {}


def replica_options(
    front: ServeSettings, min_replicas: int, max_replicas: int | None, *, reports_load: bool = True
) -> dict[str, Any]:
    """A deployment's options: ``min_replicas`` replicas, or up to ``max_replicas`` depending on its running requests.

    Args:
        front: target number of requests per replica, and how long the load must be lower.
        max_replicas: maximum number; takes precedence over ``min_replicas``. None: the number is fixed.
        reports_load: whether its class reports a :class:`RequestLoad` with ``record_autoscaling_stats``. Otherwise
            Serve's own count decides.
    """
    if max_replicas is None:
        return {"num_replicas": min_replicas}
    policy = {"policy": AutoscalingPolicy(policy_function=choose_replicas)} if reports_load else {}
    config = AutoscalingConfig(
        min_replicas=min(min_replicas, max_replicas),
        max_replicas=max_replicas,
        target_ongoing_requests=front.target_requests,
        upscale_delay_s=UPSCALE_SECONDS,
        downscale_delay_s=front.downscale_seconds,
        **policy,
    )
    return {"autoscaling_config": config}
