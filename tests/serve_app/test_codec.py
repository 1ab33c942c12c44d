"""Documents and packed bytes against the house's own types."""

import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from model.snapshot import EDGE_METRICS, NODE_METRICS, RATIOS, MeshSnapshot, PlannedChange, Sensitivity, ServicePolicy
from model.verdict import Incident, NearbyChange, Reason, Severity, Status, Suspect, Verdict
from serve_app.api.codec import (
    ERRORS_LISTED,
    Limits,
    decode_snapshot,
    encode_verdict,
    pack_snapshot,
    snapshot_document,
    unpack_snapshot,
    verdict_line,
)
from serve_app.api.problems import problem
from serve_app.api.schemas.verdict import VerdictDocument
from serve_app.errors import CorruptState, DocumentTooLarge, InvalidDocument, MalformedDocument

NOW = datetime(2026, 3, 1, 3, 14, tzinfo=UTC)
text = st.text(st.characters(categories=["L", "N", "P", "S"]), min_size=1, max_size=8)
reasons = st.text(st.characters(categories=["L", "N", "P", "S", "Zs"]), max_size=5)
segments = st.from_regex(re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.:-]{0,6}[A-Za-z0-9_])?", re.ASCII), fullmatch=True)


sensitivity = st.sampled_from([None, *Sensitivity])


@st.composite
def snapshots(draw: st.DrawFn) -> MeshSnapshot:
    names = st.lists(segments, min_size=2, max_size=3).map("/".join)
    ids = draw(st.lists(names, min_size=1, max_size=6, unique=True))
    pairs = st.tuples(*[st.integers(0, len(ids) - 1)] * 2)
    calls = draw(st.lists(pairs, max_size=8, unique=True))

    def features(rows: int, metrics: tuple[str, ...], required: int) -> np.ndarray[Any, Any]:
        ratios = np.array([name in RATIOS for name in metrics])
        values = draw(arrays.arrays(np.float32, (rows, len(metrics)), elements=st.floats(0, 2.0**49, width=32)))
        values = np.where(ratios, np.minimum(values, 1), values)
        missing = draw(arrays.arrays(np.bool_, values.shape))
        missing[:, :required] = False
        return np.where(missing, np.float32(np.nan), values)

    return MeshSnapshot.create(
        node_ids=ids,
        edge_index=np.array(calls, dtype=np.int64).reshape(-1, 2).T,
        node_features=features(len(ids), NODE_METRICS, 0),
        edge_features=features(len(calls), EDGE_METRICS, 1),
        observed_at=draw(st.datetimes(datetime(1990, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC))),
        changes=draw(st.lists(st.builds(PlannedChange, text, names, reasons), max_size=2)),
        policies=draw(st.lists(st.builds(ServicePolicy, names, sensitivity, reasons), max_size=2)),
    )


@given(snapshots())
@settings(deadline=None, max_examples=60)
def test_json_and_back_is_the_same_snapshot(snapshot: MeshSnapshot) -> None:
    back = decode_snapshot(json.dumps(snapshot_document(snapshot)).encode())
    assert (back.observed_at, back.digest) == (snapshot.observed_at, snapshot.digest)


@given(snapshots())
@settings(deadline=None, max_examples=60)
def test_packed_and_back_is_the_same_snapshot(snapshot: MeshSnapshot) -> None:
    back = unpack_snapshot(pack_snapshot(snapshot))
    assert (back.observed_at, back.digest) == (snapshot.observed_at, snapshot.digest)


def _on_the_way(values: np.ndarray[Any, Any]) -> list[str]:
    """How these request rates of services are written in JSON."""
    snapshot = MeshSnapshot.create(
        node_ids=[f"a/{i}" for i in range(len(values))],
        edge_index=np.empty((2, 0), np.int64),
        node_features=np.stack([values, *[np.full(len(values), np.nan)] * (len(NODE_METRICS) - 1)], axis=1),
        edge_features=np.empty((0, len(EDGE_METRICS))),
        observed_at=NOW,
    )
    written = json.loads(json.dumps(snapshot_document(snapshot)), parse_float=str)
    return [service["metrics"]["request_rate"] for service in written["services"]]


