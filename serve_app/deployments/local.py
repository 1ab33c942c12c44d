"""Ray and Serve on this machine alone, quiet and closed: for ``tagae serve``, ``serve run``, the demo and tests.

Ray opens some 15 ports on one machine. Two measures close them, and either one alone would do:

* Every process of Ray binds to loopback. Ray does this by itself on Windows and macOS, and on Linux where
  ``RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER`` is 0. (``ray.init(_node_ip_address="127.0.0.1")`` does not help: Ray replaces
  loopback by the address of the host.)
* Every port of Ray asks for a token (``RAY_AUTH_MODE=token``). The token is generated for each run and lies in a file
  that only its owner can read, so that other users of this machine cannot run code here either.
"""

import errno
import json
import logging
import os
import secrets
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import ray
from ray import serve
from ray._private import parameter, ray_constants
from ray._private.node import Node
from ray._raylet import AuthenticationTokenLoader, Config  # type: ignore[attr-defined]  # its stub lacks them
from ray.exceptions import RayError
from ray.serve._private import api as serve_api
from ray.serve._private import client as serve_client
from ray.serve.config import HTTPOptions
from ray.serve.exceptions import RayServeException
from ray.serve.schema import LoggingConfig

from serve_app.deployments.ray_environment import cluster_address, leave_other_clusters
from serve_app.errors import BadSettings, NoCapacity
from serve_app.settings import Settings

log = logging.getLogger(__name__)
QUIET = LoggingConfig(enable_access_log=False, log_level="WARNING")
# That replicas can claim together. A replica without its claim never starts; they share the real CPUs anyway.
LEAST_CPUS = 16
OBJECT_STORE_BYTES = 256 * 2**20
GRPC_BYTES = 2**30  # above every limit of a body; Ray's 4 MiB are less than a mesh of 10,000 services has
LOOPBACK_SWITCH = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
START_ATTEMPTS = 5
TIMED_OUT = "timed out during startup"  # in Ray's error
START_SECONDS = 300  # limit of each step of the start; it ends what hangs, and does not measure speed
SETTINGS = "TAGAE_SERVICE_SETTINGS"  # JSON: what this process hands to the processes of Ray
# Ray's own processes read these as they start.
RAY_ENVIRONMENT = {
    LOOPBACK_SWITCH: "0",
    "RAY_AUTH_MODE": "token",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_niceness": "0",  # Ray's 15 lets every other process of the machine go first
    # Each is for one step of the start, which takes minutes on a busy machine. Ray gives a proxy 5 s.
    "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": str(START_SECONDS),
    "RAY_gcs_server_port_wait_time_s": str(START_SECONDS),
    "RAY_worker_register_timeout_seconds": str(START_SECONDS),
    "RAY_SERVE_PROXY_HEALTH_CHECK_PERIOD_S": "1",  # three failures replace a proxy; with Ray's 10 s that took 24 s
    # Ten times a second by default, in each process: a sixth of what an idle service takes of a core.
    "RAY_SERVE_METRICS_EXPORT_INTERVAL_MS": "1000",
    "RAY_SERVE_CONTROL_LOOP_INTERVAL_S": "0.2",
    # Calls between proxy and replicas as gRPC instead of actor calls: a fifth less CPU for a small push.
    "RAY_SERVE_USE_GRPC_BY_DEFAULT": "1",
    "RAY_SERVE_REPLICA_GRPC_MAX_MESSAGE_LENGTH": str(GRPC_BYTES),
    "RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH": "serve_app.deployments.gate.middlewares",
    # uvicorn would believe X-Forwarded-* of any process of this machine; serve.trusted_proxies has the trusted ones.
    "FORWARDED_ALLOW_IPS": "none",
    ray_constants.WORKER_PROCESS_SETUP_HOOK_ENV_VAR: "serve_app.worker_setup.import_serve",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # the behaviour to come, without the warning about it
}
# glibc gives large blocks back to the kernel after each op, and pays for them again at the next one
# (docs/troubleshooting.md).
WORKER_ENVIRONMENT = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(4 * 2**30),
    "MALLOC_TOP_PAD_": str(256 * 2**20),
    # By default each thread has a heap of its own, and what one frees, no other can use: a session with a mesh of
    # 10,000 services held 1,409 instead of 1,000 MiB.
    "MALLOC_ARENA_MAX": "1",
}
KILL_SECONDS = 5.0  # for killed processes to be gone
POLL_SECONDS = 0.1
TOKEN_FOLDER = "tagae-ray-"  # and random letters
STOP_SECONDS = 6.0  # for the applications to end in order
DOWN_SECONDS = 30.0  # for all of an orderly end; then processes are killed


