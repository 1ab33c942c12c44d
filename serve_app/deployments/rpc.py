"""One call to another deployment: within a deadline, repeated if the replica died, in the house's own errors.

Every call of the house may be repeated: scoring and combining are pure, and a push is idempotent. The first repeat goes
out at once, to another replica; where there is none, the call waits for the replacement until the deadline.
"""

import asyncio
import time
from collections import Counter
from typing import Any

from ray.exceptions import RayActorError, RayTaskError
from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError, RequestCancelledError

from serve_app.errors import DeadlineExceeded, NoCapacity, Overloaded

RECEIVED = "x-tagae-received"  # header of the gate: when it had all of a request, Unix time
RETRY_AFTER_SECONDS = 1.0
PAUSE_SECONDS = 0.25  # between repeats after the first; a replacement takes seconds


def remaining_seconds(expires_at: float) -> float:
    """Until a deadline (Unix time: the nodes of a cluster agree on it within ms), s; 0 once it has passed."""
    return max(0.0, expires_at - time.time())


def received_at(header: str | None, now: float) -> float:
    """The time that the gate wrote. Where there is no gate, and a client wrote anything else: ``now``."""
    try:
        received = float(header or now)
    except ValueError:
        return now
    return received if now - 60.0 < received < now else now


async def ask(method: Any, *args: Any, expires_at: float, lost: Counter[str] | None = None) -> Any:
    """What a method of a deployment handle answers.

    Args:
        method: such as ``handle.score``.
        args: passed on.
        expires_at: deadline, Unix time; the remote work is cancelled then.
        lost: repeats are added here, by deployment.

    Raises:
        DeadlineExceeded: no answer until then.
        NoCapacity: replicas died, and none took their place until then.
        Overloaded: its queue is full.
        Exception: whatever the method raised, itself.
    """
    pause = 0.0
    while True:
        try:
            return await _answer(method, args, expires_at)
        except (RayActorError, DeploymentUnavailableError) as error:
            if remaining_seconds(expires_at) <= pause:
                raise NoCapacity(
                    f"{method.deployment_name}: no replica could answer ({type(error).__name__}); try again, and look "
                    "at `serve status` if it lasts",
                    retry_after_seconds=RETRY_AFTER_SECONDS,
                ) from error
        if lost is not None:
            lost[method.deployment_name] += 1
        await asyncio.sleep(pause)
        pause = PAUSE_SECONDS


async def _answer(method: Any, args: tuple[Any, ...], expires_at: float) -> Any:
    response = method.remote(*args)
    try:
        async with asyncio.timeout(remaining_seconds(expires_at)):
            return await response
    except (TimeoutError, RequestCancelledError):
        response.cancel()
        raise DeadlineExceeded(
            f"{method.deployment_name}: no answer before the deadline; whether the request took effect is "
            "unknown: retry, retrying is safe; raise serve.deadline_seconds if it lasts",
            retry_after_seconds=RETRY_AFTER_SECONDS,
            stored="unknown",
        ) from None
    except asyncio.CancelledError:
        response.cancel()
        raise
    except BackPressureError as error:
        raise Overloaded(
            f"{method.deployment_name}: its queue is full; come back later", retry_after_seconds=RETRY_AFTER_SECONDS
        ) from error
    except RayTaskError as error:
        raise error.cause from None
