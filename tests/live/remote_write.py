"""Write samples and native histograms to a Prometheus, in its remote write protocol 1.0.

Fields and numbers are from ``prompb/types.proto`` and ``prompb/remote.proto`` of Prometheus. Text formats, which
the other tests use, have no native histograms.
"""

import math
import struct
from collections.abc import Iterable, Mapping

import httpx

SCHEMA = 3  # a bucket is 2 ** (1 / 8) times as wide as the one below


def series(labels: Mapping[str, str], samples: Iterable[bytes]) -> bytes:
    """A time series with samples from :func:`number` or :func:`histogram`."""
    pairs = (_bytes(1, _bytes(1, name.encode()) + _bytes(2, value.encode())) for name, value in sorted(labels.items()))
    return _bytes(1, b"".join((*pairs, *samples)))


def number(at: float, value: float) -> bytes:
    """A sample. ``at``: Unix seconds."""
    return _bytes(2, _double(1, value) + _integer(2, round(at * 1000)))


def histogram(at: float, count: int, value: float) -> bytes:
    """A native histogram of ``count`` observations of one value."""
    index = math.ceil(math.log2(value) * 2**SCHEMA)
    span = _integer(1, _zigzag(index)) + _integer(2, 1)
    fields = (
        _integer(1, count),
        _double(3, count * value),
        _integer(4, _zigzag(SCHEMA)),
        _double(5, 1e-128),
        _integer(6, 0),
        _bytes(11, span),
        _bytes(12, _varint(_zigzag(count))),
        _integer(15, round(at * 1000)),
    )
    return _bytes(4, b"".join(fields))


def send(url: str, request: bytes) -> None:
    """Send time series.

    Raises:
        HTTPStatusError: Prometheus refuses them.
    """
    headers = {"Content-Encoding": "snappy", "X-Prometheus-Remote-Write-Version": "0.1.0"}
    httpx.post(f"{url}/api/v1/write", content=_snappy(request), headers=headers, timeout=60).raise_for_status()


def _snappy(data: bytes) -> bytes:
    """The block format, with literals only: nothing is compressed."""
    out = [_varint(len(data))]
    for begin in range(0, len(data), 60000):
        piece = data[begin : begin + 60000]
        out += [bytes([61 << 2]), struct.pack("<H", len(piece) - 1), piece]
    return b"".join(out)


def _varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def _zigzag(value: int) -> int:
    return value * 2 if value >= 0 else -value * 2 - 1


def _integer(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _double(field: int, value: float) -> bytes:
    return _varint(field << 3 | 1) + struct.pack("<d", value)


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value
