"""Typed calls to other deployments, within a deadline, repeated if a replica dies.

Every remote method can be called twice: scoring and deciding are pure, and a push is idempotent. The first repeat goes
to another replica at once. If there is none, the call waits for the replacement until the deadline.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any, ParamSpec, TypeVar, cast, overload

from serve_app.errors import DeadlineExceeded, NoCapacity, Overloaded
from serve_app.observability.spans import add_event
from serve_app.runtime.environment import calls_by_grpc
from serve_app.runtime.replica import LocalHandle

P = ParamSpec("P")
T = TypeVar("T")
# A deployment's handle, typed as the deployed class, so that mypy checks the names and arguments of remote methods.
# Pass its methods to :meth:`Caller.ask`; they cannot be called directly.
Handle = Annotated[T, "deployment handle"]
WAIT_HEADER = "x-tagae-waited"  # header that the gate adds: seconds since it received the whole request
RETRY_AFTER_SECONDS = 1.0
PAUSE_SECONDS = 0.25  # between further repeats; a replacement takes seconds


@dataclass(frozen=True, slots=True)
class Deadline:
    """The deadline of a request.

    Another process receives the remaining time and measures it with its own clock, so the nodes' clocks need not agree.
    The transfer takes milliseconds and is not counted.

    Attributes:
        at: s of this process's monotonic clock.
    """

    at: float

    @classmethod
    def after(cls, seconds: float) -> Deadline:
        return cls(time.monotonic() + seconds)

    @property
    def remaining_seconds(self) -> float:
        """The remaining seconds; 0 once it has passed."""
        return max(0.0, self.at - time.monotonic())

    def extend(self, seconds: float) -> Deadline:
        return Deadline(self.at + seconds)

    def take_share(self, share: float) -> Deadline:
        """The deadline at a share of the remaining time."""
        return Deadline.after(share * self.remaining_seconds)

    def __reduce__(self) -> tuple[Callable[[float], Deadline], tuple[float]]:
        return Deadline.after, (self.remaining_seconds,)


def with_session(handle: T, session_id: str) -> T:
    """The handle whose calls are routed to the replica that owns a session (here: a mesh)."""
    return _with_options(handle, session_id=session_id)


def with_pickle(handle: T) -> T:
    """The handle whose calls are pickled by the standard library. Serve's default, cloudpickle, is slower; it can also
    pickle functions and classes in scripts, which these calls never contain."""
    return _with_options(handle, request_serialization="pickle", response_serialization="pickle")


def connect(handle: T) -> T:
    """Prepare a handle for calls, by gRPC if ``RAY_SERVE_USE_GRPC_BY_DEFAULT`` asks for it in this process. None stays
    None.

    Without this, a handle's first call blocks the whole process until Serve's controller answers. While Ray's head is
    unavailable, a process that works without it would block until it returns. Serve would also use the variable's value
    from when the deploying process imported Serve, perhaps before it was set, and then make slower actor calls.
    """
    if handle is None or isinstance(handle, LocalHandle):
        return handle
    return _with_options(handle, _by_reference=not calls_by_grpc())


def _with_options(handle: T, **options: Any) -> T:
    return cast(T, cast(Any, handle).options(**options))


@dataclass(frozen=True, slots=True)
class RemoteApi:
    """The objects of a replica whose methods other processes may call: its API.

    Annotate it as the class that has them as attributes, so that mypy checks names and arguments. Pass their methods to
    :meth:`Caller.ask`; they cannot be called directly. The deployment has one method ``call(subject, method, *args)``.

    Attributes:
        names: attributes that were read: subject, method.
    """

    call: Any
    names: tuple[str, ...] = ()

    def __getattr__(self, name: str) -> RemoteApi:
        return RemoteApi(self.call, (*self.names, name))

    @property
    def deployment_name(self) -> str:
        return str(self.call.deployment_name)

    def remote(self, *args: Any, **kwargs: Any) -> Any:
        return self.call.remote(*self.names, *args, **kwargs)


class ReplicaLost(Exception):
    """A call was dropped because its replica ended; the cause is Ray's or Serve's error."""


class Caller:
    """Calls methods of other deployments until a deadline.

    Args:
        deadline: remote work that is still running at this time is cancelled.
        retries: counts calls that were repeated because a replica died, by deployment.
    """

    def __init__(self, deadline: Deadline, retries: Counter[str] | None = None) -> None:
        self.deadline = deadline
        self.retries: Counter[str] = Counter() if retries is None else retries

    @overload
    async def ask(self, method: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs) -> T: ...

    @overload
    async def ask(self, method: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T: ...

    async def ask(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call a method of a handle, such as ``handle.score``, or of an API, and return its answer.

        Raises:
            DeadlineExceeded: no answer came before the deadline.
            NoCapacity: replicas died, and none replaced them before the deadline.
            Overloaded: the deployment's queue is full.
            Exception: what the remote method raised.
        """
        remote: Any = method
        pause = 0.0
        while True:
            try:
                return await _answer(remote, self.deadline, *args, **kwargs)
            except ReplicaLost as lost:
                error = lost.__cause__
                if self.deadline.remaining_seconds <= pause:
                    raise NoCapacity(
                        f"{remote.deployment_name}: no replica could answer ({type(error).__name__}); try again, and "
                        "read its log if this persists",
                        retry_after_seconds=RETRY_AFTER_SECONDS,
                    ) from error
            self.retries[remote.deployment_name] += 1
            add_event("retry", deployment=remote.deployment_name)
            await asyncio.sleep(pause)
            pause = PAUSE_SECONDS


async def _answer(method: Any, deadline: Deadline, *args: Any, **kwargs: Any) -> Any:
    response = method.remote(*args, **kwargs)
    try:
        async with asyncio.timeout(deadline.remaining_seconds) as limit:
            if isinstance(response, asyncio.Future):  # in this process, which may have no Ray
                return await response
            with _translate(method.deployment_name):
                return await response
    except TimeoutError:
        if not limit.expired():  # the method's own error
            raise
        response.cancel()
        raise _no_answer(method.deployment_name) from None
    except asyncio.CancelledError:
        response.cancel()
        raise


def _no_answer(deployment: str) -> DeadlineExceeded:
    return DeadlineExceeded(
        f"{deployment}: no answer before the deadline; whether the request took effect is unknown; retrying is safe; "
        "raise serve.deadline_seconds if this persists",
        retry_after_seconds=RETRY_AFTER_SECONDS,
        stored="unknown",
    )


@contextmanager
def _translate(deployment: str) -> Iterator[None]:
    """Translate the errors that Ray and Serve raise in the block, which calls a deployment.

    Raises:
        ReplicaLost: its replica ended.
        DeadlineExceeded: it was cancelled.
        Overloaded: the deployment's queue is full.
        Exception: what the remote method raised.
    """
    from grpc import StatusCode
    from grpc.aio import AioRpcError
    from ray.exceptions import RayActorError, RayTaskError
    from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError, RequestCancelledError

    try:
        yield
    except (RayActorError, DeploymentUnavailableError) as error:
        raise ReplicaLost from error
    except AioRpcError as error:
        # If a replica ended in order during the call, its server cancelled it. Serve reports other ends itself.
        if error.code() is not StatusCode.CANCELLED:
            raise
        raise ReplicaLost from error
    except RequestCancelledError:
        raise _no_answer(deployment) from None
    except BackPressureError as error:
        raise Overloaded(
            f"{deployment}: its queue is full; try again later", retry_after_seconds=RETRY_AFTER_SECONDS
        ) from error
    except RayTaskError as error:
        raise error.cause from None
