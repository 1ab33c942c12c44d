"""Prepares a process of the service, and starts its log and traces.

A Ray process sends its log to Serve's log, and ends if Ray has given it up (:mod:`serve_app.runtime.worker_setup`). A
replica opens a port for calls from other replicas, on all interfaces even if Ray is on loopback. The port requires
Ray's token, but an unreachable port is safer. So it is bound to loopback if Ray is.
"""

import os
import sys
from functools import cache

from serve_app.observability.traces import start_traces
from serve_app.runtime import logs
from serve_app.runtime.environment import LOOPBACK_SWITCH
from serve_app.runtime.replica import is_single, open_instruments
from serve_app.settings import Settings


def start_reporting(settings: Settings, component: str) -> None:
    """Prepare this process, set its log format, and start its traces. Each replica calls this first. Calls after the
    first do nothing, since a gate and an ingress can share a process. A process without Ray has its own log.

    Raises:
        BadSettings: traces cannot be exported here.
    """
    if is_single():
        return
    prepare()
    if settings.logs.format == "json":
        logs.write_json(component)
    start_traces(settings.traces, component, open_instruments)


@cache
def prepare() -> None:
    """Prepare this process if it belongs to Ray. Calls after the first do nothing."""
    # RAY_JOB_ID is not enough: any process that a Ray job starts inherits it. Ray's own processes have imported Ray by
    # now.
    ray = sys.modules.get("ray")
    if ray is None or ray.get_runtime_context().worker.mode != ray.WORKER_MODE:
        return
    from serve_app.runtime import worker_setup  # other processes do not need Ray

    logs.install()
    worker_setup.set_up()
    if os.environ.get(LOOPBACK_SWITCH) == "0":
        _bind_port_to_loopback()


def _bind_port_to_loopback() -> None:
    """Make this process's replica open its port only on loopback. Serve has no setting for this."""
    from ray.serve._private import replica

    add_port = replica.add_port_to_grpc_server

    def add_loopback_port(server: object, address: str) -> int:
        port: int = add_port(server, address.replace("[::]", "127.0.0.1"))
        return port

    replica.add_port_to_grpc_server = add_loopback_port
