"""Errors of ``serve_app``, and the HTTP answer to each error of the project.

Catch ``ServeError`` for all of them. Ray pickles errors to send them between processes, so each has one text and
keyword details, and is rebuilt from both, as in ``model.errors``. Details with a fixed meaning: ``pointer`` (JSON
pointer, RFC 6901), ``errors`` (a list of ``{"pointer", "detail"}``), ``retry_after_seconds`` and ``stored``. Details
must be plain, picklable values.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from model.errors import IncompatibleWeights, InvalidSnapshot, ModelError, OutOfOrder


class ServeError(Exception):
    """The message says what was expected and received, where, and what to do."""

    def __init__(self, message: str, **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.details = details

    def __reduce__(self) -> tuple[Callable[..., "ServeError"], tuple[str]]:
        return partial(type(self), **self.details), (self.message,)


class InvalidDocument(ServeError):
    """A document with invalid content; ``details["pointer"]`` says where."""


class MalformedDocument(InvalidDocument):
    """Bytes that are not the format they claim to be."""


class InvalidParameter(ServeError):
    """A query parameter that does not exist or has an impossible value."""


class UnsupportedMediaType(ServeError):
    """A body with an unsupported content type or encoding."""


class AheadOfClock(ServeError):
    """A snapshot from the future, which would make all earlier ones stale."""


class DocumentTooLarge(ServeError):
    """A document beyond the limits of the settings."""


class BadMeshName(ServeError):
    """A mesh name outside the allowed alphabet."""


class UnknownMesh(ServeError):
    """Nothing is stored under this mesh name."""


class UnknownInstant(ServeError):
    """No snapshot of this time is kept."""


class UnknownIncident(ServeError):
    """No incident with this id is remembered, or there is no feedback on it."""


class UnknownMute(ServeError):
    """No mute with this id exists."""


class UnknownModel(ServeError):
    """The registry has no model of this version."""


class UnknownReceiver(ServeError):
    """The settings have no receiver of this kind or at this address."""


class UnfitModel(ServeError):
    """Meshes cannot change to this model now; the message says why. Nothing was changed."""


class TooMuchFeedback(ServeError):
    """The limit on incidents with feedback is reached."""


class TooManyMutes(ServeError):
    """The limit on mutes is reached."""


class TooManyMeshes(ServeError):
    """The limit on stored meshes, ``limits.max_meshes``, is reached; nothing was changed."""


class StaleSnapshot(ServeError):
    """A snapshot older than the newest one counted; the message names the newest."""


class SameTimeOtherContent(ServeError):
    """A snapshot for a time that was already scored with other content."""


class StoreConflict(ServeError):
    """The stored mesh changed since it was loaded; load it again and repeat."""


class Overloaded(ServeError):
    """More work than the bounded queues take; ``details["retry_after_seconds"]`` says when to try again."""


class SlowRequest(ServeError):
    """A request whose body did not arrive within the limits of the settings."""


class HeadersTooLarge(ServeError):
    """A request whose line and headers are longer than the settings allow."""


class DeadlineExceeded(ServeError):
    """The request's deadline passed before the answer was ready.

    ``details["stored"]`` is ``no`` (nothing was changed) or ``unknown``: then repeat the request, which is safe.
    """


class NoCapacity(ServeError):
    """No replica is alive or ready to do the work."""


class CorruptState(ServeError):
    """Stored bytes that cannot be read back."""


class StoreFull(ServeError):
    """There is no space to write; nothing was changed, and reads still work."""


class StoreGone(ServeError):
    """The store's files were deleted or replaced while the service had them open, or its Redis is unreachable or was
    emptied.

    Nothing can be read or stored. ``details["stored"]`` is ``unknown`` if the write may have been stored: repeat it.
    """


class RegistryGone(ServeError):
    """The registry of models does not answer, or does not permit access."""


class AuditGone(ServeError):
    """The audit log cannot record a change. The change was not made."""


class BadRecording(ServeError):
    """A recording that cannot be read or written."""


class NoTelemetry(ServeError):
    """A mesh's Prometheus does not answer, or has no data on the mesh."""


class BadVerdicts(ServeError):
    """Verdicts that cannot be read, or that belong to another recording."""


class BadHost(ServeError):
    """The header ``Host`` is missing, malformed or repeated."""


class WrongHost(ServeError):
    """The name in the header ``Host`` is not a name of this service."""


class Unauthenticated(ServeError):
    """No token, or a wrong one; then ``details["reason"]`` is ``malformed``, ``unknown`` or ``expired``."""


class TooManyFailedLogins(ServeError):
    """A wrong token from an address that sent many; ``details["reason"]`` as in ``Unauthenticated``."""


class SignInRefused(ServeError):
    """The answer of an identity provider does not belong to a sign-in of this browser, or refuses it."""


