"""Documents and packed bytes, decoded and encoded."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from lab.evaluation.load import decode_verdict_line
from model.snapshot import NODE_METRICS, MeshSnapshot, PlannedChange, Signal, SignalKind
from model.verdict import (
    Incident,
    IncidentKind,
    LimitForecast,
    NearbyChange,
    Reason,
    Reconstruction,
    Severity,
    Status,
    Suspect,
    Verdict,
    Watched,
)
from serve_app.api.codec import (
    ERRORS_LISTED,
    decode_snapshot,
    encode_verdict,
    pack_snapshot,
    snapshot_document,
    unpack_snapshot,
    verdict_line,
)
from serve_app.api.reason_text import watched_text
from serve_app.api.schemas.problem import problem
from serve_app.api.schemas.verdict import VerdictDocument
from serve_app.errors import CorruptState, InvalidDocument, MalformedDocument
from tests.builders import mesh_of
from tests.serve_app.api.snapshot_cases import call, document, snapshots

NOW = datetime(2026, 3, 1, 3, 14, tzinfo=UTC)


@given(snapshots())
@settings(deadline=None, max_examples=60)
def test_a_snapshot_survives_packing(snapshot: MeshSnapshot) -> None:
    back = unpack_snapshot(pack_snapshot(snapshot))
    assert (back.observed_at, back.digest) == (snapshot.observed_at, snapshot.digest)


def test_signals_survive_packing_beside_the_snapshot_before() -> None:
    lag = Signal(SignalKind.QUEUE_DEPTH, "shop/cart", 5200.0)
    throttled = Signal(SignalKind.CPU_THROTTLING, "shop/frontend", 0.1)
    before = decode_snapshot(_body())
    packed = pack_snapshot(replace(before, signals=(throttled, lag)))
    for back in (
        unpack_snapshot(packed),
        unpack_snapshot(packed, before),
        unpack_snapshot(packed, before.take([0], [])),
    ):
        assert back.signals == (throttled, lag)
    assert b"signal" not in pack_snapshot(before)


def _written_rates(values: np.ndarray[Any, Any]) -> list[str]:
    """Return the JSON texts of these request rates."""
    nodes = np.stack([values, *[np.full(len(values), np.nan)] * (len(NODE_METRICS) - 1)], axis=1)
    snapshot = mesh_of([f"a/{i}" for i in range(len(values))], nodes=nodes)
    written = json.loads(json.dumps(snapshot_document(snapshot)), parse_float=str)
    return [service["metrics"]["request_rate"] for service in written["services"]]


def test_numbers_are_written_in_the_fewest_digits() -> None:
    values = np.array([0, 0.1, 1 / 3, 5, 40.2, 0.0005, 12345.678, 16777216, 99999.99], np.float32)
    assert _written_rates(values) == [
        "0.0", "0.1", "0.33333334", "5.0", "40.2", "0.0005", "12345.678", "16777216.0", "99999.99",
    ]  # fmt: skip
    drawn = np.random.default_rng(0).lognormal(-2, 5, 20_000).astype(np.float32)
    assert [float(text) for text in _written_rates(drawn)] == [float(str(value)) for value in drawn]


@given(arrays.arrays(np.float32, 64, elements=st.floats(0, float(np.finfo(np.float32).max), width=32)))
@settings(deadline=None, max_examples=100)
def test_every_float32_reads_back_as_itself(values: np.ndarray[Any, Any]) -> None:
    assert np.array(_written_rates(values), np.float64).astype(np.float32).tolist() == values.tolist()


def _body(**fields: Any) -> bytes:
    return json.dumps(document(**fields)).encode()


def test_absent_and_null_are_not_observed() -> None:
    snapshot = decode_snapshot(_body())
    assert snapshot.node_ids == ("shop/frontend", "shop/db/primary", "shop/cart")
    assert snapshot.node_observed.sum() == 2
    assert snapshot.node_features[0, :2].tolist() == [100, 0.5]
    assert snapshot.edge_index.tolist() == [[0, 2], [2, 1]]
    assert snapshot.edge_observed.tolist() == [[True, False, False, False], [True, False, False, True]]
    assert snapshot.observed_at == NOW


def test_unknown_ends_are_listed_in_the_order_of_the_document() -> None:
    calls = [call(destination="shop/pay"), call(), call(source="shop/a", destination="shop/b")]
    with pytest.raises(InvalidDocument) as excinfo:
        decode_snapshot(_body(calls=calls))
    assert [e["pointer"] for e in excinfo.value.details["errors"]] == [
        "/calls/0/destination", "/calls/2/source", "/calls/2/destination",
    ]  # fmt: skip


def test_wrong_places_are_listed_up_to_a_limit() -> None:
    with pytest.raises(InvalidDocument) as excinfo:
        decode_snapshot(_body(calls=[call(source=f"shop/{i}") for i in range(100)]))
    assert [e["pointer"] for e in excinfo.value.details["errors"]] == [
        f"/calls/{i}/source" for i in range(ERRORS_LISTED)
    ]
    with pytest.raises(InvalidDocument, match="and 99 more") as excinfo:
        decode_snapshot(_body(calls=[call(p99_latency="slow") for _ in range(100)]))
    assert len(excinfo.value.details["errors"]) == ERRORS_LISTED


@pytest.mark.parametrize("body", [b"", b"{", b"\xff\xfe", b'{"observed_at": }'])
def test_bytes_that_are_not_json(body: bytes) -> None:
    with pytest.raises(MalformedDocument, match="expected a JSON document") as excinfo:
        decode_snapshot(body)
    assert problem(excinfo.value).status == 400


def _flip_byte(packed: bytes, position: int) -> bytes:
    return packed[:position] + bytes([packed[position] ^ 0xFF]) + packed[position + 1 :]


def test_damaged_packed_bytes_are_refused() -> None:
    packed = pack_snapshot(decode_snapshot(_body()))
    for damaged in (b"", packed[:7], packed[:-1], packed + b"x", _flip_byte(packed, 0), _flip_byte(packed, 9)):
        with pytest.raises(CorruptState, match="packed snapshot"):
            unpack_snapshot(damaged)
    with pytest.raises(CorruptState, match=r"expected tagae\.snapshot/1"):
        unpack_snapshot(packed.replace(b"tagae.snapshot/1", b"tagae.snapshot/9"))


def _reason(metric: str, observed: float, expected: float, **more: Any) -> Reason:
    return Reason(metric=metric, observed=observed, expected=expected, **{"since": NOW - timedelta(minutes=2), **more})


def _verdict(**fields: Any) -> Verdict:
    suspect = Suspect("shop/cart", 0.7, (_reason("p99_latency", 1.2, 0.08), _reason("request_rate", float("nan"), 4)))
    change = NearbyChange(PlannedChange("deploy", "shop/cart", "v2"), NOW - timedelta(seconds=40))
    incident = Incident(
        id="i-1",
        since=NOW,
        severity=Severity.MAJOR,
        score=6.5,
        suspects=(suspect,),
        affected=("shop/cart", "shop/web"),
        changes=(change,),
    )
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
    return Verdict(**{**values, **fields})


def test_a_verdict_line_is_one_line_of_json_that_can_be_read() -> None:
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


def test_a_reason_whose_text_shows_no_deviation_is_left_out() -> None:
    strong, weak = _reason("error_rate", 0.3, 0.0001), _reason("error_rate", 0.0, 0.0001)
    document = encode_verdict(_verdict(suspects=(Suspect("shop/cart", 0.7, (weak, strong, weak)),)))
    assert [reason.observed for reason in document.suspects[0].reasons] == [0.3]


@pytest.mark.parametrize(("latest", "latest_seconds"), [(4200.0, 4200.0), (float("inf"), None)])
def test_a_notice_has_its_forecast(latest: float, latest_seconds: float | None) -> None:
    leak = _reason("memory_utilization", 0.62, 0.4, forecast=LimitForecast(2400.0, 1500.0, latest))
    notice = Incident(
        id="n-1",
        since=NOW,
        severity=Severity.NOTICE,
        score=8.0,
        suspects=(Suspect("shop/cart", 1.0, (leak,)),),
        affected=("shop/cart",),
        recovering=True,
    )
    line = verdict_line(_verdict(status=Status.NORMAL, incidents=(notice,)))
    (document,) = json.loads(line)["incidents"]
    assert (document["severity"], document["recovering"]) == ("notice", True)
    (reason,) = document["suspects"][0]["reasons"]
    assert reason["forecast"] == {"seconds": 2400, "soonest_seconds": 1500, "latest_seconds": latest_seconds}
    read = decode_verdict_line(line)
    assert [(notice.severity, notice.recovering) for notice in read.notices] == [(Severity.NOTICE, True)]
    assert read.alerts == ()


def test_watched_services_lost_incidents_and_a_scope_survive_a_line() -> None:
    since = NOW - timedelta(minutes=1)
    slow = Reason(metric="p99_latency", observed=0.2, expected=0.08, since=since)
    watched = Watched("shop/tax", 4.9, 5.8, since, 1, 3, (slow,))
    traffic = Incident(
        id="i-2",
        since=since,
        severity=Severity.MAJOR,
        score=8.0,
        suspects=(),
        affected=(),
        kind=IncidentKind.TRAFFIC_LOST,
        scope="shop/*",
    )
    verdict = _verdict(incidents=(traffic,), watching=(watched,), lost=("i-1",))
    line = verdict_line(verdict)
    (shown,) = json.loads(line)["watching"]
    assert (shown["seen"], shown["needed"], shown["score"], shown["level"]) == (1, 3, 4.9, 5.8)
    assert shown["text"] == "alerts after 2 more snapshots like this"
    assert [reason["text"] for reason in shown["reasons"]] == ["p99 latency 200 ms, expected 80 ms, since 03:13 UTC"]
    read = decode_verdict_line(line)
    assert read.watching == (replace(watched, reasons=()),)
    assert (read.lost, read.incidents[0].kind, read.incidents[0].scope) == (("i-1",), "traffic_lost", "shop/*")


@pytest.mark.parametrize(
    ("whole", "text"),
    [
        (Reconstruction(0.071, None, None, None), "reconstruction loss 0.071"),
        (
            Reconstruction(0.071, 0.94, 0.0764, 1.83),
            "reconstruction loss 0.071, usually below 0.076; embedding displacement 0.9, usually below 1.8",
        ),
        (
            Reconstruction(0.123, 0.94, 0.0764, 1.83, True, NOW - timedelta(minutes=1)),
            "the mesh as a whole is unusual since 03:13 UTC: reconstruction loss 0.123, usually below 0.076",
        ),
    ],
)
def test_the_mesh_as_a_whole_is_in_a_line_and_in_words(whole: Reconstruction, text: str) -> None:
    shown = json.loads(verdict_line(_verdict(reconstruction=whole)))["reconstruction"]
    assert shown["text"] == text
    assert (shown["loss"], shown["drift_threshold"], shown["exceeded"]) == (
        whole.loss,
        whole.displacement_threshold,
        whole.exceeded,
    )


def test_a_stored_verdict_of_an_earlier_version_watches_nothing() -> None:
    stored = json.loads(verdict_line(_verdict()))
    del stored["watching"], stored["lost"], stored["reconstruction"]
    for incident in stored["incidents"]:
        del incident["scope"]
    old = VerdictDocument.model_validate_json(json.dumps(stored))
    assert (old.watching, old.lost, [incident.scope for incident in old.incidents]) == ([], [], [""])
    assert old.reconstruction is None
    read = decode_verdict_line(json.dumps(stored))
    assert (read.watching, read.lost, read.incidents[0].scope) == ((), (), "")


@pytest.mark.parametrize(
    ("seen", "needed", "text"),
    [
        (0, 3, "alerts after 3 snapshots like this"),
        (2, 3, "alerts after 1 more snapshot like this"),
        (3, 3, "alerts after 1 more snapshot like this"),
    ],
)
def test_what_an_alert_takes_in_words(seen: int, needed: int, text: str) -> None:
    assert watched_text(Watched("shop/tax", 4.9, 5.8, NOW, seen, needed)) == text


def test_an_unknown_threshold_is_null_and_a_score_never_is() -> None:
    assert json.loads(verdict_line(_verdict(threshold=float("inf"))))["threshold"] is None
    with pytest.raises(ValueError, match="mesh_score"):
        encode_verdict(_verdict(mesh_score=float("nan")))
