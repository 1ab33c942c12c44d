"""Runs Ray and Serve on this machine only, without logs and open ports, for ``tagae serve``, ``serve run``, the demo
and tests.

Ray opens about 15 ports on one machine. Two measures protect them, either of which would suffice:

* Every Ray process binds to loopback. Ray does this by default on Windows and macOS, and on Linux where
  ``RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER`` is 0. This process may have imported Ray before that was set, so it also passes
  the address. (``ray.init(_node_ip_address="127.0.0.1")`` does not help: Ray replaces loopback with the host's
  address.)
* Every Ray port requires a token (``RAY_AUTH_MODE=token``). The token is generated for each run and stored in a file
  that only its owner can read, so that other users on this machine cannot run code here either.
"""

import errno
import gc
import logging
import os
import socket
import threading
import time
import traceback
import warnings
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import httpx
import psutil
import ray
from ray import serve
from ray._private import parameter
from ray._private.node import Node
from ray.exceptions import RayError
from ray.serve.config import HTTPOptions
from ray.serve.context import _get_global_client
from ray.serve.exceptions import RayServeException
from ray.serve.schema import ApplicationStatus, DeploymentStatus, LoggingConfig

from serve_app.errors import BadSettings, NoCapacity
from serve_app.runtime import fork_server
from serve_app.runtime.environment import (
    START_SECONDS,
    cluster_address,
    leave_other_clusters,
    remove_token,
    set_environment,
)
from serve_app.runtime.supervisor import kill_all_below
from serve_app.settings import Settings
from serve_app.settings.serve import KEEP_ALIVE_SECONDS

log = logging.getLogger(__name__)
QUIET = LoggingConfig(enable_access_log=False, log_level="WARNING")
# CPUs that replicas can reserve in total. A replica without its reservation never starts; they share the real CPUs
# anyway.
MIN_CPUS = 16
LOOPBACK = "127.0.0.1"
NAMESPACE = "serve"  # namespace of Serve's own actors
OBJECT_STORE_BYTES = 256 * 2**20
START_ATTEMPTS = 5
FIRST_STARTS = 2  # attempts for a deployment whose replicas have never run; a start that fails twice fails again
FAILED_START = "A replica failed to start"  # begins Serve's message
TIMED_OUT = "timed out during startup"  # in Ray's error
KILL_SECONDS = 5.0  # limit for killed processes to end
POLL_SECONDS = 0.1
STOP_SECONDS = 6.0  # limit for the applications to end in order
DOWN_SECONDS = 30.0  # limit for the whole orderly end; then processes are killed


def connect(settings: Settings) -> bool:
    """Connect to the cluster that ``RAY_ADDRESS`` names, or start Ray and Serve here as :func:`start` does.

    ``serve run`` calls the builder before it starts anything, so the builder decides how Ray is started. If a cluster
    already runs, its owner has configured its ports; the log says so if it requires no token.

    Returns:
        Whether it started Ray, which then uses only this machine.
    """
    if ray.is_initialized():
        return False
    if address := cluster_address():
        ray.init(namespace=NAMESPACE, runtime_env={"env_vars": fork_server.WORKER_ENVIRONMENT})
        if os.environ.get("RAY_AUTH_MODE") != "token":
            log.warning(
                "Ray at %s: anyone who can reach its ports can run code there; set RAY_AUTH_MODE=token on all of its "
                "nodes, and let only the cluster reach its ports",
                address,
            )
        return False
    start(settings, quiet=False)
    return True


def start(settings: Settings, *, quiet: bool = True, report: Callable[[str], None] = lambda _: None) -> str:
    """Start Ray and Serve, whatever cluster the environment names.

    Args:
        settings: ``serve`` is used. Port 0 means a free port, for the service and for the metrics.
        quiet: log only errors of Ray and Serve.
        report: called with a description of each step when it begins.

    Returns:
        The URL of the service.

    Raises:
        BadSettings: a port is in use. Ray would start anyway, without metrics, and share the requests with another
            TAGAE on this machine.
        NoCapacity: this machine is too busy to start Ray.
    """
    front = settings.serve
    if front.port and not _is_free(front.host, front.port):
        raise BadSettings(f"serve.port: expected a free port, {front.port} is in use; choose another, or 0 for any")
    if front.metrics_port and not _is_free(LOOPBACK, front.metrics_port):
        raise BadSettings(
            f"serve.metrics_port: expected a free port, {front.metrics_port} is in use; choose another, or 0 for any"
        )
    leave_other_clusters()
    set_environment(settings, quiet)
    fork_server.start()
    report("starting Ray")
    _start_ray(
        namespace=NAMESPACE,
        num_cpus=max(MIN_CPUS, os.cpu_count() or MIN_CPUS),
        object_store_memory=OBJECT_STORE_BYTES,
        include_dashboard=False,
        _metrics_export_port=front.metrics_port or None,
        log_to_driver=not quiet,
        logging_level="error" if quiet else "info",
    )
    if quiet:
        logging.getLogger("ray.serve").setLevel(logging.WARNING)
    report("starting the HTTP server")
    port = front.port or _free_port(front.host)
    options = HTTPOptions(
        host=front.host,
        port=port,
        keep_alive_timeout_s=KEEP_ALIVE_SECONDS,
        ssl_certfile=front.certificate_file and str(front.certificate_file),
        ssl_keyfile=front.key_file and str(front.key_file),
    )
    with suppress(TimeoutError):  # as in run_applications
        serve.start(http_options=options, logging_config=QUIET if quiet else None)
    return f"{'https' if front.certificate_file else 'http'}://{front.host}:{port}"