def test_numbers_are_written_in_the_fewest_digits() -> None:
    values = np.array([0, 0.1, 1 / 3, 5, 40.2, 0.0005, 12345.678, 16777216, 99999.99], np.float32)
    assert _on_the_way(values) == [
        "0.0", "0.1", "0.33333334", "5.0", "40.2", "0.0005", "12345.678", "16777216.0", "99999.99",
    ]  # fmt: skip
    drawn = np.random.default_rng(0).lognormal(-2, 5, 20_000).astype(np.float32)
    assert [float(text) for text in _on_the_way(drawn)] == [float(str(value)) for value in drawn]


@given(arrays.arrays(np.float32, 64, elements=st.floats(0, float(np.finfo(np.float32).max), width=32)))
@settings(deadline=None, max_examples=100)
def test_every_float32_reads_back_as_itself(values: np.ndarray[Any, Any]) -> None:
    assert np.array(_on_the_way(values), np.float64).astype(np.float32).tolist() == values.tolist()


def document(**changed: Any) -> dict[str, Any]:
    document: dict[str, Any] = {
        "observed_at": "2026-03-01T03:14:00Z",
        "services": [
            {"namespace": "shop", "name": "frontend", "metrics": {"request_rate": 100, "error_rate": 0.5}},
            {"namespace": "shop", "name": "db/primary", "metrics": {"request_rate": None}},
            {"namespace": "shop", "name": "cart"},
        ],
        "calls": [
            {"source": "shop/frontend", "destination": "shop/cart", "requests_per_second": 4},
            {"source": "shop/cart", "destination": "shop/db/primary", "requests_per_second": 0, "p99_latency": 0.2},
        ],
    }
    return {**document, **changed}


def _body(**changed: Any) -> bytes:
    return json.dumps(document(**changed)).encode()


def test_absent_and_null_are_not_observed() -> None:
    snapshot = decode_snapshot(_body())
    assert snapshot.node_ids == ("shop/frontend", "shop/db/primary", "shop/cart")
    assert snapshot.node_observed.sum() == 2
    assert snapshot.node_features[0, :2].tolist() == [100, 0.5]
    assert snapshot.edge_index.tolist() == [[0, 2], [2, 1]]
    assert snapshot.edge_observed.tolist() == [[True, False, False, False], [True, False, False, True]]
    assert snapshot.observed_at == NOW


def _call(**changed: Any) -> dict[str, Any]:
    return {"source": "shop/cart", "destination": "shop/frontend", "requests_per_second": 1, **changed}


