"""Errors of ``serve_app``, and the HTTP answer to each error of the project.

Catch ``ServeError`` for all of them. Ray pickles errors to send them between processes, so each has one text and
keyword details, and is rebuilt from both, as in ``model.errors``. Details with a fixed meaning: ``pointer`` (JSON
pointer, RFC 6901), ``errors`` (a list of ``{"pointer", "detail"}``), ``retry_after_seconds`` and ``stored``. Details
must be plain, picklable values.
"""

import re
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from model.errors import IncompatibleWeights, InvalidSnapshot, ModelError, OutOfOrder


class Answer(NamedTuple):
    """The HTTP answer to an error: status, stable code (the end of the problem's ``type``), title."""

    status: int
    code: str
    title: str


UNEXPECTED = Answer(500, "unexpected", "Unexpected error")
ANSWERS: dict[type[Exception], Answer] = {}


def answer(error: BaseException) -> Answer:
    """The answer to the nearest class in ``ANSWERS``; ``UNEXPECTED`` for any other error."""
    return next((ANSWERS[cls] for cls in type(error).__mro__ if cls in ANSWERS), UNEXPECTED)


def _answer_to(error: type[Exception], status: int, title: str) -> None:
    """Enter an error in ``ANSWERS``. Its code is its name, in small letters with hyphens."""
    ANSWERS[error] = Answer(status, re.sub(r"(?<!^)(?=[A-Z])", "-", error.__name__).lower(), title)


