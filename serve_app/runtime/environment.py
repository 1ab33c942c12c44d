"""The environment that Ray's processes on this machine inherit: Ray's options, and our settings.

With Ray's own runtime environments, each of them would start and discard one more process.

Ray itself reads many variables ``RAY_*``. Most tune it (time limits, logs, ``RAY_TMPDIR``, TLS, throughput) and stay in
force. Others change the start: they name a cluster to connect to, or a cluster sets them for its own processes, for
example if this process is a job of ``ray job submit``. They are removed, and the log says so.
"""

import json
import logging
import os
import secrets
import shutil
import tempfile
from pathlib import Path

from serve_app.runtime.fork_server import WORKER_ENVIRONMENT
from serve_app.settings import Settings

log = logging.getLogger(__name__)
GRPC_BYTES = 2**30  # above every body limit; Ray's 4 MiB are too few for a mesh of 10,000 services
GRPC_SWITCH = "RAY_SERVE_USE_GRPC_BY_DEFAULT"
LOOPBACK_SWITCH = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
# Failed starts in a row after which Serve gives a deployment up until it is deployed again. Serve counts while its
# controller has seen no replica run, and so also after a controller was replaced. The number means never: the cause,
# such as a lost node or a lack of memory, may pass.
MAX_FAILED_STARTS = 1_000_000
START_SECONDS = 300  # limit for each step of the start; it only ends steps that hang
SETTINGS = "TAGAE_SERVICE_SETTINGS"  # JSON: settings passed to Ray's processes
# Ray's own processes read these when they start.
RAY_ENVIRONMENT = {
    LOOPBACK_SWITCH: "0",
    "RAY_AUTH_MODE": "token",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_niceness": "0",  # with Ray's 15, every other process on the machine has precedence
    # Each limits one step of the start, which takes minutes on a busy machine. Ray gives a proxy 5 s.
    "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": str(START_SECONDS),
    "RAY_gcs_server_port_wait_time_s": str(START_SECONDS),
    "RAY_worker_register_timeout_seconds": str(START_SECONDS),
    # Unanswered checks, 10 s each, after which Ray gives its node up. On one machine, the process that started Ray
    # notices if the raylet ends, and an overloaded machine must not lose it.
    "RAY_health_check_failure_threshold": "100",
    "RAY_SERVE_PROXY_HEALTH_CHECK_PERIOD_S": "1",  # three failures replace a proxy; with Ray's 10 s that took 24 s
    # By default ten times a second in each process, which is a sixth of an idle service's CPU time.
    "RAY_SERVE_METRICS_EXPORT_INTERVAL_MS": "1000",
    "RAY_SERVE_CONTROL_LOOP_INTERVAL_S": "0.2",
    "RAY_SERVE_MAX_PER_REPLICA_RETRY_COUNT": str(MAX_FAILED_STARTS),
    # gRPC instead of actor calls between proxy and replicas: a small push takes a fifth less CPU time.
    GRPC_SWITCH: "1",
    "RAY_SERVE_REPLICA_GRPC_MAX_MESSAGE_LENGTH": str(GRPC_BYTES),
    "RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH": "serve_app.deployments.gate.middlewares",
    # uvicorn would trust X-Forwarded-* from any process on this machine; serve.trusted_proxies has the trusted ones.
    "FORWARDED_ALLOW_IPS": "none",
    "__RAY_WORKER_PROCESS_SETUP_HOOK_ENV_VAR": "serve_app.runtime.worker_setup.set_up",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # Ray's future behaviour, without its warning
}
TOKEN_FOLDER = "tagae-ray-"  # followed by random letters
ADDRESS = "RAY_ADDRESS"
NO_ADDRESS = {"", "local"}  # values of RAY_ADDRESS that mean a new Ray
UNSET = ("", "0")  # Ray itself sets a variable to 0 when Python imports it
FOREIGN_VARIABLES = (
    "RAY_NAMESPACE",
    "RAY_RUNTIME_ENV",
    "RAY_RUNTIME_ENV_HOOK",
    "RAY_JOB_CONFIG_JSON_ENV_VAR",
    "RAY_OVERRIDE_JOB_RUNTIME_ENV",
    # The location of the head's state, which a start would read.
    "RAY_REDIS_ADDRESS",
    "RAY_REDIS_PASSWORD",
    "RAY_external_storage_namespace",
    "RAY_gcs_storage",
    "RAY_gcs_storage_path",
    "RAY_GCS_SERVER_PORT",
    # About the node that this process runs on.
    "RAY_OVERRIDE_RESOURCES",
    "RAY_OVERRIDE_LABELS",
    "RAY_OVERRIDE_NODE_ID_FOR_TESTING",
    # Other ways in: a HAProxy that bypasses our limits and logins, another cluster's client, no processes at all.
    "RAY_SERVE_ENABLE_HA_PROXY",
    "RAY_CLIENT_MODE",
    "RAY_SERVE_FORCE_LOCAL_TESTING_MODE",
)
# Ray sets these for its own processes: they mean nothing to people, and here they come from a surrounding Ray.
_PROCESS_VARIABLES = ("RAY_JOB_ID", "RAY_RAYLET_PID")


