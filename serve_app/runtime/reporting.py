"""What a process of the service does before its part of the work, and what it reports: its log, and traces.

One of Ray's sends its log to Serve's, and ends if Ray has given it up (:mod:`serve_app.runtime.worker_setup`). A
replica opens a port for calls from other replicas, on all interfaces even if Ray is on loopback. The port asks for
Ray's token, but a port that cannot be reached is safer. So it is bound to loopback if Ray is.
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
    """Prepare this process, set the form of its log, and start its traces. Each replica calls this first. Calls after
    the first do nothing, since a gate and an ingress can share a process. A process without Ray has its own.

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
    """Prepare this process if it is one of Ray's. Calls after the first do nothing."""
    # RAY_JOB_ID would not do: what a job of Ray starts inherits it. A process of Ray has imported Ray by now.
    ray = sys.modules.get("ray")
    if ray is None or ray.get_runtime_context().worker.mode != ray.WORKER_MODE:
        return
    from serve_app.runtime import worker_setup  # other processes need no Ray

    logs.install()
    worker_setup.set_up()
    if os.environ.get(LOOPBACK_SWITCH) == "0":
        _bind_port_to_loopback()


def _bind_port_to_loopback() -> None:
    """Have the replica of this process open its port on loopback alone, which Serve has no setting for."""
    from ray.serve._private import replica

    add_port = replica.add_port_to_grpc_server

    def add_loopback_port(server: object, address: str) -> int:
        port: int = add_port(server, address.replace("[::]", "127.0.0.1"))
        return port

    replica.add_port_to_grpc_server = add_loopback_port
