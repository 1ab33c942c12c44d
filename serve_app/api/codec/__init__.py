"""Converts between documents and the types of ``model``.

A snapshot arrives as JSON or Arrow. In both, the same mistake gives the same error with the same pointer. Verdicts are
sent as JSON. Snapshots also have a packed form for stores and for transfers between deployments.
"""

import msgspec

from model.snapshot import MeshSnapshot
from serve_app.api.codec import arrow, json_body
from serve_app.api.codec.documents import call_documents, service_documents, snapshot_document
from serve_app.api.codec.limits import Limits
from serve_app.api.codec.mistakes import ERRORS_LISTED
from serve_app.api.codec.packed import pack_snapshot, unpack_snapshot
from serve_app.api.codec.validation import require_not_ahead
from serve_app.api.codec.verdicts import encode_verdict, verdict_line
from serve_app.errors import UnsupportedMediaType

__all__ = [
    "ARROW",
    "ERRORS_LISTED",
    "JSON",
    "MEDIA_TYPES",
    "Limits",
    "call_documents",
    "decode_snapshot",
    "encode_snapshot",
    "encode_verdict",
    "pack_snapshot",
    "require_not_ahead",
    "service_documents",
    "snapshot_document",
    "unpack_snapshot",
    "verdict_line",
]

JSON = "application/json"
ARROW = "application/vnd.apache.arrow.stream"
MEDIA_TYPES = (JSON, ARROW)


def decode_snapshot(body: bytes, media_type: str = JSON, limits: Limits | None = None) -> MeshSnapshot:
    """Decode a body with one snapshot, of any size if ``limits`` is None.

    Raises:
        MalformedDocument: the body is not in the given format.
        InvalidDocument: its content is wrong; ``details`` hold ``pointer`` and ``errors``.
        DocumentTooLarge: more services or calls than ``limits`` allow.
        UnsupportedMediaType: the type is not supported.
    """
    _require_supported(media_type)
    decode = arrow.decode if media_type == ARROW else json_body.decode
    return decode(body, limits or Limits())


def encode_snapshot(snapshot: MeshSnapshot, media_type: str = JSON) -> bytes:
    """Encode a snapshot as a client sends it. Raises ``UnsupportedMediaType``."""
    _require_supported(media_type)
    return arrow.encode(snapshot) if media_type == ARROW else msgspec.json.encode(snapshot_document(snapshot))


def _require_supported(media_type: str) -> None:
    if media_type not in MEDIA_TYPES:
        raise UnsupportedMediaType(
            f"content-type: expected one of {', '.join(MEDIA_TYPES)}, got {media_type[:80]!r}; send one of them"
        )
