"""The stages that a request passes through in the listening process before Serve sees it.

:mod:`connections` limits connections. :mod:`gate` checks access and reads the body. :mod:`admission` decides whether
there is capacity, and :mod:`waiting_room` lets snapshots wait a moment for it.
"""

from serve_app.deployments.gate.gate import Gate, middlewares

__all__ = ["Gate", "middlewares"]  # manifests name middlewares by this path