def connect(settings: Settings) -> None:
    """Connect to the cluster of ``RAY_ADDRESS``, or start Ray and Serve here as :func:`start` does.

    ``serve run`` calls the builder before it starts anything, so that the builder decides how Ray is started. Where a
    cluster runs already, its ports are as its owner configured them; the log says so if it asks for no token.
    """
    if ray.is_initialized():
        return
    if address := cluster_address():
        ray.init(namespace="serve", runtime_env={"env_vars": WORKER_ENVIRONMENT})
        if os.environ.get("RAY_AUTH_MODE") != "token":
            log.warning(
                "Ray at %s: anyone who can reach its ports can run code there; set RAY_AUTH_MODE=token on all of its "
                "nodes, and let only the cluster reach its ports",
                address,
            )
        return
    start(settings, namespace="serve", quiet=False)


def start(settings: Settings, namespace: str | None = None, *, quiet: bool = True) -> str:
    """Start Ray and Serve, whatever cluster the environment names.

    Args:
        settings: its ``serve``. Port 0 takes a free one, for the service and for the metrics.
        namespace: of Ray, for this process.
        quiet: log errors only; else Ray and Serve log what they do.

    Returns:
        The URL of the service.

    Raises:
        BadSettings: a port is in use. Ray would start anyway, without metrics, and share the requests with another
            TAGAE of this machine.
        NoCapacity: this machine is too busy to start Ray.
    """
    front = settings.serve
    if front.port and not _is_free(front.host, front.port):
        raise BadSettings(f"serve.port: expected a free port, {front.port} is in use; choose another, or 0 for any")
    if front.metrics_port and not _is_free("127.0.0.1", front.metrics_port):
        raise BadSettings(
            f"serve.metrics_port: expected a free port, {front.metrics_port} is in use; choose another, or 0 for any"
        )
    leave_other_clusters()
    _set_environment(settings, quiet)
    _start_ray(
        namespace=namespace,
        num_cpus=max(LEAST_CPUS, os.cpu_count() or LEAST_CPUS),
        object_store_memory=OBJECT_STORE_BYTES,
        include_dashboard=False,
        _metrics_export_port=front.metrics_port or None,
        log_to_driver=not quiet,
        logging_level="error" if quiet else "info",
    )
    if quiet:
        logging.getLogger("ray.serve").setLevel(logging.WARNING)
    port = front.port or _free_port(front.host)
    options = HTTPOptions(
        host=front.host,
        port=port,
        keep_alive_timeout_s=int(front.keep_alive_seconds),
        ssl_certfile=front.certificate_file and str(front.certificate_file),
        ssl_keyfile=front.key_file and str(front.key_file),
    )
    serve.start(http_options=options, logging_config=QUIET if quiet else None)
    return f"{'https' if front.certificate_file else 'http'}://{front.host}:{port}"


def stop() -> bool:
    """End the applications, then Ray with all its processes.

    Takes at most some :data:`DOWN_SECONDS`, also where Ray no longer answers: then its processes are killed.

    Returns:
        Whether they ended in order. If not, end this process: Ray's library soon does so, with the exit code 1.
    """
    if not ray.is_initialized():
        remove_token()
        return True
    children = psutil.Process().children(recursive=True)
    ending = threading.Thread(target=_end_in_order, name="end Ray", daemon=True)
    ending.start()
    ending.join(DOWN_SECONDS)
    is_orderly = not ending.is_alive()
    remove_token()
    _kill(children)  # and wait: they must not write to folders that the caller removes
    return is_orderly


def remove_token() -> None:
    """Remove the token file of :func:`start`."""
    path = Path(os.environ.pop("RAY_AUTH_TOKEN_PATH", "none"))
    if path.parent.name.startswith(TOKEN_FOLDER):
        shutil.rmtree(path.parent, ignore_errors=True)


