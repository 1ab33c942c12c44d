"""Measures goodput, latencies and rejections under overload.

    python -m benchmarks.bench_overload [--services 60 500] [--formats json arrow] [--clients 1 8 32 128]
        [--seconds 8] [--rounds 1] [--json FILE]

Each client pushes its own mesh's snapshots in a closed loop over one connection, and waits after a 429 as long as the
answer says. With Arrow only 32 clients are measured. A prober requests Serve's own health route twice a second.
Measurement begins after ``--settle`` seconds, in which the service adapts, and lasts ``--seconds``. All numbers of
clients take turns, in one or more rounds, each time with a new service. Goodput is the median over rounds; the other
figures cover all rounds together.

Asserted: no 504, no connection error, no status but 200 and 429.
"""

import asyncio
import struct
import tempfile
import time
from argparse import Namespace
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import product
from statistics import median

import numpy as np

from benchmarks.rows import Row, command_line, emit
from lab.simulator.mesh.topology import MeshSpec
from lab.simulator.simulator import Simulator
from serve_app.api.codec import encode_snapshot
from serve_app.app import start, stop
from serve_app.settings import Settings

BEGINNING = datetime(2026, 1, 1, tzinfo=UTC)
FORMATS = {"json": "application/json", "arrow": "application/vnd.apache.arrow.stream"}
ARROW_CLIENTS = 32


@dataclass(slots=True)
class Figures:
    """Answers in the measured time; durations in s."""

    accepted: list[float] = field(default_factory=list)
    rejected: list[float] = field(default_factory=list)
    hops: list[float] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)


class Connection:
    """One keep-alive connection with little overhead, because the clients share the processors with the service."""

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def request(self, head: bytes, body: bytes = b"") -> tuple[int, float]:
        """Send a request and return the status and ``Retry-After`` in s (0 if absent)."""
        if self._writer is None:
            self._reader, self._writer = await asyncio.open_connection(self._host, self._port)
        assert self._reader is not None
        self._writer.write(head + b"content-length: %d\r\n\r\n" % len(body) + body)
        answer = await self._reader.readuntil(b"\r\n\r\n")
        lines = answer.lower().split(b"\r\n")
        headers = dict(line.split(b": ", 1) for line in lines[1:] if b": " in line)
        if headers.get(b"transfer-encoding") == b"chunked":
            await self._reader.readuntil(b"0\r\n\r\n")
        else:
            await self._reader.readexactly(int(headers.get(b"content-length", b"0")))
        if headers.get(b"connection") == b"close":
            self.close()
        return int(lines[0].split()[1]), float(headers.get(b"retry-after", b"0"))

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
        self._reader = self._writer = None


@dataclass(frozen=True, slots=True)
class Body:
    """An encoded snapshot whose time can be changed in place; ``form`` is ``json`` or ``arrow``."""

    form: str
    content: bytes

    @classmethod
    def of(cls, services: int, form: str) -> "Body":
        """Encode a simulated snapshot."""
        degree = 3.0 if services < 500 else 6.0
        [snapshot] = Simulator(MeshSpec(services=services, calls_per_service=degree, seed=1), snapshots=1).snapshots()
        body = cls(form, encode_snapshot(replace(snapshot, observed_at=BEGINNING), FORMATS[form]))
        assert body._stamp(BEGINNING) in body.content
        return body

    def head(self, mesh: str) -> bytes:
        """Return the first lines of a request that pushes it."""
        lines = f"POST /v1/meshes/{mesh}/snapshots HTTP/1.1", "host: 127.0.0.1", f"content-type: {FORMATS[self.form]}"
        return "".join(f"{line}\r\n" for line in lines).encode()

    def at(self, sequence: int) -> bytes:
        """Return the content of a later snapshot."""
        later = BEGINNING + timedelta(seconds=15 * sequence)
        return self.content.replace(self._stamp(BEGINNING), self._stamp(later), 1)

    def _stamp(self, time: datetime) -> bytes:
        # Arrow has microseconds since 1970; the others have text.
        return struct.pack("<q", round(time.timestamp() * 1e6)) if self.form == "arrow" else time.isoformat().encode()


