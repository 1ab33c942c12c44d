"""Suspects that led an incident and notices from before it stay in its list."""

from dataclasses import replace
from datetime import datetime, timedelta

import numpy as np
import pytest

from model.decision.verdict_building import build_verdict
from model.evidence.gather import Evidence
from model.evidence.kinds import EVENT_SURPRISE
from model.evidence.resources import Trend
from model.incidents.memory import IncidentMemory
from model.incidents.open_incident import (
    HALF_LIFE,
    LEAD_SHARE,
    LED,
    MAX_LEADS,
    MIN_SHARE,
    SOON,
    Lead,
    PastNotice,
    follow_leads,
    inherit,
    join_leads,
    renew,
    with_leads,
    with_notices,
)
from model.state.mesh_state import MeshState
from model.state.serialization import pack_state, unpack_state
from model.verdict import MAX_SUSPECTS, IncidentKind, LimitForecast, Reason, Severity, Suspect
from tests.builders import START, open_incident, reason
from tests.model.decision.verdict_cases import POLICY, evidence, judge, meta, when
from tests.model.model_cases import at

CPU = reason("cpu_utilization", 0.95, 0.4, load=1.4)
SLOW = reason("p99_latency", 4.1, 0.08, load=1.4)
MEMORY = reason("memory_utilization", 0.8, 0.4, forecast=LimitForecast(600.0, 300.0, float("inf")))


def one(service: str, score: float = 1.0, *reasons: Reason) -> Suspect:
    return Suspect(service, score, reasons)


def make_leads(*services: str, score: float = 0.99) -> tuple[Lead, ...]:
    """Return the leads after snapshots with these first suspects."""
    leads: tuple[Lead, ...] = ()
    for service in services:
        leads = follow_leads(leads, (one(service, score, SLOW), one("x", 1 - score)))
    return leads


def scores_in_list(suspects: tuple[Suspect, ...], leads: tuple[Lead, ...]) -> dict[str, float]:
    return {suspect.service: suspect.score for suspect in with_leads(suspects, leads)}


def test_a_suspect_that_led_stays_in_the_list_at_a_fading_share() -> None:
    shares = []
    for later in (1, 1 + HALF_LIFE, 1000):
        leads = make_leads(*["cause"] * 9, *["victim"] * int(later))
        found = scores_in_list((one("victim", 0.9), one("other", 0.1)), leads)
        assert next(iter(found)) == "victim"
        assert sum(found.values()) == pytest.approx(1)
        shares.append(found["cause"])
    assert shares[0] == pytest.approx(LEAD_SHARE, rel=0.05)
    assert shares[1] == pytest.approx(shares[0] / 2)
    assert shares[2] == MIN_SHARE, "it never vanishes"


def test_its_reasons_stay_with_it() -> None:
    found = with_leads((one("victim"), one("cause", 0.0)), make_leads(*["cause"] * LED, "victim"))
    assert [suspect.reasons for suspect in found if suspect.service == "cause"] == [(SLOW,)]


def test_a_short_or_unclear_lead_is_not_kept() -> None:
    suspects = (one("victim", 0.9),)
    assert with_leads(suspects, make_leads(*["cause"] * (LED - 1), "victim")) == suspects
    assert make_leads(*["cause"] * 9, score=0.4) == ()
    assert with_leads(suspects, ()) == suspects


def test_a_suspect_that_the_list_has_keeps_a_higher_score() -> None:
    suspects = (one("victim", 0.6), one("cause", 0.4))
    assert with_leads(suspects, make_leads(*["cause"] * 9, "victim")) == suspects


@pytest.mark.parametrize("score", [0.72, 0.8, 0.99])
def test_a_clear_cause_stays_clear(score: float) -> None:
    found = scores_in_list((one("victim", score), one("other", 1 - score)), make_leads(*["cause"] * 9, "victim"))
    assert found["victim"] == pytest.approx(min(score, 1 - found["cause"]))
    assert found["victim"] >= 0.7
    assert sum(found.values()) == pytest.approx(1)


def test_the_list_stays_short() -> None:
    many = tuple(one(f"s{i}", 0.1) for i in range(MAX_SUSPECTS))
    found = scores_in_list(many, make_leads(*["cause"] * 9, "s0"))
    assert len(found) == MAX_SUSPECTS
    assert "cause" in found
    leads = make_leads(*[service for service in "abcdef" for _ in range(LED)])
    assert len(leads) == MAX_LEADS
    assert leads[0].suspect.service == "f", "the present one"
    several = scores_in_list((one("s", 1.0),), leads)
    assert sum(several[service] for service in several if service != "s") == pytest.approx(LEAD_SHARE)
    assert next(iter(several)) == "s"


def test_an_incident_that_absorbs_another_one_keeps_its_leads() -> None:
    both = join_leads(make_leads("a", "a"), make_leads("a", "b", "b", "b"))
    assert {lead.suspect.service: lead.snapshots for lead in both} == {"a": 3, "b": 3}


def test_an_open_incident_follows_its_leads_while_it_has_evidence() -> None:
    incident = open_incident("cause", "victim")
    for i, service in enumerate([*["cause"] * 9, *["victim"] * 3]):
        incident = incident.with_strongest(9.0 + i, (one(service),), at(i), 15.0)
    quiet = replace(incident, quiet=1).with_strongest(0.0, (one("anyone"),), at(20), 15.0)
    assert quiet.leads == incident.leads
    assert [one.service for one in quiet.shown_suspects(at(20))] == ["victim", "cause"]
    assert replace(incident, quiet=1).with_strongest(99.0, (), at(20), 15.0).suspects == (one("victim"),)


