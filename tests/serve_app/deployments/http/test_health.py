"""The answer to probes says what works."""

import asyncio
import math

import pytest

from serve_app.deployments.http.health import SharedAnswer
from serve_app.deployments.http.routes.service import describe_refusals, health_document
from serve_app.deployments.scoring.messages import ScorerInfo
from serve_app.errors import NoCapacity

SCORER = ScorerInfo("cpu", "reference", "0123")


def test_nothing_is_ok_while_there_is_no_model() -> None:
    starting = health_document("ok", None, {}, sees_all=True)
    assert (starting.status, starting.model) == ("starting", None)
    running = health_document("ok", SCORER, {}, sees_all=True)
    assert (running.status, running.model) == ("ok", "0123")


@pytest.mark.parametrize(("sees_all", "mesh"), [(True, "shop"), (False, None)])
def test_a_mesh_that_reads_its_past_has_its_share(sees_all: bool, mesh: str | None) -> None:
    (replay,) = health_document("ok", SCORER, {"shop": 0.4}, sees_all=sees_all).replays
    assert (replay.mesh, replay.share) == (mesh, 0.4)


async def test_probes_share_an_answer_and_the_last_one_stays() -> None:
    asked: list[int] = []

    async def ask() -> int:
        asked.append(1)
        if len(asked) > 1:
            raise NoCapacity("gone")
        return 7

    shared = SharedAnswer(ask)
    assert await asyncio.gather(shared.newest_answer(), shared.newest_answer(), shared.recent_answer()) == [7, 7, 7]
    assert len(asked) == 1
    shared._answered_at = -math.inf  # it is old now
    assert await shared.newest_answer() == 7
    with pytest.raises(NoCapacity):
        await shared.recent_answer()


def test_only_those_who_see_all_meshes_get_their_names() -> None:
    refused = ["model.weights: refused", "meshes.bank.weights: refused"]
    assert describe_refusals(refused, sees_all=True) == "model.weights: refused; meshes.bank.weights: refused"
    hidden = "model.weights: refused; weights of 1 mesh: refused; the log names it"
    assert describe_refusals(refused, sees_all=False) == hidden
