"""The queue of a scorer: urgent groups go first, and none waits for ever."""

import asyncio
import threading
from collections.abc import Sequence
from types import SimpleNamespace

import pytest
from ray import serve

from model.mesh_weights import load_weights
from model.network.autoencoder import Autoencoder
from serve_app.deployments.scoring import scorer
from serve_app.deployments.scoring.scorer import Group, ScoredGroup, Scorer, Scores, probe, score_groups
from serve_app.errors import DeadlineExceeded
from serve_app.runtime.deadline import Deadline
from serve_app.settings import Settings

GROUP = probe(load_weights(None, {}).default)
LATER = 600.0


class Passes:
    """Counts the passes; the first one waits until it may go on."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.has_begun, self.may_end = threading.Event(), threading.Event()

    def __call__(self, network: Autoencoder, groups: Sequence[Group]) -> list[Scores | Exception]:
        self.sizes.append(len(groups))
        self.has_begun.set()
        self.may_end.wait()
        return score_groups(network, groups)


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> Passes:
    counted = Passes()
    monkeypatch.setattr(scorer, "score_groups", counted)
    return counted


@pytest.fixture
async def replica(monkeypatch: pytest.MonkeyPatch) -> Scorer:
    """A scorer whose batches have one group. It is built in the running event loop: without one, Serve's batches would
    create a loop of their own, which no one closes."""
    context = SimpleNamespace(
        replica_id=SimpleNamespace(unique_id="replica"), _deployment_config=SimpleNamespace(max_ongoing_requests=100)
    )
    monkeypatch.setattr(serve, "get_replica_context", lambda: context)
    return Scorer(Settings(scorer={"max_batch_size": 1, "batch_wait_seconds": 0}), "cpu")


async def submit(replica: Scorer, weight: float, ended: list[float], seconds: float = LATER) -> ScoredGroup:
    found = await replica.score(GROUP, Deadline.after(seconds), "shop", weight=weight)
    ended.append(weight)
    return found


async def begin(replica: Scorer, passes: Passes, ended: list[float]) -> "asyncio.Task[ScoredGroup]":
    """A pass that holds the scorer."""
    first = asyncio.create_task(submit(replica, 1.0, ended))
    await asyncio.to_thread(passes.has_begun.wait)
    return first


async def test_groups_of_a_high_priority_overtake_others_and_the_shadow_comes_last(
    replica: Scorer, passes: Passes
) -> None:
    ended: list[float] = []
    first = await begin(replica, passes, ended)
    waiting = [asyncio.create_task(submit(replica, weight, ended)) for weight in (0.02, 0.25, 1.0, 4.0)]
    while len(replica._waiting) < len(waiting):
        await asyncio.sleep(0)
    passes.may_end.set()
    await asyncio.gather(first, *waiting)
    assert ended == [1.0, 4.0, 1.0, 0.25, 0.02]
    assert passes.sizes == [1] * 5
    assert not replica._waiting
    assert not replica._turns


async def test_of_equal_priority_the_first_goes_first(replica: Scorer, passes: Passes) -> None:
    ended: list[float] = []
    first = await begin(replica, passes, ended)
    order: list[int] = []

    async def numbered(number: int) -> None:
        await submit(replica, 1.0, ended)
        order.append(number)

    waiting = [asyncio.create_task(numbered(i)) for i in range(5)]
    while len(replica._waiting) < len(waiting):
        await asyncio.sleep(0)
    passes.may_end.set()
    await asyncio.gather(first, *waiting)
    assert order == [0, 1, 2, 3, 4]


async def test_a_group_of_low_priority_goes_before_much_later_ones(replica: Scorer) -> None:
    requests = [
        scorer.WaitingGroup(GROUP, Deadline.after(LATER), arrived, replica._checkpoint, weight)
        for arrived, weight in ((0.0, 0.25), (0.3, 4.0), (1.0, 4.0))
    ]
    assert [one.arrived_at for one in sorted(requests, key=lambda one: one.due)] == [0.3, 0.0, 1.0]


async def test_a_caller_that_leaves_takes_no_turn_from_others(replica: Scorer, passes: Passes) -> None:
    ended: list[float] = []
    first = await begin(replica, passes, ended)
    leaves, stays = (asyncio.create_task(submit(replica, weight, ended)) for weight in (4.0, 1.0))
    while len(replica._waiting) < 2:
        await asyncio.sleep(0)
    leaves.cancel()
    passes.may_end.set()
    found = await stays
    await first
    assert found.scores
    assert ended == [1.0, 1.0]
    assert not replica._waiting


async def test_a_group_whose_deadline_has_passed_is_not_scored(replica: Scorer, passes: Passes) -> None:
    ended: list[float] = []
    first = await begin(replica, passes, ended)
    late = asyncio.create_task(submit(replica, 4.0, ended, seconds=0.0))
    while not replica._waiting:
        await asyncio.sleep(0)
    passes.may_end.set()
    with pytest.raises(DeadlineExceeded):
        await late
    await first
    assert passes.sizes == [1]