class ServeError(Exception):
    """The message says what was expected and received, where, and what to do. A subclass names its answer, or inherits
    it."""

    def __init__(self, message: str, **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.details = details

    def __init_subclass__(cls, *, status: int = 0, title: str = "") -> None:
        if status:
            _answer_to(cls, status, title)

    def __reduce__(self) -> tuple[Callable[..., "ServeError"], tuple[str]]:
        return partial(type(self), **self.details), (self.message,)


class InvalidDocument(ServeError, status=422, title="Invalid document"):
    """A document with invalid content; ``details["pointer"]`` says where."""


class MalformedDocument(InvalidDocument, status=400, title="Malformed request body"):
    """Bytes that are not the format they claim to be."""


class InvalidParameter(ServeError, status=422, title="Invalid query parameter"):
    """A query parameter that does not exist or has an impossible value."""


class UnsupportedMediaType(ServeError, status=415, title="Unsupported media type"):
    """A body with an unsupported content type or encoding."""


class AheadOfClock(ServeError, status=422, title="Snapshot ahead of the service's clock"):
    """A snapshot from the future, which would make all earlier ones stale."""


class DocumentTooLarge(ServeError, status=413, title="Document too large"):
    """A document beyond the limits of the settings."""


class BadMeshName(ServeError, status=400, title="Invalid mesh name"):
    """A mesh name outside the allowed alphabet."""


class UnknownMesh(ServeError, status=404, title="Mesh not found"):
    """Nothing is stored under this mesh name."""


class UnknownInstant(ServeError, status=404, title="Snapshot not found"):
    """No snapshot of this time is kept."""


class UnknownIncident(ServeError, status=404, title="Incident not found"):
    """No incident with this id is remembered, or there is no feedback on it."""


class UnknownMute(ServeError, status=404, title="Mute not found"):
    """No mute with this id exists."""


class UnknownModel(ServeError, status=404, title="Model not found"):
    """The registry has no model of this version."""


class UnknownReceiver(ServeError, status=404, title="Receiver not found"):
    """The settings have no receiver of this kind or at this address."""


class UnfitModel(ServeError, status=409, title="Model not usable"):
    """Meshes cannot change to this model now; the message says why. Nothing was changed."""


class TooMuchFeedback(ServeError, status=409, title="Feedback limit reached"):
    """The limit on incidents with feedback is reached."""


class TooManyActions(ServeError, status=409, title="Action limit reached"):
    """The limit on actions of people on an incident is reached."""


class TooManyMutes(ServeError, status=409, title="Mute limit reached"):
    """The limit on mutes is reached."""


class TooManyMeshes(ServeError, status=409, title="Mesh limit reached"):
    """The limit on stored meshes, ``limits.max_meshes``, is reached; nothing was changed."""


class StaleSnapshot(ServeError, status=409, title="Snapshot older than the newest one"):
    """A snapshot older than the newest one counted; the message names the newest."""


class BaselineTooLate(ServeError, status=409, title="Mesh already live"):
    """A baseline for a mesh that has verdicts; nothing was changed."""


class SameTimeOtherContent(ServeError, status=409, title="Another snapshot of this time was already scored"):
    """A snapshot for a time that was already scored with other content."""


class StoreConflict(ServeError, status=409, title="Mesh changed by another session"):
    """The stored mesh changed since it was loaded; load it again and repeat."""


class Overloaded(ServeError, status=429, title="Service overloaded"):
    """More work than the bounded queues take; ``details["retry_after_seconds"]`` says when to try again."""


class SlowRequest(ServeError, status=408, title="Request timeout"):
    """A request whose body did not arrive within the limits of the settings."""


class HeadersTooLarge(ServeError, status=431, title="Headers too large"):
    """A request whose line and headers are longer than the settings allow."""


class DeadlineExceeded(ServeError, status=504, title="Deadline exceeded"):
    """The request's deadline passed before the answer was ready.

    ``details["stored"]`` is ``no`` (nothing was changed) or ``unknown``: then repeat the request, which is safe.
    """


class NoCapacity(ServeError, status=503, title="No replica available"):
    """No replica is alive or ready to do the work."""


class CorruptState(ServeError, status=500, title="Stored state corrupt"):
    """Stored bytes that cannot be read back."""


class StoreFull(ServeError, status=507, title="State store full"):
    """There is no space to write; nothing was changed, and reads still work."""


class StoreGone(ServeError, status=503, title="State store unavailable"):
    """The store's files were deleted or replaced while the service had them open, or its Redis is unreachable or was
    emptied.

    Nothing can be read or stored. ``details["stored"]`` is ``unknown`` if the write may have been stored: repeat it.
    """


class RegistryGone(ServeError, status=503, title="Model registry unavailable"):
    """The registry of models does not answer, or does not permit access."""


class AuditGone(ServeError, status=503, title="Audit log unavailable"):
    """The audit log cannot record a change. The change was not made."""


class BadRecording(ServeError, status=422, title="Unreadable recording"):
    """A recording that cannot be read or written."""


class NoTelemetry(ServeError, status=502, title="Prometheus unavailable"):
    """A mesh's Prometheus does not answer, or has no data on the mesh."""


class BadVerdicts(ServeError, status=422, title="Verdicts cannot be evaluated"):
    """Verdicts that cannot be read, or that belong to another recording."""


class BadHost(ServeError, status=400, title="Host name not allowed"):
    """The header ``Host`` is missing, malformed or repeated."""


class WrongHost(ServeError, status=421, title="Host name of another service"):
    """The name in the header ``Host`` is not a name of this service."""


class Unauthenticated(ServeError, status=401, title="Authentication required"):
    """No token, or a wrong one; then ``details["reason"]`` is ``malformed``, ``unknown`` or ``expired``."""


class TooManyFailedLogins(ServeError, status=429, title="Too many wrong tokens from this address"):
    """A wrong token from an address that sent many; ``details["reason"]`` as in ``Unauthenticated``."""


class SignInRefused(ServeError, status=400, title="Sign-in refused"):
    """The answer of an identity provider does not belong to a sign-in of this browser, or refuses it."""


class ProviderFailed(ServeError, status=502, title="Identity provider failed"):
    """An identity provider does not answer, or violates OpenID Connect."""


class Forbidden(ServeError, status=403, title="Permission denied"):
    """Permission denied."""


class CrossOrigin(Forbidden, status=403, title="Cross-site request refused"):
    """A page of another site made a browser request a change."""


class BadSettings(ServeError, status=500, title="Invalid settings"):
    """A setting that does not exist or has an impossible value."""


_answer_to(ServeError, 500, "Service failed")
_answer_to(OutOfOrder, 409, "Snapshot older than the newest one")
_answer_to(InvalidSnapshot, 422, "Invalid snapshot")
_answer_to(IncompatibleWeights, 500, "Stored state or weights incompatible with this version")
_answer_to(ModelError, 500, "Model refused its input")
