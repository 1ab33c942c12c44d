"""The Ray Serve application: ``serve run serve_app.app:build``, with settings as ``scorer.num_replicas=4``.

There is no ``from __future__ import annotations`` here: Ray would then hand ``build`` a plain dict, unchecked.

Functions import deployments and devices themselves. They need torch, 150 MiB that the process of ``tagae serve`` never
uses: a worker of Ray binds and deploys the application for it.
"""

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import ray
from ray import serve
from ray.exceptions import RayTaskError
from ray.serve import Application, Deployment
from ray.serve.config import BackpressureConfig, RequestRouterConfig

from kernels import gpu_files
from serve_app.access.rules import require_protection, require_provider
from serve_app.deployments.scaling import replica_options
from serve_app.errors import BadSettings, NoCapacity
from serve_app.observability.traces import check_traces
from serve_app.runtime import local, logs
from serve_app.runtime.environment import MAX_FAILED_STARTS
from serve_app.runtime.local import stop
from serve_app.runtime.rpc import RETRY_AFTER_SECONDS
from serve_app.settings import Settings
from serve_app.settings.access import require_usable, serve_rules
from serve_app.settings.scorer import GPU_BATCH
from serve_app.stores.opening import check_store

if TYPE_CHECKING:
    from kernels import gpu

__all__ = ["NAME", "Arguments", "application", "build", "start", "stop"]

log = logging.getLogger(__name__)
NAME = "tagae"  # of the application in Serve
LIGHT_CPUS = 0.1  # claimed by a replica that mostly waits, so that the application runs on two cores
READS = 50  # requests of an ingress beside the snapshots that it passes on: lists, probes, scrapes
HEALTH_CHECK_PERIOD_SECONDS = 1.0  # a dead replica is replaced in 3 s; Serve's 10 s would make it 12
# Time for requests in progress when an ingress or a session ends, as long as a push may take. With Serve's 20 s, open
# pages, which wait for verdicts at both, would delay the end that long. Pages reconnect to another replica, and calls
# are repeated there.
GRACE_SECONDS = 5.0
STICKY = "ray.serve.experimental.consistent_hash_router.ConsistentHashRouter"
# Each scorer has one group of a snapshot. Serve's default router chooses of two by their queues, which it learns late:
# it sent both groups to the same one in 8 of 20 snapshots.
IN_TURN = "ray.serve.experimental.round_robin_router.RoundRobinRouter"


class Arguments(Settings):
    """The settings as Ray's command line gives them: dotted names (``scorer.num_replicas=4``) or nested values."""

    def __init__(self, **values: Any) -> None:
        super().__init__(**nest(values))


def build(args: Arguments) -> Application:
    """The application for Ray, which validates ``args`` by its annotation.

    Raises:
        BadSettings: see :func:`application`.
        NoCapacity: ``cuda`` is configured, Ray runs on this machine alone, and the machine has no working GPU.
    """
    logs.install()
    settings = Settings.model_construct(**dict(args))
    _choose_log(settings)
    has_own_ray = local.connect(settings)
    if has_own_ray and settings.scorer.device == "cuda":  # nodes of another cluster may have GPUs, or join later
        _require_gpu(of_ray=False)
        _require_gpu(of_ray=True)
    return application(settings)


def application(settings: Settings) -> Application:
    """The application: HTTP to Ingress to MeshSession, which scores, or has replicas of Scorer and MetaModel score; a
    Collector; and a Notifier, if the settings have receivers.

    Raises:
        BadSettings: the settings do not suit this cluster, the store needs a package that is not installed, or others
            could connect to it without a login.
    """
    from serve_app.deployments.collector import Collector
    from serve_app.deployments.http.ingress import Ingress, routes
    from serve_app.deployments.notifier import Notifier
    from serve_app.deployments.session.mesh_session import MeshSession

    _require_one_node(settings)
    check_traces(settings.traces)
    require_protection(serve_rules(settings), _hosts(settings), nodes=_nodes())
    require_provider(serve_rules(settings))
    front, (device, gpu_unused) = settings.serve, _device(settings)
    scorer = meta = None
    if _has_replicas(settings, device):
        scorer, meta = _scorer(settings, device).bind(settings, device), _meta_model(settings).bind(settings)
    ingresses = front.max_ingress_replicas or front.ingress_replicas
    session = _light(
        MeshSession,
        **replica_options(front, front.session_replicas, front.max_session_replicas),
        max_ongoing_requests=front.max_ongoing_requests + ingresses * front.max_streams,
        max_queued_requests=front.max_queued_requests,
        graceful_shutdown_timeout_s=GRACE_SECONDS,
        request_router_config=RequestRouterConfig(request_router_class=STICKY),
    ).bind(settings, scorer, meta, gpu_unused)
    notifier = _light(Notifier).bind(settings) if settings.notify.has_receivers else None
    collector = _light(
        Collector, num_replicas=settings.collector.replicas, max_ongoing_requests=front.max_ongoing_requests
    ).bind(settings, session)
    # More than the sessions take and queue, so that a refused client gets our error.
    sessions = front.max_session_replicas or front.session_replicas
    max_requests = sessions * front.max_ongoing_requests + front.max_queued_requests + front.max_streams + READS
    return _light(
        serve.ingress(routes)(Ingress),
        **replica_options(front, front.ingress_replicas, front.max_ingress_replicas),
        max_ongoing_requests=max_requests,
        max_queued_requests=max_requests,
        graceful_shutdown_timeout_s=GRACE_SECONDS,
        backpressure_config=BackpressureConfig(status_code=429, retry_after_s=RETRY_AFTER_SECONDS),
    ).bind(settings, session, collector, notifier)


