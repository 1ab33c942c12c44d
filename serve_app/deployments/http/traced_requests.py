"""Spans of requests with snapshots, in the gate and in the ingress.

If the request has a ``traceparent``, the gate's span is a child of the client's. The gate replaces that header with its
own, so that the ingress's span is a child of the gate's.
"""

import re

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from model.names import MESH_NAME
from serve_app.observability import spans
from serve_app.observability.logs import set_log_context

MESH_ROUTE = re.compile(rf"/v1/meshes/(?P<mesh>{MESH_NAME})/(?P<what>snapshots|baseline|otlp/v1/metrics)")
_HEADER = spans.HEADER.encode()


def trace_requests(app: ASGIApp, place: str) -> ASGIApp:
    """Middleware. Requests without snapshots pass unchanged.

    Args:
        place: first word in the spans' names: gate or ingress.
    """

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        match = MESH_ROUTE.fullmatch(scope["path"]) if scope["type"] == "http" and scope["method"] == "POST" else None
        if match is None:
            await app(scope, receive, send)
            return
        with set_log_context(match["mesh"]):
            if not spans.is_recording():
                await app(scope, receive, send)
                return
            route = f"/v1/meshes/{{mesh}}/{match['what']}"
            parent = next((value.decode("latin-1") for name, value in scope["headers"] if name == _HEADER), "")
            http: dict[str, spans.Value] = {"http.request.method": "POST", "http.route": route}
            with spans.span(f"{place} POST {route}", parent, "server", mesh=match["mesh"], **http) as span:

                async def send_noted(message: Message) -> None:
                    if message["type"] == "http.response.start":
                        span.set(**{"http.response.status_code": message["status"]})
                        if message["status"] >= 500:
                            span.fail("")
                    await send(message)

                other_headers = [(name, value) for name, value in scope["headers"] if name != _HEADER]
                headers = [*other_headers, (_HEADER, spans.traceparent().encode())]
                await app({**scope, "headers": headers}, receive, send_noted)

    return answer
