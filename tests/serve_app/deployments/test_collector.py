"""The collector: which meshes it polls, and what it says to sessions."""

import asyncio
from typing import Any

import pytest

from model.verdict import ClusterEvent
from serve_app.deployments.collector import Collector, RemoteSessions
from serve_app.errors import NoCapacity
from serve_app.runtime import replica
from serve_app.runtime.replica import LocalHandle
from serve_app.settings import MeshSettings, Settings
from tests.builders import mesh_of
from tests.timing import PATIENCE_SECONDS


class Sessions:
    """Sessions whose first answer about connected meshes comes last."""

    def __init__(self, answers: list[dict[str, str]]) -> None:
        self.answers = answers
        self.asked, self.may_answer = asyncio.Event(), asyncio.Event()

    async def call(self, subject: str, method: str, *args: Any) -> Any:
        if (subject, method) != ("connections", "all"):
            await asyncio.Event().wait()
        answer = self.answers.pop(0)
        if not self.asked.is_set():
            self.asked.set()
            await self.may_answer.wait()
        return answer


@pytest.fixture(autouse=True)
def single(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica, "_single", replica.Single())


async def test_an_older_answer_never_ends_a_mesh_that_was_connected_after_it() -> None:
    sessions = Sessions([{}, {"shop": "http://127.0.0.1:9"}])
    collector = Collector(Settings(), LocalHandle(sessions))  # type: ignore[arg-type]
    older = asyncio.create_task(collector.update_connections())
    await sessions.asked.wait()
    newer = asyncio.create_task(collector.update_connections())
    await asyncio.sleep(0)
    sessions.may_answer.set()
    await asyncio.gather(older, newer)
    assert [state.mesh for state in await collector.states()] == ["shop"]
    await collector.close()


class Pushes:
    """A session that records the arguments of pushes beside the mesh, and first does not know where to continue."""

    def __init__(self) -> None:
        self.pushes: list[tuple[str, dict[str, Any]]] = []
        self.errors: list[Exception] = [NoCapacity("starting")]

    async def push(self, mesh: str, content: bytes, deadline: object, **more: Any) -> None:
        self.pushes.append((mesh, more))

    async def call(self, subject: str, method: str, *args: Any) -> Any:
        if self.errors:
            raise self.errors.pop()
        return subject, method, args


async def test_a_push_says_whether_people_connected_the_mesh_and_whether_it_is_of_the_past() -> None:
    settings = Settings(meshes={"bank": MeshSettings(prometheus="http://127.0.0.1:9")})
    session = Pushes()
    sessions = RemoteSessions(settings, LocalHandle(session))  # type: ignore[arg-type]
    events: tuple[ClusterEvent, ...] = ()
    await sessions.push("bank", mesh_of(["bank/account"]), events)
    await sessions.push("shop", mesh_of(["shop/cart"]), events)
    await sessions.replay("shop", mesh_of(["shop/cart"]))
    assert session.pushes == [
        ("bank", {"events": events, "trace": "", "is_connected": False}),
        ("shop", {"events": events, "trace": "", "is_connected": True}),
        ("shop", {"is_replay": True, "is_connected": True}),
    ]


async def test_collecting_waits_until_a_session_says_where_to_continue() -> None:
    sessions = RemoteSessions(Settings(), LocalHandle(Pushes()))  # type: ignore[arg-type]
    assert await sessions.resume("shop") == ("meshes", "resume", ("shop",))


async def test_a_loop_that_ends_makes_the_collector_unhealthy() -> None:
    session = Pushes()
    session.errors = [KeyError("a bug")]
    collector = Collector(Settings(), LocalHandle(session))  # type: ignore[arg-type]

    async def check() -> None:
        while True:
            await collector.check_health()
            await asyncio.sleep(0)

    with pytest.raises(RuntimeError, match="a task of the collector has ended: KeyError"):
        await asyncio.wait_for(check(), PATIENCE_SECONDS)
    await collector.close()
