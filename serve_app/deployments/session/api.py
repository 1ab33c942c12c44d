"""A session's API: objects whose methods other processes call, each about one subject.

A new query or change is a method of such an object: nothing in between names it. The methods describe answers and
errors.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import Executor
from contextvars import copy_context
from dataclasses import dataclass, field, fields
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

# Where the methods of a subject run, unless they are coroutines.
PAGE_THREAD = {"thread": "page"}  # pages wait for each other, and never take a thread that a push needs
DEFAULT_EXECUTOR = {"thread": "any"}


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionApi:
    """The API of one session: its subjects, each with the threads that run its methods.

    Attributes:
        pages, past, incidents, reports: views for the page.
        connections: the meshes that people connected on the page.
        models: the registry, and which mesh uses which model.
        receivers: whether notifications arrive; test alerts.
        sign_ins: ids of sign-ins that cannot be used again.
    """

    meshes: Reader = field(metadata=DEFAULT_EXECUTOR)
    pages: PageQueries = field(metadata=PAGE_THREAD)
    past: PastQueries = field(metadata=PAGE_THREAD)
    incidents: IncidentViews = field(metadata=PAGE_THREAD)
    reports: Reports = field(metadata=PAGE_THREAD)
    changes: MeshSteps = field(metadata=DEFAULT_EXECUTOR)
    connections: Connections = field(metadata=DEFAULT_EXECUTOR)
    models: ModelAdmin = field(metadata=DEFAULT_EXECUTOR)
    audit: AuditLog = field(metadata=DEFAULT_EXECUTOR)
    receivers: ReceiverAdmin = field(metadata=DEFAULT_EXECUTOR)
    sign_ins: EndedIds = field(metadata=DEFAULT_EXECUTOR)
    page_thread: Executor

    async def call(self, subject: str, method: str, *args: Any, **kwargs: Any) -> Any:
        """Call a subject's method, and return its result.

        Raises:
            AttributeError: there is no such subject, or it has no such public method.
        """
        place = next((entry.metadata for entry in fields(self) if entry.name == subject), None)
        if not place or method.startswith("_"):
            raise AttributeError(f"API of a session: expected a subject and its public method, got {subject}.{method}")
        function = getattr(getattr(self, subject), method)
        if iscoroutinefunction(function):
            return await function(*args, **kwargs)
        executor = self.page_thread if place == PAGE_THREAD else None
        work = partial(copy_context().run, function, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(executor, work)


def api_of(session: Handle[MeshSession]) -> SessionApi:
    """The API of a session in another process, typed as if it were here. Pass its methods to ``Caller.ask``."""
    return cast("SessionApi", RemoteApi(session.call))
