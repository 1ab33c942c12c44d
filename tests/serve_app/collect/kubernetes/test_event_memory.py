"""Stored Events: which are kept, for how long, and for which services."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial

import msgspec
import pytest

from model.incidents.context import BEFORE, MAX, add_context
from model.snapshot import MeshSnapshot, PlannedChange
from model.verdict import ClusterEvent, Incident, NearbyChange, Severity, Suspect, Verdict
from serve_app.alerts.annotations import annotations
from serve_app.alerts.links import Links
from serve_app.api.codec.verdicts import encode_verdict
from serve_app.api.reason_text import event_text
from serve_app.collect.kubernetes import events
from serve_app.collect.kubernetes.events import KINDS, MAX_AGE, EventMemory, KubernetesEvent, Reference, find_services
from serve_app.collect.prometheus.keys import Key
from tests.builders import incident, mesh_of, verdict
from tests.serve_app.collect.kubernetes import api_server

NOW = datetime.now(UTC)  # for all tests: the last of them may begin an hour later
event = partial(api_server.event, now=NOW)
SHOP = frozenset({"shop/cart", "shop/web", "shop/orders-db", "shop/web-2"})


def memory_with(*documents: dict[str, object]) -> EventMemory:
    memory = EventMemory()
    for document in documents:
        memory.add(msgspec.json.decode(msgspec.json.encode(document), type=KubernetesEvent), NOW)
    return memory


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_unplanned_events_are_kept(kind: str) -> None:
    ((found,),) = [memory_with(event(kind, "web-6b9f7cd5c4-qq2zt")).find(SHOP, {}, NOW)]
    assert (found.kind, found.service) == (kind, "shop/web")


def test_old_events_are_dropped_and_stored_events_expire() -> None:
    memory = memory_with(event(uid="old", age_seconds=3700), event(uid="ahead", age_seconds=-3600), event(uid="young"))
    assert len(memory) == 1
    assert memory.find(SHOP, {}, NOW + MAX_AGE - timedelta(minutes=10)) == ()  # cart-v1 serves no service here
    assert len(memory) == 1
    memory.find(SHOP, {}, NOW + MAX_AGE)
    assert len(memory) == 0


def test_a_repeated_event_replaces_itself_and_the_oldest_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "MAX_EVENTS", 5)
    memory = memory_with(*(event(uid=str(i % 7), count=i) for i in range(50)))
    found = memory.find(frozenset({"shop/cart-v1"}), {}, NOW)
    assert sorted(one.count for one in found) == [45, 46, 47, 48, 49]


def test_new_fields_of_time_and_count_are_read() -> None:
    one = event()
    one |= {"firstTimestamp": None, "lastTimestamp": None, "count": None}
    one |= {"eventTime": (NOW - timedelta(minutes=9)).isoformat()}
    one |= {"series": {"count": 4, "lastObservedTime": (NOW - timedelta(minutes=1)).isoformat()}}
    (found,) = memory_with(one).find(frozenset({"shop/cart-v1"}), {}, NOW)
    assert (found.count, found.first, found.last) == (4, NOW - timedelta(minutes=9), NOW - timedelta(minutes=1))
    timeless = event()
    timeless |= {"firstTimestamp": None, "lastTimestamp": None}
    assert len(memory_with(timeless)) == 0


@pytest.mark.parametrize(
    ("kind", "name", "services"),
    [
        ("Pod", "cart-v1-5f7c9d8b64-x7k2p", ["shop/cart"]),
        ("Pod", "web-6b9f7cd5c4-qq2zt", ["shop/web"]),
        ("Pod", "web-2-6b9f7cd5c4-qq2zt", ["shop/web-2"]),
        ("Pod", "orders-db-0", ["shop/orders-db"]),
        ("Pod", "web-x7k2p", ["shop/web"]),  # of a daemon set
        ("Pod", "web-2", ["shop/web"]),  # of a stateful set
        ("Pod", "cart-v1", ["shop/cart"]),
        ("ReplicaSet", "cart-v1-5f7c9d8b64", ["shop/cart"]),
        ("Deployment", "cart-v1", ["shop/cart"]),
        ("Deployment", "both", ["shop/cart", "shop/web"]),
        ("StatefulSet", "orders-db", ["shop/orders-db"]),
        ("Pod", "stranger-6b9f7cd5c4-qq2zt", []),
        ("Node", "web", ["shop/web"]),
    ],
)
def test_services_of_an_object(kind: str, name: str, services: list[str]) -> None:
    serves: dict[Key, list[Key]] = {
        ("shop", "cart-v1"): [("shop", "cart")],
        ("shop", "both"): [("shop", "cart"), ("shop", "web")],
    }
    assert find_services(Reference(kind, "shop", name), SHOP, serves) == services
    assert find_services(Reference(kind, "pay", name), SHOP, serves) == []


def an_event(service: str, minutes: float, kind: str = "BackOff") -> ClusterEvent:
    at = NOW - timedelta(minutes=minutes)
    return ClusterEvent(kind, service, "Pod x", "Back-off restarting failed container", at, at, 12)


def a_verdict(*incidents: Incident) -> Verdict:
    return verdict(*incidents, observed_at=NOW)


def an_incident(minutes: float, *services: str) -> Incident:
    since, suspects = NOW - timedelta(minutes=minutes), (Suspect(services[0], 0.9),)
    return incident(*services[1:], since=since, severity=Severity.MINOR, suspects=suspects)


def test_events_are_attached_to_incidents_of_their_services_and_nothing_else_changes() -> None:
    seen = [an_event("shop/web", 1), an_event("shop/cart", 4), an_event("shop/cart", 25), an_event("pay/bank", 1)]
    before = a_verdict(an_incident(5, "shop/cart", "shop/web"), an_incident(5, "shop/search"))
    after = add_context(before, [], seen)
    assert [one.events for one in after.incidents] == [tuple(seen[:2]), ()]
    assert add_context(before, []) == before
    assert after.incidents[0].changes == ()
    early = an_event("shop/cart", 5 + BEFORE.total_seconds() / 60 - 0.1)
    assert add_context(before, [], [early]).incidents[0].events == (early,)
    many = [an_event("shop/cart", i / 10) for i in range(50)]
    assert add_context(before, [], many).incidents[0].events == tuple(many[:MAX])


def test_old_changes_are_still_shown_at_suspects() -> None:
    def decided(minutes: float, *services: str) -> MeshSnapshot:
        changes = tuple(PlannedChange("deploy", service, f"{minutes:g}") for service in services)
        return replace(mesh_of(["shop/cart"], at=NOW - timedelta(minutes=minutes)), changes=changes)

    known = NearbyChange(PlannedChange("deploy", "shop/web", "6"), NOW - timedelta(minutes=6))
    before = replace(an_incident(5, "shop/cart", "shop/web"), changes=(known,))
    window = [decided(m, "shop/cart", "shop/web", "shop/search") for m in (25, 9, 6, 1)]
    (after,) = add_context(a_verdict(before), window).incidents
    assert [(near.change.service, near.change.reason) for near in after.changes] == [
        ("shop/cart", "1"),
        ("shop/web", "1"),
        ("shop/web", "6"),
        ("shop/cart", "6"),
        ("shop/cart", "9"),
        ("shop/web", "9"),
    ]
    assert after.changes[2] == known


def test_an_event_is_in_the_document_and_in_the_alert() -> None:
    encoded = encode_verdict(add_context(a_verdict(an_incident(5, "shop/cart")), [], [an_event("shop/cart", 6)]))
    (document,) = encoded.incidents
    (found,) = document.events
    text = "BackOff of shop/cart (Back-off restarting failed container), 12 times since 60 s before it began"
    assert (found.kind, found.object, found.text) == ("BackOff", "Pod x", text)
    assert document.changes == []
    shown = annotations(Links(), "shop", document, Severity.MINOR, encoded.observed_at)["description"]
    assert f"Kubernetes: {text}." in shown.splitlines()
    assert "Planned" not in shown


@pytest.mark.parametrize(
    ("minutes", "count", "text"),
    [
        (5, 1, "BackOff of shop/cart, as it began"),
        (4, 1, "BackOff of shop/cart, 60 s after it began"),
        (15, 2, "BackOff of shop/cart, 2 times since 10 min before it began"),
    ],
)
def test_the_text_of_the_time(minutes: float, count: int, text: str) -> None:
    at = NOW - timedelta(minutes=minutes)
    one = ClusterEvent("BackOff", "shop/cart", "Pod x", "", at, at, count)
    assert event_text(one, NOW - timedelta(minutes=5)) == text


# Fields that are null, missing or of a wrong type.

RECENT = (NOW - timedelta(minutes=2)).isoformat()


@pytest.mark.parametrize(
    "changes",
    [
        {"message": None, "count": None, "firstTimestamp": None, "series": None, "source": None, "type": None},
        {"metadata": {"name": None, "namespace": None, "uid": None, "creationTimestamp": None}},
        {"metadata": None},
        {"count": 0, "series": {"count": None, "lastObservedTime": None}},
        {"lastTimestamp": None, "eventTime": RECENT},
        {"lastTimestamp": "0001-01-01T00:00:00Z", "firstTimestamp": "0001-01-01T00:00:00Z", "eventTime": RECENT},
        {"lastTimestamp": None, "eventTime": None, "metadata": {"uid": "a", "creationTimestamp": RECENT}},
        {"lastTimestamp": None, "series": {"count": 3, "lastObservedTime": RECENT}},
        {"count": -4},
    ],
)
def test_fields_may_be_null(changes: dict[str, object]) -> None:
    memory = memory_with({**event("BackOff", "web-6b9f7cd5c4-qq2zt"), **changes})
    (found,) = memory.find(SHOP, {}, NOW)
    assert (found.kind, found.service) == ("BackOff", "shop/web")
    assert found.count >= 1
    assert found.first <= found.last


@pytest.mark.parametrize(
    "changes",
    [
        *({"reason": kind} for kind in ("ScalingReplicaSet", "SuccessfulCreate", "SuccessfulDelete", "Pulled", "")),
        {"involvedObject": None},
        {"involvedObject": {"kind": "Pod", "namespace": "shop", "name": None}},
        {"reason": None},
        {"lastTimestamp": None, "firstTimestamp": None, "eventTime": None},
    ],
)
def test_planned_and_uninformative_events_are_dropped(changes: dict[str, object]) -> None:
    assert len(memory_with({**event(), **changes})) == 0


def test_an_object_without_a_kind_or_a_namespace_belongs_to_no_service() -> None:
    assert find_services(Reference(None, None, "web"), SHOP, {}) == []
    assert find_services(Reference(None, "shop", "web"), SHOP, {}) == ["shop/web"]
    assert find_services(Reference("Pod", "shop", None), SHOP, {}) == []


def test_events_without_names_of_their_own_stay_apart() -> None:
    memory = memory_with(
        *({**event("BackOff", f"{pod}-6b9f7cd5c4-qq2zt"), "metadata": None} for pod in ("web", "cart", "web"))
    )
    assert len(memory) == 2
