"""The next step of an incident: what to do, and the evidence that decides."""

from dataclasses import replace
from datetime import timedelta

import pytest

from model.snapshot import SignalKind
from model.verdict import (
    DROPPED,
    LOSES,
    LOST,
    MOVED,
    NEW,
    OVERDUE,
    SENT,
    VANISHED,
    Incident,
    IncidentKind,
    LimitForecast,
    NearbyChange,
    Reason,
    Severity,
    Suspect,
)
from serve_app.api.codec.verdicts import encode_incident, encode_verdict
from serve_app.api.headline import headline
from serve_app.api.next_step import next_step
from serve_app.api.subject import origins, title
from tests.builders import verdict
from tests.serve_app.api.test_headline import (
    CPU,
    FAILING,
    NOW,
    RETRIES,
    SLOW,
    THROTTLED,
    change,
    incident,
    reason,
    traffic,
)

CALL = reason("error_rate", 0.6, 0.0, source="shop/web")
LEAK = reason("memory_utilization", 0.62, 0.4, forecast=LimitForecast(1200.0, 900.0, 2400.0))
CONNECTIONS = reason("active_connections", 201, 33)


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (
            incident(SLOW),
            "Look at shop/cart itself, for a lock, a slow disk or a leak: its p99 latency rose to 4.1 s, usually "
            "0.08 s.",
        ),
        (
            incident(SLOW, reason("own_time", 4.0, 0.05)),
            "Look at shop/cart itself, for a lock, a slow disk or a leak: its p99 latency rose to 4.1 s, usually "
            "0.08 s, and the time is spent in it, not in its callees.",
        ),
        (
            incident(FAILING),
            "Look at shop/cart itself, its logs first: 47% of its requests fail, usually 0.1%.",
        ),
        (
            incident(CALL),
            "Check the network and the policies between shop/web and shop/cart: 60% of the calls from shop/web fail, "
            "usually 0%, while shop/cart itself shows nothing unusual.",
        ),
        (
            incident(CALL, reason("p99_latency", 4.1, 0.08, source="shop/bff")),
            "Check the network and the policies between shop/cart and its callers shop/web, shop/bff: 60% of the calls "
            "from shop/web fail, usually 0%, while shop/cart itself shows nothing unusual.",
        ),
        (
            incident(FAILING, context=RETRIES),
            "Limit the retries of shop/cart: it sends 1.8 times its usual calls, more than its requests explain, and "
            "47% of those to shop/tax fail.",
        ),
        (
            incident(reason(LOSES, 0.5, 0.0), context=RETRIES),
            "Limit the retries of shop/cart: it sends 1.8 times its usual calls, more than its requests explain, and "
            "50% of its calls fail on the way, usually 0%; then check its DNS and egress.",
        ),
        (
            incident(CALL, reason(VANISHED, 0, 40)),
            "Bring shop/cart back: it gets no requests, usually 40/s, and no planned change explains it.",
        ),
        (
            incident(replace(SLOW, load=12.3)),
            "Scale shop/cart out, or limit its callers: it gets 12 times its usual requests, and its p99 latency rose "
            "to 4.1 s, usually 0.08 s.",
        ),
        (
            incident(reason(VANISHED, 0, 40)),
            "Bring shop/cart back: it gets no requests, usually 40/s, and no planned change explains it.",
        ),
        (
            incident(reason(VANISHED, 0, 40), reason("memory_utilization", 0.97, 0.4), changes=(change(-60),)),
            "Bring shop/cart back: it gets no requests, usually 40/s; its memory was at 97%.",
        ),
        (
            incident(LEAK, CPU, SLOW),
            "Restart shop/cart before its memory is full, in about 20 min, then look for the leak: its memory is at "
            "62%, usually 40%, and rises steadily.",
        ),
        (
            incident(SLOW, CONNECTIONS, context=(CPU,)),
            "Find what uses the CPU of shop/cart or of its host, or scale it out: its CPU utilization rose to 92%, "
            "usually 35%, more than its requests explain.",
        ),
        (
            incident(CONNECTIONS),
            "Scale shop/cart out, or find what keeps its connections open: its active connections rose to 201, usually "
            "33.",
        ),
        (
            incident(reason("memory_utilization", 0.62, 0.4)),
            "Find what fills the memory of shop/cart: its memory utilization rose to 62%, usually 40%.",
        ),
        (
            incident(SLOW, context=(THROTTLED,)),
            "Raise the CPU limit of shop/cart, or scale it out: CPU of shop/cart is throttled in 60% of its periods, "
            "usually 5%.",
        ),
        (
            incident(reason(DROPPED, 2, 50, source="shop/web")),
            "Check the network, the policies and the routing between shop/web and shop/cart: these calls fell to 2/s, "
            "usually 50/s, although shop/web is as busy as usual.",
        ),
        (
            incident(reason(NEW, 35, 0, source="shop/web")),
            "Correct the routing of the calls from shop/web: the calls from shop/web also go to shop/cart now.",
        ),
        (
            incident(reason(LOST, 15, 50, source="shop/web")),
            "Correct the routing of the calls from shop/web: the calls from shop/web no longer go to shop/cart as "
            "usual.",
        ),
        (
            incident(reason("request_rate", 94, 5)),
            "Look at shop/cart first: its requests rose to 94/s, usually 5/s.",
        ),
        (incident(), "Look at shop/cart first: it deviates most, and no single fact says why."),
        (incident(suspects=()), "Look at shop/cart first: it deviates, and no service stands out as the cause."),
    ],
)
def test_a_step_has_an_action_and_the_evidence_that_decides(made: Incident, text: str) -> None:
    assert next_step(made) == text
    assert encode_incident(made, NOW).next_step == text


