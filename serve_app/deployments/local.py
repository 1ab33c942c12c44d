"""Ray and Serve on this machine alone, quiet: for ``tagae serve``, the demo, benchmarks and tests."""

import errno
import logging
import os
import socket
from pathlib import Path

import ray
from ray import serve
from ray.serve.config import HTTPOptions
from ray.serve.schema import LoggingConfig

from serve_app.errors import BadSettings

QUIET = LoggingConfig(enable_access_log=False, log_level="WARNING")
LEAST_CPUS = 2  # that the application claims; fewer real ones share the time
OBJECT_STORE_BYTES = 256 * 2**20
# Read by Ray's own processes as they start. Tokens are for clusters; this one listens on loopback and dies with us.
RAY_ENVIRONMENT = {
    "RAY_AUTH_MODE": "disabled",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_SERVE_LOG_TO_STDERR": "0",
    "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": "60",  # on a busy machine a proxy needs more than the 5 s it is given
    # uvicorn would believe X-Forwarded-* of any process of this machine; serve.trusted_proxies says who is believed.
    "FORWARDED_ALLOW_IPS": "none",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # the behaviour to come, without the warning about it
}
# glibc gives large blocks back to the kernel after each op and pays for them again at the next (PERFORMANCE.md).
WORKER_ENVIRONMENT = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(4 * 2**30),
    "MALLOC_TOP_PAD_": str(256 * 2**20),
}


def connect() -> None:
    """Be connected to a cluster: ``serve run`` calls the builder before it connects, and the builder looks at it.

    The cluster is that of ``RAY_ADDRESS``, else the one that runs here, else a new one on this machine.
    """
    if not ray.is_initialized():
        ray.init(namespace="serve", runtime_env={"env_vars": WORKER_ENVIRONMENT})


def up(
    host: str, port: int, metrics_port: int = 0, certificate_file: Path | None = None, key_file: Path | None = None
) -> str:
    """Start Ray and Serve.

    Args:
        host: address to listen on.
        port: 0 takes a free one.
        metrics_port: of the page for Prometheus, likewise.
        certificate_file: PEM; with ``key_file`` the front speaks TLS.
        key_file: PEM, of the certificate.

    Returns:
        The URL of the front.

    Raises:
        BadSettings: a port is taken. Ray would start all the same, without metrics, and share the front's requests with
            another TAGAE of this machine.
    """
    if port and not _is_free(host, port):
        raise BadSettings(f"serve.port: expected a free port, {port} is taken; take another, or 0 for any")
    if metrics_port and not _is_free("", metrics_port):
        raise BadSettings(
            f"serve.metrics_port: expected a free port, {metrics_port} is taken; take another, or 0 for any"
        )
    # Our workers inherit it: a runtime environment would cost them a process each that is started and thrown away.
    for name, value in (RAY_ENVIRONMENT | WORKER_ENVIRONMENT).items():
        os.environ.setdefault(name, value)
    ray.init(
        num_cpus=max(LEAST_CPUS, os.cpu_count() or LEAST_CPUS),
        object_store_memory=OBJECT_STORE_BYTES,
        include_dashboard=False,
        _metrics_export_port=metrics_port or None,
        log_to_driver=False,
        logging_level="error",
    )
    logging.getLogger("ray.serve").setLevel(logging.WARNING)
    port = port or _free_port(host)
    tls = {"ssl_certfile": certificate_file and str(certificate_file), "ssl_keyfile": key_file and str(key_file)}
    serve.start(http_options=HTTPOptions(host=host, port=port, **tls), logging_config=QUIET)
    return f"{'https' if certificate_file else 'http'}://{host}:{port}"


def down() -> None:
    """End the applications, then Ray with all its processes."""
    if ray.is_initialized():
        for name in serve.status().applications:
            serve.delete(name)
        ray.shutdown()


def _is_free(host: str, port: int) -> bool:
    """Whether nobody listens there; connections of somebody who has ended do not count."""
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
