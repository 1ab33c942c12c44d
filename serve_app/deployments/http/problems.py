"""Every HTTP error as RFC 9457 ``application/problem+json``, in answers and in OpenAPI."""

import math
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.routing import Match

from model.errors import ModelError
from serve_app.api.schemas.problem import Problem, problem
from serve_app.errors import ANSWERS, InvalidParameter, ServeError, answer
from serve_app.metrics import FAILED_LOGINS, REFUSALS, Instruments

MEDIA_TYPE = "application/problem+json"
CHALLENGE = 'Bearer realm="tagae"'
METHODS = ("DELETE", "GET", "PATCH", "POST", "PUT")


def install(http: FastAPI) -> None:
    """Answer every error of ``http`` with a problem document."""
    for kind in (ServeError, ModelError, Exception):
        http.add_exception_handler(kind, lambda request, error: refuse(request.app.state.instruments, error))
    http.add_exception_handler(HTTPException, _refuse_route)
    http.add_exception_handler(RequestValidationError, _refuse_parameter)


def describe_errors(*errors: type[Exception]) -> dict[int | str, dict[str, Any]]:
    """The ``responses`` for a route that may answer with these errors."""
    rows: dict[int | str, dict[str, Any]] = {}
    for row in (ANSWERS[error] for error in errors):
        before = rows.get(row.status, {}).get("description")
        schema = {"$ref": "#/components/schemas/Problem"}
        rows[row.status] = {
            "description": f"{before}; {row.code}" if before else row.code,
            "content": {MEDIA_TYPE: {"schema": schema}},
        }
    return rows


def refuse(instruments: Instruments, error: Exception) -> Response:
    """Count an error and return its answer; a failed login has a ``reason`` in its details."""
    instruments.count(REFUSALS, code=answer(error).code)
    if reason := getattr(error, "details", {}).get("reason"):
        instruments.count(FAILED_LOGINS, reason=reason)
    return _response(problem(error))


def _refuse_route(request: Request, error: Exception) -> Response:
    """Answer a request to an unknown route, or with a method that the route does not have."""
    assert isinstance(error, HTTPException)  # registered for this error
    status = HTTPStatus(error.status_code)
    code = status.phrase.lower().replace(" ", "-")
    request.app.state.instruments.count(REFUSALS, code=code)
    detail = f"{request.method[:20]} {request.url.path[:200]}: {error.detail}; /openapi.json lists the routes"
    document = Problem(type=f"urn:tagae:problem:{code}", title=status.phrase, status=status, detail=detail)
    headers = dict(error.headers or {})
    if status == HTTPStatus.METHOD_NOT_ALLOWED:  # Starlette names only the methods of the path's first route
        headers["Allow"] = ", ".join(_allowed_methods(request))
    return _response(document, headers)


def _allowed_methods(request: Request) -> list[str]:
    def is_allowed(method: str) -> bool:
        scope = {**request.scope, "method": method}
        return any(route.matches(scope)[0] is Match.FULL for route in request.app.routes)

    return list(filter(is_allowed, METHODS))


def _refuse_parameter(request: Request, error: Exception) -> Response:
    """Answer a request with a query parameter of the wrong type."""
    assert isinstance(error, RequestValidationError)  # registered for this error
    first = error.errors()[0]
    place, complaint = " ".join(map(str, first["loc"])), first["msg"].removeprefix("Value error, ")
    refusal = InvalidParameter(f"{place}: {complaint}, got {str(first['input'])[:80]!r}; correct it")
    return refuse(request.app.state.instruments, refusal)


def _response(document: Problem, headers: dict[str, str] | None = None) -> Response:
    headers = headers or {}
    if document.retry_after_seconds is not None:
        headers["retry-after"] = str(math.ceil(document.retry_after_seconds))
    if document.status == HTTPStatus.UNAUTHORIZED:
        headers["www-authenticate"] = CHALLENGE
    body = document.model_dump_json(exclude_none=True)
    return Response(body, document.status, headers, MEDIA_TYPE)