@pytest.mark.parametrize(
    ("own", "action"),
    [
        (reason("cpu_utilization", 0.99, 0.7), "Look at shop/cart itself"),  # saturated: it had little room to rise
        (reason("cpu_utilization", 0.45, 0.4), "Check the network and the policies between"),
    ],
)
def test_a_saturated_callee_is_not_called_well(own: Reason, action: str) -> None:
    slow = reason("p99_latency", 2.0, 0.2, source="shop/web")
    made = replace(
        incident(slow), kind=IncidentKind.SLOW, suspects=(Suspect("shop/cart", 0.9, (slow, replace(own, load=1.3))),)
    )
    assert next_step(made).startswith(action)
    assert "nothing unusual" not in next_step(made)


SWAP = (
    Suspect("shop/a", 0.8, (reason(MOVED, 30, 0, destination="shop/y"),)),
    Suspect("shop/x", 0.1, (reason(LOST, 2, 30, source="shop/a"), reason(NEW, 20, 0, source="shop/b"))),
    Suspect("shop/y", 0.05, (reason(LOST, 2, 20, source="shop/b"),)),
    Suspect("shop/z", 0.05, (reason(LOST, 5, 6, source="shop/a"),)),
)


def test_calls_that_were_swapped_are_named_with_both_callers() -> None:
    swapped = "now go to shop/y instead of shop/x, and the calls from shop/b now go to shop/x instead of shop/y."
    text = f"Correct the routing of the calls from shop/a and shop/b: the calls from shop/a {swapped}"
    assert next_step(incident(suspects=SWAP)) == text
    unclear = (replace(SWAP[0], score=0.4), *SWAP[1:])
    rerouted = incident(suspects=unclear)
    assert next_step(rerouted) == (
        "Compare the endpoints of shop/x and shop/y, and correct the routing of the calls from shop/a and shop/b."
    ), "the second suspect is part of the swap"
    assert title(rerouted) == "calls from shop/a and shop/b"
    assert origins(rerouted) == ["shop/a", "shop/b"]
    assert headline(rerouted).startswith(
        "Calls from shop/a and shop/b are rerouted: calls from shop/a now go to shop/y instead of shop/x, and calls"
    )
    partial = replace(SWAP[1], reasons=(reason(LOST, 12, 30, source="shop/a"),))
    assert "from shop/a partly go to shop/y instead of shop/x." in next_step(incident(suspects=(SWAP[0], partial)))
    one_caller = next_step(
        incident(suspects=(SWAP[0], Suspect("shop/x", 0.1, (reason(LOST, 2, 30, source="shop/a"),))))
    )
    assert one_caller == (
        "Correct the routing of the calls from shop/a: the calls from shop/a now go to shop/y instead of shop/x."
    )


