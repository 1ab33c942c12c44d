"""The service in one process, without Ray: ``tagae serve --single``.

The deployments are plain classes. Here they are created once, in the order of ``app.application``, and call each other
in the event loop. In place of Serve, this module listens, and calls their health checks.
"""

import asyncio
import os
import signal
import socket
import stat
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import grpc.aio
import uvicorn
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import aio as health
from starlette.types import ASGIApp

from serve_app.deployments.collector import Collector
from serve_app.deployments.gate.gate import middlewares_for
from serve_app.deployments.http.ingress import Ingress, http
from serve_app.deployments.notifier import Notifier
from serve_app.deployments.scoring.meta import MetaModel
from serve_app.deployments.scoring.scorer import Scorer
from serve_app.deployments.session.mesh_session import MeshSession
from serve_app.errors import BadSettings
from serve_app.observability.traces import check_traces, start_traces
from serve_app.runtime import replica
from serve_app.runtime.replica import LocalHandle
from serve_app.settings import Settings
from serve_app.settings.access import require_usable
from serve_app.settings.serve import KEEP_ALIVE_SECONDS, UNIX
from serve_app.sidecar.service import SERVICE, Verdicts

UNNAMED = "mesh"  # gRPC's mesh name, unless the settings have exactly one mesh
GRACE_SECONDS = 1.0  # for unfinished answers when it ends
CHECK_SECONDS = 5.0  # between two health checks; a failed one ends the process
MAX_REQUESTS = 64  # concurrent gRPC requests beside the streams
SOCKET_MODE = 0o660


async def run(settings: Settings, ready: Callable[[str, Sequence[str]], None]) -> None:
    """Serve until SIGTERM or SIGINT. Every sent verdict is in the store.

    Args:
        ready: called once, with the URL and the gRPC addresses.

    Raises:
        BadSettings: it cannot listen at a configured address, others could connect to it without a login, or another
            setting cannot be used.
        NoCapacity: ``scorer.device`` is ``cuda``, and there is no working GPU.
        IncompatibleWeights, CorruptState, StoreFull: see :class:`MeshSession`.
    """
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    front = settings.serve
    hosts = [address.rpartition(":")[0].strip("[]") for address in front.grpc if not address.startswith(UNIX)]
    require_usable(settings, [front.host, *hosts])
    check_traces(settings.traces)
    single = replica.run_single()
    send_spans = start_traces(settings.traces, "single", replica.open_instruments)
    with closing(listen(front.host, front.port)) as listening:
        deployments = deploy_all(settings)
        single.ingress = deployments[-1]
        app: ASGIApp = http
        for middleware in reversed(middlewares_for(settings)):
            app = middleware.cls(app, *middleware.args, **middleware.kwargs)
        async with (
            _tend(deployments[:-1]) as tending,
            _serve_http(settings, app, listening),
            _serve_grpc(settings, app) as addresses,
        ):
            tending.add_done_callback(lambda _: stop.set())  # only a bug ends it; the exit code reports it
            scheme = "https" if front.certificate_file else "http"
            ready(f"{scheme}://{_bracket_ipv6(front.host)}:{listening.getsockname()[1]}", addresses)
            await stop.wait()
        send_spans()


def deploy_all(settings: Settings) -> list[Any]:
    """Create the deployments. The last one is the ingress."""
    deployments: list[Any] = []

    def deploy(deployment: Any) -> Any:
        deployments.append(deployment)
        return LocalHandle(deployment)

    if settings.notify.has_receivers:
        deploy(Notifier(settings))
    if settings.scorer.device == "cuda":  # a GPU belongs to the workload: `auto` does not use it
        scorer, meta = deploy(Scorer(settings, "cuda")), deploy(MetaModel(settings))
        session = deploy(MeshSession(settings, scorer, meta))
    else:
        session = deploy(MeshSession(settings))
    collector = deploy(Collector(settings, session))
    return [*deployments, Ingress(settings, session, collector)]


