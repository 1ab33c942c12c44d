"""Answers with the page's files."""

import re
from collections.abc import Mapping

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from serve_app.deployments.http.interface import add_server_timing
from serve_app.errors import ServeError, answer
from serve_app.web.assets import CACHE_PERMANENTLY, HEADERS, File, find_file, waiting_page

PAGE = "text/html"  # a browser's first choice when a person opens an address
REFUSED = re.compile(r"\s*q\s*=\s*0(\.0*)?\s*")  # the weight of a refused coding


def answer_page_files(app: ASGIApp) -> ASGIApp:
    """Middleware: answers requests for the page's files without calling a replica. Each page requests dozens. The
    application gets all other requests, including requests for files that do not exist."""

    async def respond(scope: Scope, receive: Receive, send: Send) -> None:
        responder = app
        if scope["type"] == "http" and scope["method"] == "GET" and (file := find_file(scope["path"])):
            # The file never changes, since its path has a digest.
            responder = add_server_timing(file_response(file, Headers(scope=scope), CACHE_PERMANENTLY))
        await responder(scope, receive, send)

    return respond


def is_page_request(scope: Scope) -> bool:
    """Whether a person opens an address in a browser: the page's scripts and other programs accept other types."""
    return bool(scope["method"] == "GET" and PAGE in Headers(scope=scope).get("accept", ""))


def waiting_response(error: ServeError, scope: Scope, *, is_starting: bool) -> Response:
    """A page that waits for the service and then opens the requested address, with the error's status."""
    root = "../" * (scope["path"].count("/") - 1)
    page = waiting_page(root, is_starting=is_starting)
    response = file_response(page, Headers(scope=scope), {**HEADERS, "cache-control": "no-store"})
    response.status_code = answer(error).status
    return response


def file_response(file: File, request: Mapping[str, str], headers: Mapping[str, str]) -> Response:
    """A file in the smallest form that the client accepts."""
    headers = {**headers, "vary": "accept-encoding"}
    codings = request.get("accept-encoding", "")
    for coding, content in (("br", file.brotli), ("gzip", file.gzip)):
        if content is not None and _accepts(codings, coding):
            return Response(content, headers={**headers, "content-encoding": coding}, media_type=file.media_type)
    return Response(file.plain, headers=headers, media_type=file.media_type)


def _accepts(header: str, coding: str) -> bool:
    """Whether ``Accept-Encoding`` names a coding, with a weight above 0 (RFC 9110, 12.5.3)."""
    entries = (entry.partition(";") for entry in header.lower().split(","))
    return any(name.strip() == coding and not REFUSED.fullmatch(weight) for name, _, weight in entries)
