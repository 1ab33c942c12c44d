"""Converts errors to RFC 9457 problem documents."""

from typing import Any

from serve_app.api.schemas.problem import FieldError, Problem
from serve_app.errors import UNEXPECTED, Answer, answer


def problem(error: BaseException) -> Problem:
    """The RFC 9457 body of an error.

    An error that came through Ray (a ``RayTaskError`` that is also an instance of its cause's class) gives the same
    body as its cause. The text of an unexpected error appears only in the log, since it may hold secrets.
    """
    row = answer(error)
    if row is UNEXPECTED:
        return Problem(type=_type(row), title=row.title, status=row.status, detail="see the log of the service")
    message: str = getattr(error, "message", str(error))
    details: dict[str, Any] = getattr(error, "details", {})
    return Problem(
        type=_type(row),
        title=row.title,
        status=row.status,
        detail=message,
        pointer=details.get("pointer"),
        errors=[FieldError(**e) for e in details.get("errors", ())],
        retry_after_seconds=details.get("retry_after_seconds"),
        stored=details.get("stored"),
    )


def _type(row: Answer) -> str:
    return f"urn:tagae:problem:{row.code}"
