"""Mutes as documents."""

from datetime import datetime

from model.muting import Mute
from serve_app.codec import structs
from serve_app.codec.documents import validated
from serve_app.spoken import KeptMuteDocument, MuteDocument


def decode_mute(body: bytes) -> MuteDocument:
    """Of a JSON body.

    Raises:
        MalformedDocument: it is not JSON.
        DocumentTooLarge: it would take far more memory than its size.
        InvalidDocument: its content is wrong; ``details`` hold ``pointer`` and ``errors``.
    """
    return validated(structs.plain(structs.JSON, body), MuteDocument)


def encode_mute(mute: Mute, now: datetime | None) -> KeptMuteDocument:
    """The document of what is kept, as of the mesh's clock: its newest snapshot."""
    return KeptMuteDocument(
        id=mute.id,
        services=list(mute.services),
        start=mute.start,
        end=mute.end,
        reason=mute.reason,
        given_at=mute.given_at,
        in_force=now is not None and mute.start <= now < mute.end,
    )
