"""The sidecar from its start to its end: detector, collector, servers."""

import asyncio
import logging
import os
import signal
import socket
import ssl
import stat
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from pathlib import Path

import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import aio as health

from model.snapshot import MeshSnapshot
from serve_app.access import Access, require_certificate, require_protection
from serve_app.collect.loop import MeshCollector, poll_schedule
from serve_app.collect.opening import open_source
from serve_app.errors import BadSettings
from serve_app.observability.traces import check_traces, start_traces
from serve_app.settings import MeshSettings, Settings, SidecarSettings
from serve_app.settings.access import sidecar_rules
from serve_app.sidecar.detector import Detector
from serve_app.sidecar.gate import TokenInterceptor, metrics_server
from serve_app.sidecar.generated.verdicts_pb2 import DESCRIPTOR
from serve_app.sidecar.generated.verdicts_pb2_grpc import add_VerdictsServicer_to_server
from serve_app.sidecar.service import Verdicts

SERVICE = DESCRIPTOR.services_by_name["Verdicts"].full_name
GRACE_SECONDS = 1.0  # for answers under way when it ends
REQUESTS_AT_ONCE = 64  # beside the watchers
_SOCKET_MODE = 0o660
log = logging.getLogger(__name__)


async def run(settings: Settings, mesh: str, polled: MeshSettings | None, ready: Callable[[list[str]], None]) -> None:
    """Detect anomalies of a mesh until SIGTERM or SIGINT. Every verdict that was sent is in the store.

    Args:
        settings: all of them.
        mesh: its name.
        polled: settings of the mesh to poll; None: snapshots are only pushed.
        ready: called once, with the addresses that it listens on.

    Raises:
        BadSettings: it cannot listen at the configured address, others could connect to it without a token, or
            traces cannot be exported here.
        ServeError: as of ``Detector``.
    """
    ends = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ends.set)
    rules = sidecar_rules(settings)
    require_protection(rules, [settings.sidecar.host])
    require_certificate(settings.sidecar.certificate_file, settings.sidecar.key_file, "sidecar")
    access = Access(rules)
    check_traces(settings.traces)
    detector = Detector(mesh, settings)
    send_spans = start_traces(settings.traces, "sidecar", lambda: detector.instruments)
    try:
        newest_at = await detector.begin()
        servers, healthy, addresses = _bind_servers(settings, detector, access)
        with (
            _collector(settings, detector, polled, newest_at) as collector,
            _serve_metrics(settings.sidecar, detector, collector, access) as pages,
        ):
            for server in servers:
                await server.start()
            await healthy.set(SERVICE, health_pb2.HealthCheckResponse.SERVING)
            async with _poll_in_background(collector) as polling:
                polling.add_done_callback(lambda _: ends.set())  # polling ends only by a bug; the exit code reports it
                ready([*addresses, *pages])
                await ends.wait()
                await healthy.enter_graceful_shutdown()
                detector.newest.end()
                await asyncio.gather(*(server.stop(GRACE_SECONDS) for server in servers))
    finally:
        await detector.close()
        send_spans()


@contextmanager
def _collector(
    settings: Settings, detector: Detector, polled: MeshSettings | None, newest_at: float | None
) -> Iterator[MeshCollector | None]:
    """The collector of the mesh; None if nothing polls it."""
    if polled is None:
        yield None
        return

    async def push(snapshot: MeshSnapshot) -> None:
        await detector.push(snapshot)

    with closing(open_source(polled, settings.collector)) as source:
        collector = MeshCollector(detector.mesh, source, push, poll_schedule(detector.mesh, settings.collector))
        collector.begin(newest_at)
        yield collector


@asynccontextmanager
async def _poll_in_background(collector: MeshCollector | None) -> AsyncIterator[asyncio.Future[None]]:
    """Polls the mesh inside the block, if there is a collector. Its failure is raised at the end."""
    if collector is None:
        yield asyncio.get_running_loop().create_future()
        return
    polling = asyncio.create_task(collector.run())
    yield polling
    polling.cancel()
    with suppress(asyncio.CancelledError):
        await polling


