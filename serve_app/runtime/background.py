"""Work of a replica that belongs to no single request."""

import asyncio
from collections.abc import Coroutine
from contextvars import copy_context
from typing import Any, TypeVar

from serve_app.runtime import replica

T = TypeVar("T")


def start_task(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """Start work that continues if the request that starts it is cancelled. Returns its task.

    When a client leaves, Serve cancels the calls to other replicas that were made in the context of its request, also
    those that others wait for. So the task has a copy of that context without the request. Spans and logs keep theirs.
    """
    context = copy_context()
    if not replica.is_single():
        from ray.serve import context as serve_context

        context.run(serve_context._unset_request_context)
    return asyncio.get_running_loop().create_task(work, context=context)
