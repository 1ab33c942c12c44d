"""State of the session for meshes whose collectors push metrics."""

import asyncio

import pytest

from model.snapshot import MeshSnapshot
from serve_app.collect.otlp.decode import PROTOBUF, Point, decode_metrics
from serve_app.deployments.session.service_graphs import ServiceGraphs
from serve_app.errors import DocumentTooLarge, Overloaded, StaleSnapshot
from serve_app.settings import LimitSettings
from tests.serve_app.collect.otlp.connector import BEGAN, Connector

INTERVAL = 15.0


def flushes(count: int, calls: int = 1) -> list[list[Point]]:
    connector, found = Connector(), []
    for i in range(count):
        for number in range(calls):
            connector.observe(("web", f"service-{number}"), 150)
        request = connector.flush(BEGAN + i * INTERVAL)
        found.append(decode_metrics(request.SerializeToString(), PROTOBUF)[0])
    return found


class Pushes:
    """Stores pushed snapshots, after a number of errors."""

    def __init__(self, *errors: Exception) -> None:
        self.errors, self.snapshots = list(errors), list[MeshSnapshot]()

    async def __call__(self, snapshot: MeshSnapshot) -> None:
        if self.errors:
            raise self.errors.pop(0)
        self.snapshots.append(snapshot)


async def test_a_failed_push_is_equal_when_the_request_is_repeated() -> None:
    graphs, pushes = ServiceGraphs(INTERVAL, LimitSettings()), Pushes(Overloaded("full"))
    first, second, third, fourth = flushes(4)
    for points in (first, second):
        await graphs.add("shop", points, pushes)
    with pytest.raises(Overloaded):
        await graphs.add("shop", third, pushes)
    await graphs.add("shop", third, pushes)
    await graphs.add("shop", fourth, pushes)
    unhindered = Pushes()
    for points in (first, second, third, fourth):
        await graphs.add("other", points, unhindered)
    assert [one.digest for one in pushes.snapshots] == [one.digest for one in unhindered.snapshots]
    assert len(pushes.snapshots) == 2


async def test_a_stale_interval_does_not_block_the_next_one() -> None:
    graphs, pushes = ServiceGraphs(INTERVAL, LimitSettings()), Pushes(StaleSnapshot("older"))
    first, second, third, fourth = flushes(4)
    for points in (first, second):
        await graphs.add("shop", points, pushes)
    with pytest.raises(StaleSnapshot):
        await graphs.add("shop", third, pushes)
    await graphs.add("shop", fourth, pushes)
    assert [one.observed_at.timestamp() for one in pushes.snapshots] == [BEGAN + 2 * INTERVAL]


async def test_requests_of_a_mesh_at_the_same_time_are_counted_one_after_the_other() -> None:
    graphs, pushes = ServiceGraphs(INTERVAL, LimitSettings()), Pushes()
    await graphs.add("shop", flushes(1)[0], pushes)
    await asyncio.gather(*(graphs.add("shop", points, pushes) for points in flushes(5)))
    assert [one.observed_at.timestamp() for one in pushes.snapshots] == [BEGAN + i * INTERVAL for i in (1, 2, 3)]


async def test_a_mesh_that_is_too_large_is_refused() -> None:
    graphs, pushes = ServiceGraphs(INTERVAL, LimitSettings(max_services=1)), Pushes()
    with pytest.raises(DocumentTooLarge, match=r"at most 40 series, got 42.*limits\.max_services"):
        await graphs.add("shop", flushes(1, calls=14)[0], pushes)
    graphs = ServiceGraphs(INTERVAL, LimitSettings(max_services=3))
    requests = flushes(3, calls=3)
    for points in requests[:2]:
        await graphs.add("shop", points, pushes)
    with pytest.raises(DocumentTooLarge, match=r"at most 3 services, got 4.*limits\.max_services"):
        await graphs.add("shop", requests[2], pushes)
    assert pushes.snapshots == []


async def test_the_mesh_that_was_idle_longest_loses_its_counters() -> None:
    """The next request counts as the first one after a restart."""
    graphs, pushes = ServiceGraphs(INTERVAL, LimitSettings()), Pushes()
    graphs._max_counters = 8  # two meshes have 6 series
    requests = flushes(4)
    for mesh in ("old", "shop"):
        for points in requests[:2]:
            await graphs.add(mesh, points, pushes)
    await graphs.add("new", requests[0], pushes)
    await graphs.add("shop", requests[2], pushes)
    assert len(pushes.snapshots) == 1
    await graphs.add("old", requests[2], pushes)
    assert len(pushes.snapshots) == 1


async def test_a_deleted_mesh_is_forgotten() -> None:
    graphs, pushes = ServiceGraphs(INTERVAL, LimitSettings()), Pushes()
    requests = flushes(3)
    for points in requests[:2]:
        await graphs.add("shop", points, pushes)
    graphs.forget("shop")
    await graphs.add("shop", requests[2], pushes)
    assert pushes.snapshots == []
