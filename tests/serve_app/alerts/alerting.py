"""Incidents and verdicts to notify of, an endpoint that misbehaves on request, and the values of counters."""

import asyncio
import json
import ssl
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import msgspec
from prometheus_client.parser import text_string_to_metric_families

from model.incidents.kind import incident_kind
from model.snapshot import PlannedChange
from model.verdict import (
    Incident,
    LimitForecast,
    MuteInForce,
    MuteOrigin,
    NearbyChange,
    Reason,
    Severity,
    Status,
    Suspect,
    Verdict,
)
from serve_app.alerts.alert import Alert, AlertState, IncidentEvent, MeshAlerts, Transition
from serve_app.alerts.delivery import AlertDelivery, Receivers
from serve_app.alerts.event_queue import ChosenReceiver
from serve_app.alerts.links import Links
from serve_app.alerts.receivers.alertmanager import STATUS_PATH, PostTiming
from serve_app.alerts.receivers.webhook import WEBHOOK
from serve_app.alerts.storage import NAME
from serve_app.alerts.transitions import transition as transition_of_document
from serve_app.api.codec import encode_verdict
from serve_app.errors import StoreFull
from serve_app.exporter import PrometheusInstruments
from serve_app.net.backoff import Backoff
from serve_app.net.endpoint import Endpoint
from serve_app.settings import StoreSettings
from serve_app.settings.receivers import WebhookSettings
from serve_app.stores.opening import open_store
from serve_app.stores.records import NewSnapshot
from serve_app.stores.scored_snapshot import StoredVerdict
from serve_app.stores.state_store import StateStore
from tests.builders import verdict as build_verdict
from tests.timing import PATIENCE_SECONDS

