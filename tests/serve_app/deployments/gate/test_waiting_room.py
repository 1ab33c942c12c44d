"""Snapshots that wait for room."""

import asyncio
from collections import Counter

import pytest

from serve_app.deployments.gate.admission import MIN, Admission, RequestKind, Ticket
from serve_app.deployments.gate.waiting_room import WaitingRoom

LONG = 36_000.0  # a deadline, s: nothing waits too long while the tests run


def enter(room: WaitingRoom, mesh: str) -> "asyncio.Task[Ticket | None]":
    return asyncio.create_task(room.enter(RequestKind.PUSH, mesh))


async def fill(room: WaitingRoom, count: int) -> list[Ticket]:
    tickets = [await room.enter(RequestKind.PUSH, f"first-{i}") for i in range(count)]
    return [ticket for ticket in tickets if ticket is not None]


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def order_of(done: list[str], mesh: str, task: "asyncio.Task[Ticket | None]") -> None:
    task.add_done_callback(lambda ended: done.append(mesh if ended.result() else f"no {mesh}"))


async def test_the_oldest_has_the_next_turn() -> None:
    room, done = WaitingRoom(Admission(LONG, limit=8)), list[str]()
    tickets = await fill(room, 8)
    for mesh in ("a", "b", "c", "d"):
        order_of(done, mesh, enter(room, mesh))
        await settle()
    for ticket in tickets[:4]:
        room.leave(ticket)
        await settle()
    assert done == ["a", "b", "c", "d"]


async def test_a_full_room_refuses_the_newest() -> None:
    room, done = WaitingRoom(Admission(LONG, limit=4)), list[str]()
    tickets = await fill(room, 4)
    assert room.is_open(RequestKind.PUSH, "e")
    for mesh in ("a", "b", "c", "d", "e"):
        order_of(done, mesh, enter(room, mesh))
        await settle()
    assert done == ["no e"]
    assert not room.is_open(RequestKind.PUSH, "e")
    for ticket in tickets:
        room.leave(ticket)
    await settle()
    assert done == ["no e", "a", "b", "c", "d"]


async def test_a_snapshot_does_not_wait_longer_than_a_tenth_of_the_deadline() -> None:
    room = WaitingRoom(Admission(0.1, limit=4))
    tickets = await fill(room, 4)
    refused = await room.enter(RequestKind.PUSH, "late")
    room.leave(tickets[0])
    assert (refused, await room.enter(RequestKind.PUSH, "next") is not None) == (None, True)


async def test_reads_do_not_wait() -> None:
    room = WaitingRoom(Admission(LONG))
    while await room.enter(RequestKind.READ, ""):
        pass
    assert (await room.enter(RequestKind.BATCH, "new")) is not None  # a place is reserved for it


async def test_a_client_that_leaves_while_it_waits_takes_no_room() -> None:
    admission = Admission(LONG, limit=4)
    room = WaitingRoom(admission)
    tickets = await fill(room, 4)
    gone, stays = enter(room, "gone"), enter(room, "stays")
    await settle()
    gone.cancel()
    room.leave(tickets[0])  # in the same moment
    await settle()
    ticket = await stays
    assert ticket is not None
    for one in (*tickets[1:], ticket):
        room.leave(one)
    assert [await room.enter(RequestKind.PUSH, f"m{i}") is not None for i in range(4)] == [True] * 4


@pytest.mark.parametrize("seconds_each", [0.035, 0.045])
def test_under_overload_the_servers_have_work_and_no_mesh_starves(seconds_each: float) -> None:
    """Two servers and 60 clients, which push again half a second after each answer."""

    async def run() -> tuple[Counter[int], Counter[int]]:
        loop = asyncio.get_running_loop()
        room, servers = WaitingRoom(Admission(5.0), loop.time), asyncio.Semaphore(2)
        served, refused = Counter[int](), Counter[int]()

        async def push(number: int) -> None:
            await asyncio.sleep(0.01 * number)
            while loop.time() < 60:
                await asyncio.sleep(0.5)
                ticket = await room.enter(RequestKind.PUSH, f"m{number}")
                if ticket is None:
                    refused[number] += 1
                    continue
                async with servers:
                    await asyncio.sleep(seconds_each)
                room.leave(ticket)
                served[number] += 1

        await asyncio.gather(*map(push, range(60)))
        return served, refused

    with SimulatedLoop() as loop:
        served, refused = loop.run_until_complete(run())
    assert served.total() > 0.8 * 60 * min(2 / seconds_each, 60 / 0.5)
    assert refused.total() > 0
    assert len(served) == 60
    assert min(served.values()) > 0.25 * served.total() / 60


class SimulatedLoop(asyncio.SelectorEventLoop):
    """A loop whose time jumps to the next event instead of waiting for it."""

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0

    def time(self) -> float:
        return self._now

    def _run_once(self) -> None:
        if not self._ready and self._scheduled:  # type: ignore[attr-defined]
            self._now = max(self._now, self._scheduled[0]._when)  # type: ignore[attr-defined]
        super()._run_once()  # type: ignore[misc]

    def __enter__(self) -> "SimulatedLoop":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


async def test_as_many_can_wait_as_may_be_under_way() -> None:
    room = WaitingRoom(Admission(LONG, limit=MIN))
    await fill(room, MIN)
    tasks = [enter(room, f"m{i}") for i in range(10)]
    await settle()
    assert sum(not task.done() for task in tasks) == MIN
