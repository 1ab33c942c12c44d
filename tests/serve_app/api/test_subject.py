"""What an incident is called, and the caller whose calls alone show the fault."""

from dataclasses import replace

import pytest

from model.snapshot import SignalKind
from model.verdict import DROPPED, Incident, IncidentKind, Severity, Suspect
from serve_app.api.codec.verdicts import encode_incident
from serve_app.api.subject import caller, failing_callers, title
from tests.serve_app.api.test_headline import CPU, FAILING, NOW, SLOW, incident, reason, traffic

CALL = reason("error_rate", 0.6, 0.0, source="shop/web")
SLOW_CALL = reason("p99_latency", 4.1, 0.08, source="shop/web")


@pytest.mark.parametrize(
    ("made", "name", "source"),
    [
        (incident(CALL), "calls from shop/web to shop/cart", "shop/web"),
        (incident(SLOW_CALL), "calls from shop/web to shop/cart", "shop/web"),
        (incident(CALL, SLOW_CALL), "calls from shop/web to shop/cart", "shop/web"),
        (incident(CALL, reason("error_rate", 0.02, 0.0)), "calls from shop/web to shop/cart", "shop/web"),
        (incident(CALL, recovering=True), "calls from shop/web to shop/cart", "shop/web"),
        (incident(CALL, reason("p99_latency", 0.05, 0.08)), "calls from shop/web to shop/cart", "shop/web"),
        (incident(CALL, reason("request_rate", 94, 5)), "calls from shop/web to shop/cart", "shop/web"),
        # It shows harm of its own.
        (incident(FAILING), "shop/cart", ""),
        (incident(CALL, FAILING), "shop/cart", ""),
        (incident(CALL, SLOW), "shop/cart", ""),
        (incident(SLOW_CALL, context=(CPU,)), "shop/cart", ""),
        (incident(CALL, reason(SignalKind.QUEUE_DEPTH, 5200, 40)), "shop/cart", ""),
        # Its calls are of another kind, or there is nothing to name.
        (incident(reason(DROPPED, 2, 50, source="shop/web")), "shop/cart", ""),
        (replace(incident(CALL), kind=IncidentKind.TELEMETRY_MISSING), "shop/cart", ""),
        (incident(CALL, severity=Severity.NOTICE), "shop/cart", ""),
        (incident(suspects=()), "shop/cart", ""),
        (incident(suspects=(), affected=()), "a", ""),
        (traffic("*", 12, 3400), "requests to the mesh", ""),
        (traffic("shop/*", 12, 3400), "requests to namespace shop", ""),
        (traffic("shop/gateway", 0, 340), "requests to shop/gateway", ""),
    ],
)
def test_a_fault_in_calls_is_named_as_these_calls(made: Incident, name: str, source: str) -> None:
    assert (title(made), caller(made)) == (name, source)
    document = encode_incident(made, NOW)
    assert (document.title, document.caller) == (name, source or None)


def test_several_callers_are_listed_by_their_evidence() -> None:
    others = reason("p99_latency", 4.1, 0.08, source="shop/bff"), reason("p50_latency", 1, 0.04, source="shop/web")
    made = incident(suspects=(Suspect("shop/cart", 0.9, (CALL, *others)),))
    assert failing_callers(made) == ["shop/web", "shop/bff"]
    assert title(made) == "calls from shop/web to shop/cart"
