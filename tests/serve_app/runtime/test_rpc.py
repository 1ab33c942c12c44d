"""Calls to other deployments: their replica ends meanwhile, they name a method, and their deadline goes with them."""

import asyncio
import time
from collections.abc import Coroutine
from typing import Any

import pytest
from grpc import StatusCode
from grpc.aio import AioRpcError, Metadata

from serve_app.errors import DeadlineExceeded
from serve_app.runtime.rpc import Caller, Deadline, RemoteApi
from tests.timing import PATIENCE_SECONDS


class Method:
    """A method of a handle with these outcomes of its calls, in order."""

    deployment_name = "Scorer"

    def __init__(self, *outcomes: str | StatusCode | Exception) -> None:
        self.outcomes = list(outcomes)

    def __call__(self) -> Coroutine[Any, Any, str]:
        raise AssertionError("methods of handles cannot be called directly")

    def remote(self) -> Any:
        return self._answer()

    async def _answer(self) -> str:
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, StatusCode):
            raise AioRpcError(outcome, Metadata(), Metadata())
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


async def test_a_time_out_of_the_method_itself_is_no_missed_deadline() -> None:
    with pytest.raises(TimeoutError, match="the registry"):
        await Caller(Deadline.after(PATIENCE_SECONDS)).ask(Method(TimeoutError("the registry")))


async def test_a_call_without_an_answer_misses_its_deadline() -> None:
    class Silent(Method):
        def remote(self) -> Any:
            return asyncio.get_running_loop().create_future()

    with pytest.raises(DeadlineExceeded, match="Scorer: no answer before the deadline"):
        await Caller(Deadline.after(0.0)).ask(Silent())


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
    api: Any = RemoteApi(Call())
    answer = await Caller(Deadline.after(PATIENCE_SECONDS)).ask(api.audit.page, "shop", limit=3)
    assert answer == ("audit", "page", "shop", {"limit": 3})


def shift_clocks(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Shift both clocks of this process, as if it ran on another machine from here on."""
    monotonic, wall = time.monotonic, time.time
    monkeypatch.setattr(time, "monotonic", lambda: monotonic() + seconds)
    monkeypatch.setattr(time, "time", lambda: wall() + seconds)


@pytest.mark.parametrize("ahead", [-86_400.0, -3000.0, 3000.0, 86_400.0])
def test_a_deadline_ignores_how_far_the_clock_of_the_receiver_is_ahead(
    monkeypatch: pytest.MonkeyPatch, ahead: float
) -> None:
    rebuild, sent = Deadline.after(1000.0).__reduce__()  # what Ray sends to another process
    shift_clocks(monkeypatch, ahead)
    assert 0.0 < rebuild(*sent).remaining_seconds <= 1000.0


def test_a_deadline_that_has_passed_arrives_as_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    late = Deadline.after(5.0)
    shift_clocks(monkeypatch, 6.0)  # work that takes 6 s
    assert late.remaining_seconds == 0.0
    rebuild, sent = late.__reduce__()
    assert rebuild(*sent).remaining_seconds == 0.0


def test_a_share_of_a_deadline_and_a_later_one() -> None:
    whole = Deadline.after(1e6)
    assert whole.take_share(0.8).remaining_seconds == pytest.approx(0.8e6, rel=1e-3)
    assert whole.extend(10.0).at == whole.at + 10.0