def cluster_address() -> str | None:
    """The cluster that ``RAY_ADDRESS`` names, if any."""
    address = os.environ.get(ADDRESS, "").strip()
    return None if address in NO_ADDRESS else address


def leave_other_clusters() -> None:
    """Remove and log the variables that are meant for another cluster."""
    address = cluster_address()
    if address:
        log.warning(
            "%s=%s is ignored: the service starts its own Ray here; to run on that cluster, use "
            "`serve run serve_app.app:build`",
            ADDRESS,
            address,
        )
    variables = sorted(name for name in FOREIGN_VARIABLES if os.environ.get(name, "") not in UNSET)
    if variables:
        log.warning("ignored, because the service starts its own Ray here: %s", ", ".join(variables))
    for name in (ADDRESS, *FOREIGN_VARIABLES, *_PROCESS_VARIABLES):
        os.environ.pop(name, None)


def set_environment(settings: Settings, quiet: bool) -> None:
    """Set the environment that Ray's processes inherit, with a new token. They read it when they start.

    Args:
        quiet: leave Serve's log out of stderr.
    """
    for name, value in WORKER_ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    os.environ.update(RAY_ENVIRONMENT)
    os.environ["RAY_SERVE_LOG_TO_STDERR"] = "0" if quiet else "1"
    os.environ[SETTINGS] = json.dumps(settings.model_dump(), default=str)
    # Make Ray read its environment and its token again; under `serve run`, Python has imported it before.
    from ray._raylet import AuthenticationTokenLoader, Config  # type: ignore[attr-defined]  # missing in its stub

    token = Path(tempfile.mkdtemp(prefix=TOKEN_FOLDER)) / "token"  # only the owner can read the directory
    token.touch(mode=0o600)
    token.write_text(secrets.token_hex(32), encoding="ascii")
    os.environ.pop("RAY_AUTH_TOKEN", None)  # it would take precedence over the file
    os.environ["RAY_AUTH_TOKEN_PATH"] = str(token)
    Config.initialize("")  # so would a value that was read before
    AuthenticationTokenLoader.instance().reset_cache()  # this process may have had another Ray before


def remove_token() -> None:
    path = Path(os.environ.pop("RAY_AUTH_TOKEN_PATH", "none"))
    if path.parent.name.startswith(TOKEN_FOLDER):
        shutil.rmtree(path.parent, ignore_errors=True)


def calls_by_grpc() -> bool:
    return os.environ.get(GRPC_SWITCH) == "1"


def handed_settings() -> Settings:
    """In one of Ray's processes: the settings of the service that started it. If none did: the settings in the file and
    the environment."""
    return Settings(**json.loads(os.environ.get(SETTINGS, "{}")))