def test_reasons_of_a_notice_come_first_or_second() -> None:
    notice = (PastNotice(one("cart", 1.0, MEMORY), at(0)),)
    (busy,) = with_notices((one("cart", 0.9, CPU, SLOW),), notice, at(0))
    assert [reason.metric for reason in busy.reasons] == ["memory_utilization", "cpu_utilization", "p99_latency"]
    assert [reason.load for reason in busy.reasons] == [1.4, 1.0, 1.0], "the load is reported with the first reason"
    (slow,) = with_notices((one("cart", 0.9, SLOW, CPU),), notice, at(0))
    assert [reason.metric for reason in slow.reasons] == ["p99_latency", "memory_utilization", "cpu_utilization"]
    other = (one("web", 0.9, SLOW),)
    assert with_notices(other, notice, at(0)) == other


def test_a_reason_that_the_suspect_has_already_is_not_repeated() -> None:
    newer = replace(MEMORY, observed=0.95, forecast=None)
    (found,) = with_notices((one("cart", 0.9, SLOW, newer),), (PastNotice(one("cart", 1.0, MEMORY), at(0)),), at(0))
    assert [(reason.metric, reason.observed) for reason in found.reasons] == [
        ("p99_latency", 4.1),
        ("memory_utilization", 0.95),
    ]
    assert found.reasons[1].forecast == MEMORY.forecast


def test_a_forecast_ages() -> None:
    notice = (PastNotice(one("cart", 1.0, MEMORY), at(0)),)

    def forecast(now: datetime) -> LimitForecast | None:
        return with_notices((one("cart"),), notice, now)[0].reasons[0].forecast

    assert forecast(START + timedelta(seconds=200)) == LimitForecast(400.0, 100.0, float("inf"))
    assert forecast(START + timedelta(seconds=900)) == LimitForecast(SOON, SOON, float("inf"))
    reached = replace(MEMORY, forecast=LimitForecast(0.0, 0.0, 0.0))
    (found,) = with_notices((one("cart"),), (PastNotice(one("cart", 1.0, reached), at(0)),), at(9))
    assert found.reasons == (reached,)


def test_only_notices_about_its_services_are_inherited() -> None:
    cart, web, bare = (
        PastNotice(one(name, 1.0, *reasons), at(0))
        for name, reasons in (("cart", [MEMORY]), ("web", [MEMORY]), ("bare", []))
    )
    assert inherit((), [cart, web, bare], {"cart", "bare"}) == (cart,)
    newer = replace(cart, at=at(3))
    assert inherit((cart,), [newer, web], {"cart"}) == (newer,)
    assert inherit((cart,), [], {"other"}) == (cart,), "what it remembers, it keeps"


def test_a_rising_resource_gets_a_new_forecast() -> None:
    notice, newer = PastNotice(one("cart", 1.0, MEMORY), at(0)), replace(MEMORY, observed=0.9)
    assert renew(notice, {"memory_utilization": newer}, at(4)) == PastNotice(one("cart", 1.0, newer), at(4))
    assert renew(notice, {"active_connections": newer}, at(4)) == notice


def leaking(page: float) -> Evidence:
    """Return evidence of two services, the first of which leaks memory."""
    trend = Trend(0, "memory_utilization", 0.8, 0.4, 1200.0, LimitForecast(600.0, 300.0, 900.0))
    notice = np.array([EVENT_SURPRISE, 0.0], np.float32)
    return replace(evidence(page, 1.0, calls=((1, 0),)), notice=notice, trends=(trend,))


def test_the_notice_of_a_leak_stays_with_its_incident() -> None:
    memory = IncidentMemory()
    for i, page in enumerate([1.0] * 4 + [9.0] * 4):
        scene = leaking(page) if i < 6 else replace(leaking(page), trends=())
        verdict, memory = build_verdict(meta(), scene, memory, POLICY, when(i))
        memory = unpack_state(pack_state(MeshState(memory=memory))).memory
    (incident,) = verdict.incidents
    assert incident.severity is not Severity.NOTICE
    first = incident.suspects[0]
    assert [reason.metric for reason in first.reasons] == ["error_rate", "memory_utilization"]
    assert first.reasons[1].forecast == LimitForecast(570.0, 270.0, 870.0), "two snapshots later"
    assert incident.kind is IncidentKind.RESOURCES


def test_no_verdict_has_an_alert_and_a_notice_about_the_same_service() -> None:
    """Not even the first verdict of the alert: its notice says that users are not affected yet."""
    verdicts, _ = judge(*map(leaking, [1.0] * 4 + [9.0] * 4))
    seen = [(len(verdict.notices), len(verdict.alerts)) for verdict in verdicts]
    assert (1, 0) in seen
    assert seen[-1] == (0, 1)
    assert (1, 1) not in seen


def test_an_incident_without_an_earlier_notice_has_no_reason_of_one() -> None:
    (*_, verdict), memory = judge(*[evidence(9.0, 1.0, calls=((1, 0),))] * 6)
    assert [[reason.metric for reason in s.reasons] for s in verdict.incidents[0].suspects[:1]] == [["error_rate"]]
    assert memory.open[0].notices == ()