@pytest.mark.parametrize(
    ("near", "action"),
    [
        (change(40), "Roll back v1.4.2 of shop/cart: it was deployed 40 s before this began, and 47% of its requests"),
        (change(0), "Roll back v1.4.2 of shop/cart: it was deployed as this began, and 47%"),
        (change(40, why="x" * 41), "Roll back the last deploy of shop/cart: it was deployed 40 s before"),
        (change(40, why="ScalingReplicaSet"), "Roll back the last deploy of shop/cart: it was deployed 40 s before"),
        (change(40, kind="scale_out", why="more users"), "Look at shop/cart itself"),
        (
            change(40, kind="scale_in", why="fewer users"),
            "Undo the scale in of shop/cart (fewer users): it happened 40 s before",
        ),
        (change(601), "Look at shop/cart itself"),
        (change(-15), "Look at shop/cart itself"),
        (change(40, "shop/web"), "Look at shop/cart itself"),  # of another service
    ],
)
def test_a_change_of_the_first_suspect_shortly_before_is_undone(near: NearbyChange, action: str) -> None:
    assert next_step(incident(FAILING, changes=(near,))).startswith(action)


def test_a_change_of_the_service_does_not_explain_more_requests() -> None:
    overloaded = incident(replace(SLOW, load=12.3), changes=(change(40),))
    assert next_step(overloaded).startswith("Scale shop/cart out")
    assert next_step(incident(LEAK, severity=Severity.NOTICE, changes=(change(40),))).startswith("Restart shop/cart")


def test_an_uncertain_cause_has_a_second_place_to_look() -> None:
    rivals = (Suspect("shop/cart", 0.65, (SLOW,)), Suspect("shop/tax", 0.05, (FAILING,)), Suspect("shop/web", 0.01))
    text = next_step(incident(suspects=rivals))
    assert text.startswith("Look at shop/cart itself")
    assert text.endswith("; if that does not help, look at shop/tax (47% of its requests fail, usually 0.1%).")
    assert next_step(incident(SLOW, score=0.4)) == next_step(incident(SLOW)), "there is no other suspect"
    without = (rivals[0], Suspect("shop/web", 0.1))
    assert next_step(incident(suspects=without)).endswith("; if that does not help, look at shop/web.")


def test_a_second_service_with_a_fault_of_its_own_is_named() -> None:
    first = Suspect("shop/cart", 0.75, (SLOW,))
    second = Suspect("shop/tax", 0.25, (FAILING,))
    text = next_step(incident(suspects=(first, second)))
    assert text.endswith("for a lock, a slow disk or a leak; separately, look at shop/tax itself, its logs first.")
    assert "shop/tax" not in next_step(incident(suspects=(first, Suspect("shop/tax", 0.05, (FAILING,)))))
    of_call = replace(FAILING, source="shop/cart")  # explains one by the other
    for name in ("shop/car", "shop/cart.v2", "hop/cart"):  # part of another name
        text = next_step(incident(suspects=(first, Suspect(name, 0.25, (of_call,)))))
        assert f"; look at {name} too (47% of the calls from shop/cart fail, usually 0.1%)." in text


def test_the_second_suspect_is_said_to_retry_if_it_does() -> None:
    second = Suspect("shop/web", 0.3, (FAILING,), (reason(SENT, 121.0, 45.0),))
    text = next_step(incident(suspects=(Suspect("shop/cart", 0.5, (replace(SLOW, load=3.3),)), second)))
    assert text.endswith("look at shop/web (the calls that it makes rose to 121/s, usually 45/s).")


