"""Headlines: cause, symptom and impact of an incident in words."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from model.incidents.kind import incident_kind
from model.snapshot import PlannedChange
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
    NearbyChange,
    Reason,
    Severity,
    Suspect,
)
from serve_app.api.codec.verdicts import encode_incident, encode_verdict
from serve_app.api.headline import headline, impact_text
from serve_app.api.schemas.verdict import IncidentDocument
from serve_app.api.subject import origins
from tests.builders import verdict

NOW = datetime(2026, 3, 1, 3, 14, tzinfo=UTC)
IMPACT = Impact(4, 0.12)
AFFECTED = ("shop/cart", "shop/web", "shop/bff", "shop/edge")


def reason(metric: str, observed: float, expected: float, **more: Any) -> Reason:
    return Reason(metric=metric, observed=observed, expected=expected, since=NOW, **more)


def incident(*reasons: Reason, context: tuple[Reason, ...] = (), score: float = 0.9, **more: Any) -> Incident:
    fields: dict[str, Any] = {"severity": Severity.MAJOR, "affected": AFFECTED, "impact": IMPACT} | more
    fields = {"suspects": (Suspect("shop/cart", score, reasons, context),)} | fields
    made = Incident(id="a", since=NOW, score=7.0, **fields)
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
            "Calls from shop/web to shop/cart are slow: p50 latency 400 ms, usually 80 ms; 1.5% of the calls from "
            "shop/web fail, usually 0%",
        ),
        (incident(FAILING), "failing", "shop/cart is failing: 47% of its requests, usually 0.1%"),
        (
            incident(reason("error_rate", 0.47, 0.001, source="shop/web"), SLOW),
            "failing",
            "shop/cart is failing: 47% of the calls from shop/web, usually 0.1%; its p99 latency rose to 4.1 s, "
            "usually 0.08 s",
        ),
        (
            incident(reason("error_rate", 0.6, 0.0, source="shop/web"), FAILING),
            "failing",
            "shop/cart is failing: 60% of the calls from shop/web, usually 0%",
        ),
        (
            incident(reason("error_rate", 0.8, 0.0, source="shop/web"), reason("error_rate", 0.02, 0.0)),
            "failing",
            "Calls from shop/web to shop/cart are failing: 80%, usually 0%",
        ),
        (
            incident(reason("memory_utilization", 0.85, 0.4, forecast=LimitForecast(600, 300, 1200)), CPU, SLOW),
            "resources",
            "shop/cart leaks memory: 85%, usually 40%, full in about 10 min; its p99 latency rose to 4.1 s, usually "
            "0.08 s",
        ),
        (
            incident(SLOW, reason("memory_utilization", 0.85, 0.8, forecast=LimitForecast(600, 300, 1200)), CPU),
            "resources",
            "shop/cart leaks memory: 85%, usually 80%, full in about 10 min; its p99 latency rose to 4.1 s, usually "
            "0.08 s",
        ),
        (
            incident(
                reason(VANISHED, 0, 40), reason("memory_utilization", 0.97, 0.4, forecast=LimitForecast(0, 0, 60))
            ),
            "gone",
            "shop/cart has disappeared: no requests, usually 40/s; its memory utilization rose to 97%, usually 40%",
        ),
        (
            incident(
                reason("error_rate", 0.6, 0.0, source="shop/web"), reason("p99_latency", 4.1, 0.08, source="shop/web")
            ),
            "failing",
            "Calls from shop/web to shop/cart are failing: 60%, usually 0%; the p99 latency of the calls from shop/web "
            "rose to 4.1 s, usually 0.08 s",
        ),
        (incident(reason(VANISHED, 0, 40)), "gone", "shop/cart has disappeared: no requests, usually 40/s"),
        (
            incident(SLOW, FAILING, context=RETRIES),
            "sends_too_many_calls",
            "shop/cart sends 1.8 times its usual calls; 47% of its calls to shop/tax fail, usually 0.1%",
        ),
        (
            incident(SLOW, context=RETRIES[:1]),
            "sends_too_many_calls",
            "shop/cart sends 1.8 times its usual calls; its p99 latency rose to 4.1 s, usually 0.08 s",
        ),
        (
            incident(replace(SLOW, load=12.3)),
            "overloaded",
            "shop/cart gets 12 times its usual requests; its p99 latency rose to 4.1 s, usually 0.08 s",
        ),
        (
            incident(SLOW, context=(CPU,)),
            "resources",
            "shop/cart uses more CPU: 92%, usually 35%; its p99 latency rose to 4.1 s, usually 0.08 s",
        ),
        (
            incident(FAILING, CPU),
            "resources",
            "shop/cart uses more CPU: 92%, usually 35%; 47% of its requests fail, usually 0.1%",
        ),
        (
            incident(SLOW, context=(THROTTLED,)),
            "resources",
            "CPU of shop/cart is throttled in 60% of its periods, usually 5%; its p99 latency rose to 4.1 s, usually "
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
            "shop/cart makes new calls to shop/old: 35/s; its p99 latency rose to 4.1 s, usually 0.08 s",
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


def test_an_unclear_cause_is_called_uncertain_and_two_suspects_are_named() -> None:
    rivals = (Suspect("shop/cart", 0.65, (SLOW,)), Suspect("shop/tax", 0.05, (FAILING,)), Suspect("shop/web", 0.01))
    start = "Cause uncertain, shop/cart or shop/tax: shop/cart is slow, p99 latency 4.1 s, usually 0.08 s. 4 services"
    assert headline(incident(suspects=rivals)).startswith(start)
    assert headline(incident(SLOW, score=0.4)).startswith("Cause uncertain, perhaps shop/cart: shop/cart is slow, ")
    assert headline(incident(SLOW, score=0.7)).startswith("shop/cart is slow: ")
    recovering = incident(suspects=rivals, recovering=True)
    assert headline(recovering) == "shop/cart or shop/tax is recovering; it was slow."
    start = "Cause uncertain, perhaps shop/cart: shop/cart deviates. 4 services affected"
    assert headline(incident(score=0.1)).startswith(start)
    call = reason("error_rate", 0.6, 0.0, source="shop/web")
    failing = (Suspect("shop/cart", 0.3, (call,)), Suspect("shop/tax", 0.3))
    start = "Cause uncertain, shop/cart or shop/tax: calls from shop/web to shop/cart are failing, 60%, usually 0%."
    assert headline(incident(suspects=failing)).startswith(start)


def test_faults_that_no_call_joins_are_separate() -> None:
    first, second = Suspect("shop/cart", 0.6, (SLOW,)), Suspect("shop/tax", 0.4, (FAILING,))
    both = incident(suspects=(first, second))
    assert headline(both).startswith(
        "Separate faults at shop/cart and shop/tax: shop/cart is slow, p99 latency 4.1 s, usually 0.08 s; "
        "shop/tax is failing, 47% of its requests, usually 0.1%. 4 services affected"
    )
    assert origins(both) == ["shop/cart", "shop/tax"]
    assert headline(replace(both, recovering=True)) == "shop/cart and shop/tax are recovering."
    earlier = replace(second, reasons=(replace(FAILING, since=NOW - timedelta(minutes=2)),))
    assert headline(incident(suspects=(first, earlier))).startswith(
        "Separate faults at shop/tax and shop/cart: shop/tax is failing, "
    ), "the first one to rise"
    assert origins(incident(suspects=(first, earlier))) == ["shop/tax", "shop/cart"]
    joined = replace(second, reasons=(FAILING, replace(FAILING, source="shop/cart")))
    assert headline(incident(suspects=(first, joined))).startswith("Cause uncertain, shop/cart or shop/tax: ")
    calls = replace(second, reasons=(replace(FAILING, source="shop/web"),))  # nothing of its own
    assert headline(incident(suspects=(first, calls))).startswith("Cause uncertain, shop/cart or shop/tax: ")


def change(seconds: float, service: str = "shop/cart", kind: str = "deploy", why: str = "v1.4.2") -> NearbyChange:
    """Return a change so long before the incident."""
    return NearbyChange(PlannedChange(kind, service, why), NOW - timedelta(seconds=seconds))


@pytest.mark.parametrize(
    ("near", "text"),
    [
        (
            change(40),
            "shop/cart has been slow since the deploy of v1.4.2, 40 s before: p99 latency 47 ms, usually 12 ms",
        ),
        (change(0), "shop/cart has been slow since the deploy of v1.4.2: p99 latency 47 ms, usually 12 ms"),
        (
            change(600),
            "shop/cart has been slow since the deploy of v1.4.2, 10 min before: p99 latency 47 ms, usually 12 ms",
        ),
        (
            change(40, kind="scale_in", why="fewer users"),
            "shop/cart has been slow since the scale in (fewer users), 40 s before: p99 latency 47 ms, usually 12 ms",
        ),
        (
            change(40, why="x" * 41),
            "shop/cart has been slow since the deploy, 40 s before: p99 latency 47 ms, usually 12 ms",
        ),
        (change(601), "shop/cart is slow: p99 latency 47 ms, usually 12 ms"),
        (change(-15), "shop/cart is slow: p99 latency 47 ms, usually 12 ms"),
        (change(40, "shop/web"), "shop/cart is slow: p99 latency 47 ms, usually 12 ms"),
    ],
)
def test_a_slow_service_names_its_change_shortly_before(near: NearbyChange, text: str) -> None:
    slow = incident(reason("p99_latency", 0.047, 0.012), changes=(change(1200), near))
    assert headline(slow) == f"{text}. 4 services affected, 12% of front-door requests."


def test_a_failing_service_or_call_names_its_change_shortly_before() -> None:
    changes = (change(60), change(120, why="v1.4.1"))
    assert headline(incident(FAILING, changes=changes)).startswith(
        "shop/cart has been failing since the deploy of v1.4.2, 60 s before: 47% of its requests, usually 0.1%. "
    )
    call = reason("error_rate", 0.6, 0.0, source="shop/web")
    assert headline(incident(call, changes=changes)).startswith(
        "Calls from shop/web to shop/cart have been failing since the deploy of v1.4.2, 60 s before: 60%, usually 0%. "
    )
    slow = incident(reason("p99_latency", 0.047, 0.012, source="shop/web"), changes=changes)
    text = "alls from shop/web to shop/cart have been slow since the deploy of v1.4.2, 60 s before"
    assert headline(slow).startswith(f"C{text}: p99 latency 47 ms, usually 12 ms. ")
    suspects = (replace(slow.suspects[0], score=0.5),)
    assert f": c{text}: p99 latency 47 ms, usually 12 ms. " in headline(replace(slow, suspects=suspects))


OUTSIDE = "nothing inside the mesh fails."


def traffic(scope: str, observed: float, usual: float, **more: Any) -> Incident:
    """Return an incident of traffic that fell or rose."""
    since = reason("request_rate", observed, usual)
    kind = IncidentKind.TRAFFIC_LOST if observed < usual else IncidentKind.TRAFFIC_SURGE
    suspects = (Suspect("shop/gateway", 0.5, (since,)), Suspect("shop/edge", 0.5))
    return replace(incident(suspects=suspects, **more), kind=kind, scope=scope)


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (traffic("*", 12, 3400), f"Requests to the mesh fell from 3,400/s to 12/s since 03:14 UTC; {OUTSIDE}"),
        (
            traffic("shop/*", 12, 3400),
            f"Requests to namespace shop fell from 3,400/s to 12/s since 03:14 UTC; {OUTSIDE}",
        ),
        (
            traffic("shop/gateway", 0, 340),
            f"Requests to shop/gateway fell from 340/s to 0/s since 03:14 UTC; {OUTSIDE}",
        ),
        (traffic("*", 2100, 340), "Requests to the mesh rose from 340/s to 2,100/s since 03:14 UTC."),
        (traffic("*", 12, 3400, recovering=True), "Requests to the mesh are recovering; they had fallen."),
        (traffic("shop/*", 99, 34, recovering=True), "Requests to namespace shop are recovering; they had risen."),
    ],
)
def test_an_incident_of_traffic_has_its_scope_and_numbers(made: Incident, text: str) -> None:
    assert headline(made, (made,)) == headline(made) == text


def test_an_incident_of_traffic_without_numbers_has_its_scope() -> None:
    made = replace(traffic("*", 12, 3400), suspects=(), scope="")
    assert headline(made) == f"Requests to shop/cart fell since 03:14 UTC; {OUTSIDE}"
    unknown = reason("request_rate", float("nan"), 3400)
    made = replace(traffic("*", 12, 3400), suspects=(Suspect("shop/gateway", 0.5, (unknown,)),))
    assert headline(made) == f"Requests to the mesh fell since 03:14 UTC; {OUTSIDE}"


def test_lost_traffic_is_outside_the_mesh_only_if_no_other_alert_is_open() -> None:
    made = traffic("*", 12, 3400)
    other = replace(incident(SLOW), id="b")
    assert headline(made, (made, other)) == "Requests to the mesh fell from 3,400/s to 12/s since 03:14 UTC."
    notice = replace(other, severity=Severity.NOTICE)
    found = [encode_verdict(verdict(made, one)).incidents[0].headline for one in (other, notice)]
    assert [text.endswith(OUTSIDE) for text in found] == [False, True]


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


def test_a_recovering_call_is_named_as_the_call() -> None:
    call = reason("error_rate", 0.6, 0.0, source="shop/web")
    assert headline(incident(call, recovering=True)) == (
        "Calls from shop/web to shop/cart are recovering; they were failing."
    )


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
        (Impact(2, 0.0), "2 services affected"),
        (Impact(2, 0.5, 0.12), "2 services affected, 12% of front-door requests fail or are slow"),
        (Impact(2, 0.5, 0.001), "2 services affected, hardly any front-door requests fail or are slow"),
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


def shared(metric: str, observed: float, score: float = 0.9) -> Incident:
    """Return an incident whose calls share a cause, at a service of the namespace shop."""
    return incident(reason(metric, observed, 0.01), score=score)


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (
            shared("outgoing_errors", 0.6),
            "Calls out of shop/cart are failing on the way: 60%, usually 1%, though what it calls is healthy",
        ),
        (
            shared("namespace_outgoing_errors", 0.6),
            "Calls out of all services of namespace shop are failing on the way: 60%, usually 1%",
        ),
        (
            shared("namespace_incoming_latency", 0.6),
            "Calls to all services of namespace shop are slow on the way: 600 ms, usually 10 ms",
        ),
    ],
)
def test_a_common_cause_is_the_headline(made: Incident, text: str) -> None:
    assert headline(made).startswith(text)


def test_a_headline_about_a_namespace_has_no_metric_of_one_service() -> None:
    more = reason("cpu_per_request", 0.119, 0.081)
    made = incident(reason("namespace_outgoing_errors", 0.6, 0.01), reason("error_rate", 0.6, 0.01), context=(more,))
    text = headline(replace(made, kind=IncidentKind.FAILING))
    assert text.startswith("Calls out of all services of namespace shop are failing on the way: 60%, usually 1%. ")


def test_services_of_a_namespace_that_share_a_cause_are_one_suspect() -> None:
    made = shared("namespace_outgoing_errors", 0.6, score=0.5)
    first = made.suspects[0]
    alike = replace(made, suspects=(first, replace(first, service="shop/search", score=0.4)))
    assert headline(alike).startswith("Calls out of all services of namespace shop are failing")
    assert encode_incident(alike, NOW).origins == ["shop/cart", "shop/search"]
    other = replace(made, suspects=(first, replace(first, service="data/store", score=0.4)))
    assert headline(other).startswith("Cause uncertain")
    assert encode_incident(other, NOW).origins == ["shop/cart"]
