"""The queue of requests for the past: deadlines count in it, and cancelled requests leave it."""

import asyncio
import time
from datetime import UTC, datetime
from threading import Event

import pytest

from serve_app.collect.past import PastQueue
from serve_app.errors import NoTelemetry, UnknownMesh
from serve_app.settings import CollectorSettings, MeshSettings
from tests.serve_app.collect.prometheus.standin import Request, fails, start_server, url_of
from tests.timing import PATIENCE_SECONDS

AT = datetime.fromtimestamp(1_700_000_000, UTC)


async def test_a_request_in_the_queue_can_be_cancelled_and_be_late() -> None:
    arrival, may_answer = Event(), Event()

    def respond(request: Request) -> None:
        arrival.set()
        may_answer.wait(PATIENCE_SECONDS)
        fails(500)(request)

    with start_server(respond) as slow, start_server(fails(500)) as other:
        urls = {"shop": url_of(slow), "bank": url_of(other)}
        meshes = {mesh: MeshSettings(prometheus=url) for mesh, url in urls.items()}
        queue, until = PastQueue(meshes, CollectorSettings()), time.monotonic() + PATIENCE_SECONDS
        running = asyncio.create_task(queue.read_instant("shop", AT, until))
        assert await asyncio.to_thread(arrival.wait, PATIENCE_SECONDS)
        leaving = asyncio.create_task(queue.read_instant("bank", AT, until))
        late = asyncio.create_task(queue.read("bank", AT, AT, 1, time.monotonic()))
        await asyncio.sleep(0)
        leaving.cancel()
        may_answer.set()
        with pytest.raises(NoTelemetry, match="shop"):
            await running
        with pytest.raises(NoTelemetry, match="still busy with earlier requests"):
            await late
        assert leaving.cancelled()
        assert other.asked == []  # type: ignore[attr-defined]


async def test_the_past_of_a_pushed_mesh_is_unknown() -> None:
    with pytest.raises(UnknownMesh, match="its snapshots are pushed"):
        await PastQueue({}, CollectorSettings()).read_instant("shop", AT, 0.0)
