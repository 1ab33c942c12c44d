"""The Ray Serve deployments.

Replicas and proxies import this package before anything else of ours. In these processes only:

* Their log goes to Serve's log.
* A process that Ray has given up ends (:mod:`serve_app.deployments.orphans`).
* Each replica opens a port for calls from other replicas, on all interfaces even if Ray is on loopback. The port asks
  for Ray's token, but a port that cannot be reached is safer. So it is bound to loopback if Ray is.
"""

import os
import sys

from serve_app.deployments import logs

# RAY_JOB_ID would not do: what a job of Ray starts inherits it. A process of Ray has imported Ray by now.
_ray_worker = sys.modules.get("ray._private.worker")
IS_RAY_PROCESS = _ray_worker is not None and _ray_worker.global_worker.mode == _ray_worker.WORKER_MODE

if IS_RAY_PROCESS:
    from serve_app.deployments import orphans  # other processes need no Ray

    logs.install()
    orphans.start_watch()

if IS_RAY_PROCESS and os.environ.get("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER") == "0":
    from ray.serve._private import replica

    _add_port = replica.add_port_to_grpc_server

    def _add_loopback_port(server: object, address: str) -> int:
        port: int = _add_port(server, address.replace("[::]", "127.0.0.1"))
        return port

    replica.add_port_to_grpc_server = _add_loopback_port