def start(
    settings: Settings,
    beside: Mapping[str, Application] | None = None,
    report: Callable[[str], None] = lambda _: None,
) -> str:
    """Run the service on this machine alone, with its own Ray, until :func:`stop`. Return its URL when ready.

    Args:
        beside: further applications by name, which is also the first segment of their paths.
        report: called with a description of each step when it begins.

    Raises:
        BadSettings: see :func:`application`; or the tokens file or the certificate cannot be used.
        IncompatibleWeights: not even the shipped weights can be read.
        NoCapacity: ``cuda`` is configured and this machine has no working GPU, or a replica could not start.
    """
    logs.install()
    _choose_log(settings)
    report("reading the settings and the weights")
    require_usable(settings, [settings.serve.host])
    check_traces(settings.traces)
    needs_gpu = settings.scorer.device == "cuda"
    if needs_gpu:
        _require_gpu(of_ray=False)
    try:
        url = local.start(settings, report=report)
        if needs_gpu:
            _require_gpu(of_ray=True)
        report("starting the replicas")
        refusals = _deploy_in_worker(settings, beside or {})
        local.wait_until_answered(url)
    except BaseException:
        stop()
        raise
    for refusal in refusals:
        log.error(refusal)
    return url


def _deploy_in_worker(settings: Settings, beside: Mapping[str, Application]) -> list[str]:
    """Call :func:`_deploy` in a Ray process that ends with it."""
    remote_deploy = ray.remote(num_cpus=0, max_calls=1, max_retries=0)(_deploy)
    try:
        refusals: list[str] = ray.get(remote_deploy.remote(settings, beside))
    except RayTaskError as error:
        raise error.cause from None
    return refusals


def _deploy(settings: Settings, beside: Mapping[str, Application]) -> list[str]:
    """Read the weights, and run the applications until their replicas are ready.

    Returns:
        Why weights of single meshes are not used.
    """
    from model.mesh_weights import load_weights

    weights = load_weights(settings.model.weights, settings.weights_by_mesh, network=settings.model.network)
    applications = {NAME: application(settings), **beside}
    try:
        local.run_applications(  # all at once: their processes start in parallel
            [
                serve.RunTarget(app, name, "/" if name == NAME else f"/{name}", local.QUIET)
                for name, app in applications.items()
            ]
        )
    except RuntimeError as error:
        raise NoCapacity(f"the service could not start: {_explain_failed_start() or error}") from None
    return list(weights.refused)


def nest(values: Mapping[str, Any]) -> dict[str, Any]:
    """``{"a.b": 1}`` as ``{"a": {"b": 1}}``, merged with nested values."""
    tree: dict[str, Any] = {}
    for name, value in values.items():
        *subjects, field = name.split(".")
        branch = tree
        for subject in subjects:
            branch[subject] = dict(branch.get(subject, {}))
            branch = branch[subject]
        branch[field] = {**branch.get(field, {}), **value} if isinstance(value, Mapping) else value
    return tree


def _choose_log(settings: Settings) -> None:
    """Set the log format of this process, which starts the service."""
    if settings.logs.format == "json":
        logs.write_json("serve")


def _meta_model(settings: Settings) -> Deployment:
    from serve_app.deployments.scoring.meta import MetaModel

    front, scorer = settings.serve, settings.scorer
    replicas = replica_options(front, scorer.meta_replicas, scorer.max_meta_replicas, reports_load=False)
    return _light(MetaModel, **replicas, max_ongoing_requests=front.max_ongoing_requests)


