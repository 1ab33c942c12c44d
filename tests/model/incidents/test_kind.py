"""The kind of an incident follows from the reasons of its first suspect."""

from collections.abc import Set as AbstractSet
from typing import Any

import pytest

from model.incidents.kind import incident_kind
from model.verdict import DROPPED, LOST, MOVED, NEW, SENT, VANISHED, IncidentKind, Reason, Severity, Suspect
from tests.builders import incident, reason

SLOW = ("p99_latency", 1.2, 0.08)


def kind_of(
    *reasons: Reason, context: tuple[Reason, ...] = (), silent: AbstractSet[str] = frozenset(), **more: Any
) -> IncidentKind:
    """Return the kind of an incident whose suspect has these reasons, while some services are silent."""
    suspects = (Suspect("shop/cart", 0.9, reasons, context),)
    return incident_kind(incident(**{"suspects": suspects, **more}), silent)


@pytest.mark.parametrize(
    ("metric", "kind"),
    [
        ("p50_latency", IncidentKind.SLOW),
        ("p99_latency", IncidentKind.SLOW),
        ("own_time", IncidentKind.SLOW),
        ("error_rate", IncidentKind.FAILING),
        ("cpu_utilization", IncidentKind.RESOURCES),
        ("cpu_per_request", IncidentKind.RESOURCES),
        ("memory_utilization", IncidentKind.RESOURCES),
        ("active_connections", IncidentKind.RESOURCES),
        (VANISHED, IncidentKind.GONE),
        (NEW, IncidentKind.REROUTED),
        (LOST, IncidentKind.REROUTED),
        (MOVED, IncidentKind.REROUTED),
        (DROPPED, IncidentKind.CALLS_DROPPED),
        ("outgoing_latency", IncidentKind.SLOW),
        ("outgoing_errors", IncidentKind.FAILING),
        ("namespace_outgoing_latency", IncidentKind.SLOW),
        ("namespace_incoming_errors", IncidentKind.FAILING),
        ("request_rate", IncidentKind.UNCLEAR),
    ],
)
def test_one_reason_gives_the_kind(metric: str, kind: IncidentKind) -> None:
    assert kind_of(reason(metric, 0.8, 0.2)) is kind


def test_without_a_suspect_or_a_reason_the_kind_is_unclear() -> None:
    assert kind_of() is IncidentKind.UNCLEAR
    assert kind_of(suspects=()) is IncidentKind.UNCLEAR


def test_a_slow_service_that_fails_requests_is_failing() -> None:
    few, many = (reason("error_rate", share, 0.001, source="shop/web") for share in (0.01, 0.1))
    assert kind_of(reason(*SLOW), few) is IncidentKind.SLOW
    assert kind_of(reason(*SLOW), many) is IncidentKind.FAILING


def test_a_service_that_fails_since_its_calls_go_elsewhere_is_rerouted() -> None:
    failing, moved = reason("error_rate", 0.4, 0.001), reason(MOVED, 3.0, 0.0, destination="shop/tax")
    assert kind_of(failing, moved) is IncidentKind.REROUTED


@pytest.mark.parametrize("symptom", [SLOW, ("error_rate", 0.4, 0.001)])
def test_a_resource_beyond_what_requests_explain_is_the_cause(symptom: tuple[str, float, float]) -> None:
    cpu = reason("cpu_utilization", 0.9, 0.5)
    assert kind_of(reason(*symptom), context=(cpu,)) is IncidentKind.RESOURCES
    assert kind_of(reason(*symptom), cpu) is IncidentKind.RESOURCES
    busier = reason(*symptom, load=1.7)
    assert kind_of(busier, context=(cpu,)) is not IncidentKind.RESOURCES


def test_cpu_for_each_request_says_nothing_if_requests_fell() -> None:
    cpu = reason("cpu_per_request", 0.004, 0.002)
    assert kind_of(reason(*SLOW, load=0.4), cpu) is IncidentKind.SLOW
    assert kind_of(reason(*SLOW), cpu) is IncidentKind.RESOURCES


@pytest.mark.parametrize("symptom", [SLOW, ("error_rate", 0.4, 0.001), ("cpu_utilization", 0.9, 0.3)])
def test_a_service_with_far_more_requests_is_overloaded(symptom: tuple[str, float, float]) -> None:
    assert kind_of(reason(*symptom, load=3.0)) is IncidentKind.OVERLOADED


def test_a_service_that_retries_sends_too_many_calls_whatever_else_it_shows() -> None:
    sent = reason(SENT, 540.0, 115.0)
    cpu = reason("cpu_utilization", 0.9, 0.3)
    assert kind_of(reason(*SLOW), cpu, context=(sent,)) is IncidentKind.SENDS_TOO_MANY_CALLS


def test_a_notice_is_about_resources() -> None:
    assert kind_of(severity=Severity.NOTICE) is IncidentKind.RESOURCES


def test_a_quiet_incident_without_telemetry_is_not_called_a_recovery() -> None:
    assert kind_of(reason(*SLOW), recovering=True) is IncidentKind.SLOW
    assert kind_of(reason(*SLOW), recovering=True, silent={"shop/cart"}) is IncidentKind.TELEMETRY_MISSING
    assert kind_of(reason(*SLOW), silent={"shop/cart"}) is IncidentKind.SLOW