@contextmanager
def _serve_metrics(
    chosen: SidecarSettings, detector: Detector, collector: MeshCollector | None, access: Access
) -> Iterator[list[str]]:
    """Serves ``/metrics`` on threads of its own inside the block. Yields its address, or none if it is off."""
    if chosen.metrics_port is None:
        yield []
        return
    registry = detector.instruments.registry(detector.gauges, lambda: [collector.state] if collector else [])
    tls = None
    if chosen.certificate_file and chosen.key_file:
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        tls.load_cert_chain(chosen.certificate_file, chosen.key_file)
    try:
        server = metrics_server(chosen.host, chosen.metrics_port, registry, access, detector.instruments, tls)
    except OSError as error:
        raise BadSettings(
            f"sidecar.metrics_port: expected an address to listen on, got {chosen.host}:{chosen.metrics_port}, which "
            f"is in use or not of this machine ({error}); choose another, or 0 for a free port"
        ) from None
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield [f"{'https' if tls else 'http'}://{_bracket_ipv6(chosen.host)}:{server.server_port}/metrics"]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _bind_servers(
    settings: Settings, detector: Detector, access: Access
) -> tuple[list[grpc.aio.Server], health.HealthServicer, list[str]]:
    """Servers that are bound and not started, with their addresses: one for the port, one for the socket.

    The port requires tokens. The socket requires none, since its mode decides who can connect.
    """
    chosen = settings.sidecar
    verdicts, healthy = Verdicts(detector, settings), health.HealthServicer()
    guard = TokenInterceptor(access, detector.mesh, detector.instruments)
    servers = [_server(settings, verdicts, healthy, [guard])]
    addresses = [_bind_port(servers[0], chosen)]
    if chosen.socket is not None:
        servers.append(_server(settings, verdicts, healthy, []))
        addresses.append(_bind_socket(servers[1], chosen.socket))
    return servers, healthy, addresses


def _server(
    settings: Settings, verdicts: Verdicts, healthy: health.HealthServicer, guards: list[TokenInterceptor]
) -> grpc.aio.Server:
    server = grpc.aio.server(
        interceptors=guards,
        options=(
            ("grpc.so_reuseport", 0),  # else a second process shares the port, and each gets half of the requests
            ("grpc.max_receive_message_length", settings.limits.max_body_bytes),
            ("grpc.keepalive_time_ms", 60_000),  # a watcher that vanished frees its place
        ),
        maximum_concurrent_rpcs=settings.sidecar.max_watchers + REQUESTS_AT_ONCE,
    )
    add_VerdictsServicer_to_server(verdicts, server)  # type: ignore[no-untyped-call]
    health_pb2_grpc.add_HealthServicer_to_server(healthy, server)
    return server


def _bind_port(server: grpc.aio.Server, chosen: SidecarSettings) -> str:
    host = _bracket_ipv6(chosen.host)
    try:
        if chosen.certificate_file and chosen.key_file:
            pair = chosen.key_file.read_bytes(), chosen.certificate_file.read_bytes()
            port = server.add_secure_port(f"{host}:{chosen.port}", grpc.ssl_server_credentials([pair]))
        else:
            port = server.add_insecure_port(f"{host}:{chosen.port}")
        return f"{host}:{port}"
    except RuntimeError as error:
        raise BadSettings(
            f"sidecar.port: expected an address to listen on, got {host}:{chosen.port}, which is in use or not of "
            f"this machine ({error}); choose another, or 0 for a free port"
        ) from None


def _bracket_ipv6(host: str) -> str:
    """A host as written in addresses."""
    return f"[{host}]" if ":" in host else host


def _bind_socket(server: grpc.aio.Server, path: Path) -> str:
    """Bind a socket that only its owner and their group can connect to, from the first moment."""
    _require_free(path)
    before = os.umask(0o777 & ~_SOCKET_MODE)
    try:
        server.add_insecure_port(f"unix:{path}")
    except RuntimeError as error:
        raise BadSettings(
            f"sidecar.socket: expected a path in a folder that may be written, got {path} ({error})"
        ) from None
    finally:
        os.umask(before)
    return f"unix:{path}"


def _require_free(path: Path) -> None:
    """gRPC replaces an existing socket. Refuse that if a process still answers on it."""
    if not path.exists():
        return
    if not stat.S_ISSOCK(path.stat().st_mode):
        raise BadSettings(f"sidecar.socket: expected no file, or a socket left behind, at {path}; remove it")
    with closing(socket.socket(socket.AF_UNIX)) as probe, suppress(OSError):
        probe.connect(str(path))
        raise BadSettings(f"sidecar.socket: another process answers at {path}; choose another path, or end it")
