"""Reads weights from a file, a URL or an object store, and checks their SHA-256."""

import hashlib
import re
from collections.abc import Generator, Iterator
from contextlib import closing
from urllib.parse import urlsplit

import fsspec
import httpx

from model.errors import IncompatibleWeights
from serve_app.net.endpoint import check_url, ssl_context

OBJECT_STORES = ("s3", "gs", "gcs", "az", "abfs")  # schemes for which fsspec needs a package each
MAX_BYTES = 256 * 2**20  # the shipped weights are smaller than 1 MiB
CHUNK_BYTES = 2**20
TIMEOUT_SECONDS = 30.0  # for the connection, and between two pieces of the file


def check_sha256(text: str) -> str:
    """Return a SHA-256 in lower case.

    Raises:
        ValueError: it is not a SHA-256.
    """
    if not re.fullmatch("[0-9a-f]{64}", text.lower()):
        raise ValueError(f"expected 64 hexadecimal digits, got {text!r}")
    return text.lower()


def check_source(source: str) -> str:
    """Return a path or URL of weights.

    Raises:
        ValueError: it is neither a path nor a URL.
    """
    if "://" not in source or source.partition("://")[0] in OBJECT_STORES:
        return source
    try:
        return check_url(source)
    except ValueError as error:
        raise ValueError(f"{display_name(source)}: {error}") from None


def read_checked(source: str, sha256: str) -> bytes:
    """Read a source if it has this SHA-256.

    Args:
        source: path or URL, see :func:`check_source`.
        sha256: expected value, in lower case.

    Raises:
        IncompatibleWeights: it cannot be read completely, is too large, or has another SHA-256.
    """
    name, content = display_name(source), bytearray()
    with closing(_read(source)) as pieces:
        for piece in pieces:
            content += piece
            if len(content) > MAX_BYTES:
                raise IncompatibleWeights(f"weights {name}: the content exceeds {MAX_BYTES} bytes; correct SOURCE")
    actual = hashlib.sha256(content).hexdigest()
    if actual != sha256:
        raise IncompatibleWeights(
            f"weights {name}: expected SHA-256 {sha256}, got {actual} ({len(content)} bytes); correct the digest, or "
            "do not trust the source"
        )
    return bytes(content)


def display_name(source: str) -> str:
    """Return the source for messages: without a URL's query, which may contain a signature."""
    parts = urlsplit(source)
    return f"{parts.scheme}://{parts.hostname}{parts.path}" if "://" in source else source


def _read(source: str) -> Generator[bytes, None, None]:
    if urlsplit(source).scheme not in ("http", "https"):
        yield from _read_with_fsspec(source)
        return
    name = display_name(source)
    try:
        with httpx.stream(
            "GET", source, verify=ssl_context(None), timeout=TIMEOUT_SECONDS, follow_redirects=True
        ) as answer:
            if answer.status_code != httpx.codes.OK:
                raise IncompatibleWeights(
                    f"weights {name}: expected status 200, got {answer.status_code}; correct the URL, or get access"
                )
            yield from answer.iter_bytes(CHUNK_BYTES)
    except httpx.HTTPError as error:
        raise IncompatibleWeights(
            f"weights {name}: expected the whole file, got {type(error).__name__}; try again"
        ) from error


def _read_with_fsspec(source: str) -> Iterator[bytes]:
    try:
        with fsspec.open(source, "rb") as file:
            while piece := file.read(CHUNK_BYTES):
                yield piece
    except (OSError, ImportError) as error:
        raise IncompatibleWeights(
            f"weights {display_name(source)}: expected a readable file, got {error}; correct the path"
        ) from error
