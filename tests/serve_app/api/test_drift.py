"""The drift of a mesh as a document, as advice, as gauges and as findings of the doctor."""

import json
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pytest

from model.checkpoint import load
from model.drift.call_sample import BLOCK_SECONDS
from model.drift.measures import MEASURES, Kind, Measure, Reference, no_distances
from model.drift.sketch import DriftSketch
from serve_app.api.drift import advice, drift_document
from serve_app.api.schemas.drift import DriftDocument
from serve_app.doctor.drift import drift_findings
from serve_app.exporter import PrometheusInstruments
from serve_app.metrics import DriftGauges
from serve_app.stores.records import StoredMesh
from serve_app.stores.scored_snapshot import StoredVerdict, drift_gauges, gauges
from tests.model.model_cases import settled_state

BLOCK = 81_900
SINCE = BLOCK * BLOCK_SECONDS - BLOCK_SECONDS  # two blocks
VERDICT = {
    "status": "normal", "mesh_score": 1.0, "threshold": 2.0, "probability": 0.1, "incidents": [], "coverage": 1.0,
    "silence": None, "muted": [], "reconstruction": None, "replayed": False,
}  # fmt: skip


def drifted(*measures: Measure, moved: float = 0.613) -> DriftSketch:
    """A sketch in which some measures are at three times their limits, since a Tuesday noon."""
    rows = [MEASURES.index(measure) for measure in measures]
    distances, shares, since = no_distances(), no_distances(), np.zeros(len(MEASURES))
    distances[:] = 0.1
    distances[rows], shares[rows], since[rows] = 0.5, moved, SINCE
    ratios = np.where(since > 0, 3.0, 0.2).astype(np.float32)
    return DriftSketch(distances=distances, moved=shares, since=since, ratios=ratios, judged=BLOCK, days=np.full(4, 6))


LATENCY = Measure(Reference.TRAINING, Kind.VALUES, "service.p50_latency")
SLOWEST = Measure(Reference.TRAINING, Kind.VALUES, "service.p99_latency")
CALLS = Measure(Reference.WEEK, Kind.CALLS)
LOST = Measure(Reference.WEEK, Kind.MISSING, "service.cpu_utilization")


def test_advice_says_what_drifts_since_when_and_which_command_to_run() -> None:
    (one,) = advice("shop", drifted(LATENCY, SLOWEST))
    since = datetime.fromtimestamp(SINCE, UTC)
    assert one.since == since
    assert one.text == (
        "the latencies of at least 61% of the services have differed from training's since "
        f"{since:%a} {since.day} {since:%b, %H:%M} UTC"
    )
    assert one.command == "tagae train weights.safetensors --recording FOLDER"


def test_missing_metrics_lead_to_the_doctor_of_the_mesh() -> None:
    (one,) = advice("shop", drifted(LOST))
    assert one.text.startswith("cpu_utilization has been missing for 50% more of the services than last week")
    assert one.command == "tagae doctor --source shop"


@pytest.mark.parametrize("measure", MEASURES, ids=lambda m: f"{m.reference} {m.kind} {m.channel}")
def test_every_measure_has_advice_in_words(measure: Measure) -> None:
    (one,) = advice("shop", drifted(measure))
    assert "nan" not in one.text
    assert one.command.startswith("tagae ")


def test_a_block_alone_is_no_drift() -> None:
    sketch = drifted(LATENCY)
    assert advice("shop", replace(sketch, since=np.where(sketch.since > 0, BLOCK * BLOCK_SECONDS, 0.0))) == []


def test_the_document_of_a_new_mesh_knows_nothing_yet() -> None:
    document = drift_document("shop", settled_state(), load())
    assert (document.judged_until, document.days, document.advice) == (None, 0, [])
    assert all(measure.distance is None for measure in document.measures)
    limits = {(m.reference, m.kind, m.channel): m.limit for m in document.measures}
    assert limits["training", "values", "service.p50_latency"] is not None, "the shipped weights have a reference"


def test_the_document_has_every_measure_with_its_limit() -> None:
    state = replace(settled_state(), drift=drifted(LATENCY, CALLS))
    document = DriftDocument.model_validate_json(drift_document("shop", state, load()).model_dump_json())
    assert len(document.measures) == len(MEASURES)
    active = [measure for measure in document.measures if measure.since is not None]
    assert {(one.reference, one.kind, one.channel) for one in active} == {
        ("training", "values", "service.p50_latency"),
        ("week", "calls", "mesh"),
    }
    assert document.judged_until == datetime.fromtimestamp((BLOCK + 1) * BLOCK_SECONDS, UTC)


def summary(record: StoredVerdict) -> StoredMesh:
    return StoredMesh("shop", 9, 7, datetime(2026, 1, 1, tzinfo=UTC), "", record.pack())


def test_the_drift_travels_with_the_verdict_to_the_metrics() -> None:
    sketch = drifted(LATENCY, CALLS)
    record = StoredVerdict(3, json.dumps(VERDICT).encode(), b"\0\n1", drift=drift_gauges(sketch))
    assert StoredVerdict.unpack(record.pack()) == record
    found = gauges(summary(record))
    assert found.drift is not None
    assert found.drift.drifting == 2
    text = PrometheusInstruments().text([found]).decode()
    label = 'channel="service.p50_latency",kind="values",mesh="shop",reference="training"'
    assert f"tagae_mesh_drift_ratio{{{label}}} 3.0" in text
    assert 'tagae_mesh_drifting{mesh="shop"} 2.0' in text


def test_a_record_of_other_measures_has_no_gauges_of_drift() -> None:
    for drift in (None, DriftGauges(1, (2.0, 3.0))):
        assert gauges(summary(StoredVerdict(3, json.dumps(VERDICT).encode(), drift=drift))).drift is None


def test_a_mesh_without_a_judged_block_has_no_numbers() -> None:
    assert drift_gauges(DriftSketch()) is None


def test_the_doctor_warns_about_drift_with_the_command() -> None:
    state = replace(settled_state(), drift=drifted(LATENCY))
    warning, *others = drift_findings("shop", drift_document("shop", state, load()))
    assert (warning.subject, warning.outcome) == ("drift of shop", "warning")
    assert warning.remedy.endswith("tagae train weights.safetensors --recording FOLDER")
    assert all(finding.outcome == "ok" for finding in others)


def test_the_doctor_says_how_far_it_knows() -> None:
    for sketch, words in ((DriftSketch(), "not known yet"), (drifted(), "training and its own last week")):
        document = drift_document("shop", replace(settled_state(), drift=sketch), load())
        (finding,) = (f for f in drift_findings("shop", document) if f.subject == "drift of shop")
        assert finding.outcome == "ok"
        assert words in finding.found
