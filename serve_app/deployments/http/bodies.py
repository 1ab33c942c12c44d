"""Reads bodies within the limits, decodes them by content type, and packs them for the session."""

import asyncio
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any, TypeVar

from fastapi import Request
from starlette.requests import ClientDisconnect

from model.names import is_service_name
from model.snapshot import MeshSnapshot
from serve_app.api.codec import Limits, decode_snapshot, json_body, json_text, pack_snapshot, require_not_ahead
from serve_app.api.codec.mistakes import ERRORS_LISTED, SHOWN, error_at, validate_document
from serve_app.api.schemas.base import Document
from serve_app.collect.otlp import decode as otlp
from serve_app.collect.otlp.decode import Point
from serve_app.errors import DocumentTooLarge, MalformedDocument, UnsupportedMediaType
from serve_app.settings import LimitSettings

T = TypeVar("T")
D = TypeVar("D", bound=Document)
OFF_LOOP_BYTES = 2**16  # a larger body is decoded outside the event loop; this one takes about a millisecond
MAX_ACTION_BYTES = 2**20  # for feedback, a mute, or a rollback
MAX_METRICS_BYTES = 4 * 2**20  # for uncompressed OTLP metrics, which take up to 50 times that memory when decoded
LEFT_OUT_HEADER = "tagae-left-out"  # response header
JSON = "application/json"
GZIP = 16 + zlib.MAX_WBITS  # for zlib: with a gzip header


@dataclass(frozen=True, slots=True)
class SnapshotBody:
    """A packed snapshot, and the services of changes that were left out because their names are invalid: a mistake in
    a deploy's announcement must not cost the verdict."""

    packed: bytes
    left_out: tuple[str, ...]

    @classmethod
    def from_snapshot(cls, snapshot: MeshSnapshot) -> "SnapshotBody":
        left_out = tuple(change.service for change in snapshot.changes if not is_service_name(change.service))
        if left_out:
            snapshot = replace(snapshot, changes=tuple(c for c in snapshot.changes if c.service not in left_out))
        return cls(pack_snapshot(snapshot), left_out)

    @property
    def headers(self) -> dict[str, str]:
        """The response headers."""
        names = self.left_out[:ERRORS_LISTED]
        warnings = (f"change of {ascii(name)[:SHOWN]}: expected namespace/name" for name in names)
        return {LEFT_OUT_HEADER: "; ".join(warnings)} if names else {}


async def read_snapshot(request: Request, limits: LimitSettings, *, now: datetime | None = None) -> SnapshotBody:
    """Read and pack the snapshot in a body. A large one is decoded outside the event loop.

    Args:
        now: the current time, which the snapshot must not exceed; None: any time is allowed.

    Raises:
        InvalidDocument: its content is wrong; says what and where.
        UnsupportedMediaType: its format is not supported.
        DocumentTooLarge: it has more bytes, services or calls than ``limits`` allow.
        AheadOfClock: its time is in the future.
    """

    def pack(body: bytes, media_type: str) -> SnapshotBody:
        snapshot = decode_snapshot(body, media_type, _counts(limits))
        if now is not None:
            require_not_ahead(snapshot.observed_at, now, limits.max_ahead_seconds)
        return SnapshotBody.from_snapshot(snapshot)

    return await _read(request, limits.max_body_bytes, pack)


async def read_snapshots(request: Request, limits: LimitSettings, *, min_count: int) -> list[bytes]:
    """Read and pack the snapshots in a JSON body, at least ``min_count`` of them in time order; see
    :func:`read_snapshot`."""

    def pack(body: bytes, media_type: str) -> list[bytes]:
        _require_json(media_type)
        snapshots = json_body.decode_many(body, _counts(limits))
        if len(snapshots) < min_count:
            raise error_at("/snapshots", f"expected at least {min_count} snapshots, got {len(snapshots)}; send more")
        for number, (before, after) in enumerate(pairwise(snapshots), 1):
            if after.observed_at <= before.observed_at:
                detail = f"expected a time after {before.observed_at.isoformat()}, got {after.observed_at.isoformat()}"
                raise error_at(f"/snapshots/{number}/observed_at", f"{detail}; send them in order, the oldest first")
        return [SnapshotBody.from_snapshot(snapshot).packed for snapshot in snapshots]

    return await _read(request, limits.max_body_bytes, pack)


async def read_document(request: Request, decode: Callable[[bytes], T]) -> T:
    """Read a small JSON document: feedback, a mute, a change of models. Raises the errors of :func:`read_snapshot`."""

    def decode_json(body: bytes, media_type: str) -> T:
        _require_json(media_type)
        return decode(body)

    return await _read(request, MAX_ACTION_BYTES, decode_json)


def schema_decoder(schema: type[D], empty: bytes = b"") -> Callable[[bytes], D]:
    """Return a decoder for this schema, for :func:`read_document`; ``empty``: the body to use if there is none."""
    return lambda body: validate_document(json_text.parse(body.strip() or empty), schema)