async def push(connection: Connection, mesh: str, body: Body, figures: Figures, times: tuple[float, float]) -> None:
    """Push until the end of the measurement."""
    sequence = 0
    began, end_of_run = times
    while (begin := time.monotonic()) < end_of_run:
        status, wait = await connection.request(body.head(mesh), body.at(sequence))
        end = time.monotonic()
        if began <= begin:
            figures.statuses[status] += 1
            if status in (200, 429):
                (figures.accepted if status == 200 else figures.rejected).append(end - begin)
        if status == 200:
            sequence += 1
        await asyncio.sleep(min(wait, max(0.0, end_of_run - end)))


async def probe(connection: Connection, figures: Figures, times: tuple[float, float]) -> None:
    """Request Serve's health route until the end of the measurement."""
    while (begin := time.monotonic()) < times[1]:
        await connection.request(b"GET /-/healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n")
        if times[0] <= begin:
            figures.hops.append(time.monotonic() - begin)
        await asyncio.sleep(0.5)


async def load(url: str, clients: int, body: Body, name: str, settle: float, seconds: float) -> Figures:
    """Run all clients of a level together."""
    host, port = url.removeprefix("http://").split(":")
    figures, began = Figures(), time.monotonic() + settle
    times = began, began + seconds
    connections = [Connection(host, int(port)) for _ in range(clients + 1)]
    tasks = [push(connections[i], f"{name}-{clients}-{i}", body, figures, times) for i in range(clients)]
    await asyncio.gather(probe(connections[-1], figures, times), *tasks)
    for connection in connections:
        connection.close()
    return figures


def serve_load(clients: int, body: Body, settle: float, seconds: float) -> Figures:
    """Run all clients of a level against a new service."""
    with tempfile.TemporaryDirectory() as folder:
        url = start(Settings(serve={"port": 0}, store={"path": folder}, scorer={"device": "cpu"}))
        try:
            figures = asyncio.run(load(url, clients, body, "m", settle, seconds))
        finally:
            stop()
    assert set(figures.statuses) <= {200, 429}, figures.statuses
    return figures


def summary(services: int, form: str, clients: int, rounds: Sequence[Figures], seconds: float) -> Row:
    accepted, rejected, hops = (
        [duration for figures in rounds for duration in getattr(figures, name)]
        for name in ("accepted", "rejected", "hops")
    )
    statuses = sum((figures.statuses for figures in rounds), Counter[int]())
    return {
        "bench": "overload",
        "services": services,
        "format": form,
        "clients": clients,
        "rounds": len(rounds),
        "goodput_per_second": round(median(len(figures.accepted) for figures in rounds) / seconds, 2),
        "accepted_p50_seconds": _percentile(accepted, 50),
        "accepted_p99_seconds": _percentile(accepted, 99),
        "accepted_most_seconds": _percentile(accepted, 100),
        "rejections": len(rejected),
        "rejected_p95_seconds": _percentile(rejected, 95),
        "hop_p50_seconds": _percentile(hops, 50),
        "hop_p95_seconds": _percentile(hops, 95),
        "statuses": {str(status): count for status, count in sorted(statuses.items())},
    }


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--services", type=int, nargs="+", default=[60, 500])
    parser.add_argument("--formats", nargs="+", choices=FORMATS, default=list(FORMATS))
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 32, 128])
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--settle", type=float, default=8)
    arguments = parser.parse_args()
    emit(measure(arguments), arguments.json)


def measure(arguments: Namespace) -> Iterator[Row]:
    """Yield each level's row."""
    for services, form in product(arguments.services, arguments.formats):
        body = Body.of(services, form)
        rounds: dict[int, list[Figures]] = {n: [] for n in (arguments.clients if form == "json" else [ARROW_CLIENTS])}
        for _ in range(arguments.rounds):
            for clients, figures in rounds.items():
                figures.append(serve_load(clients, body, arguments.settle, arguments.seconds))
                count = len(figures[-1].accepted)
                print(f"{services} services, {form}, {clients} clients: {count} accepted", flush=True)
        for clients, figures in rounds.items():
            yield summary(services, form, clients, figures, arguments.seconds)


def _percentile(seconds: list[float], q: float) -> float | None:
    return round(float(np.percentile(seconds, q)), 4) if seconds else None


if __name__ == "__main__":
    main()
