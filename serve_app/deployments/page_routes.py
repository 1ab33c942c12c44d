"""Routes of the page: its files, and what it reads beside what everybody reads."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Annotated, Any

import msgspec
from fastapi import Header, Query, Request, Response
from fastapi.responses import StreamingResponse
from starlette.exceptions import HTTPException
from starlette.types import Receive, Scope, Send

from serve_app.access import COOKIE, COOKIE_SECONDS, Access
from serve_app.api.schemas.base import AskedService, Id, Instant, Text
from serve_app.deployments import problems
from serve_app.deployments.access_control import access_of, principal_of
from serve_app.deployments.bodies import read_json
from serve_app.deployments.http import MeshName, http
from serve_app.deployments.rpc import RECEIVED, RETRY_AFTER_SECONDS, ask, received_at
from serve_app.deployments.single_flight import SingleFlight
from serve_app.errors import (
    BadMeshName,
    DeadlineExceeded,
    InvalidDocument,
    InvalidParameter,
    NoCapacity,
    Overloaded,
    ServeError,
    StoreGone,
    UnknownIncident,
    UnknownInstant,
    UnknownMesh,
)
from serve_app.settings import Settings
from serve_app.settings.access import serve_rules
from serve_app.settings.base import check_mesh_name
from serve_app.web.assets import FOR_GOOD, HEADERS, File, files, page
from serve_app.web.documents import ComparisonDocument, MapDocument, SeriesDocument, TimelineDocument

EVENTS = "text/event-stream"
WAIT_SECONDS = 5.0  # for a verdict; then a comment says that the stream lives; no service ends sooner than its waits
# Streams send at the same moments, so that a burst of verdicts is one message and all streams read alike. The moments
# are farther apart where there are many streams: 64 of them then cost what 16 cost.
TICK_SECONDS = 0.25
STREAMS_A_TICK = 16
UNBUFFERED = {"x-accel-buffering": "no"}  # nginx and its like pass each event on at once
STREAM_SECONDS = 600.0  # then it ends and the page connects anew: to another replica, if this one is to go
RECONNECT = b"retry: 2000\n\n"  # ms
MOST_AT_ONCE = 200  # verdicts, to who comes back after a while
MOST_LOGIN_BYTES = 1024
NO_STORE = {"cache-control": "no-store"}
MOST_EXPANDED = 50  # namespaces
REPORT_POLICY = {"content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"}
ALWAYS = (BadMeshName, InvalidParameter, UnknownMesh, Overloaded, NoCapacity, StoreGone, DeadlineExceeded)
At = Annotated[Instant | None, Query(description="of a kept snapshot; by default the newest")]


def _text(media_type: str) -> dict[int | str, dict[str, Any]]:
    """For OpenAPI: what a route answers."""
    return {200: {"content": {media_type: {"schema": {"type": "string"}}}}}


class _Stream(StreamingResponse):
    """Events that hold a slot until nobody reads them any more, also where nobody ever began to."""

    def __init__(self, events: AsyncIterator[bytes], slot: ExitStack) -> None:
        super().__init__(events, media_type=EVENTS, headers=HEADERS | UNBUFFERED)
        self._slot = slot

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._slot:
            await super().__call__(scope, receive, send)


class PageRoutes:
    """What the page asks of the ingress.

    Args:
        settings: its ``serve``.
        sessions: handle of the sessions.

    Raises:
        BadSettings: the tokens file cannot be used.
    """

    def __init__(self, settings: Settings, sessions: Any) -> None:
        self.access = Access(serve_rules(settings))
        self._deadline_seconds = settings.serve.deadline_seconds
        self._most_streams = settings.serve.max_streams
        self._streams = 0
        self._shared_news: SingleFlight[_News] = SingleFlight()
        self._sessions = sessions

    @http.get("/", include_in_schema=False)
    async def page(self, request: Request) -> Response:
        """The page."""
        return sent(page(), request, HEADERS)

    @http.get("/login", include_in_schema=False)
    async def who(self, request: Request) -> Response:
        """Who is signed in, for the page: whether a login is needed, the name, the scopes, and whether by cookie."""
        found = access_of(request).identify(request.scope["headers"], request.scope.get("client"))
        document = {
            "needed": access_of(request).has_login,
            "name": found.name if found else None,
            "scopes": sorted(found.scopes) if found else [],
            "cookie": bool(found and found.way == "cookie"),
        }
        return Response(msgspec.json.encode(document), media_type="application/json", headers=NO_STORE)

    @http.post("/login", include_in_schema=False)
    async def sign_in(self, request: Request) -> Response:
        """Put a token into a cookie: `{"token": "..."}`.

        The cookie holds the token itself. So every replica can check it without shared state, and removing the token
        from the file ends all of its sessions at once. It has no Path: the service may be below a path of a proxy that
        it does not know, and without Path a browser takes the folder of this address, which is the right one.
        """
        told = await read_json(request, MOST_LOGIN_BYTES)
        token = told.get("token") if isinstance(told, dict) else None
        if not isinstance(token, str):
            raise InvalidDocument('token: expected {"token": "..."} with the token as text', pointer="/token")
        headers, client = request.scope["headers"], request.scope.get("client")
        access_of(request).sign_in(token.strip(), headers, client, "POST '/login'")
        secure = access_of(request).is_secure(request.scope.get("scheme", "http"), headers, client)
        return _with_cookie(token.strip(), COOKIE_SECONDS, secure)

    @http.post("/logout", include_in_schema=False)
    async def sign_out(self, request: Request) -> Response:
        """Forget the cookie."""
        secure = access_of(request).is_secure(
            request.scope.get("scheme", "http"), request.scope["headers"], request.scope.get("client")
        )
        return _with_cookie("", 0, secure)

    @http.get("/static/{digest}/{name:path}", include_in_schema=False)
    async def file(self, digest: str, name: str, request: Request) -> Response:
        """A file of the page."""
        known, found = files()
        if digest != known or name not in found:
            raise HTTPException(404, "no such file; reload the page")
        return sent(found[name], request, FOR_GOOD)

    @http.get(
        "/v1/meshes/{mesh}/verdicts/stream",
        response_class=StreamingResponse,
        responses={**_text(EVENTS), **problems.documented(*ALWAYS)},
    )
    async def stream(
        self,
        mesh: MeshName,
        request: Request,
        since: Annotated[Instant | None, Query(description="begin with the verdict after this one")] = None,
        last_event_id: Annotated[str | None, Header(description="likewise, as browsers say it")] = None,
    ) -> Response:
        """Verdicts as they are made: server-sent events named `verdict`, whose data is a verdict and whose id its time.
        Begins with the newest, or with what came after the last one seen."""
        if self._streams >= self._most_streams:
            raise Overloaded(
                f"ingress: {self._streams} streams are open, which is all it takes; come back later, or raise "
                "serve.max_streams",
                retry_after_seconds=RETRY_AFTER_SECONDS,
            )
        seen = _instant(last_event_id) or since
        with ExitStack() as slot:
            self._streams += 1
            slot.callback(self._over)
            owner = self._owner(mesh)
            first = await self._newer(owner, mesh, seen, 0.0)  # who asks for an unknown mesh is told so
            is_valid = partial(access_of(request).is_valid, principal_of(request))
            return _Stream(self._events(owner, mesh, seen, first, is_valid), slot.pop_all())

    @http.get("/v1/meshes/{mesh}/timeline", response_model=TimelineDocument, responses=problems.documented(*ALWAYS))
    async def timeline(
        self,
        mesh: MeshName,
        since: Annotated[Instant | None, Query(description="only verdicts of later snapshots")] = None,
        limit: Annotated[int, Query(ge=1, le=10_000, description="at most so many, the oldest")] = 1000,
    ) -> Response:
        """The kept verdicts as columns, with the incidents and planned changes of that time."""
        return _json(await ask(self._owner(mesh).timeline, mesh, since, limit, expires_at=self._expires_at()))

    @http.get(
        "/v1/meshes/{mesh}/map", response_model=MapDocument, responses=problems.documented(*ALWAYS, UnknownInstant)
    )
    async def map(
        self,
        request: Request,
        mesh: MeshName,
        at: At = None,
        expand: Annotated[
            Text, Query(max_length=4000, description="namespaces of a large mesh to tell service by service, by commas")
        ] = "",
    ) -> Response:
        """The mesh as it is drawn, with the place of each service: it stays where it is. Of a mesh above 5,000 services
        namespaces are one node each, but those with an incident, and those to expand."""
        names = [name for name in expand.split(",") if name][:MOST_EXPANDED]
        found = await ask(self._owner(mesh).map, mesh, at, names, expires_at=self._expires_at())
        return sent(File(found, "application/json"), request, {})

    @http.get("/v1/meshes/{mesh}/series", response_model=SeriesDocument, responses=problems.documented(*ALWAYS))
    async def series(
        self,
        mesh: MeshName,
        service: Annotated[AskedService, Query()],
        source: Annotated[AskedService | None, Query(description="of the calls that this service makes to it")] = None,
    ) -> Response:
        """What was measured of a service, or of the calls to it from one caller, over the kept time."""
        return _json(await ask(self._owner(mesh).series, mesh, service, source, expires_at=self._expires_at()))

    @http.get("/v1/meshes/{mesh}/comparison", response_model=ComparisonDocument, responses=problems.documented(*ALWAYS))
    async def comparison(
        self,
        mesh: MeshName,
        first_from: Annotated[Instant, Query()],
        first_to: Annotated[Instant, Query()],
        second_from: Annotated[Instant, Query()],
        second_to: Annotated[Instant, Query()],
    ) -> Response:
        """What differs between two periods of the kept time, the strongest differences first."""
        periods = (first_from, first_to), (second_from, second_to)
        return _json(await ask(self._owner(mesh).comparison, mesh, *periods, expires_at=self._expires_at()))

    @http.get(
        "/v1/meshes/{mesh}/report",
        response_class=Response,
        responses={**_text("text/html"), **problems.documented(*ALWAYS, UnknownIncident)},
    )
    async def report(
        self, mesh: MeshName, incident: Annotated[Id | None, Query(description="id; by default the worst")] = None
    ) -> Response:
        """One HTML file of an incident of the kept time, to be read, sent and printed."""
        html: str = await ask(self._owner(mesh).report, mesh, incident, expires_at=self._expires_at())
        return Response(html, media_type="text/html", headers=HEADERS | REPORT_POLICY)

    async def _events(
        self, owner: Any, mesh: str, seen: datetime | None, found: "_News", is_valid: Callable[[], bool]
    ) -> AsyncIterator[bytes]:
        """Events until the stream ends by itself, or the reader's token does."""
        ends = time.monotonic() + STREAM_SECONDS
        try:
            yield RECONNECT
            while time.monotonic() < ends and is_valid():
                yield found.events or b": nothing new\n\n"
                seen = found.newest or seen
                tick = TICK_SECONDS * max(1.0, self._streams / STREAMS_A_TICK)
                await asyncio.sleep(tick - time.monotonic() % tick)
                # Streams that have seen the same, which is most of them, share one call.
                found = await self._shared_news.do((mesh, seen), partial(self._newer, owner, mesh, seen, WAIT_SECONDS))
        except ServeError:
            return  # the page comes back, and is told in words what is wrong

    def _over(self) -> None:
        self._streams -= 1

    async def _newer(self, owner: Any, mesh: str, seen: datetime | None, seconds: float) -> "_News":
        expires_at = self._expires_at() + seconds
        found: list[bytes] = await ask(owner.newer, mesh, seen, MOST_AT_ONCE, seconds, expires_at=expires_at)
        times = [msgspec.json.decode(document, type=_Dated).observed_at for document in found]
        events = (
            b"id: %b\nevent: verdict\ndata: %b\n\n" % (at.encode(), document)
            for at, document in zip(times, found, strict=True)
        )
        return _News(b"".join(events), datetime.fromisoformat(times[-1]) if times else None)

    def _owner(self, mesh: str) -> Any:
        """Handle that routes to the session which holds the mesh, if the name can be one."""
        return self._sessions.options(session_id=check_mesh_name(mesh))

    def _expires_at(self, request: Request | None = None) -> float:
        """Deadline of a request, Unix time: from when the gate had all of it."""
        now = time.time()
        return min(now, received_at(request.headers.get(RECEIVED), now) if request else now) + self._deadline_seconds