async def read_metrics(request: Request, limits: LimitSettings, now: datetime) -> tuple[list[Point], int, str]:
    """Read OTLP metrics, plain or as gzip: a service graph's data points, the number of ignored others, and the media
    type. Raises the errors of :func:`read_snapshot`."""
    encoding, media_type = _encoding(request), _media_type(request)
    if encoding not in ("identity", "gzip"):
        raise UnsupportedMediaType(f"content-encoding: expected gzip or none, got {encoding[:80]!r}; send gzip")
    if media_type not in (otlp.PROTOBUF, otlp.JSON):
        raise UnsupportedMediaType(
            f"content-type: expected {otlp.PROTOBUF} or {otlp.JSON}, got {media_type[:80]!r}; send OTLP over HTTP"
        )
    body = await _body(request, MAX_METRICS_BYTES)

    def decode() -> tuple[list[Point], int]:
        points, ignored_count = otlp.decode_metrics(_unzip(body) if encoding == "gzip" else body, media_type)
        if points:
            newest = datetime.fromtimestamp(max(point.at for point in points) // 10**9, UTC)
            require_not_ahead(newest, now, limits.max_ahead_seconds)
        return points, ignored_count

    points, ignored_count = await asyncio.to_thread(decode)
    return points, ignored_count, media_type


async def read_json(request: Request, max_bytes: int) -> Any:
    """Read a JSON body of at most ``max_bytes`` bytes, without checking what it holds.

    Its content type must be JSON: a page of another site cannot make a browser send that.

    Raises:
        UnsupportedMediaType: the content type is another one.
        MalformedDocument: it is not JSON.
        DocumentTooLarge: it is too long.
    """
    _require_no_encoding(request)
    if "content-type" not in request.headers or _media_type(request) != JSON:
        raise UnsupportedMediaType(f"content-type: expected {JSON}; send JSON with this content type")
    return json_text.parse(await _body(request, max_bytes))


async def _read(request: Request, max_bytes: int, decode: Callable[[bytes, str], T]) -> T:
    _require_no_encoding(request)
    media_type = _media_type(request)
    body = await _body(request, max_bytes)
    if len(body) < OFF_LOOP_BYTES:
        return decode(body, media_type)
    return await asyncio.to_thread(decode, body, media_type)


def _counts(limits: LimitSettings) -> Limits:
    return Limits(limits.max_services, limits.max_calls, limits.max_changes, limits.max_policies, limits.max_snapshots)


def _require_json(media_type: str) -> None:
    if media_type != JSON:
        raise UnsupportedMediaType(f"content-type: expected {JSON}, got {media_type[:80]!r}; send JSON")


def _encoding(request: Request) -> str:
    return request.headers.get("content-encoding", "identity").strip().lower()


def _require_no_encoding(request: Request) -> None:
    if (encoding := _encoding(request)) != "identity":
        raise UnsupportedMediaType(
            f"content-encoding: expected none, got {encoding[:80]!r}; send the body uncompressed, or in a binary form"
        )


def _unzip(body: bytes) -> bytes:
    """Unpack gzip, up to ``MAX_METRICS_BYTES``, so that a small body cannot use up the memory."""
    unpacker = zlib.decompressobj(GZIP)
    try:
        content = unpacker.decompress(body, MAX_METRICS_BYTES + 1)
    except zlib.error as error:
        raise MalformedDocument(f"body: expected gzip, got {error}; correct content-encoding") from None
    if len(content) > MAX_METRICS_BYTES:
        raise _too_long(MAX_METRICS_BYTES, "more when unpacked")
    if not unpacker.eof or unpacker.unused_data:
        raise MalformedDocument("body: expected one complete gzip stream; send it again")
    return content


def _media_type(request: Request) -> str:
    """The body's media type in lower case, without parameters; JSON if there is no header."""
    media_type, _, parameters = request.headers.get("content-type", JSON).partition(";")
    charset = parameters.lower().replace(" ", "").replace('"', "")
    if "charset=" in charset and "charset=utf-8" not in charset:
        raise UnsupportedMediaType(f"content-type: expected UTF-8, got {parameters.strip()[:80]!r}; send UTF-8")
    return media_type.strip().lower() or JSON


async def _body(request: Request, max_bytes: int) -> bytes:
    """Read the whole body. If its declared length is too long, nothing is read."""
    length = request.headers.get("content-length", "")
    if length.isdigit() and int(length) > max_bytes:
        raise _too_long(max_bytes, f"{length} bytes")
    pieces, size = [], 0
    try:
        async for piece in request.stream():
            if piece:
                pieces.append(piece)
            size += len(piece)
            if size > max_bytes:
                raise _too_long(max_bytes, "more")
    except ClientDisconnect:
        raise MalformedDocument(f"body: the connection ended after {size} bytes; send the whole body") from None
    return b"".join(pieces)  # the gate sends a single piece, which is not copied


def _too_long(max_bytes: int, size: str) -> DocumentTooLarge:
    return DocumentTooLarge(
        f"body: expected at most {max_bytes} bytes, got {size}; send less, or split the mesh; for snapshots, "
        "limits.max_body_bytes can be raised"
    )
