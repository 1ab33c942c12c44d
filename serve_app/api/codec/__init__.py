"""Converts between documents and the types of ``model``.

A snapshot arrives as JSON, Arrow or MessagePack, which is deprecated. The same mistake gives the same error with the
same pointer in all three. Verdicts are sent as JSON. Snapshots also have a packed form for stores and for transfers
between deployments.
"""

import logging
from datetime import UTC, datetime
from functools import cache

from model.snapshot import MeshSnapshot
from serve_app.api.codec import arrow, structs
from serve_app.api.codec.documents import call_documents, service_documents, snapshot_document
from serve_app.api.codec.limits import Limits
from serve_app.api.codec.mistakes import ERRORS_LISTED
from serve_app.api.codec.packed import pack_snapshot, unpack_snapshot
from serve_app.api.codec.validation import require_not_ahead
from serve_app.api.codec.verdicts import decode_verdict_line, encode_verdict, verdict_line
from serve_app.errors import UnsupportedMediaType

__all__ = [
    "ARROW",
    "DEPRECATED_AT",
    "ERRORS_LISTED",
    "JSON",
    "MEDIA_TYPES",
    "MESSAGEPACK",
    "Limits",
    "call_documents",
    "decode_snapshot",
    "decode_snapshots",
    "decode_verdict_line",
    "encode_snapshot",
    "encode_verdict",
    "is_deprecated",
    "pack_snapshot",
    "require_not_ahead",
    "service_documents",
    "snapshot_document",
    "unpack_snapshot",
    "verdict_line",
]

log = logging.getLogger(__name__)
JSON = "application/json"
ARROW = "application/vnd.apache.arrow.stream"
MESSAGEPACK = "application/vnd.msgpack"
MEDIA_TYPES = (JSON, ARROW, MESSAGEPACK)
DEPRECATED_AT = datetime(2026, 11, 26, tzinfo=UTC)  # release 0.2.0, since which MessagePack is deprecated
_FORMS = {
    JSON: structs.JSON,
    MESSAGEPACK: structs.MESSAGEPACK,
    "application/msgpack": structs.MESSAGEPACK,  # its name before it was registered
    "application/x-msgpack": structs.MESSAGEPACK,
}


def decode_snapshot(body: bytes, media_type: str = JSON, limits: Limits | None = None) -> MeshSnapshot:
    """Decode a body with one snapshot.

    Args:
        body: of a request.
        media_type: one of ``MEDIA_TYPES``.
        limits: None for any size.

    Raises:
        MalformedDocument: the body is not in the given format.
        InvalidDocument: its content is wrong; ``details`` hold ``pointer`` and ``errors``.
        DocumentTooLarge: more services or calls than ``limits`` allow.
        UnsupportedMediaType: the type is not supported.
    """
    limits = limits or Limits()
    if media_type == ARROW:
        return arrow.decode(body, limits)
    return structs.decode(_form(media_type), body, limits)


def decode_snapshots(body: bytes, media_type: str = JSON, limits: Limits | None = None) -> list[MeshSnapshot]:
    """Decode a body with several snapshots: ``{"snapshots": [...]}``, in Arrow one row each. Otherwise as
    :func:`decode_snapshot`."""
    limits = limits or Limits()
    if media_type == ARROW:
        return arrow.decode_many(body, limits)
    return structs.decode_many(_form(media_type), body, limits)


def encode_snapshot(snapshot: MeshSnapshot, media_type: str = JSON) -> bytes:
    """Encode a snapshot as a client sends it. Raises ``UnsupportedMediaType``."""
    if media_type == ARROW:
        return arrow.encode(snapshot)
    return _form(media_type).encode(snapshot_document(snapshot))


def is_deprecated(media_type: str) -> bool:
    """Return whether a snapshot in this format is accepted, but deprecated."""
    return _FORMS.get(media_type) is structs.MESSAGEPACK


def _form(media_type: str) -> structs.BodyFormat:
    if media_type not in _FORMS:
        raise UnsupportedMediaType(
            f"content-type: expected one of {', '.join(MEDIA_TYPES)}, got {media_type[:80]!r}; send one of them"
        )
    if is_deprecated(media_type):
        _warn_of_messagepack()
    return _FORMS[media_type]


@cache
def _warn_of_messagepack() -> None:
    """Log once in a process that the format is deprecated."""
    log.warning(
        "received a snapshot in MessagePack, which is deprecated; send %s, which is as fast, or %s", ARROW, JSON
    )
