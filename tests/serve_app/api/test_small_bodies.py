"""Small bodies that would need much memory are refused before it is allocated."""

import tracemalloc
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from serve_app.api.codec import ARROW, JSON, Limits, decode_snapshot
from serve_app.api.codec.arrow import write_stream
from serve_app.api.schemas.problem import problem
from serve_app.errors import MalformedDocument, ServeError
from tests.serve_app.api.bodies import LONG, cell, one_name, services, stream

AT = "2026-03-01T03:12:00Z"
MANY = 2**29
LIMITS = Limits(20_000, 200_000)


def calls(source: pa.Array) -> pa.ListArray:
    ends = [source, pa.array(["n/a"] * len(source))]
    rates = pa.array(np.ones(len(source)))
    return cell(pa.StructArray.from_arrays([*ends, rates], ["source", "destination", "requests_per_second"]))


def changes() -> pa.ListArray:
    return cell(pa.StructArray.from_arrays([one_name(20_000), one_name(20_000)], ["kind", "service"]))


ARROWS: dict[str, tuple[Callable[[], dict[str, Any]], int, str | None]] = {
    "services without width": (lambda: {"services": cell(pa.nulls(MANY))}, 413, "/services"),
    "services without fields": (
        lambda: {"services": cell(pa.StructArray.from_buffers(pa.struct([]), MANY, [None]))}, 413, "/services"),
    "calls without width": (lambda: {"services": services(), "calls": cell(pa.nulls(MANY))}, 413, "/calls"),
    "changes without width": (lambda: {"services": services(), "changes": cell(pa.nulls(MANY))}, 413, ""),
    "a version without width": (lambda: {"services": services(), "version": cell(pa.nulls(MANY))}, 413, ""),
    "a time without width": (lambda: {"observed_at": cell(pa.nulls(MANY)), "services": services()}, 413, ""),
    "one long name for all": (lambda: {"services": services(one_name(20_000))}, 413, ""),
    "one long end for all": (lambda: {"services": services(), "calls": calls(one_name(20_000))}, 413, ""),
    "one long change for all": (lambda: {"services": services(), "changes": changes()}, 413, ""),
    "lists of one length": (
        lambda: {"services": pa.FixedSizeListArray.from_arrays(pa.nulls(MANY), MANY)}, 422, "/services"),
    "runs": (
        lambda: {"services": services(), "version": pa.RunEndEncodedArray.from_arrays(pa.array([1]), pa.array([1]))},
        422, "/version"),
    "views": (lambda: {"services": services(pa.array(["a", "b"], pa.string_view()))}, 422, "/services"),
    "a time beyond the calendar": (
        lambda: {"observed_at": pa.array([2**62], pa.timestamp("s", "UTC")), "services": services()},
        422, "/observed_at"),
    "a zone that there is not": (
        lambda: {"observed_at": pa.array([1], pa.timestamp("us", "Mars/Base")), "services": services()},
        422, "/observed_at"),
}  # fmt: skip


def check_refusal(body: bytes, media_type: str, status: int, pointer: str | None) -> None:
    """Check the answer to a body. It must be short, and decoding must take little memory."""
    tracemalloc.start()
    try:
        with pytest.raises(ServeError) as excinfo:
            decode_snapshot(body, media_type, LIMITS)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    answer = problem(excinfo.value)
    assert (answer.status, answer.pointer or "") == (status, pointer or "")
    assert len(answer.model_dump_json()) < 4000, "the wrong value is shown shortened"
    assert most < 2**26 + 4 * len(body)


@pytest.mark.parametrize("case", ARROWS)
def test_arrow_does_not_grow(case: str) -> None:
    make, status, pointer = ARROWS[case]
    check_refusal(stream(**make()), ARROW, status, pointer)


def test_a_column_given_twice_is_refused() -> None:
    table = pa.Table.from_arrays(
        [pa.array([AT]), pa.array([AT]), services()], ["observed_at", "observed_at", "services"]
    )
    check_refusal(write_stream(table), ARROW, 422, "/observed_at")


@pytest.mark.parametrize("name", [b"services", b"namespace"])
def test_names_that_are_no_text_are_refused(name: bytes) -> None:
    body = stream(services=services()).replace(name, b"\xff" + name[1:])
    with pytest.raises(MalformedDocument):
        decode_snapshot(body, ARROW)


def test_nanoseconds_are_cut() -> None:
    at = pa.array([1_772_334_720_000_000_001], pa.timestamp("ns", "UTC"))
    assert decode_snapshot(stream(observed_at=at, services=services()), ARROW).observed_at.isoformat() == (
        "2026-03-01T03:12:00+00:00"
    )


@pytest.mark.parametrize("depth", range(940, 1001, 4))
def test_every_depth_is_refused(depth: int) -> None:
    """The decoder's limit of depth is slightly above the limit of formatting a value."""
    with pytest.raises(ServeError):
        decode_snapshot(b'{"observed_at":%s1%s,"services":[]}' % (b"[" * depth, b"]" * depth))


@pytest.mark.parametrize(
    ("fields", "status", "pointer"),
    [
        ({"services": {"namespace": [0] * 10**5, "name": [0] * 10**5}}, 422, "/services"),
        ({"services": [{"namespace": "n", "name": LONG}] * 2}, 422, "/services/0/name"),
        ({"calls": [{"source": LONG, "destination": "n/a", "requests_per_second": 1}]}, 422, "/calls/0/source"),
        ({LONG: 1}, 422, f"/{LONG[:80]}"),
    ],
    ids=["long columns", "a long name twice", "a long end", "a long field"],
)
def test_json_does_not_grow(fields: dict[str, Any], status: int, pointer: str) -> None:
    document = {"observed_at": AT, "services": [{"namespace": "n", "name": "a"}]} | fields
    check_refusal(msgspec.json.encode(document), JSON, status, pointer)
