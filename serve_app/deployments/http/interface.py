"""The HTTP interface without its routes: rules for every request, and the OpenAPI document."""

import time
from collections.abc import AsyncIterator, Mapping
from contextlib import ExitStack, asynccontextmanager
from importlib.metadata import version
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Path, Request, Response
from fastapi.routing import APIRoute
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from model.names import MESH_NAME
from serve_app.api.codec import ARROW, JSON
from serve_app.api.schemas.base import Document
from serve_app.api.schemas.problem import Problem
from serve_app.deployments.http import problems
from serve_app.deployments.http.access_control import control_access
from serve_app.deployments.http.audit import audit_requests, is_change, record_change
from serve_app.deployments.http.traced_requests import trace_requests
from serve_app.errors import (
    AuditGone,
    BadHost,
    CrossOrigin,
    Forbidden,
    HeadersTooLarge,
    InvalidParameter,
    SlowRequest,
    TooManyFailedLogins,
    Unauthenticated,
    UnsupportedMediaType,
    WrongHost,
)
from serve_app.exporter import PrometheusInstruments
from serve_app.runtime import replica

VERSION = version("tagae")
# Content types that another site's page can make a browser post without a preflight request;
# https://fetch.spec.whatwg.org, "CORS-safelisted request-header".
SIMPLE_TYPES = ("", "application/x-www-form-urlencoded", "multipart/form-data", "text/plain")
MeshName = Annotated[
    str,
    Path(
        description="1 to 63 of `a-z`, `0-9`, `.`, `_` and `-`, first and last a letter or a digit",
        examples=["prod-eu"],
        json_schema_extra={"pattern": f"^{MESH_NAME}$"},  # documented here, checked by check_mesh_name
    ),
]
_BODIES: dict[type[Document], None] = {}  # body documents, in order


def _refer_to(document: type[Document]) -> dict[str, str]:
    """A reference to a body's schema, which is added to the OpenAPI document."""
    _BODIES[document] = None
    return {"$ref": f"#/components/schemas/{document.__name__}"}


def describe_body(document: type[Document]) -> dict[str, Any]:
    """``openapi_extra`` for a route that reads snapshots in JSON or Arrow."""
    forms = {
        JSON: {"schema": _refer_to(document)},
        ARROW: {
            "schema": {"type": "string", "format": "binary", "description": "`Table.from_pylist([snapshot, ...])`"}
        },
    }
    return {"requestBody": {"required": True, "content": forms}}


def describe_json_body(*documents: type[Document], is_required: bool = True) -> dict[str, Any]:
    """``openapi_extra`` for a route that reads one of these documents as JSON, or nothing if none is required."""
    schemas = [_refer_to(document) for document in documents]
    schema = {"anyOf": schemas} if len(schemas) > 1 else schemas[0]
    return {"requestBody": {"required": is_required, "content": {JSON: {"schema": schema}}}}


def describe_text(*media_types: str) -> dict[int | str, dict[str, Any]]:
    """``responses`` for a route that answers with text in one of these types."""
    return {200: {"content": {media_type: {"schema": {"type": "string"}} for media_type in media_types}}}


class Http(FastAPI):
    """The HTTP interface. Adds to OpenAPI what FastAPI does not know: bodies that the codec decodes, and errors as
    problem documents instead of FastAPI's own."""

    def openapi(self) -> dict[str, Any]:
        if self.openapi_schema:
            return self.openapi_schema
        schema = super().openapi()
        documents = schema["components"]["schemas"]
        bodies: list[type[Document]] = [*_BODIES, Problem]
        for document in bodies:
            definition = document.model_json_schema(ref_template="#/components/schemas/{model}")
            documents |= definition.pop("$defs", {}) | {document.__name__: definition}
        for path, operations in schema["paths"].items():
            for method, operation in operations.items():
                errors = (AuditGone,) if is_change(method.upper(), path) else ()
                operation["responses"] = _with_refusals(operation["responses"], *errors)
                for parameter in operation.get("parameters", ()):
                    # FastAPI's marker for "no example" is a different object in a replica, and would be shown as one.
                    parameter.pop("example", None)
        return schema


