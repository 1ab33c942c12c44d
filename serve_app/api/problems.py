"""Every error of the package as an RFC 9457 problem document."""

from typing import Any

from serve_app.api.schemas.problem import FieldError, Problem
from serve_app.errors import UNEXPECTED, Answer, answer


def problem(error: BaseException) -> Problem:
    """The RFC 9457 body of an error.

    An error that came back through Ray (a ``RayTaskError`` that also is its cause's class) reads like its cause. The
    text of an unexpected error stays in the log: it may hold what a caller should not see.
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
