"""The stored form of blobs: compressed with LZ4, with a checksum, so that damaged bytes are never used.

LZ4 is fast enough for every push: 0.02 ms for the rows of 60 services, 0.4 ms for 2,000 services. A state takes 47%
less space, a snapshot 30 to 40%, a verdict up to 50%. Zstandard (level 1) saves a further 5 to 10% of the space and
takes two to four times as long; zlib takes ten times as long. A blob without the mark is not compressed.

CRC-32 (zlib) finds every burst of up to 32 bits and all but one in 4e9 other changes. It takes 0.08 ms for 250 KB;
BLAKE2b takes 0.41 ms. The checksum covers the row's key, so it also finds a blob in the wrong row. It does not protect
against an attacker.
"""

import zlib
from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from serve_app.errors import CorruptState

MARK = b"lz4\0"
_MIN_BYTES = 256  # smaller blobs are not compressed
_SUM_BYTES = _SIZE_BYTES = 4
Buffer = bytes | memoryview
_CODEC: Any = pa.Codec("lz4_raw")


def seal(blob: bytes, *key: object) -> bytes:
    """Compress a blob, and prefix it with the checksum of its row's key and its bytes."""
    pieces: tuple[Buffer, ...] = (blob,)
    is_marked = blob.startswith(MARK)  # by chance: it must not look like a compressed one
    if len(blob) >= _MIN_BYTES or is_marked:
        buffer = _CODEC.compress(blob)
        # A plain view would have all allocated bytes.
        shorter_pieces = MARK, len(blob).to_bytes(_SIZE_BYTES, "big"), memoryview(buffer)[: buffer.size]
        if is_marked or sum(map(len, shorter_pieces)) < len(blob):
            pieces = shorter_pieces
    return b"".join((_sum(pieces, key), *pieces))  # joined once: a state can have 100 MB


def unseal(value: bytes, *key: object) -> bytes:
    """Return the blob that was sealed in this row.

    Raises:
        CorruptState: the checksum differs, or the bytes cannot be decompressed.
    """
    content, head = memoryview(value)[_SUM_BYTES:], len(MARK) + _SIZE_BYTES
    if len(value) < _SUM_BYTES or value[:_SUM_BYTES] != _sum([content], key):
        raise CorruptState(
            f"checksum mismatch in {' '.join(map(str, key))} ({len(content)} bytes): the stored row is damaged; check "
            "the disk"
        )
    if content[: len(MARK)] != MARK:
        return bytes(content)
    size = int.from_bytes(content[len(MARK) : head], "big")
    try:
        blob: bytes = _CODEC.decompress(content[head:], size, asbytes=True)
    except (OSError, ValueError) as error:
        raise CorruptState(
            f"stored {' '.join(map(str, key))}: expected {size} bytes in LZ4, got other data ({error}); restore a "
            "backup, or delete the mesh"
        ) from error
    return blob


def _sum(pieces: Iterable[Buffer], key: tuple[object, ...]) -> bytes:
    total = zlib.crc32(repr(key).encode())
    for piece in pieces:
        total = zlib.crc32(piece, total)
    return total.to_bytes(_SUM_BYTES, "big")
