"""The shop's services and its clients, in one process: ``python -m tests.live.shop WIRING``.

All seven services share a process because they do little work: seven interpreters would take half a gigabyte and more
processor time. The sidecars are processes of their own. Requests to ``control`` set the faults:

    PUT    /faults/payment   {"delay_seconds": 0.2, "error_share": 0.5, "dead": false}
    DELETE /faults
    POST   /load             {"requests_per_second": 40, "seconds": 60, "seed": 1}
    GET    /measured?since=UNIX&until=UNIX
"""

import asyncio
import sys
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import aiohttp
import msgspec
import numpy as np
from aiohttp import web

from tests.live.programs import LOOPBACK
from tests.live.topology import ENTRY, SHOP, Call, Service

OUTSIDE = ""  # the client that calls the entry
PATIENCE = aiohttp.ClientTimeout(total=5)
REMEMBERED = 500_000  # calls whose durations are stored
KEPT = 2 * 3600.0  # s; Envoy closes after 1 h. A server that closes earlier sometimes drops a request, which gives 503
AT_ONCE = 500  # most requests of the load in flight; more are not sent but counted as shed


class Wiring(msgspec.Struct, frozen=True):
    """Ports of all parts.

    Attributes:
        control: port of this process.
        services: port of each service, used only by its sidecar.
        outbound: port of each sidecar for its service's calls.
        entry: port of the entry's sidecar for requests from outside.
        seed: of durations and calls.
    """

    control: int
    services: dict[str, int]
    outbound: dict[str, int]
    entry: int
    seed: int = 0


class Fault(msgspec.Struct, frozen=True):
    """Faults of a service: delay of each answer, share of answers that are 500, whether it is down."""

    delay_seconds: float = 0.0
    error_share: float = 0.0
    dead: bool = False


class Load(msgspec.Struct, frozen=True):
    """A limited period of requests from outside, with Poisson arrivals."""

    requests_per_second: float
    seconds: float
    seed: int = 0


class Measured(msgspec.Struct, frozen=True):
    """Measurements of a call by its clients. ``source`` is empty for calls from outside. Quantiles in s."""

    source: str
    destination: str
    requests: int
    failures: int
    p50: float
    p99: float


class Diary:
    """Every call as its client measured it: start (Unix, s), duration (s), and whether it failed."""

    def __init__(self) -> None:
        self._calls: deque[tuple[str, str, float, float, bool]] = deque(maxlen=REMEMBERED)

    @asynccontextmanager
    async def entry(self, source: str, destination: str) -> AsyncIterator[Callable[[int], None]]:
        """A call in flight. It counts as failed unless it has a status at its end."""
        began, clock = time.time(), time.perf_counter()
        status = 599

        def ended(with_status: int) -> None:
            nonlocal status
            status = with_status

        try:
            yield ended
        finally:
            self._calls.append((source, destination, began, time.perf_counter() - clock, status >= 500))

    def summary(self, since: float, until: float) -> list[Measured]:
        """Return measurements of calls that ended in the period, by source and destination."""
        of: dict[tuple[str, str], list[tuple[float, bool]]] = {}
        for source, destination, began, seconds, failed in self._calls:
            if since <= began + seconds < until:
                of.setdefault((source, destination), []).append((seconds, failed))
        return [_summarize_calls(ends, calls) for ends, calls in of.items()]


def _summarize_calls(ends: tuple[str, str], calls: list[tuple[float, bool]]) -> Measured:
    p50, p99 = np.quantile([seconds for seconds, _ in calls], [0.5, 0.99])
    return Measured(*ends, len(calls), sum(failed for _, failed in calls), float(p50), float(p99))


class Shopkeeper:
    """One service: it listens, takes some time, calls others through its sidecar, and answers."""

    def __init__(self, service: Service, wiring: Wiring, diary: Diary, seed: np.random.SeedSequence) -> None:
        self.fault = Fault()
        self._service = service
        self._port = wiring.services[service.name]
        self._sidecar = f"http://{LOOPBACK}:{wiring.outbound[service.name]}/"
        self._diary = diary
        self._random = np.random.default_rng(seed)
        self._client: aiohttp.ClientSession | None = None
        self._runner: web.AppRunner | None = None

    async def open(self) -> None:
        app = web.Application()
        app.router.add_get("/", self._answer)
        self._client = aiohttp.ClientSession(timeout=PATIENCE)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1, keepalive_timeout=KEPT)
        await self._runner.setup()
        await web.TCPSite(self._runner, LOOPBACK, self._port).start()

    async def close(self) -> None:
        """Stop listening and drop open connections."""
        if self._runner and self._client:
            await self._runner.cleanup()
            await self._client.close()
        self._runner = self._client = None

    async def suffer(self, fault: Fault) -> None:
        """Replace the faults of this service from now on."""
        self.fault = fault
        if fault.dead:
            await self.close()
        elif self._runner is None:
            await self.open()

    async def _answer(self, _: web.Request) -> web.Response:
        service, random = self._service, self._random
        await asyncio.sleep(random.lognormal(np.log(service.seconds), service.spread) + self.fault.delay_seconds)
        if random.random() < self.fault.error_share:
            return web.Response(status=500)
        for call in service.calls:
            if random.random() < call.share and not await self._call(call) and call.needed:
                return web.Response(status=502, text=f"{call.to} failed")
        return web.Response(text=service.name)

    async def _call(self, call: Call) -> bool:
        if self._client is None:  # the service was killed while it answered
            return False
        return await ask(self._client, self._sidecar, self._service.name, call.to, self._diary)


