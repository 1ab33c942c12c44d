"""What a hostile body takes: below ten times its size and 50 MB, in every form and route.

Each body is decoded in a process of its own, which reports by how much its peak grew.
"""

import json
import os
import struct
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from test_small_bodies import cell, one_name, services, stream

from serve_app.actions.feedback import decode_feedback
from serve_app.actions.mutes import decode_mute

# ruff: noqa: E501
from serve_app.api.codec import ARROW, JSON, MESSAGEPACK, Limits, decode_snapshot, decode_snapshots
from serve_app.errors import ServeError

LIMITS = Limits(20_000, 200_000, 1000, 20_000, 120)
FACTOR, SPARE = 10, 50 * 10**6
AT = b'"observed_at":"2026-03-01T03:12:00Z"'
ONE = b'"services":[{"namespace":"a","name":"b"}]'
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads the peak from /proc")


def fill(before: bytes, item: bytes, after: bytes, size: int) -> bytes:
    """A list of as many items as ``size`` bytes hold."""
    return before + b",".join([item] * (size // (len(item) + 1))) + after


def snapshot_with(field: bytes, item: bytes, size: int) -> bytes:
    return fill(b"{" + AT + b"," + ONE + b',"' + field + b'":[', item, b"]}", size)


def keys(size: int) -> bytes:
    return b"{" + b",".join(b'"%x":1' % i for i in range(size // 10)) + b"}"


JSONS: dict[str, Callable[[int], bytes]] = {
    **{
        f"{field} of {item}": lambda size, field=field, item=item: snapshot_with(field.encode(), item.encode(), size)
        for field in ("changes", "policies", "calls", "nonsense")
        for item in ("{}", "[]", "1", '"ab"', '{"a":1}')
    },
    "services of {}": lambda size: fill(b"{" + AT + b',"services":[', b"{}", b"]}", size),
    "good changes": lambda size: snapshot_with(b"changes", b'{"kind":"a","service":"a/b"}', size),
    "good services": lambda size: fill(b"{" + AT + b',"services":[', b'{"namespace":"a","name":"b"}', b"]}", size),
    "columns of short names": lambda size: fill(b"{" + AT + b',"services":{"name":[', b'"ab"', b'],"namespace":[]}}', size),
    "columns of numbers": lambda size: fill(
        b"{" + AT + b"," + ONE + b',"calls":{"source":[],"destination":[],"requests_per_second":[', b"1", b"]}}", size
    ),
    "unknown keys": keys,
    "one key, again and again": lambda size: fill(b"{", b'"a":1', b"}", size),
    "unknown keys of a service": lambda size: b"{" + AT + b',"services":[' + keys(size) + b"]}",
    "unknown keys of metrics": lambda size: (
        b"{" + AT + b',"services":[{"namespace":"a","name":"b","metrics":' + keys(size) + b"}]}"
    ),
    "nested lists": lambda size: b"[" * size,
    "short nested lists": lambda size: fill(b"[", b"[" * 40 + b"]" * 40, b"]", size),
    "nested objects": lambda size: b'{"a":' * (size // 5),
    "a huge text": lambda size: b"{" + AT + b"," + ONE + b',"changes":"' + b"x" * size + b'"}',
    "a huge name": lambda size: b"{" + AT + b',"services":[{"namespace":"a","name":"' + b"x" * size + b'"}]}',
    "a huge wide text": lambda size: b'{"a":"' + b"x" * size + "\U0001f600".encode() + b'"}',
    "a huge key": lambda size: b'{"' + b"x" * size + b'":1}',
    "a number of many digits": lambda size: b"{" + AT + b',"services":[],"version":' + b"1" * size + b"}",
    "a fraction of many digits": lambda size: b"{" + AT + b',"services":[],"version":0.' + b"1" * size + b"}",
    "escapes": lambda size: b'{"a":"' + b"\\u0041" * (size // 6) + b'"}',
    "spaces": lambda size: b" " * size,
    "several empty snapshots": lambda size: fill(b'{"snapshots":[', b"{}", b"]}", size),
    "several short snapshots": lambda size: fill(
        b'{"snapshots":[', b"{" + AT + b',"services":[{"namespace":"a","name":"b"}]}', b"]}", size
    ),
}  # fmt: skip


def packed(field: str, item: bytes) -> Callable[[int], bytes]:
    def build(size: int) -> bytes:
        count = size // len(item)
        begin = msgspec.msgpack.encode({"observed_at": "2026-03-01T03:12:00Z", field: 0})[:-1]
        if field != "services":
            begin = msgspec.msgpack.encode(
                {"observed_at": "2026-03-01T03:12:00Z", "services": [{"namespace": "a", "name": "b"}], field: 0}
            )[:-1]
        return begin + b"\xdd" + struct.pack(">I", count) + item * count

    return build


PACKED: dict[str, Callable[[int], bytes]] = {
    **{
        f"{field} of {name}": packed(field, item)
        for field in ("services", "calls", "changes", "nonsense", "observed_at")
        for name, item in {"empty maps": b"\x80", "empty lists": b"\x90", "nil": b"\xc0", "short text": b"\xa1x"}.items()
    },
    "a list that declares too much": lambda size: b"\x81\xa8services\xdd\xff\xff\xff\xff" + b"\x80" * size,
    "a map that declares too much": lambda size: b"\xdf\xff\xff\xff\xff" + b"\xa1a\x01" * (size // 3),
    "a text that declares too much": lambda size: b"\x81\xa8services\xdb\xff\xff\xff\xff" + b"x" * size,
    "nested lists": lambda size: b"\x91" * size,
    "one key, again and again": lambda size: b"\xdf" + struct.pack(">I", size // 3) + b"\xa1a\x01" * (size // 3),
    "unknown keys": lambda size: msgspec.msgpack.encode({f"{i:x}": 1 for i in range(size // 7)}),
    "columns of short names": lambda size: msgspec.msgpack.encode(
        {"observed_at": "2026-03-01T03:12:00Z", "services": {"namespace": ["a"] * (size // 4), "name": ["b"] * (size // 4)}}
    ),
    "several empty snapshots": lambda size: b"\x81\xa9snapshots\xdd" + struct.pack(">I", size) + b"\x80" * size,
}  # fmt: skip
MANY = 2**26
ARROWS: dict[str, Callable[[int], bytes]] = {
    "changes without width": lambda _: stream(services=services(), changes=cell(pa.nulls(MANY))),
    "a version of empty structs": lambda _: stream(
        services=services(), version=cell(pa.StructArray.from_buffers(pa.struct([]), 2**20, [None]))
    ),
    "a version of nulls": lambda _: stream(services=services(), version=cell(pa.nulls(2**20))),
    "one long change for all": lambda _: stream(
        services=services(), changes=cell(pa.StructArray.from_arrays([one_name(999)] * 2, ["kind", "service"]))
    ),
    "services with one long metric": lambda _: stream(
        services=cell(
            pa.StructArray.from_arrays(
                [pa.array(["n"] * 60), pa.array(["b"] * 60), one_name(60)], ["namespace", "name", "metrics"]
            )
        )
    ),
    "wrong calls": lambda size: stream(
        services=services(),
        calls=cell(
            pa.StructArray.from_arrays(
                [pa.array(["n/x"] * (size // 24)), pa.array(["n/y"] * (size // 24)), pa.array(np.ones(size // 24))],
                ["source", "destination", "requests_per_second"],
            )
        ),
    ),
    "text": lambda size: b"x" * size,
}


def grown(body: bytes, read: Callable[[bytes], object]) -> int:
    """Bytes by which the peak of a process grows while it reads a body."""
    inlet, outlet = os.pipe()
    child = os.fork()
    if not child:
        try:
            Path("/proc/self/clear_refs").write_text("5")  # sets the peak to what there is now
            before = _peak()
            with suppress(ServeError):
                read(body)
            os.write(outlet, json.dumps(_peak() - before).encode())
        finally:
            os._exit(0)
    os.close(outlet)
    with os.fdopen(inlet, "rb") as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    return int(json.loads(said))


def _peak() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))


@pytest.mark.parametrize("size", [2**20, 2**23], ids=["1 MiB", "8 MiB"])
@pytest.mark.parametrize(
    ("media_type", "case"),
    [(kind, case) for kind, cases in ((JSON, JSONS), (MESSAGEPACK, PACKED), (ARROW, ARROWS)) for case in cases],
)
def test_memory_is_in_proportion_to_the_body(media_type: str, case: str, size: int) -> None:
    body = {JSON: JSONS, MESSAGEPACK: PACKED, ARROW: ARROWS}[media_type][case](size)
    for decode in (decode_snapshot, decode_snapshots):
        most = grown(body, lambda body, decode=decode: decode(body, media_type, LIMITS))  # type: ignore[misc]
        assert most < FACTOR * len(body) + SPARE, (len(body), most)


@pytest.mark.parametrize("decode", [decode_feedback, decode_mute], ids=["feedback", "mute"])
@pytest.mark.parametrize("case", JSONS)
def test_actions_take_as_little(case: str, decode: Callable[[bytes], object]) -> None:
    body = JSONS[case](2**20)
    assert grown(body, decode) < FACTOR * len(body) + SPARE
