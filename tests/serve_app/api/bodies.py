"""Request bodies that would take too much memory."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from serve_app.api.codec.arrow import write_stream

# ruff: noqa: E501
FACTOR, SPARE = 10, 50 * 10**6
"""A decoder may use ``FACTOR`` times the bytes of the body, and ``SPARE`` bytes."""
TIME = "2026-03-01T03:12:00Z"
AT = f'"observed_at":"{TIME}"'.encode()
ONE = b'"services":[{"namespace":"a","name":"b"}]'
LONG = "x" * 2**20


def stream(**columns: Any) -> bytes:
    return write_stream(pa.table({"observed_at": [TIME]} | columns))


def cell(items: pa.Array) -> pa.ListArray:
    return pa.ListArray.from_arrays(pa.array([0, len(items)], pa.int32()), items)


def services(names: pa.Array | None = None) -> pa.ListArray:
    names = pa.array(["a", "b"]) if names is None else names
    return cell(pa.StructArray.from_arrays([pa.array(["n"] * len(names)), names], ["namespace", "name"]))


def one_name(count: int) -> pa.DictionaryArray:
    """Return a body with one long name that is used many times."""
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int32)), pa.array([LONG]))


def fill(before: bytes, item: bytes, after: bytes, size: int) -> bytes:
    """Return a list with as many items as fit in ``size`` bytes."""
    return before + b",".join([item] * (size // (len(item) + 1))) + after


def snapshot_with(field: bytes, item: bytes, size: int) -> bytes:
    return fill(b"{" + AT + b"," + ONE + b',"' + field + b'":[', item, b"]}", size)


def keys(size: int) -> bytes:
    return b"{" + b",".join(b'"%x":1' % i for i in range(size // 10)) + b"}"


JSONS: dict[str, Callable[[int], bytes]] = {
    **{
        f"{field} of {item}": partial(snapshot_with, field.encode(), item.encode())
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
