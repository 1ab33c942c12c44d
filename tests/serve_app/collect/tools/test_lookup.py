"""Who waits for a tool: one question at a time, few requests, and all others get the last answer."""

import asyncio
import json
import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from serve_app.collect.tools import lookup
from serve_app.collect.tools.lookup import BUSY, MAX_WAITING, ToolAnswers, ToolLookup
from serve_app.collect.tools.request import ToolQuestion
from serve_app.settings import MeshSettings
from tests.serve_app.collect.tools.recorded import AT, LINES, line, loki, serve_answers
from tests.timing import PATIENCE_SECONDS

NOW = datetime.fromtimestamp(AT, UTC)


def about(service: str = "cart") -> ToolQuestion:
    return ToolQuestion("shop", service, NOW - timedelta(hours=1), NOW)


def texts(answers: ToolAnswers) -> list[str]:
    assert answers.logs is not None
    assert answers.trace is None
    return [one.text for one in answers.logs.lines] or [answers.logs.failed]


def run(answer: Any, scene: Any) -> list[dict[str, str]]:
    """Run a scene with a lookup of a mesh whose Loki has this answer; the queries that Loki got."""
    with serve_answers({LINES: answer}) as (url, asked):
        asyncio.run(scene(ToolLookup(PATIENCE_SECONDS), MeshSettings.model_validate({"logs": {"loki": url}})))
    return asked


def test_many_who_ask_the_same_cause_one_query() -> None:
    async def scene(tools: ToolLookup, mesh: MeshSettings) -> None:
        for _ in range(3):
            several = await asyncio.gather(*(tools.find("shop", mesh, about()) for _ in range(MAX_WAITING)))
            assert [texts(one) for one in several] == [["no"]] * MAX_WAITING

    assert len(run(loki([line(0, "no")]), scene)) == 1


def test_other_meshes_services_and_moments_have_queries_of_their_own() -> None:
    async def scene(tools: ToolLookup, mesh: MeshSettings) -> None:
        await tools.find("shop", mesh, about())
        await tools.find("shop", mesh, about("web"))
        await tools.find("other", mesh, about())
        await tools.find("shop", mesh, about(), NOW)

    assert len(run(loki(), scene)) == 4


def test_few_wait_for_a_slow_tool_and_the_others_get_an_answer_at_once() -> None:
    released = threading.Event()

    def hang(request: Any) -> None:
        assert released.wait(PATIENCE_SECONDS)
        request.send(200, b'{"data":{"result":[]}}')

    async def scene(tools: ToolLookup, mesh: MeshSettings) -> None:
        waiting = [asyncio.create_task(tools.find("shop", mesh, about())) for _ in range(MAX_WAITING)]
        await asyncio.sleep(0)
        for service in ("cart", "web", "pay"):
            assert texts(await tools.find("shop", mesh, about(service))) == [BUSY]
        released.set()
        for one in await asyncio.gather(*waiting):
            assert texts(one) == [""]
        for service in ("cart", "web", "pay"):
            assert texts(await tools.find("shop", mesh, about(service))) == [""]

    assert len(run(hang, scene)) == 3, "the other services are asked, but no one waits for them"


def test_an_old_answer_serves_while_one_waits_for_a_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup, "FRESH_SECONDS", 0.0)
    released, answers = threading.Event(), iter([loki([line(0, "old")]), loki([line(0, "new")])])

    def behave(request: Any) -> None:
        answer = next(answers)
        if "new" in str(answer):
            assert released.wait(PATIENCE_SECONDS)
        request.send(200, json.dumps(answer).encode())

    async def scene(tools: ToolLookup, mesh: MeshSettings) -> None:
        assert texts(await tools.find("shop", mesh, about())) == ["old"]
        first = asyncio.create_task(tools.find("shop", mesh, about()))
        await asyncio.sleep(0)
        for _ in range(2 * MAX_WAITING):
            assert texts(await tools.find("shop", mesh, about())) == ["old"]
        released.set()
        assert texts(await first) == ["new"]

    assert len(run(behave, scene)) == 2


def test_a_client_that_leaves_does_not_stop_the_query() -> None:
    async def scene(tools: ToolLookup, mesh: MeshSettings) -> None:
        gone = asyncio.create_task(tools.find("shop", mesh, about()))
        await asyncio.sleep(0)
        gone.cancel()
        assert texts(await tools.find("shop", mesh, about())) == ["no"]

    assert len(run(loki([line(0, "no")]), scene)) == 1


def test_the_answers_that_are_kept_have_a_limit() -> None:
    async def scene(tools: ToolLookup, mesh: MeshSettings) -> None:
        for i in range(lookup.MAX_LOOKUPS + 5):
            await tools.find("shop", MeshSettings(), about(f"service-{i}"))
        assert len(tools._lookups) == lookup.MAX_LOOKUPS

    assert run(loki(), scene) == []