def _scorer(settings: Settings, device: str) -> Deployment:
    from serve_app.deployments.scoring.scorer import Scorer

    scorer = settings.scorer
    max_requests = 2 * GPU_BATCH  # a batch gathers while another is scored
    replicas: dict[str, Any] = {"num_replicas": scorer.num_replicas}
    if scorer.max_replicas:
        replicas = {
            "autoscaling_config": {
                "min_replicas": min(scorer.num_replicas, scorer.max_replicas),
                "max_replicas": scorer.max_replicas,
                "target_ongoing_requests": max_requests / 2,
            }
        }
    return serve.deployment(
        Scorer,
        **replicas,
        ray_actor_options={
            "num_cpus": scorer.num_cpus,
            "num_gpus": scorer.num_gpus if device == "cuda" or (device == "auto" and _gpus()) else 0,
        },
        max_ongoing_requests=max_requests,
        max_queued_requests=settings.serve.max_queued_requests,
        request_router_config=RequestRouterConfig(request_router_class=IN_TURN),
        health_check_period_s=HEALTH_CHECK_PERIOD_SECONDS,
        max_constructor_retry_count=MAX_FAILED_STARTS,
    )


def _light(cls: Any, **options: Any) -> Deployment:
    return serve.deployment(
        cls,
        ray_actor_options={"num_cpus": LIGHT_CPUS},
        health_check_period_s=HEALTH_CHECK_PERIOD_SECONDS,
        max_constructor_retry_count=MAX_FAILED_STARTS,
        **options,
    )


def _device(settings: Settings) -> tuple[str, str]:
    """Return ``cpu`` or ``cuda``, or ``auto`` where each scorer decides for itself: a cluster's GPUs are on other
    nodes, and may join later. Also return the obstacle's kind if the sessions score although this machine has a GPU,
    else an empty text."""
    scorer = settings.scorer
    if scorer.device != "auto" or scorer.place == "replicas":
        return scorer.device, ""
    if not _gpus() and not gpu_files.is_here():
        return "cpu", ""
    if _nodes() > 1:
        return "auto" if _gpus() else "cpu", ""
    from kernels import gpu
    from serve_app.runtime import devices

    obstacle = gpu.find_obstacle() or _gpu_without_ray()
    if obstacle is None:
        return "auto", ""
    return devices.step_aside("auto", obstacle).torch.type, obstacle.kind


def _require_gpu(*, of_ray: bool) -> None:
    """Raises NoCapacity if torch cannot use a GPU here, or, ``of_ray``, if Ray does not see the one that torch sees."""
    from kernels import gpu
    from serve_app.runtime import devices

    if obstacle := _gpu_without_ray() if of_ray else gpu.find_obstacle():
        raise devices.refusal(obstacle)


def _gpu_without_ray() -> "gpu.Obstacle | None":
    """An obstacle if torch sees a GPU, and Ray does not."""
    if _gpus():
        return None
    from kernels.gpu import Obstacle

    return Obstacle("no_gpu", "Ray finds no GPU here", "start Ray with --num-gpus, and compare nvidia-smi")


def _has_replicas(settings: Settings, device: str) -> bool:
    """Whether replicas score. With ``auto``, they do where a GPU or the CPUs of other nodes are available. On one
    machine without a GPU they take longer than the session, for meshes of any size."""
    place = settings.scorer.place
    return place == "replicas" or (place == "auto" and (device != "cpu" or _nodes() > 1))


def _explain_failed_start() -> str:
    """The last messages of the replicas that could not start."""
    messages = [
        deployment.message.strip()
        for application in serve.status().applications.values()
        for deployment in application.deployments.values()
    ]
    return "; ".join(dict.fromkeys(message.splitlines()[-1].strip() for message in messages if message))


def _gpus() -> float:
    return float(ray.cluster_resources().get("GPU", 0))


def _nodes() -> int:
    return sum(node["Alive"] for node in ray.nodes())


def _hosts(settings: Settings) -> list[str]:
    """Addresses that the service listens on: the settings', and Serve's if it runs already.

    ``serve run`` calls the builder before it starts Serve, so its own address is not known there. The rules of access
    still refuse connections from other machines if there is no login (``Access.check``).
    """
    running = local.serve_host()
    return [settings.serve.host, *([running] if running else [])]


def _require_one_node(settings: Settings) -> None:
    """A store that nodes cannot share needs a cluster of one node."""
    kind, store = settings.store.kind, check_store(settings.store)
    if store.open_leases is None and settings.collector.replicas > 1:
        raise BadSettings(
            f"collector.replicas: expected 1 with a {kind} store, got {settings.collector.replicas}; set store.kind to "
            "redis, which holds the leases of the collectors"
        )
    nodes = _nodes()
    if not store.is_shared and nodes > 1:
        raise BadSettings(
            f"store.kind: expected one node, since a {kind} store is a directory of one, got {nodes}; set "
            "store.kind to redis, which several nodes share"
        )
