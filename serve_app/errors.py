"""Errors of the serving floor, and what each error of the house is called over HTTP.

    ServeError
    ├── InvalidDocument          content that contradicts itself or the schema
    │   └── MalformedDocument    not JSON at all
    ├── InvalidParameter         a query parameter that does not exist or has an impossible value
    ├── UnsupportedMediaType     a body in a form that nobody here reads
    ├── AheadOfClock             a snapshot of the future, which would lock its mesh
    ├── DocumentTooLarge         more services, calls or bytes than the settings allow
    ├── BadMeshName              a name that cannot stand in a path, a file and a label
    ├── UnknownMesh              nothing is stored under this name
    ├── UnknownInstant           no kept snapshot of this time
    ├── UnknownIncident          no incident of this id, or nothing said of it
    ├── UnknownMute              no mute of this id, in force or to come
    ├── NoAdapter                a mesh that has adapted to nothing, so that nothing can be taken back
    ├── TooMuchFeedback          more incidents spoken of than the settings allow
    ├── TooManyMutes             more mutes in force and to come than the settings allow
    ├── TooManyMeshes            as many meshes are stored as the settings allow, and this one would be another
    ├── StaleSnapshot            older than the newest snapshot counted
    ├── SameTimeOtherContent     a second, different snapshot for an instant already judged
    ├── StoreConflict            somebody else advanced the mesh in between
    ├── Overloaded               the queue is full; come back later
    ├── SlowRequest              a body that did not arrive in time
    ├── HeadersTooLarge          more bytes of headers than the settings allow
    ├── DeadlineExceeded         the answer would have come too late
    ├── NoCapacity               nobody is there to do the work
    ├── CorruptState             stored bytes that cannot be read back
    ├── StoreFull                no room to write
    ├── StoreGone                the store's files were deleted or replaced while they were in use
    ├── BadRecording             a recording folder that cannot be read or written
    ├── NoTelemetry              what a mesh's Prometheus was asked for cannot be had
    ├── BadVerdicts              a file of verdicts that cannot be read or is not about the recording
    ├── BadHost                  a request whose Host is missing or malformed
    ├── WrongHost                a request for a host name that this service does not have
    ├── Unauthenticated          a request without a token, or with a wrong one
    ├── TooManyFailedLogins      a wrong token, after many others from the same address
    ├── Forbidden                a caller without the scope or the mesh that the request needs
    │   └── CrossOrigin          a change that a page of another site asks for
    └── BadSettings              a setting that does not exist or has an impossible value

Catch ``ServeError`` for anything this floor refuses. Errors cross process boundaries (Ray pickles them), so each
carries one text and keyword details, and rebuilds itself from both, as ``model.errors`` does. Details with a meaning
of their own: ``pointer`` (JSON pointer, RFC 6901), ``errors`` (a list of ``{"pointer", "detail"}``),
``retry_after_seconds`` and ``stored``. Details must be picklable and plain.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from model.errors import IncompatibleWeights, InvalidSnapshot, ModelError, OutOfOrder


class ServeError(Exception):
    """What was expected, what came, where, and what to do about it."""

    def __init__(self, message: str, **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.details = details

    def __reduce__(self) -> tuple[Callable[..., "ServeError"], tuple[str]]:
        return partial(type(self), **self.details), (self.message,)


class InvalidDocument(ServeError):
    """A document whose content is refused; ``details["pointer"]`` says where."""


class MalformedDocument(InvalidDocument):
    """Bytes that are not the format they claim to be."""


class InvalidParameter(ServeError):
    """A query parameter that does not exist or has an impossible value."""


class UnsupportedMediaType(ServeError):
    """A body whose content type or encoding nobody here reads."""


class AheadOfClock(ServeError):
    """A snapshot of a time that has not come: everything before it would be stale from then on."""


class DocumentTooLarge(ServeError):
    """A document beyond the limits of the settings."""


class BadMeshName(ServeError):
    """A mesh name outside the allowed alphabet."""


class UnknownMesh(ServeError):
    """Nothing is stored under this mesh name."""


class UnknownInstant(ServeError):
    """No kept snapshot is of this time."""


class UnknownIncident(ServeError):
    """No incident of this id is remembered, or nothing is said of it."""


class UnknownMute(ServeError):
    """No mute of this id is in force or to come."""


class NoAdapter(ServeError):
    """No adapter is in use, so none can be taken back."""


class TooMuchFeedback(ServeError):
    """As many incidents are spoken of as the settings allow."""


class TooManyMutes(ServeError):
    """As many mutes are in force and to come as the settings allow."""


class TooManyMeshes(ServeError):
    """As many meshes are stored as ``limits.max_meshes`` allows; nothing was changed."""


class StaleSnapshot(ServeError):
    """A snapshot older than the newest one counted; the message names the newest."""


class SameTimeOtherContent(ServeError):
    """A snapshot for an instant that was judged already, with other content."""


class StoreConflict(ServeError):
    """The stored mesh is not the one this write was computed from; load it again and repeat."""


class Overloaded(ServeError):
    """More work than the bounded queues take; ``details["retry_after_seconds"]`` says when to come back."""


class SlowRequest(ServeError):
    """A request whose body did not arrive within the limits of the settings."""


class HeadersTooLarge(ServeError):
    """A request whose line and headers are longer than the settings allow."""


class DeadlineExceeded(ServeError):
    """The request's deadline passed before the answer was there.

    ``details["stored"]`` is ``no`` (nothing was changed) or ``unknown``: then a retry is safe and finds out.
    """


class NoCapacity(ServeError):
    """No replica is alive or ready to do the work."""


class CorruptState(ServeError):
    """Stored bytes that cannot be read back."""


class StoreFull(ServeError):
    """There is no room to write; nothing was changed, and what is stored is still read."""


class StoreGone(ServeError):
    """The store's files were deleted or replaced while the service had them open; nothing can be read or kept."""


