"""Which of several collectors collects a mesh, in a real Redis; and what happens if two do."""

import asyncio
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import pytest

from model.checkpoint import load
from model.mesh_weights import Weights
from model.snapshot import MeshSnapshot
from serve_app.api.codec import pack_snapshot, unpack_snapshot
from serve_app.collect.base import Poll
from serve_app.collect.loop import PollLoop, PollSchedule
from serve_app.collect.ownership import Ownership
from serve_app.mesh_steps import MeshSteps, NextSnapshot
from serve_app.pipeline import LocalRunner, Options, replayer
from serve_app.settings import Settings, StoreSettings
from serve_app.stores.cache import MeshCache
from serve_app.stores.opening import open_store
from serve_app.stores.redis.store import RedisLeases
from serve_app.stores.repository import MeshRepository
from serve_app.stores.scored_snapshot import StoredVerdict
from tests.builders import mesh_of
from tests.live.programs import find_program
from tests.live.redis import PROGRAM, RedisProgram
from tests.timing import PATIENCE_SECONDS, TIME_FACTOR

LEASE, RENEWAL = 1.5 * TIME_FACTOR, 0.3  # s
MESHES = ("shop", "bank")
SCHEDULE = PollSchedule(interval_seconds=10, behind_seconds=10, catch_up=5)
NOW = 1_700_000_005.0


@pytest.fixture
def store(redis_program: RedisProgram, request: pytest.FixtureRequest) -> StoreSettings:
    """A store of the test in the Redis of all tests."""
    return redis_program.settings(key_prefix=f"t-{abs(hash(request.node.name))}"[:30], timeout_seconds=PATIENCE_SECONDS)


@dataclass
class Candidate:
    """A process that could collect."""

    ownership: Ownership
    running: asyncio.Task[None]

    @property
    def meshes(self) -> set[str]:
        """What it owns now."""
        return {mesh for mesh in MESHES if self.ownership.is_owner(mesh)}

    async def kill(self) -> None:
        """End it without a word to the Redis."""
        self.running.cancel()
        with suppress(asyncio.CancelledError):
            await self.running


def start_candidate(store: StoreSettings, name: str) -> Candidate:
    """Start one; the note of its meshes is its name."""
    ownership = Ownership(
        MESHES, RedisLeases(store), lambda _: name.encode(), lease_seconds=LEASE, renewal_seconds=RENEWAL
    )
    return Candidate(ownership, asyncio.create_task(ownership.run()))