WRONG: list[tuple[dict[str, Any], str, str]] = [
    (
        {"calls": [*document()["calls"], _call(destination="shop/pay")]},
        "/calls/2/destination",
        "call 2: destination 'shop/pay' is not among the services (3 given); add it or drop the call",
    ),
    ({"calls": [_call(requests_per_second=None)]}, "/calls/0/requests_per_second", "came null"),
    ({"calls": [_call(requests_per_second=-1)]}, "/calls/0/requests_per_second", "call 0: requests_per_second"),
    ({"calls": [_call(), _call()]}, "/calls/1", "call 1: the call 'shop/cart' to 'shop/frontend' was already"),
    ({"calls": [{"source": "shop/cart"}]}, "/calls/0/destination", "'destination' is required"),
    (
        {"services": [{"namespace": "a", "name": "x", "metrics": {"error_rate": 1.2}}], "calls": []},
        "/services/0/metrics/error_rate",
        "service 0: error_rate: expected a ratio from 0 to 1, came 1.2",
    ),
    (
        {"services": [{"namespace": "a", "name": "x", "metrics": {"reqest_rate": 1}}], "calls": []},
        "/services/0/metrics/reqest_rate",
        "'reqest_rate' is not a field",
    ),
    (
        {"services": [{"namespace": "a", "name": "x", "metrics": {"p50_latency": 1e300}}], "calls": []},
        "/services/0/metrics/p50_latency",
        "expected a finite number",
    ),
    (
        {"services": [{"namespace": "a", "name": "x", "metrics": {"p50_latency": float("nan")}}], "calls": []},
        "/services/0/metrics/p50_latency",
        "came NaN",
    ),
    ({"services": [{"namespace": "a/b", "name": "x"}], "calls": []}, "/services/0/namespace", '"a/b"'),
    ({"services": [{"namespace": "a", "name": "x"}] * 2, "calls": []}, "/services/1", "service 1: 'a/x' was"),
    ({"services": [], "calls": []}, "/services", "at least one service"),
    ({"observed_at": "2026-03-01T03:14:00"}, "/observed_at", "timezone"),
    ({"extra": 1}, "/extra", "'extra' is not a field"),
    ({"version": 2}, "/version", "should be 1"),
    ({"policies": [{"service": "cart", "mute": "x"}]}, "/policies/0/service", "pattern"),
    ({"policies": [{"service": "shop/cart", "sensitivity": "loud"}]}, "/policies/0/sensitivity", "'low'"),
    ({"policies": [{"service": "shop/cart", "mute": "x" * 201}]}, "/policies/0/mute", "at most 200"),
    ({"policies": [{"service": "shop/cart", "muted": True}]}, "/policies/0/muted", "'muted' is not a field"),
]


@pytest.mark.parametrize(("changed", "pointer", "words"), WRONG)
def test_what_is_wrong_is_said_with_its_place(changed: dict[str, Any], pointer: str, words: str) -> None:
    with pytest.raises(InvalidDocument) as caught:
        decode_snapshot(_body(**changed))
    body = problem(caught.value)
    assert (body.status, body.pointer) == (422, pointer)
    assert words in body.detail
    assert body.errors[0].pointer == pointer


def test_unknown_ends_are_listed_in_the_order_of_the_document() -> None:
    calls = [_call(destination="shop/pay"), _call(), _call(source="shop/a", destination="shop/b")]
    with pytest.raises(InvalidDocument) as caught:
        decode_snapshot(_body(calls=calls))
    assert [e["pointer"] for e in caught.value.details["errors"]] == [
        "/calls/0/destination", "/calls/2/source", "/calls/2/destination",
    ]  # fmt: skip


def test_all_wrong_places_are_listed_up_to_a_limit() -> None:
    with pytest.raises(InvalidDocument) as caught:
        decode_snapshot(_body(calls=[_call(source=f"shop/{i}") for i in range(100)]))
    assert [e["pointer"] for e in caught.value.details["errors"]] == [
        f"/calls/{i}/source" for i in range(ERRORS_LISTED)
    ]
    with pytest.raises(InvalidDocument, match="and 99 more") as caught:
        decode_snapshot(_body(calls=[_call(p99_latency="slow") for _ in range(100)]))
    assert len(caught.value.details["errors"]) == ERRORS_LISTED


@pytest.mark.parametrize("body", [b"", b"{", b"\xff\xfe", b'{"observed_at": }'])
def test_bytes_that_are_not_json(body: bytes) -> None:
    with pytest.raises(MalformedDocument, match="expected a JSON document") as caught:
        decode_snapshot(body)
    assert problem(caught.value).status == 400


@pytest.mark.parametrize(("limits", "place"), [({"max_services": 2}, "/services"), ({"max_calls": 1}, "/calls")])
def test_limits(limits: dict[str, int], place: str) -> None:
    assert decode_snapshot(_body(), limits=Limits(max_services=3, max_calls=2)).num_nodes == 3
    with pytest.raises(DocumentTooLarge) as caught:
        decode_snapshot(_body(), limits=Limits(**limits))
    assert (problem(caught.value).status, problem(caught.value).pointer) == (413, place)


