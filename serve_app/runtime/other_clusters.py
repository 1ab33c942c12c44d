"""The environment of a Ray that this process starts: without what is meant for another cluster.

Ray reads many variables ``RAY_*``. Most tune it (limits of time, logs, ``RAY_TMPDIR``, TLS, throughput) and stay in
force. Others change what a start does: they name a cluster to connect to, or are what a cluster gives its own
processes, for example where this process is a job of ``ray job submit``. They are removed, and the log says so.

Ray reads some of them when Python imports it, so this module does not import it.
"""

import logging
import os

log = logging.getLogger(__name__)
ADDRESS = "RAY_ADDRESS"
NO_ADDRESS = {"", "local"}  # values of RAY_ADDRESS that mean a Ray of one's own
UNSET = ("", "0")  # Ray sets a variable to 0 itself as Python imports it
OF_OTHER_CLUSTERS = (
    "RAY_NAMESPACE",
    "RAY_RUNTIME_ENV",
    "RAY_RUNTIME_ENV_HOOK",
    "RAY_JOB_CONFIG_JSON_ENV_VAR",
    "RAY_OVERRIDE_JOB_RUNTIME_ENV",
    # Where the head keeps its state, which a start would read.
    "RAY_REDIS_ADDRESS",
    "RAY_REDIS_PASSWORD",
    "RAY_external_storage_namespace",
    "RAY_gcs_storage",
    "RAY_gcs_storage_path",
    "RAY_GCS_SERVER_PORT",
    # Of the node that this process runs on.
    "RAY_OVERRIDE_RESOURCES",
    "RAY_OVERRIDE_LABELS",
    "RAY_OVERRIDE_NODE_ID_FOR_TESTING",
    # Other ways in: a HAProxy that bypasses our limits and logins, another cluster's client, no processes at all.
    "RAY_SERVE_ENABLE_HA_PROXY",
    "RAY_CLIENT_MODE",
    "RAY_SERVE_FORCE_LOCAL_TESTING_MODE",
)
# Ray sets these for its own processes: they mean nothing to people, and here they are of the Ray around this process.
_OF_PROCESSES = ("RAY_JOB_ID", "RAY_RAYLET_PID")


def cluster_address() -> str | None:
    """The cluster that ``RAY_ADDRESS`` names; None: none."""
    address = os.environ.get(ADDRESS, "").strip()
    return None if address in NO_ADDRESS else address


def leave_other_clusters() -> None:
    """Remove the variables that are meant for another cluster, and log which."""
    address = cluster_address()
    if address:
        log.warning(
            "%s=%s is ignored: the service starts a Ray of its own here; to run on that cluster, use "
            "`serve run serve_app.app:build`",
            ADDRESS,
            address,
        )
    found = sorted(name for name in OF_OTHER_CLUSTERS if os.environ.get(name, "") not in UNSET)
    if found:
        log.warning("ignored, because the service starts a Ray of its own here: %s", ", ".join(found))
    for name in (ADDRESS, *OF_OTHER_CLUSTERS, *_OF_PROCESSES):
        os.environ.pop(name, None)