def test_a_neighbour_that_uses_up_its_cpu_is_named() -> None:
    full = Suspect("shop/tax", 0.1, (reason("cpu_utilization", 0.98, 0.7),))
    text = next_step(incident(suspects=(Suspect("shop/cart", 0.9, (SLOW,)), full)))
    assert text.endswith(
        "; look at shop/tax too, which may slow others on its node (its CPU utilization rose to 98%, usually 70%)."
    )
    busy = replace(full, reasons=(reason("cpu_utilization", 0.9, 0.7),))
    assert "shop/tax" not in next_step(incident(suspects=(Suspect("shop/cart", 0.9, (SLOW,)), busy)))
    rose = replace(full, reasons=(replace(full.reasons[0], since=NOW - timedelta(minutes=7)),))
    assert next_step(incident(suspects=(Suspect("shop/cart", 0.9, (SLOW,)), rose))).endswith(
        "(its CPU utilization rose to 98%, usually 70%, 7 min earlier)."
    )


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (
            incident(SLOW, recovering=True),
            "No action needed; keep watching: shop/cart and the services around it are back to normal.",
        ),
        (
            incident(CALL, recovering=True),
            "No action needed; keep watching: the calls from shop/web to shop/cart are back to normal.",
        ),
        (
            traffic("*", 12, 3400, recovering=True),
            "No action needed; keep watching: the requests to the mesh are back to normal.",
        ),
        (
            replace(incident(SLOW, recovering=True), kind=IncidentKind.TELEMETRY_MISSING),
            "Find out why shop/cart sends no telemetry: until it does, its state is unknown.",
        ),
        (
            traffic("*", 2100, 340),
            "Find where the requests to the mesh come from, and scale out or limit them at the entry: nothing planned "
            "or regular explains the rise.",
        ),
    ],
)
def test_recoveries_missing_telemetry_and_traffic_have_a_step(made: Incident, text: str) -> None:
    assert next_step(made) == text


def test_lost_traffic_is_outside_the_mesh_only_if_no_other_alert_is_open() -> None:
    made = traffic("*", 12, 3400)
    other, outside = replace(incident(SLOW), id="b"), "Check the load balancer, DNS and the source of the metrics: "
    assert next_step(made, (made,)) == f"{outside}the requests to the mesh fell, and nothing inside the mesh fails."
    assert next_step(made, (made, other)) == (
        "Look at the other open incidents first: they may be why the requests to the mesh fell."
    )
    assert (
        encode_verdict(verdict(made, replace(other, severity=Severity.NOTICE)))
        .incidents[0]
        .next_step.startswith(outside)
    )


@pytest.mark.parametrize("metric", [*SignalKind, OVERDUE, "cpu_utilization", "memory_utilization"])
def test_every_notice_has_a_step(metric: str) -> None:
    text = next_step(incident(reason(metric, 0.9, 0.1), severity=Severity.NOTICE))
    assert "shop/cart" in text
    assert ": " in text
    assert "{" not in text
    assert text.endswith(".")


@pytest.mark.parametrize("kind", IncidentKind)
@pytest.mark.parametrize("fact", [SLOW, CALL, reason(VANISHED, float("nan"), 40), THROTTLED, reason(OVERDUE, 90, 60)])
def test_every_kind_has_a_step_whatever_the_reasons(kind: IncidentKind, fact: Reason) -> None:
    first, second = Suspect("shop/cart", 0.5, (fact,)), Suspect("shop/tax", 0.4)
    for suspects in ((), (first, second), (replace(first, score=0.9),)):
        text = next_step(replace(incident(fact), kind=kind, suspects=suspects, changes=(change(40),)))
        assert "shop/cart" in text or kind in (IncidentKind.TRAFFIC_LOST, IncidentKind.TRAFFIC_SURGE)
        assert text.endswith(".")


@pytest.mark.parametrize(
    ("metric", "action", "name"),
    [
        (
            "outgoing_errors",
            "Check DNS and egress of shop/cart, then its proxy and its network: 60% of its",
            "shop/cart",
        ),
        ("outgoing_latency", "Look at the network, the node and the proxy of shop/cart: all its calls", "shop/cart"),
        (
            "namespace_outgoing_errors",
            "Check DNS and egress of namespace shop: 60% of the calls out of all of its services fail on the way",
            "calls out of namespace shop",
        ),
        (
            "namespace_incoming_errors",
            "Check the policies and the network of namespace shop: 60% of the calls to all of its services fail",
            "calls to namespace shop",
        ),
        (
            "namespace_outgoing_latency",
            "Look at the network and the nodes of namespace shop: the calls out of all of its services take 600 ms",
            "calls out of namespace shop",
        ),
    ],
)
def test_a_common_cause_says_where_to_look(metric: str, action: str, name: str) -> None:
    made = incident(reason(metric, 0.6, 0.01))
    assert next_step(made).startswith(action)
    assert title(made) == name


def test_a_service_that_fails_since_its_calls_go_elsewhere_has_a_wrong_route() -> None:
    moved = incident(FAILING, reason(MOVED, 3.0, 0.0, destination="shop/tax"))
    assert next_step(moved).startswith("Correct the routing of the calls from shop/cart")
