"""Calls to other deployments: their replica ends meanwhile, or they name a door."""

from collections.abc import Coroutine
from typing import Any

import pytest
from grpc import StatusCode
from grpc.aio import AioRpcError, Metadata

from serve_app.runtime.deadline import Deadline
from serve_app.runtime.rpc import Caller, RemoteDoors
from tests.timing import PATIENCE_SECONDS


class Method:
    """A method of a handle with these outcomes of its calls, in order."""

    deployment_name = "Scorer"

    def __init__(self, *outcomes: str | StatusCode) -> None:
        self.outcomes = list(outcomes)

    def __call__(self) -> Coroutine[Any, Any, str]:
        raise AssertionError("methods of handles cannot be called directly")

    def remote(self) -> Any:
        return self._answer()

    async def _answer(self) -> str:
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, StatusCode):
            raise AioRpcError(outcome, Metadata(), Metadata())
        return outcome


async def test_a_call_is_repeated_if_its_replica_ended_in_order_during_it() -> None:
    caller = Caller(Deadline.after(PATIENCE_SECONDS))
    assert await caller.ask(Method(StatusCode.CANCELLED, "scores")) == "scores"
    assert caller.retries == {"Scorer": 1}


async def test_another_error_of_the_connection_is_not_repeated() -> None:
    with pytest.raises(AioRpcError):
        await Caller(Deadline.after(PATIENCE_SECONDS)).ask(Method(StatusCode.RESOURCE_EXHAUSTED, "scores"))


class Call:
    """The method ``call`` of a handle, which answers with what it was called with."""

    deployment_name = "MeshSession"

    def remote(self, *args: Any, **kwargs: Any) -> Any:
        async def answer() -> tuple[Any, ...]:
            return (*args, kwargs)

        return answer()


async def test_a_method_of_a_door_is_called_by_its_name() -> None:
    doors: Any = RemoteDoors(Call())
    answer = await Caller(Deadline.after(PATIENCE_SECONDS)).ask(doors.audit.page, "shop", limit=3)
    assert answer == ("audit", "page", "shop", {"limit": 3})
