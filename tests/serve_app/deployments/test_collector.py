"""The collector: which meshes it polls."""

import asyncio
from typing import Any

import pytest

from serve_app.deployments.collector import Collector
from serve_app.runtime import replica
from serve_app.runtime.replica import LocalHandle
from serve_app.settings import Settings


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


async def test_an_older_answer_never_ends_a_mesh_that_was_connected_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica, "_single", replica.Single())
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