NOW = datetime(2026, 3, 1, 3, 14, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
PLACE = Links("eu-1", "https://tagae.example", {"runbook": "https://runbooks.example/{mesh}?incident={incident}"})
QUICK = Backoff(0.01, 0.05)
WITHIN = 2 * PATIENCE_SECONDS  # for operations that take milliseconds
PATIENT = PATIENCE_SECONDS  # deadline of a request that will be answered


def incident(name: str = "a", *services: str, severity: str = "minor", age: float = 120.0, **more: Any) -> Incident:
    """Return an incident whose services are suspects, best first, and affected; ``age`` in seconds before ``NOW``."""
    named = services or ("shop/cart", "shop/web")
    calls = tuple(replace(call, destination=named[0]) for call in _reasons())  # of the others: no fault of their own
    suspects = tuple(Suspect(s, 0.6 / (i + 1), _reasons(), calls if i else ()) for i, s in enumerate(named))
    fields = {"suspects": suspects, "affected": named, "score": 7.5, **more}
    made = Incident(id=name, since=NOW - timedelta(seconds=age), severity=Severity(severity), **fields)
    return replace(made, kind=incident_kind(made))


def change(service: str = "shop/cart") -> NearbyChange:
    return NearbyChange(PlannedChange("deploy", service, "v1.4.2"), NOW - timedelta(seconds=160))


def verdict(*incidents: Incident, at: datetime = NOW, status: str = "", coverage: float = 1.0) -> Verdict:
    alerting = any(item.severity is not Severity.NOTICE for item in incidents)
    verdict_status = Status(status) if status else Status.ANOMALOUS if alerting else Status.NORMAL
    missing = (1,) if coverage < 1 else ()
    return build_verdict(
        *incidents, observed_at=at, status=verdict_status, mesh_score=7.5, coverage=coverage, missing_parts=missing
    )


MUTE_END = NOW + timedelta(minutes=20)
MUTE = MuteInForce(MuteOrigin.API, (), "repair", "m", MUTE_END, hides=("shop/cart",))
HIDDEN = replace(verdict(), muted=(MUTE,))  # the mute hides an incident
CALM = replace(verdict(), muted=(replace(MUTE, hides=()),))


def notice(name: str = "n", service: str = "shop/cart", *, seconds: float = 2400.0, **more: Any) -> Incident:
    """Return a notice of a leak that reaches the limit in this number of seconds."""
    forecast = LimitForecast(seconds, 0.625 * seconds, 1.75 * seconds)
    leak = Reason(
        metric="memory_utilization", observed=0.62, expected=0.4, since=NOW - timedelta(minutes=20), forecast=forecast
    )
    fields: dict[str, Any] = {"suspects": (Suspect(service, 1.0, (leak,)),), **more}
    return incident(name, service, severity="notice", **fields)


def transition(alerts: MeshAlerts, mesh: str, verdict: Verdict, now: datetime, links: Links) -> Transition:
    """Return the changes that a verdict makes, once it is stored as JSON."""
    return transition_of_document(alerts, mesh, encode_verdict(verdict), now, links)


def play(*verdicts: Verdict, step: timedelta = MINUTE, links: Links = PLACE) -> list[Transition]:
    """Return the transitions of these verdicts of the mesh shop, which come one after the other."""
    transitions: list[Transition] = []
    for i, verdict in enumerate(verdicts):
        at = NOW + i * step
        alerts = transitions[-1].alerts if transitions else MeshAlerts()
        transitions.append(transition(alerts, "shop", replace(verdict, observed_at=at), at, links))
    return transitions


def kinds(events: Iterable[IncidentEvent]) -> list[str]:
    return [event.document["event"] for event in events]


def refuse(*_: object, **__: object) -> NoReturn:
    """In place of the write of a store."""
    raise StoreFull("the disk is full")


def accept(notifier: AlertDelivery, mesh: str, verdict: Verdict, now: datetime, interval_seconds: float = 15.0) -> None:
    """Hand a verdict on, as the feed does."""
    notifier.accept_verdict(mesh, encode_verdict(verdict), now, interval_seconds)


def store_verdict(
    store: StateStore,
    mesh: str,
    verdict: Verdict,
    sequence: int,
    *,
    made_at: datetime | None = None,
    replayed: bool = False,
) -> int:
    """Store the verdict of a mesh's next snapshot, as a session does. Returns the revision of the mesh."""
    at = verdict.observed_at + sequence * timedelta(seconds=15)
    document = encode_verdict(replace(verdict, observed_at=at, sequence=sequence))
    document = document.model_copy(update={"replayed": replayed})
    content = document.model_dump_json().encode()
    record = StoredVerdict(2, content, made_at=made_at.timestamp() if made_at else time.time())
    new = NewSnapshot(sequence, at, b"snapshot", "digest", b"state", record.pack())
    before = store.load(mesh)
    return store.append(mesh, new, keep=20, revision=before.revision if before else 0)


def _reasons() -> tuple[Reason, ...]:
    return (Reason(metric="p99_latency", observed=1.2, expected=0.08, since=NOW - timedelta(minutes=2)),)


def metric_value(instruments: PrometheusInstruments, name: str, **labels: str) -> float:
    """Return the value of a metric, summed over all label sets that include these."""
    samples = (s for f in text_string_to_metric_families(instruments.text().decode()) for s in f.samples)
    return sum(s.value for s in samples if s.name == name and labels.items() <= s.labels.items())


async def eventually(condition: Callable[[], bool], within: float = WITHIN) -> None:
    """Wait for a condition without an event: counters, files."""
    async with asyncio.timeout(within):
        while not condition():
            await asyncio.sleep(0.01)


async def until_counted(count: float, instruments: PrometheusInstruments, name: str, **labels: str) -> None:
    """Wait until a metric is at least ``count``."""
    await eventually(lambda: metric_value(instruments, name, **labels) >= count)


@dataclass(frozen=True)
class Request:
    """A request as received."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class StandIn:
    """An endpoint on a free loopback port.

    ``behaviour`` chooses what it does with each request: a status, ``half`` an answer, ``hang``, ``trickle``,
    ``close``, or headers with a status.
    """

    behaviour: Callable[[Request], int | str | tuple[int, dict[str, str]]] = lambda request: 200
    port: int = 0
    tls: ssl.SSLContext | None = None
    requests: list[Request] = field(default_factory=list)
    _came: asyncio.Condition = field(default_factory=asyncio.Condition)
    _server: asyncio.Server | None = None
    _open: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def connections(self) -> int:
        """How many connections are open."""
        return len(self._open)

    async def start(self) -> None:
        """Start, on the same port as before if there was one."""
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", self.port, ssl=self.tls)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        if self._server is None:
            return
        self._server.close()
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)
        await self._server.wait_closed()
        self._server = None

    async def until(self, enough: Callable[[list[Request]], bool], within: float = WITHIN) -> list[Request]:
        async with asyncio.timeout(within), self._came:
            await self._came.wait_for(lambda: enough(self.requests))
            return list(self.requests)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._open.add(task)
        task.add_done_callback(self._open.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while request := await _read(reader):
                if request.path.endswith(STATUS_PATH):  # a check, which no test counts
                    await self._answer(200, writer)
                    continue
                async with self._came:
                    self.requests.append(request)
                    self._came.notify_all()
                if not await self._answer(self.behaviour(request), writer):
                    return
        except (ConnectionError, asyncio.IncompleteReadError):
            return  # the client closed the connection, as it should
        finally:
            writer.close()

    async def _answer(self, what: int | str | tuple[int, dict[str, str]], writer: asyncio.StreamWriter) -> bool:
        """Answer a request, and return whether the connection stays open."""
        if what == "hang":
            await asyncio.Event().wait()
        if what == "close":
            return False
        if what == "half":
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf")
            await writer.drain()
            return False
        if what == "trickle":
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n")
            while True:
                writer.write(b".")
                await writer.drain()
                await asyncio.sleep(0.02)
        status, headers = what if isinstance(what, tuple) else (what, {})
        lines = [f"HTTP/1.1 {status} -", "content-length: 2", *(f"{k}: {v}" for k, v in headers.items())]
        writer.write("\r\n".join(lines).encode() + b"\r\n\r\n{}")
        await writer.drain()
        return True


async def _read(reader: asyncio.StreamReader) -> Request | None:
    if not (head := await reader.readline()):
        return None
    headers: dict[str, str] = {}
    while line := (await reader.readline()).strip():
        name, _, value = line.decode().partition(":")
        headers[name.lower()] = value.strip()
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return Request(head.split()[1].decode(), headers, body)


def _always(behaviour: Any, _: Request) -> Any:
    return behaviour


@asynccontextmanager
async def start_endpoints(*behaviours: Any) -> AsyncIterator[list[StandIn]]:
    """Start one endpoint for each behaviour (see :class:`StandIn`). A behaviour that is no function is constant."""
    servers = [StandIn(b if callable(b) else partial(_always, b)) for b in behaviours]
    for server in servers:
        await server.start()
    try:
        yield servers
    finally:
        for server in servers:
            await server.stop()


def receivers(alertmanagers: Sequence[StandIn] = (), webhooks: Sequence[StandIn] = (), **more: Any) -> Receivers:
    hook = {name: more.pop(name) for name in ("secret_file", "format") if name in more}
    return Receivers(
        tuple(Endpoint(f"{endpoint.url}/api/v2/alerts") for endpoint in alertmanagers),
        (
            *(
                ChosenReceiver(partial(WEBHOOK.open, WebhookSettings(url=f"{endpoint.url}/hook", **hook)))
                for endpoint in webhooks
            ),
            *more.pop("events", ()),
        ),
        **{"links": PLACE, "backoff": QUICK, "deadline_seconds": 0.5, "drain_seconds": WITHIN, **more},
    )


@asynccontextmanager
async def start_notifier(
    to: Receivers, directory: Path, clock: Callable[[], datetime] = lambda: NOW, **more: Any
) -> AsyncIterator[tuple[AlertDelivery, PrometheusInstruments]]:
    """Run a notifier with its state in a directory, and close it at the end."""
    with closing(open_store(StoreSettings(path=directory))) as store:
        async with run_notifier(to, store, clock, **more) as running:
            yield running


@asynccontextmanager
async def run_notifier(
    to: Receivers, store: StateStore, clock: Callable[[], datetime] = lambda: NOW, **more: Any
) -> AsyncIterator[tuple[AlertDelivery, PrometheusInstruments]]:
    """The same with its state in a store."""
    instruments = PrometheusInstruments()
    notifier = AlertDelivery(to, store, instruments, clock, **more)
    running = asyncio.create_task(notifier.run())
    try:
        yield notifier, instruments
    finally:
        await notifier.close()
        await running


@asynccontextmanager
async def sending(
    kind: str, behaviour: Any, directory: Path, clock: Callable[[], datetime] = lambda: NOW, **more: Any
) -> AsyncIterator[tuple[StandIn, AlertDelivery, PrometheusInstruments]]:
    """Run a notifier that is patient with its one receiver. ``kind``: ``alertmanagers`` or ``webhooks``."""
    chosen = {"deadline_seconds": PATIENT, **more}
    async with (
        start_endpoints(behaviour) as (server,),
        start_notifier(receivers(**{kind: [server]}, **chosen), directory, clock) as (notifier, instruments),
    ):
        yield server, notifier, instruments


def saved(directory: Path) -> AlertState:
    """Return the state of notifications in a directory, as another process reads it."""
    with closing(open_store(StoreSettings(path=directory))) as store:
        return stored_state(store)


def firing(state: AlertState) -> list[Alert]:
    """Return the firing alerts of all meshes, however old their newest verdict is."""
    return [incident.alert for alerts in state.meshes.values() for incident in alerts.open]


def stored_state(store: StateStore) -> AlertState:
    """Return the state of notifications in a store, without becoming its owner."""
    content = store.read_document(NAME).content
    return msgspec.json.decode(content.partition(b"\n")[2], type=AlertState) if content else AlertState()


def resend_after(seconds: float = 0.05) -> PostTiming:
    """Return when alerts are posted: unchanged ones again after this time."""
    return PostTiming(resend=timedelta(seconds=seconds))
