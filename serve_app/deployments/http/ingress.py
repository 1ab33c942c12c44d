"""Ingress: HTTP in, HTTP out. It is stateless: it decodes a body once and passes packed arrays to the sessions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from serve_app.access import Access
from serve_app.deployments.http.backend import Backend
from serve_app.deployments.http.handed_bodies import take_handed_bodies
from serve_app.deployments.http.health import Health
from serve_app.deployments.http.interface import Http, count_requests, interface
from serve_app.deployments.http.routes import ROUTERS
from serve_app.deployments.http.sign_ins import open_sign_ins
from serve_app.deployments.http.streams import VerdictStreams
from serve_app.deployments.load import RequestLoad
from serve_app.runtime.reporting import start_reporting
from serve_app.runtime.rpc import Handle, connect
from serve_app.settings import Settings
from serve_app.settings.access import serve_rules

if TYPE_CHECKING:  # the ingress needs no torch
    from serve_app.deployments.collector import Collector
    from serve_app.deployments.notifier import Notifier
    from serve_app.deployments.session.mesh_session import MeshSession


http = interface()
http.add_middleware(count_requests)
http.add_middleware(take_handed_bodies)
for router in ROUTERS:
    http.include_router(router)


def routes() -> Http:
    """The routes; Serve calls this in each replica."""
    return http


class Ingress:
    """The state that the routes of one replica share. The routes are in ``serve_app.deployments.http.routes``.

    Args:
        notifier: not called. Serve runs only bound deployments.

    Raises:
        BadSettings: the tokens file or the client secret cannot be used.
    """

    def __init__(
        self,
        settings: Settings,
        sessions: Handle[MeshSession],
        collector: Handle[Collector],
        notifier: Handle[Notifier] | None = None,
    ) -> None:
        start_reporting(settings, "ingress")
        self.access = Access(serve_rules(settings))
        self.backend = Backend(settings, connect(sessions), connect(collector))
        self.sign_ins = open_sign_ins(self.access, self.backend)
        self.health = Health(self.backend)
        self.streams = VerdictStreams(self.backend)
        self.load = RequestLoad()

    async def record_autoscaling_stats(self) -> dict[str, float]:
        """The average number of running requests. Serve calls this periodically if it scales the ingress."""
        return self.load.report()
