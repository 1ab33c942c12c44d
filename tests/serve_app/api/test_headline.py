"""Headlines: cause, symptom and impact of an incident in words."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from model.incidents.kind import incident_kind
from model.verdict import (
    DROPPED,
    LOST,
    MOVED,
    NEW,
    SENT,
    VANISHED,
    Impact,
    Incident,
    IncidentKind,
    LimitForecast,
    Reason,
    Severity,
    Suspect,
)
from serve_app.api.codec.verdicts import encode_incident
from serve_app.api.headline import headline, impact_text
from serve_app.api.schemas.verdict import IncidentDocument

NOW = datetime(2026, 3, 1, 3, 14, tzinfo=UTC)
IMPACT = Impact(4, 0.12)
AFFECTED = ("shop/cart", "shop/web", "shop/bff", "shop/edge")


def reason(metric: str, observed: float, expected: float, **more: Any) -> Reason:
    return Reason(metric, observed, expected, NOW, **more)


def incident(*reasons: Reason, context: tuple[Reason, ...] = (), score: float = 0.9, **more: Any) -> Incident:
    fields: dict[str, Any] = {"severity": Severity.MAJOR, "affected": AFFECTED, "impact": IMPACT} | more
    fields = {"suspects": (Suspect("shop/cart", score, reasons, context),)} | fields
    made = Incident("a", NOW, score=7.0, **fields)
    return replace(made, kind=incident_kind(made))


SLOW = reason("p99_latency", 4.1, 0.08)
FAILING = reason("error_rate", 0.47, 0.0012)
CPU = reason("cpu_utilization", 0.92, 0.35)
THROTTLED = reason("cpu_throttling", 0.6, 0.05)
RETRIES = (reason(SENT, 540.0, 300.0), reason("error_rate", 0.47, 0.001, destination="shop/tax"))


@pytest.mark.parametrize(
    ("made", "kind", "text"),
    [
        (incident(SLOW), "slow", "shop/cart is slow: p99 latency 4.1 s, usually 0.08 s"),
        (
            incident(
                reason("p50_latency", 0.4, 0.08, source="shop/web"), reason("error_rate", 0.015, 0, source="shop/web")
            ),
            "slow",
            "shop/cart is slow for shop/web: p50 latency 400 ms, usually 80 ms; 1.5% of the calls from shop/web fail, "
            "usually 0%",
        ),
        (incident(FAILING), "failing", "shop/cart is failing: 47% of its requests, usually 0.1%"),
        (
            incident(reason("error_rate", 0.47, 0.001, source="shop/web"), SLOW),
            "failing",
            "shop/cart is failing: 47% of the calls from shop/web, usually 0.1%; it is slow: p99 latency 4.1 s, "
            "usually 0.08 s",
        ),
        (incident(reason(VANISHED, 0, 40)), "gone", "shop/cart has disappeared: no requests, usually 40/s"),
        (
            incident(SLOW, FAILING, context=RETRIES),
            "sends_too_many_calls",
            "shop/cart sends 1.8 times its usual calls; 47% of those to shop/tax fail",
        ),
        (
            incident(SLOW, context=RETRIES[:1]),
            "sends_too_many_calls",
            "shop/cart sends 1.8 times its usual calls; it is slow: p99 latency 4.1 s, usually 0.08 s",
        ),
        (
            incident(replace(SLOW, load=12.3)),
            "overloaded",
            "shop/cart gets 12 times its usual requests; it is slow: p99 latency 4.1 s, usually 0.08 s",
        ),
        (
            incident(SLOW, context=(CPU,)),
            "resources",
            "shop/cart uses more CPU: 92%, usually 35%; it is slow: p99 latency 4.1 s, usually 0.08 s",
        ),
        (
            incident(FAILING, CPU),
            "resources",
            "shop/cart uses more CPU: 92%, usually 35%; 47% of its requests fail, usually 0.1%",
        ),
        (
            incident(SLOW, context=(THROTTLED,)),
            "resources",
            "CPU of shop/cart is throttled in 60% of its periods, usually 5%; it is slow: p99 latency 4.1 s, usually "
            "0.08 s",
        ),
        (
            incident(SLOW, context=(reason("queue_depth", 5200, 40),)),
            "slow",
            "shop/cart is slow: p99 latency 4.1 s, usually 0.08 s; 5,200 messages wait, usually 40",
        ),
        (
            incident(reason(NEW, 35, 0, source="shop/web")),
            "rerouted",
            "shop/cart gets new calls from shop/web: 35/s",
        ),
        (
            incident(reason(MOVED, 35, 0, destination="shop/old"), SLOW),
            "rerouted",
            "shop/cart makes new calls to shop/old: 35/s; it is slow: p99 latency 4.1 s, usually 0.08 s",
        ),
        (
            incident(reason(LOST, 15, 50, source="shop/web")),
            "rerouted",
            "shop/cart lost calls from shop/web, which moved elsewhere: 15/s, usually 50/s",
        ),
        (
            incident(reason(DROPPED, 2, 50, source="shop/web")),
            "calls_dropped",
            "shop/cart gets hardly any calls from shop/web: 2/s, usually 50/s",
        ),
        (incident(), "unclear", "shop/cart deviates, cause unclear"),
        (
            incident(reason("request_rate", 94, 5)),
            "unclear",
            "shop/cart's requests rose to 94/s, usually 5/s",
        ),
        (
            incident(FAILING, reason("memory_utilization", 0.2, 0.5)),
            "failing",
            "shop/cart is failing: 47% of its requests, usually 0.1%; its memory utilization fell to 20%, usually 50%",
        ),
        (incident(suspects=()), "unclear", "shop/cart deviates, cause unclear"),
    ],
)
def test_a_headline_has_cause_symptom_and_impact(made: Incident, kind: str, text: str) -> None:
    assert made.kind == kind
    assert headline(made) == f"{text}. 4 services affected, 12% of front-door requests."


def test_every_kind_has_a_headline_that_names_the_suspect() -> None:
    for kind in IncidentKind:
        for recovering in (False, True):
            text = headline(replace(incident(SLOW), kind=kind, recovering=recovering))
            assert "shop/cart" in text
            assert text.endswith(".")
            assert "{" not in text


def test_an_uncertain_culprit_is_called_likely_or_named_with_the_second_suspect() -> None:
    likely = incident(SLOW, score=0.4)
    assert headline(likely).startswith("Likely: shop/cart is slow: ")
    rivals = (Suspect("shop/cart", 0.5, (SLOW,)), Suspect("shop/web", 0.4, (FAILING,)))
    assert headline(incident(suspects=rivals)).startswith("shop/cart or shop/web is slow: p99 latency 4.1 s")
    clear = (Suspect("shop/cart", 0.9, (SLOW,)), Suspect("shop/web", 0.1, (FAILING,)))
    assert headline(incident(suspects=clear)).startswith("shop/cart is slow: ")


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (incident(SLOW, recovering=True), "shop/cart is recovering; it was slow."),
        (incident(FAILING, context=RETRIES, recovering=True), "shop/cart is recovering; it sent too many calls."),
        (incident(recovering=True), "shop/cart is recovering."),
    ],
)
def test_a_recovering_incident_is_called_recovering(made: Incident, text: str) -> None:
    assert headline(made) == text


def test_missing_telemetry_is_not_called_a_recovery() -> None:
    silent = replace(incident(SLOW, recovering=True), kind=IncidentKind.TELEMETRY_MISSING)
    assert headline(silent) == "shop/cart sends no telemetry, so its state is unknown."


def test_a_notice_has_its_resource_as_the_headline() -> None:
    leak = reason("memory_utilization", 0.62, 0.4, forecast=LimitForecast(2400.0, 1500.0, 4200.0))
    others = (Suspect("shop/cart", 0.5, (leak,)), Suspect("shop/web", 0.5, (CPU,)))
    notice = incident(suspects=others, severity=Severity.NOTICE)
    assert headline(notice) == "Memory of shop/cart reaches its limit in 40 minutes (25 to 70)."
    short = incident(CPU, severity=Severity.NOTICE)
    assert headline(short) == "CPU of shop/cart: 92%, usually 35%."
    signal = incident(reason("oom_kills", 2, 0), CPU, severity=Severity.NOTICE)
    assert headline(signal) == "2 containers of shop/cart were killed for memory."
    full = incident(reason("disk_pressure", 0.995, 0.995), severity=Severity.NOTICE)
    assert headline(full) == "100% of the disk space of shop/cart is in use."


@pytest.mark.parametrize(
    ("impact", "text"),
    [
        (Impact(1, None), "1 service affected"),
        (Impact(1200, 0.5), "1,200 services affected, 50% of front-door requests"),
        (Impact(2, 0.004), "2 services affected, below 1% of front-door requests"),
        (Impact(2, 0.0), "2 services affected, 0% of front-door requests"),
    ],
)
def test_impacts_in_words(impact: Impact, text: str) -> None:
    assert impact_text(impact) == text


def test_the_document_has_the_same_headline_and_the_facts_behind_it() -> None:
    made = incident(SLOW, FAILING, context=RETRIES)
    document = encode_incident(made, NOW)
    assert (document.kind, document.headline) == ("sends_too_many_calls", headline(made))
    assert document.impact is not None
    assert (document.impact.services, document.impact.front_door_share) == (4, 0.12)
    assert document.impact.text == "4 services affected, 12% of front-door requests"
    assert [fact.text for fact in document.suspects[0].context] == [
        "calls that it makes rose to 540/s, expected 300/s",
        "error rate 47%, expected 0.1%, in calls shop/cart -> shop/tax",
    ]


def test_an_incident_stored_by_an_earlier_version_has_no_headline() -> None:
    stored = encode_incident(incident(SLOW), NOW).model_dump(mode="json")
    for name in ("kind", "headline", "impact"):
        del stored[name]
    for suspect in stored["suspects"]:
        del suspect["context"]
    old = IncidentDocument.model_validate_json(json.dumps(stored))
    assert (old.kind, old.headline, old.impact, old.suspects[0].context) == ("unclear", "", None, [])
