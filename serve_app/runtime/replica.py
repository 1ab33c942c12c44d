"""The process that a deployment runs in: a Ray Serve replica, or the single process of ``tagae serve --single``, which
runs all deployments without Ray. With this module, deployments need not import Ray.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import copy_context
from dataclasses import dataclass, field
from typing import Any, TypeVar

from serve_app.exporter import PrometheusInstruments
from serve_app.metrics import Instruments

T = TypeVar("T")
_single: "Single | None" = None


@dataclass
class Single:
    """Replaces Serve in this process."""

    instruments: PrometheusInstruments = field(default_factory=PrometheusInstruments)
    ingress: Any = None


class LocalHandle:
    """A deployment in this process, called like Serve's handles. Arguments and results are not copied."""

    def __init__(self, deployment: object) -> None:
        self._deployment = deployment

    def options(self, **_: object) -> "LocalHandle":
        """The same handle: there is one replica, and nothing is sent."""
        return self

    def __getattr__(self, name: str) -> "LocalMethod":
        return LocalMethod(getattr(self._deployment, name), type(self._deployment).__name__)


class LocalMethod:
    """A method of a :class:`LocalHandle`."""

    def __init__(self, method: Callable[..., Awaitable[Any]], deployment_name: str) -> None:
        self._method, self.deployment_name = method, deployment_name

    def remote(self, *args: object, **kwargs: object) -> asyncio.Future[Any]:
        """Call it. The answer can be awaited and cancelled."""
        return asyncio.ensure_future(self._method(*args, **kwargs))


def run_single() -> Single:
    """Make this process run all deployments. Call it before they are created."""
    global _single
    _single = Single()
    return _single


def is_single() -> bool:
    return _single is not None


def ingress() -> Any:
    """The deployment object that answers HTTP in this process."""
    if _single is not None:
        return _single.ingress
    from ray import serve

    return serve.get_replica_context().servable_object


def name() -> str:
    """The name of this replica, for metrics and logs."""
    if _single is not None:
        return "single"
    from ray import serve

    return str(serve.get_replica_context().replica_id.unique_id)


def run_name() -> str | None:
    """The name of this run, which all replicas share; None: replicas are never replaced."""
    if _single is not None:
        return None
    import ray

    return str(ray.get_runtime_context().get_session_name())


def has_gpu() -> bool:
    """Whether Ray has given a GPU to this replica."""
    if _single is not None:
        return False
    import ray

    return bool(ray.get_gpu_ids())


def open_instruments() -> Instruments:
    if _single is not None:
        return _single.instruments
    from serve_app.runtime.instruments import RayInstruments

    return RayInstruments()


def start_task(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """Start work that continues even if the request that started it is cancelled. Returns its task.

    When a client leaves, Serve cancels all calls to other replicas in its request's context, even if others wait for
    them. So the task gets a copy of that context without the request. Spans and logs keep theirs.
    """
    context = copy_context()
    if _single is None:
        from ray.serve import context as serve_context

        context.run(serve_context._unset_request_context)
    return asyncio.get_running_loop().create_task(work, context=context)
