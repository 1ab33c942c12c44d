"""Sends bodies together with their requests.

Serve sends a replica the ASGI scope of a request, and the replica calls the proxy back to get the body. For a push,
this round trip takes longer than the body itself. The gate has already read the body, so it puts it into the scope, and
the ingress takes it out. Serve's own ``receive`` then only reports when the client leaves.
"""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

EXTENSION = "tagae.body"  # scope extension set by the gate; it is not part of HTTP, so no client can send it
# Serve copies a request several times in the proxy's event loop, and keeps it until the answer ends. Copying a larger
# body takes as long as the round trip, and a few copies need much memory.
MAX_BYTES = 2**20


def hand_body(scope: Scope, body: bytes) -> Scope:
    """Return a copy of a scope with the body in it. Make one for each attempt: the application takes the body out."""
    return {**scope, "extensions": {**scope.get("extensions", {}), EXTENSION: body}}


def replay_body(body: bytes, receive: Receive) -> Receive:
    """Return a ``receive`` that returns the whole body once, then the results of ``receive``. It does not keep the
    body."""
    waiting = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive_again() -> Message:
        return waiting.pop() if waiting else await receive()

    return receive_again


def take_handed_bodies(app: ASGIApp) -> ASGIApp:
    """Middleware: gives the application the bodies that :func:`hand_body` put into scopes.

    Requests without such a body, for example because it is too large, pass unchanged.
    """

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        extensions = scope.get("extensions", {})
        if EXTENSION in extensions:  # taken out, so that the body is freed once it is decoded
            receive = replay_body(extensions.pop(EXTENSION), receive)
        await app(scope, receive, send)

    return answer