def handed_settings() -> Settings:
    """In a process of Ray: the settings of the service that started it. If no service did: the settings of the file
    and the environment."""
    return Settings(**json.loads(os.environ.get(SETTINGS, "{}")))


def _end_in_order() -> None:
    """End the applications, so that requests under way are answered, then Ray.

    Ray ends without them if they take too long. It must not be killed while this process is connected to it.
    """
    until = time.monotonic() + STOP_SECONDS
    with suppress(RayError, RayServeException, TimeoutError):
        for name in serve.status().applications:
            serve.delete(name, _blocking=False)
        while serve.status().applications and time.monotonic() < until:
            time.sleep(POLL_SECONDS)
    ray.shutdown()


def _set_environment(settings: Settings, quiet: bool) -> None:
    """What the processes of Ray inherit. A runtime environment would cost them a process each that is started and
    thrown away."""
    for name, value in WORKER_ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    os.environ.update(RAY_ENVIRONMENT)
    os.environ["RAY_SERVE_LOG_TO_STDERR"] = "0" if quiet else "1"
    os.environ[SETTINGS] = json.dumps(settings.model_dump(), default=str)
    # Ray read these variables when this process imported it, and has none for the last two.
    ray_constants.ENABLE_RAY_CLUSTER = False
    ray_constants.RAY_DASHBOARD_STARTUP_TIMEOUT_S = START_SECONDS
    serve_api.HTTP_PROXY_TIMEOUT = serve_client.HTTP_PROXY_TIMEOUT = START_SECONDS
    token = Path(tempfile.mkdtemp(prefix=TOKEN_FOLDER)) / "token"  # the directory is its owner's alone
    token.touch(mode=0o600)
    token.write_text(secrets.token_hex(32), encoding="ascii")
    os.environ.pop("RAY_AUTH_TOKEN", None)  # it would win over the file
    os.environ["RAY_AUTH_TOKEN_PATH"] = str(token)
    Config.initialize("")  # likewise
    AuthenticationTokenLoader.instance().reset_cache()  # this process may have had another Ray before


def _start_ray(**options: Any) -> None:
    """Call ``ray.init``, again if a time limit of Ray's passed that cannot be changed.

    The raylet ends if its agents need more than 15 s to start (https://github.com/ray-project/ray/issues/65983). On a
    busy machine the next attempt is faster, because their files are in memory by then.

    Raises:
        NoCapacity: no attempt was in time.
    """
    before = set(psutil.Process().children(recursive=True))
    for _ in range(START_ATTEMPTS):
        try:
            with _few_processes(prints_logs=options.get("log_to_driver", True)):
                ray.init(**options)
        except Exception as error:  # Ray raises nothing more specific
            if TIMED_OUT not in str(error):
                raise
            log.warning("Ray did not start within its time limit, trying again: %s", error)
            _kill(set(psutil.Process().children(recursive=True)) - before)
        else:
            return
    raise NoCapacity(
        f"Ray did not start in {START_ATTEMPTS} attempts, because this machine is too busy; stop other work and try "
        "again"
    )


@contextmanager
def _few_processes(*, prints_logs: bool) -> Iterator[None]:
    """Start no processes of Ray that a service on one machine does not use: the monitor of its autoscaler, the server
    of its dashboard, and the reader of its logs if this process does not print them. They take 160 MiB and two seconds
    of CPU. ``ray.init`` has no argument for them."""
    default_parameters, start_api_server = parameter.RayParams, Node.start_api_server
    parameter.RayParams = partial(default_parameters, no_monitor=True, include_log_monitor=prints_logs)
    Node.start_api_server = _start_no_api_server
    try:
        yield
    finally:
        parameter.RayParams, Node.start_api_server = default_parameters, start_api_server


def _start_no_api_server(node: Node, **_: object) -> None:
    """In place of a method of ``node``."""


def _kill(processes: Collection[psutil.Process]) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(processes, KILL_SECONDS)


def _is_free(host: str, port: int) -> bool:
    """Whether no process listens there. Connections of a process that has ended do not count."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise BadSettings(
                    f"serve.host: expected an address of this machine, came {host!r} ({error.strerror}); correct it"
                ) from None
            return False
    return True


def _free_port(host: str) -> int:
    with socket.socket() as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])
