"""Errors of Ray and of Serve in a call of a replica, as ours."""

from collections.abc import Iterator
from contextlib import contextmanager

from grpc import StatusCode
from grpc.aio import AioRpcError
from ray.exceptions import RayActorError, RayTaskError
from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError, RequestCancelledError

from serve_app.errors import Overloaded
from serve_app.runtime.rpc import RETRY_AFTER_SECONDS, ReplicaLost


@contextmanager
def translate(deployment: str) -> Iterator[None]:
    """Translate what the block, a call of a deployment, raises.

    Raises:
        ReplicaLost: its replica ended.
        TimeoutError: it was cancelled.
        Overloaded: the deployment's queue is full.
        Exception: what the remote method raised.
    """
    try:
        yield
    except (RayActorError, DeploymentUnavailableError) as error:
        raise ReplicaLost from error
    except AioRpcError as error:
        # If a replica ended in order during the call, its server cancelled it. Serve names other ends itself.
        if error.code() is not StatusCode.CANCELLED:
            raise
        raise ReplicaLost from error
    except RequestCancelledError:
        raise TimeoutError from None
    except BackPressureError as error:
        raise Overloaded(
            f"{deployment}: its queue is full; try again later", retry_after_seconds=RETRY_AFTER_SECONDS
        ) from error
    except RayTaskError as error:
        raise error.cause from None
