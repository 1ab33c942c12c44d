"""The Ray Serve deployments.

Each replica of Serve opens a port for calls from other replicas, on all interfaces even where Ray is on loopback. It
asks for Ray's token, but a port that cannot be reached is safer. Replicas import this package before they open it.
"""

import os

if os.environ.get("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER") == "0" and "RAY_JOB_ID" in os.environ:
    from ray.serve._private import replica

    _add_port = replica.add_port_to_grpc_server

    def _add_loopback_port(server: object, address: str) -> int:
        port: int = _add_port(server, address.replace("[::]", "127.0.0.1"))
        return port

    replica.add_port_to_grpc_server = _add_loopback_port
