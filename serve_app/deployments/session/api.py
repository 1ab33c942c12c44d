"""A session's API: objects whose methods other processes call, each about one subject.

A new query or change is a method of such an object: nothing in between names it. The methods describe answers and
errors.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, cast

from serve_app.runtime.rpc import Handle, RemoteApi

if TYPE_CHECKING:  # the ingress needs no torch
    from serve_app.alerts.receiver_trials import ReceiverAdmin
    from serve_app.deployments.session.mesh_session import MeshSession
    from serve_app.deployments.session.reader import Reader, Reports
    from serve_app.mesh_steps import MeshSteps
    from serve_app.models.admin import ModelAdmin
    from serve_app.stores.audit import AuditLog
    from serve_app.stores.documents import Connections, EndedIds
    from serve_app.web.incidents import IncidentViews
    from serve_app.web.past import PastQueries
    from serve_app.web.queries import PageQueries

OF_THE_PAGE = ("pages", "past", "incidents", "reports")


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionApi:
    """The API of one session.

    Attributes:
        pages, past, incidents, reports: views for the page.
        connections: the meshes that people connected on the page.
        models: the registry, and which mesh uses which model.
        receivers: whether notifications arrive; test alerts.
        sign_ins: ids of sign-ins that cannot be used again.
        page_thread: runs the views. Pages wait for each other, and never take a thread that a push needs.
    """

    meshes: Reader
    pages: PageQueries
    past: PastQueries
    incidents: IncidentViews
    reports: Reports
    changes: MeshSteps
    connections: Connections
    models: ModelAdmin
    audit: AuditLog
    receivers: ReceiverAdmin
    sign_ins: EndedIds
    page_thread: Executor

    async def call(self, subject: str, method: str, *args: Any, **kwargs: Any) -> Any:
        """Call a subject's method, and return its result. A method that is no coroutine runs in a thread."""
        function = getattr(getattr(self, subject), method)
        if iscoroutinefunction(function):
            return await function(*args, **kwargs)
        if subject in OF_THE_PAGE:
            return await asyncio.get_running_loop().run_in_executor(
                self.page_thread, partial(function, *args, **kwargs)
            )
        return await asyncio.to_thread(function, *args, **kwargs)


def api_of(session: Handle[MeshSession]) -> SessionApi:
    """The API of a session in another process, typed as if it were here. Pass its methods to ``Caller.ask``."""
    return cast("SessionApi", RemoteApi(session.call))
