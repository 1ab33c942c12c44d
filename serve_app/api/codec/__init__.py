"""Between documents and the house's own types: the only room that names both sides.

A snapshot comes as JSON, MessagePack or Arrow; what is wrong with it is told at the same place in the same words,
whichever it was. Verdicts go out as JSON. Snapshots also have a packed form for stores and hops between deployments.
"""

from model.snapshot import MeshSnapshot
from serve_app.api.codec import arrow, structs
from serve_app.api.codec.packed import pack_snapshot, unpack_snapshot
from serve_app.api.codec.validation import ERRORS_LISTED, Limits, not_ahead, snapshot_document
from serve_app.api.codec.verdicts import decode_verdict_line, encode_verdict, verdict_line
from serve_app.errors import UnsupportedMediaType

__all__ = [
    "ARROW",
    "ERRORS_LISTED",
    "JSON",
    "MEDIA_TYPES",
    "MESSAGEPACK",
    "Limits",
    "decode_snapshot",
    "decode_snapshots",
    "decode_verdict_line",
    "encode_snapshot",
    "encode_verdict",
    "not_ahead",
    "pack_snapshot",
    "snapshot_document",
    "unpack_snapshot",
    "verdict_line",
]

JSON = "application/json"
ARROW = "application/vnd.apache.arrow.stream"
MESSAGEPACK = "application/vnd.msgpack"
MEDIA_TYPES = (JSON, ARROW, MESSAGEPACK)
_FORMS = {
    JSON: structs.JSON,
    MESSAGEPACK: structs.MESSAGEPACK,
    "application/msgpack": structs.MESSAGEPACK,  # what it was called before it was registered
    "application/x-msgpack": structs.MESSAGEPACK,
}


def decode_snapshot(body: bytes, media_type: str = JSON, limits: Limits | None = None) -> MeshSnapshot:
    """The one snapshot of a body.

    Args:
        body: of a request.
        media_type: one of ``MEDIA_TYPES``.
        limits: of the snapshot; none: any size.

    Raises:
        MalformedDocument: the body is not of its type.
        InvalidDocument: its content is wrong; ``details`` hold ``pointer`` and ``errors``.
        DocumentTooLarge: more services or calls than ``limits`` allow.
        UnsupportedMediaType: nobody here reads it.
    """
    limits = limits or Limits()
    if media_type == ARROW:
        return arrow.decode(body, limits)
    return structs.decode(_form(media_type), body, limits)


def decode_snapshots(body: bytes, media_type: str = JSON, limits: Limits | None = None) -> list[MeshSnapshot]:
    """Several: ``{"snapshots": [...]}``, in Arrow one row each. Otherwise as :func:`decode_snapshot`."""
    limits = limits or Limits()
    if media_type == ARROW:
        return arrow.decode_many(body, limits)
    return structs.decode_many(_form(media_type), body, limits)


def encode_snapshot(snapshot: MeshSnapshot, media_type: str = JSON) -> bytes:
    """A snapshot as a client sends it; raises ``UnsupportedMediaType``."""
    if media_type == ARROW:
        return arrow.encode(snapshot)
    return structs.encode_rows(snapshot) if _form(media_type) is structs.JSON else structs.encode_columns(snapshot)


def _form(media_type: str) -> structs.BodyFormat:
    if media_type not in _FORMS:
        raise UnsupportedMediaType(
            f"content-type: expected one of {', '.join(MEDIA_TYPES)}, came {media_type[:80]!r}; send one of them"
        )
    return _FORMS[media_type]