def run_applications(targets: Sequence[serve.RunTarget]) -> None:
    """Run applications until their replicas are ready. Serve would wait forever for replicas that cannot start.

    Raises:
        RuntimeError: a deployment's replicas failed to start :data:`FIRST_STARTS` times.
    """
    with suppress(TimeoutError):  # after a minute without an HTTP server; wait_until_answered waits longer
        serve.run_many(list(targets), wait_for_ingress_deployment_creation=False, wait_for_applications_running=False)
    failures: defaultdict[str, set[str]] = defaultdict(set)  # messages by deployment; each names a different process
    while True:
        applications = serve.status().applications
        states = [applications[target.name] for target in targets if target.name in applications]
        if [state.status for state in states] == [ApplicationStatus.RUNNING] * len(targets):
            return
        for state in states:
            for name, deployment in state.deployments.items():
                if deployment.message.startswith(FAILED_START):
                    failures[name].add(deployment.message)
                if len(failures[name]) >= FIRST_STARTS or deployment.status == DeploymentStatus.DEPLOY_FAILED:
                    raise RuntimeError(f"{name}: {deployment.message}")
        time.sleep(POLL_SECONDS)


def wait_until_answered(url: str) -> None:
    """Ask the service at this URL until it answers. Serve waits for replicas, but not until the listening process knows
    them, and an earlier request would get the page of a starting service.

    Raises:
        NoCapacity: it did not answer within :data:`START_SECONDS`.
    """
    deadline = time.monotonic() + START_SECONDS
    # Without a proxy from the environment; the certificate may be for another name than this address.
    with httpx.Client(trust_env=False, verify=False, timeout=START_SECONDS) as http:
        while time.monotonic() < deadline:
            with suppress(httpx.TransportError):
                if http.get(f"{url}/healthz").status_code == httpx.codes.OK:
                    return
            time.sleep(POLL_SECONDS)
    raise NoCapacity(f"{url}/healthz: expected 200 within {START_SECONDS} s, got none; see the logs of Ray")


def serve_host() -> str | None:
    """The address that Serve listens on in the connected cluster; None if it does not run."""
    running = _get_global_client(raise_if_no_controller_running=False)
    return running.http_config.host if running else None


def stop() -> bool:
    """End the applications, then all Ray processes, within about :data:`DOWN_SECONDS`.

    If Ray no longer answers, its processes are killed, except some that are suspended until this process ends, see
    :func:`serve_app.runtime.supervisor.kill_all_below`.

    Returns:
        Whether they ended in order. If not, end this process: no Ray call would return.
    """
    if not ray.is_initialized():
        fork_server.stop()
        remove_token()
        return True
    children = psutil.Process().children(recursive=True)
    ending = threading.Thread(target=_end_in_order, name="end Ray", daemon=True)
    ending.start()
    ending.join(DOWN_SECONDS)
    is_orderly = not ending.is_alive()
    remove_token()
    fork_server.stop()
    if is_orderly:
        _kill(children)  # and wait, because they must not write to folders that the caller removes
    else:
        kill_all_below()
    return is_orderly


def _end_in_order() -> None:
    """End the applications, so that current requests are answered, then Ray. If they take too long, Ray ends without
    them. It must not be killed while this process is connected to it.
    """
    deadline = time.monotonic() + STOP_SECONDS
    with suppress(RayError, RayServeException, TimeoutError):
        for name in serve.status().applications:
            serve.delete(name, _blocking=False)
        while serve.status().applications and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
    ray.shutdown()


def _start_ray(**options: Any) -> None:
    """Call ``ray.init``; retry if it exceeds one of Ray's fixed time limits.

    The raylet ends if its agents need more than 15 s to start (https://github.com/ray-project/ray/issues/65983). On a
    busy machine, the next attempt is faster, because their files are in memory by then.

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
            if fork_server.worker_program():  # it has imported Ray in this attempt's environment
                fork_server.stop()
                fork_server.start()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ResourceWarning)  # Ray waited for none of them
                traceback.clear_frames(error.__traceback__)
                gc.collect()
        else:
            return
    raise NoCapacity(
        f"Ray did not start in {START_ATTEMPTS} attempts, because this machine is too busy; stop other work and try "
        "again"
    )


@contextmanager
def _few_processes(*, prints_logs: bool) -> Iterator[None]:
    """Start no Ray processes that a service on one machine does not use: the autoscaler's monitor, the dashboard's
    server, and the log reader if this process does not print logs. They take 160 MiB and two seconds of CPU time. Also
    fork workers, and bind all ports to loopback. ``ray.init`` has no arguments for this."""
    default_parameters, start_api_server = parameter.RayParams, Node.start_api_server

    def few_parameters(**arguments: Any) -> parameter.RayParams:
        ours = {"no_monitor": True, "include_log_monitor": prints_logs, "worker_path": fork_server.worker_program()}
        return default_parameters(**{**arguments, **ours, "node_ip_address": LOOPBACK})

    parameter.RayParams = few_parameters
    Node.start_api_server = lambda *_, **__: None
    try:
        yield
    finally:
        parameter.RayParams, Node.start_api_server = default_parameters, start_api_server


def _kill(processes: Collection[psutil.Process]) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(processes, KILL_SECONDS)


def _is_free(host: str, port: int) -> bool:
    """Whether no process listens there. An ended process's connections do not count."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise BadSettings(
                    f"serve.host: expected an address of this machine, got {host!r} ({error.strerror}); correct it"
                ) from None
            return False
    return True


def _free_port(host: str) -> int:
    with socket.socket() as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])
