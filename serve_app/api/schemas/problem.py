"""The document for an error, RFC 9457, and the conversion of errors to documents."""

from typing import Literal

from pydantic import Field

from serve_app.api.schemas.base import Document
from serve_app.errors import UNEXPECTED, answer


class FieldError(Document):
    """One mistake in a document."""

    pointer: str = Field(description="JSON pointer, RFC 6901", examples=["/calls/17/destination"])
    detail: str


class Problem(Document):
    """The body of every error, RFC 9457 (`application/problem+json`)."""

    type: str = Field(examples=["urn:tagae:problem:invalid-document"])
    title: str
    status: int = Field(ge=400, le=599)
    detail: str = Field(description="what was expected and received, where, and what to do")
    pointer: str | None = Field(None, description="JSON pointer to the first mistake")
    errors: list[FieldError] = Field(default_factory=list, description="all mistakes, if there are several")
    retry_after_seconds: float | None = Field(None, ge=0)
    stored: Literal["no", "unknown"] | None = Field(
        None, description="for a 504: `no`: nothing was changed; `unknown`: send the request again, which is safe"
    )


def problem(error: BaseException) -> Problem:
    """The body of an error.

    An error that came through Ray (a ``RayTaskError`` that is also an instance of its cause's class) gives the same
    body as its cause. The text of an unexpected error appears only in the log, since it may hold secrets.
    """
    row, details = answer(error), getattr(error, "details", {})
    detail = getattr(error, "message", str(error))
    if row is UNEXPECTED:
        detail, details = "see the log of the service", {}
    return Problem(
        type=f"urn:tagae:problem:{row.code}",
        title=row.title,
        status=row.status,
        detail=detail,
        pointer=details.get("pointer"),
        errors=[FieldError(**mistake) for mistake in details.get("errors", ())],
        retry_after_seconds=details.get("retry_after_seconds"),
        stored=details.get("stored"),
    )
