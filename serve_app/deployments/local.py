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
from contextlib import suppress
from pathlib import Path

import psutil
import ray
from ray import serve
from ray._private import ray_constants
from ray._raylet import AuthenticationTokenLoader, Config  # type: ignore[attr-defined]  # its stub lacks them
from ray.exceptions import RayError
from ray.serve.config import HTTPOptions
from ray.serve.exceptions import RayServeException
from ray.serve.schema import LoggingConfig

from serve_app.errors import BadSettings
from serve_app.settings import Settings

log = logging.getLogger(__name__)
QUIET = LoggingConfig(enable_access_log=False, log_level="WARNING")
# That replicas can claim together. A replica without its claim never starts; they share the real CPUs anyway.
LEAST_CPUS = 16
OBJECT_STORE_BYTES = 256 * 2**20
LOOPBACK_SWITCH = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
SETTINGS = "TAGAE_SERVICE_SETTINGS"  # JSON: what this process hands to the processes of Ray
# Ray's own processes read these as they start.
RAY_ENVIRONMENT = {
    LOOPBACK_SWITCH: "0",
    "RAY_AUTH_MODE": "token",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_niceness": "0",  # Ray's 15 lets every other process of the machine go first
    "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": "60",  # on a busy machine a proxy needs more than the 5 s it is given
    "RAY_SERVE_PROXY_HEALTH_CHECK_PERIOD_S": "1",  # three failures replace a proxy; with Ray's 10 s that took 24 s
    # Ten times a second by default, in each process: a sixth of what an idle service takes of a core.
    "RAY_SERVE_METRICS_EXPORT_INTERVAL_MS": "1000",
    "RAY_SERVE_CONTROL_LOOP_INTERVAL_S": "0.2",
    "RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH": "serve_app.deployments.gate.middlewares",
    # uvicorn would believe X-Forwarded-* of any process of this machine; serve.trusted_proxies has the trusted ones.
    "FORWARDED_ALLOW_IPS": "none",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # the behaviour to come, without the warning about it
}
# glibc gives large blocks back to the kernel after each op and pays for them again at the next (PERFORMANCE.md).
WORKER_ENVIRONMENT = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(4 * 2**30),
    "MALLOC_TOP_PAD_": str(256 * 2**20),
}
TOKEN_FOLDER = "tagae-ray-"  # and random letters
STOP_SECONDS = 6.0  # for an orderly end; then processes are killed


def connect(settings: Settings) -> None:
    """Connect to the cluster of ``RAY_ADDRESS``, or start Ray and Serve here as :func:`up` does.

    ``serve run`` calls the builder before it starts anything, so that the builder decides how Ray is started. Where a
    cluster runs already, its ports are as its owner configured them; the log says so if it asks for no token.
    """
    if ray.is_initialized():
        return
    if "RAY_ADDRESS" in os.environ:
        ray.init(namespace="serve", runtime_env={"env_vars": WORKER_ENVIRONMENT})
        if os.environ.get("RAY_AUTH_MODE") != "token":
            log.warning(
                "Ray at %s: anyone who can reach its ports can run code there; set RAY_AUTH_MODE=token on all of its "
                "nodes, and let only the cluster reach its ports",
                os.environ["RAY_ADDRESS"],
            )
        return
    up(settings, namespace="serve", quiet=False)


def up(settings: Settings, namespace: str | None = None, *, quiet: bool = True) -> str:
    """Start Ray and Serve.

    Args:
        settings: its ``serve``. Port 0 takes a free one, for the service and for the metrics.
        namespace: of Ray, for this process.
        quiet: log errors only; else Ray and Serve log what they do.

    Returns:
        The URL of the service.

    Raises:
        BadSettings: a port is in use. Ray would start anyway, without metrics, and share the requests with another
            TAGAE of this machine.
    """
    front = settings.serve
    if front.port and not _is_free(front.host, front.port):
        raise BadSettings(f"serve.port: expected a free port, {front.port} is in use; choose another, or 0 for any")
    if front.metrics_port and not _is_free("127.0.0.1", front.metrics_port):
        raise BadSettings(
            f"serve.metrics_port: expected a free port, {front.metrics_port} is in use; choose another, or 0 for any"
        )
    _set_environment(settings, quiet)
    ray.init(
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


def down() -> None:
    """End the applications, then Ray with all its processes.

    Takes at most some :data:`STOP_SECONDS`, also where Ray no longer answers: then its processes are killed.
    """
    if not ray.is_initialized():
        return
    children = psutil.Process().children(recursive=True)
    ending = threading.Thread(target=_end_in_order, name="end Ray", daemon=True)
    ending.start()
    ending.join(STOP_SECONDS)
    for child in children:
        with suppress(psutil.NoSuchProcess):
            child.kill()
    ending.join(1.0)
    remove_token()


def remove_token() -> None:
    """Remove the token file of :func:`up`."""
    path = Path(os.environ.pop("RAY_AUTH_TOKEN_PATH", "none"))
    if path.parent.name.startswith(TOKEN_FOLDER):
        shutil.rmtree(path.parent, ignore_errors=True)


def handed_settings() -> Settings:
    """In a process of Ray: the settings of the service that started it. If no service did: the settings of the file
    and the environment."""
    return Settings(**json.loads(os.environ.get(SETTINGS, "{}")))


def _end_in_order() -> None:
    """End the applications, so that requests under way are answered, then Ray."""
    with suppress(RayError, RayServeException, TimeoutError):
        for name in serve.status().applications:
            serve.delete(name)
    ray.shutdown()


def _set_environment(settings: Settings, quiet: bool) -> None:
    """What the processes of Ray inherit. A runtime environment would cost them a process each that is started and
    thrown away."""
    for name, value in WORKER_ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    os.environ.update(RAY_ENVIRONMENT)
    os.environ["RAY_SERVE_LOG_TO_STDERR"] = "0" if quiet else "1"
    os.environ[SETTINGS] = json.dumps(settings.model_dump(), default=str)
    ray_constants.ENABLE_RAY_CLUSTER = False  # Ray read the variable when this process imported it
    token = Path(tempfile.mkdtemp(prefix=TOKEN_FOLDER)) / "token"  # the directory is its owner's alone
    token.touch(mode=0o600)
    token.write_text(secrets.token_hex(32), encoding="ascii")
    os.environ.pop("RAY_AUTH_TOKEN", None)  # it would win over the file
    os.environ["RAY_AUTH_TOKEN_PATH"] = str(token)
    Config.initialize("")  # likewise
    AuthenticationTokenLoader.instance().reset_cache()  # this process may have had another Ray before


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