async def own_all(candidate: Candidate) -> None:
    """Wait until a candidate owns all meshes."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        for mesh in MESHES:
            await candidate.ownership.wait_for(mesh)


def test_a_lease_has_one_owner_until_it_ends(store: StoreSettings) -> None:
    first, second = RedisLeases(store), RedisLeases(store)
    assert first.hold("shop", b"one\nline", 60) is None
    assert second.hold("shop", b"two", 60) == b"one\nline"
    assert second.hold("bank", b"two", 60) is None  # each mesh has its own
    assert first.hold("shop", b"newer", 60) is None
    second.end("shop")  # which it does not have
    assert second.hold("shop", b"two", 60) == b"newer"
    first.end("shop")
    assert second.hold("shop", b"two", 0.05) is None
    until = time.monotonic() + PATIENCE_SECONDS
    while first.hold("shop", b"one", 60) is not None:  # it ends by the clock of the Redis
        assert time.monotonic() < until


async def test_another_collector_takes_over_from_one_that_is_killed(store: StoreSettings) -> None:
    first = start_candidate(store, "first")
    await own_all(first)
    second = start_candidate(store, "second")
    async with asyncio.timeout(PATIENCE_SECONDS):
        while second.ownership.note_of("bank") is None:
            assert not second.meshes
            await asyncio.sleep(0.01)
    assert second.ownership.note_of("shop") == b"first"
    await first.kill()
    taking = asyncio.create_task(own_all(second))
    while not taking.done():
        assert not first.meshes & second.meshes, "a mesh has two owners"
        await asyncio.sleep(0.005)
    await taking
    assert first.meshes == set()
    assert second.ownership.note_of("shop") is None
    await second.kill()


async def test_a_collector_that_ends_in_order_leaves_at_once(store: StoreSettings) -> None:
    first = start_candidate(store, "first")
    await own_all(first)
    await first.ownership.end()
    assert first.meshes == set()
    assert RedisLeases(store).hold("shop", b"second", 60) is None
    await first.kill()


class SlowLeases:
    """Leases whose first answer has to wait."""

    def __init__(self) -> None:
        self.held: set[str] = set()
        self.is_asked, self.may_answer, self.has_answered = threading.Event(), threading.Event(), threading.Event()

    def hold(self, mesh: str, note: bytes, seconds: float) -> bytes | None:
        self.is_asked.set()
        assert self.may_answer.wait(PATIENCE_SECONDS)
        self.held.add(mesh)
        self.has_answered.set()
        return None

    def end(self, mesh: str) -> None:
        self.held.discard(mesh)


async def test_a_collector_that_ends_while_it_takes_a_lease_keeps_none() -> None:
    leases = SlowLeases()
    ownership = Ownership(MESHES, leases, lambda _: b"")
    running = asyncio.create_task(ownership.run())
    assert await asyncio.to_thread(leases.is_asked.wait, PATIENCE_SECONDS)
    ending = asyncio.create_task(ownership.end())
    await asyncio.wait({ending}, timeout=0.2)  # it must not end the lease before it is taken
    leases.may_answer.set()
    await ending
    assert await asyncio.to_thread(leases.has_answered.wait, PATIENCE_SECONDS)
    assert leases.held == set()
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running


class FreeLeases:
    """Leases that this process always gets."""

    def hold(self, mesh: str, note: bytes, seconds: float) -> bytes | None:
        return None

    def end(self, mesh: str) -> None:
        pass


async def test_leases_need_no_thread_of_the_polls() -> None:
    may_end = threading.Event()
    asyncio.get_running_loop().set_default_executor(polls := ThreadPoolExecutor(1))
    poll = polls.submit(may_end.wait, PATIENCE_SECONDS)
    candidate = Candidate(
        ownership := Ownership(MESHES, FreeLeases(), lambda _: b""), asyncio.create_task(ownership.run())
    )
    await own_all(candidate)
    assert not poll.done()
    may_end.set()
    await candidate.kill()


async def test_a_mesh_that_is_removed_while_leases_are_taken_is_left_alone() -> None:
    leases = SlowLeases()
    loops = dict.fromkeys(MESHES, b"note")
    ownership = Ownership(MESHES, leases, lambda mesh: loops[mesh])
    candidate = Candidate(ownership, asyncio.create_task(ownership.run()))
    assert await asyncio.to_thread(leases.is_asked.wait, PATIENCE_SECONDS)
    for mesh in MESHES:
        ownership.remove(mesh)
        del loops[mesh]
    leases.may_answer.set()
    await ownership.end()
    assert not candidate.meshes
    assert not candidate.running.done()
    await candidate.kill()


@pytest.mark.skipif(find_program(PROGRAM) is None, reason="redis-server is not here")
async def test_a_collector_without_a_redis_stops_in_time_and_continues_afterwards(tmp_path: Path) -> None:
    redis = RedisProgram(tmp_path)
    one = start_candidate(redis.settings(timeout_seconds=0.2 * TIME_FACTOR), "one")
    try:
        await own_all(one)
        redis.pause()
        async with asyncio.timeout(PATIENCE_SECONDS):
            while one.meshes:  # by its own clock, since the Redis says nothing
                await asyncio.sleep(0.05)
        redis.resume()
        await own_all(one)
    finally:
        await one.kill()
        redis.end()


async def test_with_a_local_store_one_collector_owns_all() -> None:
    one = Ownership(MESHES, None, lambda _: b"")
    assert all(map(one.is_owner, MESHES))
    await one.wait_for("shop")
    await one.end()
    assert not one.is_owner("shop")


class Reading:
    """A Prometheus as one of two collectors reads it: at the same instants, with slightly other values."""

    def __init__(self, load: float) -> None:
        self._load = load

    def poll(self, at: datetime) -> Poll:
        """A mesh of one service."""
        return Poll(at, mesh_of(["shop/cart"], at=at, nodes=[[self._load, 0.0, 0.02, 1.0, 0.5, 0.5, 1.0]]), {})


@pytest.fixture
def sessions(store: StoreSettings) -> Iterator[list[MeshSteps]]:
    """Two sessions on two nodes, each with a cache of its own."""
    checkpoint = load()
    with closing(open_store(store)) as first, closing(open_store(store)) as second:
        yield [
            MeshSteps(one, MeshRepository(one, MeshCache(2**20), replayer(Weights(checkpoint).of, Settings())))
            for one in (first, second)
        ]


async def test_two_collectors_that_both_push_count_each_instant_once(
    store: StoreSettings, sessions: list[MeshSteps]
) -> None:
    runner = LocalRunner(load())

    def collector(session: MeshSteps, load: float) -> PollLoop:
        async def push(snapshot: MeshSnapshot) -> None:
            await session.push(NextSnapshot("shop", pack_snapshot(snapshot)), Options(), runner)

        return PollLoop("shop", Reading(load), push, SCHEDULE)

    ours, theirs = (collector(session, 100.0 + i) for i, session in enumerate(sessions))
    for i in range(20):
        await asyncio.gather(ours.tick(NOW + 10 * i), theirs.tick(NOW + 10 * i))
    for i in range(20, 23):  # one hangs, then catches up on instants that the other has pushed
        await ours.tick(NOW + 10 * i)
    await asyncio.gather(theirs.tick(NOW + 230), ours.tick(NOW + 230))
    for one in (ours, theirs):
        assert one.state.polls == {"taken": 24}
        assert one.state.problem == ""
    with closing(open_store(store)) as read:
        records = [StoredVerdict.unpack(row).document for row in read.verdicts("shop", None, 100)]
        stored = read.load("shop")
        times = [unpack_snapshot(packed).observed_at.timestamp() for _, packed in read.window("shop")]
    assert stored is not None
    assert (stored.sequence, len(records)) == (24, 24)
    assert times == [SCHEDULE.newest(NOW) + 10 * i for i in range(24)]