def _flipped(packed: bytes, position: int) -> bytes:
    return packed[:position] + bytes([packed[position] ^ 0xFF]) + packed[position + 1 :]


def test_damaged_packed_bytes_are_refused() -> None:
    packed = pack_snapshot(decode_snapshot(_body()))
    for damaged in (b"", packed[:7], packed[:-1], packed + b"x", _flipped(packed, 0), _flipped(packed, 9)):
        with pytest.raises(CorruptState, match="packed snapshot"):
            unpack_snapshot(damaged)
    with pytest.raises(CorruptState, match=r"expected tagae\.snapshot/1"):
        unpack_snapshot(packed.replace(b"tagae.snapshot/1", b"tagae.snapshot/9"))


def _reason(metric: str, observed: float, expected: float, **more: Any) -> Reason:
    return Reason(metric, observed, expected, **{"since": NOW - timedelta(minutes=2), **more})


def _verdict(**changed: Any) -> Verdict:
    suspect = Suspect("shop/cart", 0.7, (_reason("p99_latency", 1.2, 0.08), _reason("request_rate", float("nan"), 4)))
    change = NearbyChange(PlannedChange("deploy", "shop/cart", "v2"), NOW - timedelta(seconds=40))
    incident = Incident("i-1", NOW, Severity.MAJOR, 6.5, (suspect,), ("shop/cart", "shop/web"), (change,))
    values: dict[str, Any] = {
        "observed_at": NOW,
        "sequence": 17,
        "status": Status.ANOMALOUS,
        "mesh_score": 6.5,
        "threshold": 2.5,
        "probability": 0.93,
        "suspects": (suspect,),
        "incidents": (incident,),
        "coverage": 0.5,
        "missing_parts": (3,),
        "model_digest": "abc",
    }
    return Verdict(**{**values, **changed})


def test_a_verdict_line_is_one_line_of_json_that_reads_back() -> None:
    line = verdict_line(_verdict())
    assert "\n" not in line
    document = json.loads(line)
    assert document["observed_at"] == "2026-03-01T03:14:00Z"
    assert (document["status"], document["sequence"], document["model"]) == ("anomalous", 17, "abc")
    assert document["missing_parts"] == [3]
    (incident,) = document["incidents"]
    assert (incident["id"], incident["severity"], incident["affected"]) == ("i-1", "major", ["shop/cart", "shop/web"])
    assert incident["changes"] == [
        {
            "kind": "deploy",
            "service": "shop/cart",
            "reason": "v2",
            "at": "2026-03-01T03:13:20Z",
            "text": "began 40 s after deploy of shop/cart (v2)",
        }
    ]
    assert incident["suspects"] == document["suspects"]
    first, second = document["suspects"][0]["reasons"]
    assert first["text"] == "p99 latency 1.2 s, expected 0.08 s, since 03:12 UTC"
    assert (first["source"], first["destination"], first["load"]) == (None, None, 1.0)
    assert (first["observed"], second["observed"]) == (1.2, None)
    assert VerdictDocument.model_validate_json(line) == encode_verdict(_verdict())


def test_a_reason_that_reads_as_expected_is_left_out() -> None:
    told, weak = _reason("error_rate", 0.3, 0.0001), _reason("error_rate", 0.0, 0.0001)
    document = encode_verdict(_verdict(suspects=(Suspect("shop/cart", 0.7, (weak, told, weak)),)))
    assert [reason.observed for reason in document.suspects[0].reasons] == [0.3]


def test_an_unknown_threshold_is_null_and_a_score_never_is() -> None:
    assert json.loads(verdict_line(_verdict(threshold=float("inf"))))["threshold"] is None
    with pytest.raises(ValueError, match="mesh_score"):
        encode_verdict(_verdict(mesh_score=float("nan")))