class BadRecording(ServeError):
    """A recording that cannot be read or written."""


class NoTelemetry(ServeError):
    """A mesh whose Prometheus does not answer, or knows nothing of it."""


class BadVerdicts(ServeError):
    """Verdicts that cannot be read, or that are not about the recording they are to be judged on."""


class BadHost(ServeError):
    """The header ``Host`` is missing, malformed or there twice."""


class WrongHost(ServeError):
    """The header ``Host`` has a name that this service does not answer to."""


class Unauthenticated(ServeError):
    """No token, or a wrong one; then ``details["reason"]`` is ``malformed``, ``unknown`` or ``expired``."""


class TooManyFailedLogins(ServeError):
    """A wrong token from an address that sent many; ``details["reason"]`` as of ``Unauthenticated``."""


class Forbidden(ServeError):
    """The caller is known and may not do this."""


class CrossOrigin(Forbidden):
    """A page of another site made a browser ask for a change."""


class BadSettings(ServeError):
    """A setting that does not exist or has an impossible value."""


class Answer(NamedTuple):
    """How an error is told over HTTP: status, stable slug (the end of the problem's ``type``), title."""

    status: int
    code: str
    title: str


ANSWERS: dict[type[Exception], Answer] = {
    MalformedDocument: Answer(400, "malformed-document", "The body is not well formed"),
    BadMeshName: Answer(400, "bad-mesh-name", "The mesh name is not allowed"),
    BadHost: Answer(400, "bad-host", "The host name of the request is not allowed"),
    Unauthenticated: Answer(401, "unauthenticated", "A token is needed"),
    Forbidden: Answer(403, "forbidden", "The caller may not do this"),
    CrossOrigin: Answer(403, "cross-origin", "The request comes from a page of another site"),
    UnknownMesh: Answer(404, "unknown-mesh", "There is no such mesh"),
    UnknownInstant: Answer(404, "unknown-instant", "There is no such snapshot"),
    UnknownIncident: Answer(404, "unknown-incident", "There is no such incident"),
    UnknownMute: Answer(404, "unknown-mute", "There is no such mute"),
    NoAdapter: Answer(409, "no-adapter", "The mesh has no adapter to take back"),
    TooMuchFeedback: Answer(409, "too-much-feedback", "As much feedback is kept as this service takes"),
    TooManyMutes: Answer(409, "too-many-mutes", "As many mutes are kept as this service takes"),
    TooManyMeshes: Answer(409, "too-many-meshes", "As many meshes are stored as this service takes"),
    StaleSnapshot: Answer(409, "stale-snapshot", "The snapshot is older than the newest one"),
    OutOfOrder: Answer(409, "out-of-order", "The snapshot is older than the newest one"),
    SameTimeOtherContent: Answer(409, "same-time-other-content", "This instant was judged with other content"),
    StoreConflict: Answer(409, "store-conflict", "The mesh was changed by somebody else"),
    DocumentTooLarge: Answer(413, "document-too-large", "The document is larger than this service takes"),
    UnsupportedMediaType: Answer(415, "unsupported-media-type", "The body is in a form that nobody here reads"),
    WrongHost: Answer(421, "wrong-host", "This service does not have that host name"),
    InvalidParameter: Answer(422, "invalid-parameter", "A query parameter is not valid"),
    SlowRequest: Answer(408, "slow-request", "The request did not arrive in time"),
    HeadersTooLarge: Answer(431, "headers-too-large", "The headers are larger than this service takes"),
    AheadOfClock: Answer(422, "ahead-of-clock", "The snapshot is of a time that has not come"),
    InvalidDocument: Answer(422, "invalid-document", "The document's content is not valid"),
    InvalidSnapshot: Answer(422, "invalid-snapshot", "The snapshot's content is not valid"),
    BadRecording: Answer(422, "bad-recording", "The recording cannot be read"),
    NoTelemetry: Answer(502, "no-telemetry", "The mesh's Prometheus has no answer"),
    BadVerdicts: Answer(422, "bad-verdicts", "The verdicts cannot be judged"),
    Overloaded: Answer(429, "overloaded", "The service has more work than it takes"),
    TooManyFailedLogins: Answer(429, "too-many-failed-logins", "Too many wrong tokens from this address"),
    IncompatibleWeights: Answer(500, "incompatible-weights", "The stored state or weights do not fit this version"),
    CorruptState: Answer(500, "corrupt-state", "The stored state cannot be read"),
    BadSettings: Answer(500, "bad-settings", "The service is not configured correctly"),
    ModelError: Answer(500, "model-error", "The model refused its input"),
    ServeError: Answer(500, "serve-error", "The service failed"),
    NoCapacity: Answer(503, "no-capacity", "Nobody is there to do the work"),
    StoreGone: Answer(503, "store-gone", "The files of the state store are gone"),
    DeadlineExceeded: Answer(504, "deadline-exceeded", "The answer was not there in time"),
    StoreFull: Answer(507, "store-full", "There is no room to keep the snapshot"),
}
UNEXPECTED = Answer(500, "unexpected", "An unexpected error")


def answer(error: BaseException) -> Answer:
    """The row of the nearest class in ``ANSWERS``; ``UNEXPECTED`` for what is not the house's own."""
    return next((ANSWERS[cls] for cls in type(error).__mro__ if cls in ANSWERS), UNEXPECTED)