@dataclass(frozen=True, slots=True)
class _News:
    """Verdicts as server-sent events, and the time of the newest; None: there is none."""

    events: bytes
    newest: datetime | None


def _with_cookie(token: str, seconds: int, secure: bool) -> Response:
    response = Response(status_code=204, headers=NO_STORE)
    # Starlette's set_cookie would add a Path, see the route.
    attributes = f"{COOKIE}={token}; Max-Age={seconds}; HttpOnly; SameSite=Strict{'; Secure' if secure else ''}"
    response.headers["set-cookie"] = attributes
    return response


class _Dated(msgspec.Struct):
    """Of a verdict, its time."""

    observed_at: str


def sent(file: File, request: Request, headers: dict[str, str]) -> Response:
    """A compressed file, decompressed for who does not take it so."""
    headers = headers | {"vary": "accept-encoding"}
    if "gzip" in request.headers.get("accept-encoding", ""):
        return Response(file.zipped, headers=headers | {"content-encoding": "gzip"}, media_type=file.media_type)
    return Response(file.plain, headers=headers, media_type=file.media_type)


def _json(document: bytes) -> Response:
    return Response(document, media_type="application/json")


def _instant(text: str | None) -> datetime | None:
    """Of an event's id; what is none of ours is as if nobody had said it."""
    try:
        at = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    return at if at.tzinfo else None
