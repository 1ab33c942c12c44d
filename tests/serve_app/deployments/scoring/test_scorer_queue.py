"""The queue of a scorer: urgent groups go first, and none that is too late costs a pass."""

import asyncio
import threading
from collections.abc import Sequence

import pytest

from model.mesh_weights import load_weights
from model.network.autoencoder import Autoencoder
from serve_app.deployments.scoring import scorer
from serve_app.deployments.scoring.passes import probe, score_groups
from serve_app.deployments.scoring.queue import Group, GroupQueue, Outcome, ScoredGroup, Scores, WaitingGroup
from serve_app.deployments.scoring.scorer import Scorer
from serve_app.errors import DeadlineExceeded
from serve_app.exporter import PrometheusInstruments
from serve_app.runtime.rpc import Deadline
from serve_app.settings import Settings
from tests.builders import allow_deployments

CHECKPOINT = load_weights(None, {}).default
GROUP = probe(CHECKPOINT)
LATER = 600.0


class Passes:
    """Passes that wait until they may end, and record their groups."""

    def __init__(self) -> None:
        self.batches: list[list[WaitingGroup]] = []
        self.may_end = asyncio.Event()
        self.fails = False

    async def __call__(self, batch: Sequence[WaitingGroup]) -> list[Outcome]:
        self.batches.append(list(batch))
        await self.may_end.wait()
        if self.fails:
            raise RuntimeError("no memory")
        return [ScoredGroup("replica", waiting.checkpoint.digest, (), 0.0) for waiting in batch]


class Queue:
    """A queue, and the groups that were added to it by name."""

    def __init__(self, size: int = 1) -> None:
        self.passes, self.instruments = Passes(), PrometheusInstruments()
        self.queue = GroupQueue(size, self.passes, self.instruments)
        self.names: dict[WaitingGroup, str] = {}

    async def add(self, name: str, seconds: float = LATER, *, in_shadow: bool = False) -> "asyncio.Task[ScoredGroup]":
        """Add a group that has these seconds left."""
        waiting = WaitingGroup(GROUP, Deadline.after(seconds), CHECKPOINT, in_shadow)
        self.names[waiting] = name
        task = asyncio.create_task(self.queue.score(waiting))
        await asyncio.sleep(0)  # it enters the queue
        return task

    async def begin(self) -> "asyncio.Task[ScoredGroup]":
        """A pass that holds the scorer."""
        first = await self.add("first")
        while not self.passes.batches:
            await asyncio.sleep(0)
        return first

    async def end(self, *tasks: "asyncio.Task[ScoredGroup]") -> list[ScoredGroup | BaseException]:
        """Let the passes end. Returns the results of the tasks."""
        self.passes.may_end.set()
        return await asyncio.gather(*tasks, return_exceptions=True)

    @property
    def order(self) -> list[str]:
        """The groups scored, each pass in quotes."""
        return ["+".join(self.names[waiting] for waiting in batch) for batch in self.passes.batches]

    @property
    def has_refused(self) -> bool:
        return b"tagae_groups_refused_total 1.0" in self.instruments.text()


async def test_the_earliest_deadline_goes_first_and_the_shadow_last() -> None:
    queue = Queue()
    first = await queue.begin()
    shadow = await queue.add("shadow", seconds=LATER / 9, in_shadow=True)
    left = {"third": LATER, "first of all": LATER / 3, "second": LATER / 2}
    await queue.end(first, shadow, *[await queue.add(name, seconds) for name, seconds in left.items()])
    assert queue.order == ["first", "first of all", "second", "third", "shadow"]
    assert not len(queue.queue)


async def test_of_equal_time_the_first_goes_first() -> None:
    queue = Queue()
    first = await queue.begin()
    await queue.end(first, *[await queue.add(str(i)) for i in range(5)])
    assert queue.order == ["first", "0", "1", "2", "3", "4"]


async def test_a_batch_is_filled_by_deadline() -> None:
    queue = Queue(size=2)
    first = await queue.begin()
    left = {"last": 4 * LATER, "third": 3 * LATER, "next": LATER, "second": 2 * LATER}
    await queue.end(first, *[await queue.add(name, seconds) for name, seconds in left.items()])
    assert queue.order == ["first", "next+second", "third+last"]


async def test_a_group_whose_deadline_has_passed_is_refused_on_arrival() -> None:
    queue = Queue()
    with pytest.raises(DeadlineExceeded, match="expected the scores of these parts before their deadline"):
        await queue.queue.score(WaitingGroup(GROUP, Deadline.after(0.0), CHECKPOINT))
    assert queue.order == []
    assert queue.has_refused


async def test_a_group_that_waits_is_refused_once_it_is_too_late() -> None:
    queue = Queue()
    first = await queue.begin()
    late, in_time = await queue.add("late", 0.01), await queue.add("in time")
    await asyncio.sleep(0.02)
    _, error, found = await queue.end(first, late, in_time)
    assert isinstance(error, DeadlineExceeded)
    assert isinstance(found, ScoredGroup)
    assert queue.order == ["first", "in time"]
    assert queue.has_refused


async def test_a_caller_that_leaves_gives_up_its_place() -> None:
    queue = Queue()
    first = await queue.begin()
    leaves, stays = await queue.add("leaves"), await queue.add("stays")
    leaves.cancel()
    await queue.end(first, leaves, stays)
    assert queue.order == ["first", "stays"]
    assert not len(queue.queue)


async def test_a_caller_that_leaves_during_its_pass_does_not_affect_the_others() -> None:
    queue = Queue(size=2)
    first = await queue.begin()
    leaves, stays = await queue.add("leaves"), await queue.add("stays")
    queue.passes.may_end.set()
    await first
    queue.passes.may_end.clear()
    while len(queue.passes.batches) < 2:
        await asyncio.sleep(0)
    leaves.cancel()
    _, found = await queue.end(leaves, stays)
    assert isinstance(found, ScoredGroup)


async def test_a_pass_that_fails_does_not_end_the_queue() -> None:
    queue = Queue()
    first = await queue.begin()
    queue.passes.fails = True
    (error,) = await queue.end(first)
    assert isinstance(error, RuntimeError)
    queue.passes.fails = False
    assert isinstance((await queue.end(await queue.add("next")))[0], ScoredGroup)


class ThreadPasses:
    """Passes of the network that wait until they may end."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.has_begun, self.may_end = threading.Event(), threading.Event()

    def __call__(self, network: Autoencoder, groups: Sequence[Group]) -> list[Scores | Exception]:
        self.sizes.append(len(groups))
        self.has_begun.set()
        self.may_end.wait()
        return score_groups(network, groups)


async def test_a_scorer_scores_waiting_groups_in_one_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    passes = ThreadPasses()
    monkeypatch.setattr(scorer, "score_groups", passes)
    allow_deployments(monkeypatch)
    replica = Scorer(Settings(), "cpu")
    later = Deadline.after(LATER)
    first = asyncio.create_task(replica.score(GROUP, later, "shop"))
    await asyncio.to_thread(passes.has_begun.wait)
    waiting = [asyncio.create_task(replica.score(GROUP, later, "shop")) for _ in range(2)]
    while len(replica._queue) < len(waiting):
        await asyncio.sleep(0)
    passes.may_end.set()
    for found in await asyncio.gather(first, *waiting):
        assert [score.part for score in found.scores] == [0]
        assert found.model == CHECKPOINT.digest
    assert passes.sizes == [1, 2]
