"""A snapshot in every form: the same snapshot, or the same error at the same place."""

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model.snapshot import (
    MeshSnapshot,
    Sensitivity,
    ServicePolicy,
    Signal,
    SignalKind,
)
from serve_app.api.codec import (
    ARROW,
    JSON,
    MEDIA_TYPES,
    Limits,
    decode_snapshot,
    encode_snapshot,
    snapshot_document,
)
from serve_app.api.schemas.problem import problem
from serve_app.errors import DocumentTooLarge, InvalidDocument, MalformedDocument, UnsupportedMediaType
from tests.serve_app.api.snapshot_cases import WRONG, WRONG_TYPES, document, snapshots

GOLDEN = Path(__file__).parents[1] / "golden"
SUFFIXES = {JSON: "json", ARROW: "arrow"}
Encoder = Callable[[dict[str, Any]], bytes]


def arrow(rows: dict[str, Any], *more: dict[str, Any]) -> bytes:
    return stream(pa.Table.from_pylist([rows, *more]))


def stream(table: pa.Table, **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def dictionaries(rows: dict[str, Any]) -> bytes:
    """Encode as Arrow with dictionary-encoded names of ends."""
    if not rows["calls"]:
        return arrow(rows)
    calls = pa.array(rows["calls"])
    columns = [c.dictionary_encode() if pa.types.is_string(c.type) else c for c in calls.flatten()]
    encoded = pa.StructArray.from_arrays(columns, [f.name for f in calls.type])
    cell = pa.ListArray.from_arrays(pa.array([0, len(encoded)], pa.int32()), encoded)
    table = pa.Table.from_pylist([rows])
    return stream(table.set_column(table.column_names.index("calls"), "calls", cell))


def positions(rows: dict[str, Any]) -> bytes:
    """Encode as Arrow with positions of services as ends of calls."""
    ids = [f"{service['namespace']}/{service['name']}" for service in rows["services"]]
    ends = ("source", "destination")
    return arrow(rows | {"calls": [call | {end: ids.index(call[end]) for end in ends} for call in rows["calls"]]})


FORMS: dict[str, tuple[str, Encoder]] = {
    "JSON": (JSON, lambda rows: json.dumps(rows).encode()),
    "Arrow": (ARROW, arrow),
    "Arrow dictionaries": (ARROW, dictionaries),
    "Arrow positions": (ARROW, positions),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_is_the_same_snapshot(form: str) -> None:
    media_type, encode = FORMS[form]
    context = {
        "changes": [{"kind": "deploy", "service": "shop/cart", "reason": "v2"}],
        "policies": [{"service": "shop/cart", "sensitivity": "low"}, {"service": "shop/*", "mute": "being moved"}],
    }
    services = document()["services"]
    services[1] |= {"signals": {"queue_depth": 5200, "disk_pressure": 0.1, "oom_kills": None}}
    services[2] |= {"signals": {"cpu_throttling": 0.4}}
    context["services"] = services
    expected = decode_snapshot(json.dumps(document(**context)).encode())
    snapshot = decode_snapshot(encode(document(**context)), media_type)
    assert (snapshot.digest, snapshot.observed_at) == (expected.digest, expected.observed_at)
    assert snapshot.signals == (
        Signal(SignalKind.DISK_PRESSURE, "shop/db/primary", 0.1),
        Signal(SignalKind.QUEUE_DEPTH, "shop/db/primary", 5200.0),
        Signal(SignalKind.CPU_THROTTLING, "shop/cart", 0.4),
    )
    assert snapshot.policies == (
        ServicePolicy("shop/cart", Sensitivity.LOW),
        ServicePolicy("shop/*", mute="being moved"),
    )


@pytest.mark.parametrize(
    ("form", "fields", "pointer", "words"),
    [*((form, *row) for form in FORMS for row in WRONG), *(("JSON", *row) for row in WRONG_TYPES)],
)
def test_every_format_reports_the_same_error(form: str, fields: dict[str, Any], pointer: str, words: str) -> None:
    media_type, encode = FORMS[form]
    try:
        body = encode(document(**fields))
    except (KeyError, ValueError, IndexError, pa.ArrowException):
        pytest.skip("this form cannot even write it")
    with pytest.raises(InvalidDocument) as excinfo:
        decode_snapshot(body, media_type)
    answer = problem(excinfo.value)
    assert (answer.status, answer.pointer, answer.errors[0].pointer) == (422, pointer, pointer)
    if form == "JSON" or ("NaN" not in words and "null" not in words):  # forms differ in how they write these two
        assert words in answer.detail


@given(snapshots(), st.sampled_from(MEDIA_TYPES))
@settings(deadline=None, max_examples=120)
def test_a_snapshot_survives_encoding(snapshot: MeshSnapshot, media_type: str) -> None:
    found = decode_snapshot(encode_snapshot(snapshot, media_type), media_type)
    assert (found.digest, found.observed_at) == (snapshot.digest, snapshot.observed_at)


def require_whole(found: MeshSnapshot, media_type: str) -> None:
    """Check that a snapshot that was read can be written and read again."""
    again = decode_snapshot(encode_snapshot(found, media_type), media_type)
    assert (again.digest, again.observed_at) == (found.digest, found.observed_at)


@pytest.mark.slow
@given(snapshots(), st.sampled_from(MEDIA_TYPES), st.data())
@settings(deadline=None, max_examples=250)
def test_damaged_bytes_are_read_or_refused(snapshot: MeshSnapshot, media_type: str, data: st.DataObject) -> None:
    body = bytearray(encode_snapshot(snapshot, media_type))
    for _ in range(data.draw(st.integers(1, 4))):
        where = data.draw(st.integers(0, len(body) - 1))
        cut = data.draw(st.sampled_from(["set", "drop", "repeat"]))
        if cut == "set":
            body[where] = data.draw(st.integers(0, 255))
        elif cut == "drop" and len(body) > 8:
            del body[where : where + data.draw(st.integers(1, 8))]
        else:
            body[where:where] = body[where : where + data.draw(st.integers(1, 16))]
    with suppress(InvalidDocument):
        require_whole(decode_snapshot(bytes(body), media_type), media_type)


@given(st.binary(max_size=400), st.sampled_from(MEDIA_TYPES))
@settings(deadline=None, max_examples=150)
def test_any_bytes_are_refused(body: bytes, media_type: str) -> None:
    with pytest.raises(InvalidDocument):
        decode_snapshot(body, media_type)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(st.sampled_from(["observed_at", "services", "calls", "changes", "version"]), json_values)
@settings(deadline=None, max_examples=200)
def test_any_value_of_a_field_is_read_or_refused(field: str, value: Any) -> None:
    body = json.dumps(document(**{field: value})).encode()
    with suppress(InvalidDocument):
        require_whole(decode_snapshot(body), JSON)


def test_arrow_of_other_columns_or_types() -> None:
    table = pa.Table.from_pylist([document()])
    with pytest.raises(InvalidDocument, match="'extra' is not a field"):
        decode_snapshot(stream(table.append_column("extra", pa.array([1]))), ARROW)
    with pytest.raises(InvalidDocument) as excinfo:
        decode_snapshot(stream(table.drop_columns(["services"])), ARROW)
    assert problem(excinfo.value).pointer == "/services"
    numbers = pa.Table.from_pylist([document(services=[{"namespace": "shop", "name": 7}], calls=[])])
    with pytest.raises(InvalidDocument) as excinfo:
        decode_snapshot(stream(numbers), ARROW)
    assert problem(excinfo.value).pointer == "/services/0/name"


@pytest.mark.parametrize("place", ["columns", "fields of a struct"])
def test_arrow_of_very_many_fields_is_refused_before_it_is_read(place: str) -> None:
    """Each field costs time even without rows: 280,000 of them fit in a body."""
    many = {f"unknown{i}": 1 for i in range(300)}
    changed = document(**many) if place == "columns" else document(services=[{"namespace": "shop", "name": "a"} | many])
    with pytest.raises(InvalidDocument, match=r"fields is too large: the limit is 256"):
        decode_snapshot(stream(pa.Table.from_pylist([changed])), ARROW)


def test_arrow_refuses_compressed_buffers() -> None:
    table = pa.Table.from_pylist([document()])
    for codec in ("lz4", "zstd"):
        with pytest.raises(MalformedDocument, match="plain buffers"):
            decode_snapshot(stream(table, compression=codec), ARROW)


def test_several_snapshots_in_one_request_are_refused() -> None:
    documents = [document(observed_at=f"2026-03-01T03:{minute:02}:00Z") for minute in range(3)]
    for media_type, body in ((JSON, json.dumps({"snapshots": documents}).encode()), (ARROW, arrow(*documents))):
        with pytest.raises(InvalidDocument):
            decode_snapshot(body, media_type)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("limits", "pointer"), [(Limits(max_services=2), "/services"), (Limits(max_calls=1), "/calls")]
)
def test_limits_hold_in_every_form(form: str, limits: Limits, pointer: str) -> None:
    media_type, encode = FORMS[form]
    assert decode_snapshot(encode(document()), media_type, Limits(max_services=3, max_calls=2)).num_nodes == 3
    with pytest.raises(DocumentTooLarge) as excinfo:
        decode_snapshot(encode(document()), media_type, limits)
    assert (problem(excinfo.value).status, problem(excinfo.value).pointer) == (413, pointer)


@pytest.mark.parametrize("media_type", ["text/csv", "application/vnd.msgpack", "application/msgpack"])
def test_other_media_types_are_refused(media_type: str) -> None:
    with pytest.raises(UnsupportedMediaType, match=f"expected one of {JSON}, {ARROW}, got") as excinfo:
        decode_snapshot(b"{}", media_type)
    assert problem(excinfo.value).status == 415


@pytest.mark.parametrize("field", ["services", "calls"])
def test_columns_are_refused_and_the_error_says_where_rows_are_described(field: str) -> None:
    columns = json.dumps(document(**{field: {"error_rate": [1, 1], "p99_latency": [1, 1]}})).encode()
    with pytest.raises(InvalidDocument, match=r"a list of rows.*SnapshotDocument in /openapi\.json") as excinfo:
        decode_snapshot(columns)
    assert (problem(excinfo.value).status, problem(excinfo.value).pointer) == (422, f"/{field}")


@pytest.mark.parametrize("media_type", MEDIA_TYPES)
def test_documents_of_the_past_are_still_read(media_type: str) -> None:
    """Golden files must stay readable for clients that write them. They change only with a new version."""
    expected = json.loads((GOLDEN / "snapshot.expected.json").read_text())
    snapshot = decode_snapshot((GOLDEN / f"snapshot.{SUFFIXES[media_type]}").read_bytes(), media_type)
    assert json.loads(json.dumps(snapshot_document(snapshot))) == expected


@pytest.mark.parametrize("form", FORMS)
def test_a_service_twice_is_refused_although_a_call_names_it(form: str) -> None:
    media_type, encode = FORMS[form]
    services = [{"namespace": "shop", "name": name} for name in ("frontend", "cart", "db/primary", "frontend")]
    with pytest.raises(InvalidDocument, match="'shop/frontend' was already given") as excinfo:
        decode_snapshot(encode(document(services=services)), media_type)
    assert problem(excinfo.value).pointer == "/services/3"


SPACED = b'{"observed_at" : "2026-03-01T03:12:00Z", "services" :[{"namespace":"a","name":"b"%s}]}'


@pytest.mark.parametrize(
    "repeated", [b',"name":"b"', b',"name" :"b"', b',"n\\u0061me":"b"', b',"metrics":null,"metrics"\n:null']
)
def test_a_repeated_key_in_json_is_refused_however_it_is_written(repeated: bytes) -> None:
    assert decode_snapshot(SPACED % b"").node_ids == ("a/b",)
    for body in (SPACED % repeated, (SPACED % repeated).replace(b'" :', b'":')):
        with pytest.raises(InvalidDocument, match="more than once"):
            decode_snapshot(body)


@pytest.mark.parametrize("text", ['":', ":a", "a : b", "a:b", "q\\uote"])
def test_colons_in_texts_are_no_keys(text: str) -> None:
    change = {"kind": text, "service": "shop/cart", "reason": text}
    for separators in ((",", ":"), (", ", " : ")):
        body = json.dumps(document(changes=[change]), separators=separators).encode()
        assert decode_snapshot(body).changes[0].kind == text
    repeated = json.dumps(document(changes=[change])).replace('"kind":', '"kind": "x", "kind":').encode()
    with pytest.raises(InvalidDocument, match="more than once"):
        decode_snapshot(repeated)


def test_unusual_types_of_arrow_are_read() -> None:
    """Names as a dictionary, times in other units, fields that are null everywhere, and decimals."""
    expected = decode_snapshot(json.dumps(document()).encode())
    table = pa.Table.from_pylist([document(changes=None, extra=None)])
    services = pa.array(document()["services"])
    columns = [c.dictionary_encode() if pa.types.is_string(c.type) else c for c in services.flatten()]
    encoded = pa.StructArray.from_arrays(columns, [f.name for f in services.type])
    cell = pa.ListArray.from_arrays(pa.array([0, len(encoded)], pa.int32()), encoded)
    table = table.set_column(table.column_names.index("services"), "services", cell)
    for unit in ("s", "ms", "us", "ns"):
        at = pa.array([expected.observed_at], pa.timestamp("us", "UTC")).cast(pa.timestamp(unit, "Europe/Berlin"))
        snapshot = decode_snapshot(
            stream(table.set_column(table.column_names.index("observed_at"), "observed_at", at)), ARROW
        )
        assert (snapshot.digest, snapshot.observed_at) == (expected.digest, expected.observed_at)
    rates = pa.StructArray.from_arrays([pa.array([1]).cast(pa.decimal128(20, 1))], ["request_rate"])
    one = pa.StructArray.from_arrays([pa.array(["a"]), pa.array(["b"]), rates], ["namespace", "name", "metrics"])
    exact = pa.table({"observed_at": ["2026-03-01T03:12:00Z"], "services": pa.ListArray.from_arrays([0, 1], one)})
    assert decode_snapshot(stream(exact), ARROW).node_features[0, 0] == 1
