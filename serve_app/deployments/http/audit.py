"""Records requests in the audit log: each change before it is made, and each sign-in."""

import logging
import re
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from fastapi import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from serve_app.access import Principal
from serve_app.access.routes import SAFE
from serve_app.api.schemas.audit import AuditRecordDocument
from serve_app.deployments.http.access_control import PRINCIPAL
from serve_app.deployments.http.backend import Backend
from serve_app.errors import AuditGone, ServeError, StoreFull, StoreGone
from serve_app.runtime import replica
from serve_app.runtime.rpc import RETRY_AFTER_SECONDS
from serve_app.stores.audit import line_of

NOTE = "audit_note"  # in a request's state
PUSHES = ("/v1/meshes/{mesh}/snapshots", "/v1/meshes/{mesh}/otlp/v1/metrics")  # data, not changes
NO_CHANGES = ("/v1/score", *PUSHES)
SIGN_IN, SIGN_OUT = "sign_in", "sign_out"
MAX_TEXT = 200  # characters of a name in a record: names are untrusted
MAX_NAMES = 20
REQUEST_ID = re.compile(r"[A-Za-z0-9._:/+=@-]{1,128}")
log = logging.getLogger("serve_app.audit")


@dataclass(slots=True)
class Note:
    """A request's record in the audit log, which grows with the request.

    Attributes:
        record: without the outcome.
        makes_room: whether the change is a deletion, whose record may follow it if the store is full.
    """

    backend: Backend
    record: AuditRecordDocument
    is_recorded: bool = False
    makes_room: bool = False

    def update(self, **fields: object) -> None:
        self.record = self.record.model_copy(update=fields)

    def add_names(self, *names: str | None) -> None:
        """Add names of changed things, such as incidents and services."""
        self.update(names=[*self.record.names, *(short(name) for name in names if name)][:MAX_NAMES])

    async def begin(self) -> None:
        """Record a change before it is made.

        Raises:
            AuditGone, StoreGone: it could not be recorded, so do not make it.
        """
        try:
            await self.backend.ask(self.backend.records.audit.append, self.record)
            self.is_recorded = True
        except StoreGone:
            raise  # the change needs the same store
        except ServeError as error:
            if isinstance(error, StoreFull) and self.makes_room:
                return  # its record follows when there is space
            raise AuditGone(
                f"audit log: expected to record this request first, got {error.message}; nothing was changed; try "
                "again, and check the store if this persists",
                retry_after_seconds=RETRY_AFTER_SECONDS,
            ) from None

    async def finish(self, status: int) -> None:
        """Add the outcome of a change. If that fails, it is logged, and the record has no outcome."""
        if not (self.is_recorded or self.makes_room):
            return
        self.update(status=status)
        log.info("%s", line_of(self.record))
        try:
            await self.backend.ask(self.backend.records.audit.finish, self.record)
        except ServeError as error:
            log.error("the outcome of record %s could not be stored: %s", self.record.id, error.message)


def short(text: str) -> str:
    """A name as recorded."""
    return text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 1] + "…"


def audit_requests(app: ASGIApp) -> ASGIApp:
    """Middleware after access control: records each request that may change something, and its outcome."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        is_noted = scope["type"] == "http" and scope["method"] not in SAFE
        if not is_noted or replica.ingress().backend is None:
            await app(scope, receive, send)
            return
        note = scope["state"][NOTE] = make_note(scope)
        is_open = True

        async def send_recorded(message: Message) -> None:
            nonlocal is_open
            if is_open and message["type"] == "http.response.start":
                is_open = False
                await note.finish(message["status"])
            await send(message)

        try:
            await app(scope, receive, send_recorded)
        except Exception:  # if the client left, the outcome stays unknown
            if is_open:
                await note.finish(500)
            raise

    return answer


def is_change(method: str, route: str) -> bool:
    """Whether a route makes changes that are recorded first."""
    return method not in SAFE and route.startswith("/v1/") and route not in NO_CHANGES


def make_note(scope: Scope) -> Note:
    """A request's record before its route is known."""
    state: dict[str, Any] = scope["state"]
    principal: Principal = state[PRINCIPAL]
    ingress = replica.ingress()
    request_id = next((value.decode("latin-1") for name, value in scope["headers"] if name == b"x-request-id"), "")
    now = datetime.now(UTC)
    return Note(
        ingress.backend,
        AuditRecordDocument(
            id=secrets.token_urlsafe(12),
            at=now.replace(microsecond=now.microsecond // 1000 * 1000),
            action="",
            route="",
            mesh="",
            names=[],
            address=ingress.access.locate(scope),
            request=request_id if REQUEST_ID.fullmatch(request_id) else secrets.token_hex(8),
            status=None,
            **_identity(principal),
        ),
    )


def _identity(principal: Principal) -> dict[str, Any]:
    subject = principal.user.subject if principal.user else ""
    return {"user": principal.name, "way": principal.way_in, "subject": subject}


async def record_change(request: Request) -> None:
    """Dependency of all routes: record a change before it is made. Pushes are data, and the sign-in and sign-out routes
    make their own records.

    Raises:
        AuditGone: it could not be recorded.
    """
    note: Note | None = getattr(request.state, NOTE, None)
    if note is None:
        return
    route, parameters = request.scope["route"], request.path_params
    mesh = str(parameters.get("mesh", ""))
    note.update(action=route.name, route=f"{request.method} {route.path}", mesh=short(mesh))
    note.add_names(*(str(value) for name, value in parameters.items() if name != "mesh"))
    if is_change(request.method, route.path):
        note.makes_room = request.method == "DELETE"
        await note.begin()


def note_of_sign_in(request: Request, principal: Principal, action: str = SIGN_IN) -> Note:
    """A sign-in's or sign-out's record. Access control does not know the user of such a request."""
    note = make_note(request.scope)
    route = f"{request.method} {request.scope['route'].path}"
    note.update(action=action, route=route, **_identity(principal))
    return note


def note_names(request: Request, *names: str | None) -> None:
    """Add the names of changed things to a request's record."""
    note: Note | None = getattr(request.state, NOTE, None)
    if note is not None:
        note.add_names(*names)