def _with_refusals(responses: dict[str, Any], *more: type[Exception]) -> dict[str, Any]:
    """An operation's responses, including responses of the gate and access control, and ``more`` errors."""
    errors = (BadHost, Unauthenticated, Forbidden, CrossOrigin, WrongHost, TooManyFailedLogins, SlowRequest)
    merged_responses = dict(responses)
    for code, refusal in problems.describe_errors(*errors, HeadersTooLarge, *more).items():
        response = responses.get(str(code))
        descriptions = f"{response['description']}; {refusal['description']}" if response else refusal["description"]
        merged_responses[str(code)] = {**(response or refusal), "description": descriptions}
    return dict(sorted(merged_responses.items()))


def add_server_timing(app: ASGIApp) -> ASGIApp:
    """Middleware: adds ``Server-Timing`` to every answer, unless the route has already added it with more stages."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        start = time.perf_counter()

        async def send_timed(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.setdefault("server-timing", server_timing({"total": time.perf_counter() - start}))
            await send(message)

        await app(scope, receive, send_timed)

    return answer


def count_requests(app: ASGIApp) -> ASGIApp:
    """Middleware: counts each request until its answer begins, so that verdict streams do not count."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        with ExitStack() as work:
            if scope["type"] == "http":
                work.enter_context(replica.ingress().load.work())

            async def send_on(message: Message) -> None:
                if message["type"] == "http.response.start":
                    work.close()
                await send(message)

            await app(scope, receive, send_on)

    return answer


def json_response(document: bytes | Document, headers: Mapping[str, str] | None = None) -> Response:
    """A JSON response; bytes are already encoded."""
    if isinstance(document, Document):
        document = document.model_dump_json().encode()
    return Response(document, headers=headers, media_type=JSON)


def server_timing(seconds: Mapping[str, float]) -> str:
    """A ``Server-Timing`` header's value: stages in ms."""
    return ", ".join(f"{stage};dur={1000 * duration:.2f}" for stage, duration in seconds.items())


async def refuse_unknown_parameters(request: Request) -> None:
    """Refuse unknown query parameters: ignoring a misspelt one would give a wrong answer. Probes and scrapes may send
    any.

    Raises:
        InvalidParameter: the route has no such parameter, or it is given more than once.
    """
    route: APIRoute = request.scope["route"]
    if not route.path.startswith("/v1/"):
        return
    parameters = [field.alias for field in route.dependant.query_params]
    for name in request.query_params:
        if name not in parameters:
            raise InvalidParameter(
                f"query: {name[:80]!r} is not a parameter of this route; expected {', '.join(parameters) or 'none'}; "
                "correct the name or leave it out"
            )
        if len(request.query_params.getlist(name)) > 1:
            raise InvalidParameter(f"query: expected {name!r} once, got it several times; keep one")


async def refuse_foreign_pages(request: Request) -> None:
    """Refuse requests that other sites' pages could make a browser post. For all other requests, a browser sends a
    preflight request first, which is refused (``OPTIONS`` is 405).

    Raises:
        UnsupportedMediaType: any page can send this content type.
    """
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if request.method == "POST" and "origin" in request.headers and media_type in SIMPLE_TYPES:
        raise UnsupportedMediaType(
            f"content-type: expected application/json or a binary format from a page, got {media_type or 'none'!r}; "
            "set the content type of the body"
        )


@asynccontextmanager
async def _lifespan(http: FastAPI) -> AsyncIterator[None]:
    """Create the instruments in the replica: they cannot be sent to another process."""
    single = replica.is_single()
    http.state.instruments = replica.open_instruments() if single else PrometheusInstruments(replica=replica.name())
    yield


def interface(openapi: str | None = "/openapi.json") -> Http:
    """An interface without routes. Its deployment has ``access``, ``sign_ins`` and ``backend``; the last two may be
    None.

    Args:
        openapi: path of the OpenAPI document; None: there is none.
    """
    http = Http(
        title="TAGAE",
        summary="Anomaly detection for service meshes",
        version=VERSION,
        lifespan=_lifespan,
        openapi_url=openapi,
        docs_url=None,  # its scripts come from other servers
        redoc_url=None,
        redirect_slashes=False,  # a redirect would be followed with another method, or without the body
        dependencies=[Depends(refuse_foreign_pages), Depends(refuse_unknown_parameters), Depends(record_change)],
        generate_unique_id_function=lambda route: route.name,
    )
    http.add_middleware(audit_requests)
    http.add_middleware(control_access)
    http.add_middleware(add_server_timing)
    http.add_middleware(trace_requests, place="ingress")
    problems.install(http)
    return http