async def ask(client: aiohttp.ClientSession, url: str, source: str, destination: str, diary: Diary) -> bool:
    """Send one request through a sidecar, which routes by host. Return whether the status was below 500."""
    try:
        async with diary.entry(source, destination) as ended, client.get(url, headers={"Host": destination}) as reply:
            await reply.read()
            ended(reply.status)
            return reply.status < 500
    except (
        aiohttp.ClientError,
        TimeoutError,
        RuntimeError,
    ):  # RuntimeError: this service is being killed and its session is closed
        return False


class Crowd:
    """Clients of the shop."""

    def __init__(self, entry: int, diary: Diary) -> None:
        self.shed = 0
        self._url = f"http://{LOOPBACK}:{entry}/"
        self._diary = diary
        self._under_way: set[asyncio.Task[bool]] = set()

    async def come(self, load: Load) -> None:
        """Send all requests at their times. A request that waits for its answer delays no other."""
        random = np.random.default_rng(load.seed)
        loop = asyncio.get_running_loop()
        connections = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(timeout=PATIENCE, connector=connections) as client:
            at = loop.time()
            until = at + load.seconds
            while (at := at + random.exponential(1 / load.requests_per_second)) < until:
                await asyncio.sleep(at - loop.time())
                self._send(client)
            if self._under_way:
                await asyncio.wait(self._under_way)

    def _send(self, client: aiohttp.ClientSession) -> None:
        if len(self._under_way) >= AT_ONCE:
            self.shed += 1
            return
        task = asyncio.create_task(ask(client, self._url, OUTSIDE, ENTRY, self._diary))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)


class Shop:
    """All services and clients, and the handlers of ``control``."""

    def __init__(self, wiring: Wiring) -> None:
        self._wiring = wiring
        self._diary = Diary()
        seeds = np.random.SeedSequence(wiring.seed).spawn(len(SHOP))
        self._keepers = {
            service.name: Shopkeeper(service, wiring, self._diary, seed)
            for service, seed in zip(SHOP, seeds, strict=True)
        }
        self._crowd = Crowd(wiring.entry, self._diary)
        self._loads: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Run until the process is stopped."""
        async with AsyncExitStack() as open_ones:
            for keeper in self._keepers.values():
                await keeper.open()
                open_ones.push_async_callback(keeper.close)
            control = web.AppRunner(self._control(), access_log=None, shutdown_timeout=0.1)
            await control.setup()
            open_ones.push_async_callback(control.cleanup)
            await web.TCPSite(control, LOOPBACK, self._wiring.control).start()
            await asyncio.Event().wait()

    def _control(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/ready", lambda _: _json_response({}))
        app.router.add_put("/faults/{service}", self._set_fault)
        app.router.add_delete("/faults", self._heal)
        app.router.add_post("/load", self._start_load)
        app.router.add_get("/load", self._tell_load)
        app.router.add_get("/measured", self._tell_measured)
        return app

    async def _set_fault(self, request: web.Request) -> web.Response:
        keeper = self._keepers.get(request.match_info["service"])
        if keeper is None:
            return web.Response(status=404, text=f"expected one of {', '.join(self._keepers)}\n")
        try:
            fault = msgspec.json.decode(await request.read(), type=Fault)
        except msgspec.ValidationError as error:
            return web.Response(status=422, text=f"{error}\n")
        await keeper.suffer(fault)
        return await _json_response(fault)

    async def _heal(self, _: web.Request) -> web.Response:
        for keeper in self._keepers.values():
            await keeper.suffer(Fault())
        return await _json_response({})

    async def _start_load(self, request: web.Request) -> web.Response:
        try:
            load = msgspec.json.decode(await request.read(), type=Load)
        except msgspec.ValidationError as error:
            return web.Response(status=422, text=f"{error}\n")
        task = asyncio.create_task(self._crowd.come(load))
        self._loads.add(task)
        task.add_done_callback(self._loads.discard)
        return await _json_response(load)

    async def _tell_load(self, _: web.Request) -> web.Response:
        return await _json_response({"running": len(self._loads), "shed": self._crowd.shed})

    async def _tell_measured(self, request: web.Request) -> web.Response:
        since = float(request.query.get("since", "0"))
        until = float(request.query.get("until", "inf"))
        return await _json_response(self._diary.summary(since, until))


async def _json_response(what: object) -> web.Response:
    return web.Response(body=msgspec.json.encode(what), content_type="application/json")


if __name__ == "__main__":
    try:
        asyncio.run(Shop(msgspec.json.decode(sys.argv[1], type=Wiring)).run())
    except KeyboardInterrupt:
        sys.exit(0)
