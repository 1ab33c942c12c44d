"""Documents for clients: the OpenAPI schema and strict validation."""

import json
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from model.snapshot import EDGE_METRICS, LARGEST_VALUE, NODE_METRICS, RATIOS, SHARES_OF_ONE, SignalKind
from model.verdict import IncidentKind, Severity, Status
from serve_app.api.schemas.base import Instant
from serve_app.api.schemas.problem import Problem
from serve_app.api.schemas.snapshot import ServiceMetrics, SnapshotDocument
from serve_app.api.schemas.verdict import IncidentDocument, VerdictDocument
from serve_app.api.schemas.views import MeshDocument

SCHEMA = SnapshotDocument.model_json_schema()


def _limits(field: dict[str, Any]) -> tuple[float | None, float | None]:
    number = next(option for option in field.get("anyOf", [field]) if option["type"] == "number")
    return number.get("minimum"), number.get("maximum")


def test_the_metrics_match_the_model_with_their_ranges() -> None:
    nodes = SCHEMA["$defs"]["ServiceMetrics"]["properties"]
    edges = SCHEMA["$defs"]["CallDocument"]["properties"]
    assert tuple(nodes) == NODE_METRICS
    assert tuple(edges) == ("source", "destination", *EDGE_METRICS)
    for name, field in [*nodes.items(), *((name, edges[name]) for name in EDGE_METRICS)]:
        assert _limits(field) == (0, 1 if name in RATIOS else LARGEST_VALUE), name


def test_the_signals_match_the_model_with_their_ranges() -> None:
    signals = SCHEMA["$defs"]["ServiceSignals"]["properties"]
    assert tuple(signals) == tuple(SignalKind)
    for kind, field in signals.items():
        assert _limits(field) == (0, 1 if kind in SHARES_OF_ONE else LARGEST_VALUE), kind


def test_every_object_of_the_request_forbids_other_fields() -> None:
    assert all(d["additionalProperties"] is False for d in (SCHEMA, *SCHEMA["$defs"].values()))


def test_the_example_of_the_documentation_is_valid() -> None:
    (example,) = SCHEMA["examples"]
    assert SnapshotDocument.model_validate_json(json.dumps(example)).services[1]["name"] == "cart"


def test_the_enumerations_of_the_schema_match_the_model() -> None:
    status = VerdictDocument.model_fields["status"].description or ""
    severity, kind = (IncidentDocument.model_fields[name].description or "" for name in ("severity", "kind"))
    assert [word for word in Status if f"`{word}`" not in status] == []
    assert [word for word in Severity if f"`{word}`" not in severity] == []
    assert [word for word in IncidentKind if f"`{word}`" not in kind] == []


def test_every_document_of_the_schema_has_a_description() -> None:
    documents = (SnapshotDocument, VerdictDocument, MeshDocument, Problem)
    definitions = [d for model in documents for d in model.model_json_schema().get("$defs", {}).values()]
    assert [d["title"] for d in definitions if not d.get("description")] == []


@pytest.mark.parametrize("value", ["0.1", True, [1.0]])
def test_a_number_must_be_a_number(value: Any) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(ServiceMetrics).validate_python({"error_rate": value})


@pytest.mark.parametrize(
    ("time", "second"),
    [
        ("2016-12-31T23:59:60Z", "2017-01-01T00:00:00+00:00"),
        ("2017-01-01t05:29:60+05:30", "2017-01-01T00:00:00+00:00"),
        ("2016-12-31T23:59:60.5z", "2017-01-01T00:00:00.500000+00:00"),
    ],
)
def test_a_leap_second_is_the_second_after_it(time: str, second: str) -> None:
    assert TypeAdapter(Instant).validate_python(time).isoformat() == second


@pytest.mark.parametrize(
    "time", ["2016-12-31T23:58:60Z", "2016-13-31T23:59:60Z", "9999-12-31T23:59:60Z", "2016-12-31T23:59:61Z"]
)
def test_other_seconds_beyond_59_are_refused(time: str) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(Instant).validate_python(time)


@pytest.mark.parametrize("time", [1767225600, "2026-01-01T00:00:00", "yesterday", None])
def test_a_time_is_text_with_a_zone(time: Any) -> None:
    with pytest.raises(ValidationError, match=r"observed_at"):
        SnapshotDocument.model_validate({"observed_at": time, "services": []})