@asynccontextmanager
async def _tend(deployments: Sequence[Any]) -> AsyncIterator[asyncio.Task[None]]:
    """Checks the deployments' health during the block, which also starts their loops; then ends them."""

    async def check() -> None:
        for deployment in deployments:
            await deployment.check_health()

    async def check_again() -> None:
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            await check()

    try:
        await check()
        tending = asyncio.create_task(check_again())
        try:
            yield tending
        finally:
            tending.cancel()
            with suppress(asyncio.CancelledError):
                await tending
    finally:
        for deployment in reversed(deployments):
            if isinstance(deployment, Notifier | Collector):
                await deployment.close()


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers; :func:`run` has its own."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@asynccontextmanager
async def _serve_http(settings: Settings, app: ASGIApp, listening: socket.socket) -> AsyncIterator[None]:
    front = settings.serve
    server = _Server(
        uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            proxy_headers=False,  # serve.trusted_proxies has the trusted ones
            lifespan="on",
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=int(GRACE_SECONDS),
            ssl_certfile=front.certificate_file,
            ssl_keyfile=front.key_file,
        )
    )
    serving = asyncio.create_task(server.serve([listening]))
    while not server.started and not serving.done():
        await asyncio.sleep(0.01)
    try:
        yield
    finally:
        server.should_exit = True
        await serving


@asynccontextmanager
async def _serve_grpc(settings: Settings, app: ASGIApp) -> AsyncIterator[list[str]]:
    """Serves ``verdicts.proto`` inside the block. Yields the addresses."""
    front = settings.serve
    if not front.grpc:
        yield []
        return
    (mesh,) = settings.meshes if len(settings.meshes) == 1 else (UNNAMED,)
    verdicts, healthy = Verdicts(app, mesh), health.HealthServicer()
    server = grpc.aio.server(
        options=(
            ("grpc.so_reuseport", 0),  # otherwise, a second process could share the port and get half of the requests
            ("grpc.max_receive_message_length", settings.limits.max_body_bytes),
            ("grpc.keepalive_time_ms", 60_000),  # frees the slots of vanished watchers
        ),
        maximum_concurrent_rpcs=front.max_streams + MAX_REQUESTS,
    )
    server.add_generic_rpc_handlers((verdicts.handler(),))
    health_pb2_grpc.add_HealthServicer_to_server(healthy, server)
    addresses = [_bind_grpc(server, address, settings) for address in front.grpc]
    await server.start()
    await healthy.set(SERVICE, health_pb2.HealthCheckResponse.SERVING)
    try:
        yield addresses
    finally:
        await healthy.enter_graceful_shutdown()
        verdicts.end()
        await server.stop(GRACE_SECONDS)


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; raises ``BadSettings`` if the address cannot be used."""
    try:
        listening = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        raise BadSettings(
            f"serve.port: expected an address to listen on, got {_bracket_ipv6(host)}:{port}, which is in use or not "
            f"of this machine ({error}); choose another, or 0 for a free port"
        ) from None
    # Connections inherit it. Without it a body waits 40 ms for the client to acknowledge the headers, since asyncio
    # sets it only on sockets that were created with a protocol number.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


def _bind_grpc(server: grpc.aio.Server, address: str, settings: Settings) -> str:
    """Bind a port, or a socket to which only its owner and group can connect from the beginning."""
    certificate, key = settings.serve.certificate_file, settings.serve.key_file
    is_socket = address.startswith(UNIX)
    if is_socket:
        _require_free(Path(address.removeprefix(UNIX)))
    before = os.umask(0o777 & ~SOCKET_MODE)
    try:
        if certificate and key and not is_socket:
            pair = key.read_bytes(), certificate.read_bytes()
            port = server.add_secure_port(address, grpc.ssl_server_credentials([pair]))
        else:
            port = server.add_insecure_port(address)
    except RuntimeError as error:
        raise BadSettings(
            f"serve.grpc: expected an address to listen on, got {address}, which is in use, not of this machine, or in "
            f"a folder that may not be written ({error}); choose another"
        ) from None
    finally:
        os.umask(before)
    return address if is_socket else f"{address.rpartition(':')[0]}:{port}"


def _bracket_ipv6(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _require_free(path: Path) -> None:
    """gRPC replaces an existing socket. Refuse that if a process still answers on it."""
    if not path.exists():
        return
    if not stat.S_ISSOCK(path.stat().st_mode):
        raise BadSettings(f"serve.grpc: expected no file, or a socket left behind, at {path}; remove it")
    with closing(socket.socket(socket.AF_UNIX)) as probe, suppress(OSError):
        probe.connect(str(path))
        raise BadSettings(f"serve.grpc: another process answers at {path}; choose another path, or end it")
