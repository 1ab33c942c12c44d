"""What a process of Ray does before it starts its part of the service. Other processes need none of it.

* Its log goes to Serve's log.
* It ends if Ray has given it up (:mod:`serve_app.runtime.orphans`).
* Each replica opens a port for calls from other replicas, on all interfaces even if Ray is on loopback. The port asks
  for Ray's token, but a port that cannot be reached is safer. So it is bound to loopback if Ray is.
"""

import os
import sys
from functools import cache

from serve_app.runtime import logs


@cache
def prepare() -> None:
    """Prepare this process if it is one of Ray's. Calls after the first do nothing."""
    # RAY_JOB_ID would not do: what a job of Ray starts inherits it. A process of Ray has imported Ray by now.
    ray = sys.modules.get("ray")
    if ray is None or ray.get_runtime_context().worker.mode != ray.WORKER_MODE:
        return
    from serve_app.runtime import orphans  # other processes need no Ray

    logs.install()
    orphans.start_watch()
    if os.environ.get("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER") == "0":
        _bind_port_to_loopback()


def _bind_port_to_loopback() -> None:
    """Have the replica of this process open its port on loopback alone, which Serve has no setting for."""
    from ray.serve._private import replica

    add_port = replica.add_port_to_grpc_server

    def add_loopback_port(server: object, address: str) -> int:
        port: int = add_port(server, address.replace("[::]", "127.0.0.1"))
        return port

    replica.add_port_to_grpc_server = add_loopback_port
