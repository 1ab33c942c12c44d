"""Tells clients that the format of their body is deprecated, as RFC 9745 says."""

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from serve_app.api.codec import DEPRECATED_AT, is_deprecated

UNSUPPORTED = 415  # the route accepts no body of this format, so nothing is deprecated there


class DeprecatedFormats:
    """Middleware: adds ``Deprecation`` and ``Link`` to each response to a body in a deprecated format.

    Args:
        app: the application.
        openapi: path of the OpenAPI document, which describes the formats.
    """

    def __init__(self, app: ASGIApp, openapi: str) -> None:
        self._app, self._openapi = app, openapi

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not is_deprecated(_media_type(scope)):
            await self._app(scope, receive, send)
            return

        async def send_marked(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] != UNSUPPORTED:
                headers = MutableHeaders(scope=message)
                headers["deprecation"] = f"@{int(DEPRECATED_AT.timestamp())}"
                place = scope.get("root_path", "") + self._openapi
                headers.append("link", f'<{place}>; rel="deprecation"; type="application/json"')
            await send(message)

        await self._app(scope, receive, send_marked)


def _media_type(scope: Scope) -> str:
    return Headers(scope=scope).get("content-type", "").partition(";")[0].strip().lower()