class ProviderFailed(ServeError):
    """An identity provider does not answer, or not as OpenID Connect says."""


class Forbidden(ServeError):
    """Permission denied."""


class CrossOrigin(Forbidden):
    """A page of another site made a browser request a change."""


class BadSettings(ServeError):
    """A setting that does not exist or has an impossible value."""


class Answer(NamedTuple):
    """The HTTP answer to an error: status, stable code (the end of the problem's ``type``), title."""

    status: int
    code: str
    title: str


ANSWERS: dict[type[Exception], Answer] = {
    MalformedDocument: Answer(400, "malformed-document", "Malformed request body"),
    BadMeshName: Answer(400, "bad-mesh-name", "Invalid mesh name"),
    BadHost: Answer(400, "bad-host", "Host name not allowed"),
    SignInRefused: Answer(400, "sign-in-refused", "Sign-in refused"),
    Unauthenticated: Answer(401, "unauthenticated", "Authentication required"),
    Forbidden: Answer(403, "forbidden", "Permission denied"),
    CrossOrigin: Answer(403, "cross-origin", "Cross-site request refused"),
    UnknownMesh: Answer(404, "unknown-mesh", "Mesh not found"),
    UnknownInstant: Answer(404, "unknown-instant", "Snapshot not found"),
    UnknownIncident: Answer(404, "unknown-incident", "Incident not found"),
    UnknownMute: Answer(404, "unknown-mute", "Mute not found"),
    UnknownModel: Answer(404, "unknown-model", "Model not found"),
    UnknownReceiver: Answer(404, "unknown-receiver", "Receiver not found"),
    UnfitModel: Answer(409, "unfit-model", "Model not usable"),
    TooMuchFeedback: Answer(409, "too-much-feedback", "Feedback limit reached"),
    TooManyMutes: Answer(409, "too-many-mutes", "Mute limit reached"),
    TooManyMeshes: Answer(409, "too-many-meshes", "Mesh limit reached"),
    StaleSnapshot: Answer(409, "stale-snapshot", "Snapshot older than the newest one"),
    OutOfOrder: Answer(409, "out-of-order", "Snapshot older than the newest one"),
    SameTimeOtherContent: Answer(409, "same-time-other-content", "Another snapshot of this time was already scored"),
    StoreConflict: Answer(409, "store-conflict", "Mesh changed by another session"),
    DocumentTooLarge: Answer(413, "document-too-large", "Document too large"),
    UnsupportedMediaType: Answer(415, "unsupported-media-type", "Unsupported media type"),
    WrongHost: Answer(421, "wrong-host", "Host name of another service"),
    InvalidParameter: Answer(422, "invalid-parameter", "Invalid query parameter"),
    SlowRequest: Answer(408, "slow-request", "Request timeout"),
    HeadersTooLarge: Answer(431, "headers-too-large", "Headers too large"),
    AheadOfClock: Answer(422, "ahead-of-clock", "Snapshot ahead of the service's clock"),
    InvalidDocument: Answer(422, "invalid-document", "Invalid document"),
    InvalidSnapshot: Answer(422, "invalid-snapshot", "Invalid snapshot"),
    BadRecording: Answer(422, "bad-recording", "Unreadable recording"),
    NoTelemetry: Answer(502, "no-telemetry", "Prometheus unavailable"),
    ProviderFailed: Answer(502, "provider-failed", "Identity provider failed"),
    BadVerdicts: Answer(422, "bad-verdicts", "Verdicts cannot be evaluated"),
    Overloaded: Answer(429, "overloaded", "Service overloaded"),
    TooManyFailedLogins: Answer(429, "too-many-failed-logins", "Too many wrong tokens from this address"),
    IncompatibleWeights: Answer(500, "incompatible-weights", "Stored state or weights incompatible with this version"),
    CorruptState: Answer(500, "corrupt-state", "Stored state corrupt"),
    BadSettings: Answer(500, "bad-settings", "Invalid settings"),
    ModelError: Answer(500, "model-error", "Model refused its input"),
    ServeError: Answer(500, "serve-error", "Service failed"),
    NoCapacity: Answer(503, "no-capacity", "No replica available"),
    StoreGone: Answer(503, "store-gone", "State store unavailable"),
    AuditGone: Answer(503, "audit-gone", "Audit log unavailable"),
    RegistryGone: Answer(503, "registry-gone", "Model registry unavailable"),
    DeadlineExceeded: Answer(504, "deadline-exceeded", "Deadline exceeded"),
    StoreFull: Answer(507, "store-full", "State store full"),
}
UNEXPECTED = Answer(500, "unexpected", "Unexpected error")


def answer(error: BaseException) -> Answer:
    """The row of the nearest class in ``ANSWERS``; ``UNEXPECTED`` for any other error."""
    return next((ANSWERS[cls] for cls in type(error).__mro__ if cls in ANSWERS), UNEXPECTED)
