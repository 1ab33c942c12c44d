"""What is stored of a period is shown even if Prometheus does not answer."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from serve_app.deployments.http.backend import Backend
from serve_app.deployments.http.routes.past import read_prometheus
from serve_app.errors import NoCapacity, NoTelemetry, Overloaded, UnknownMesh
from serve_app.runtime.replica import LocalHandle
from serve_app.runtime.rpc import Deadline
from serve_app.settings import Settings
from serve_app.web.period import Subject, TimeRange
from tests.timing import PATIENCE_SECONDS

END = datetime(2026, 1, 1, tzinfo=UTC)
PERIOD = TimeRange(END - timedelta(hours=1), END, 60)
CART = Subject("shop/cart", None)


class Collector:
    """A collector with this error; None: it never answers."""

    def __init__(self, error: Exception | None) -> None:
        self._error = error
        self.deadlines: list[Deadline] = []

    async def call(self) -> None:
        """The method of a session."""

    async def past(self, mesh: str, period: TimeRange, subject: Subject, deadline: Deadline) -> None:
        self.deadlines.append(deadline)
        if self._error is not None:
            raise self._error
        await asyncio.Event().wait()


async def read(collector: Collector, deadline: Deadline) -> tuple[Any, str | None]:
    handle: Any = LocalHandle(collector)
    backend = Backend(Settings(), handle, handle)  # no session is asked here
    return await read_prometheus(backend, deadline, "shop", PERIOD, CART)


@pytest.mark.parametrize(
    "error",
    [NoTelemetry("no data"), NoCapacity("restarts", retry_after_seconds=1), Overloaded("full", retry_after_seconds=1)],
)
async def test_each_obstacle_is_said_beside_what_is_stored(error: Exception) -> None:
    assert await read(Collector(error), Deadline.after(PATIENCE_SECONDS)) == (None, str(error))


async def test_a_mesh_that_clients_push_has_no_obstacle() -> None:
    assert await read(Collector(UnknownMesh("pushed")), Deadline.after(PATIENCE_SECONDS)) == (None, None)


async def test_time_remains_for_what_is_stored_if_prometheus_hangs() -> None:
    collector, deadline = Collector(None), Deadline.after(0.2)
    series, problem = await read(collector, deadline)
    assert series is None
    assert problem is not None
    assert "no answer before the deadline" in problem
    assert [asked.at < deadline.at for asked in collector.deadlines] == [True]
