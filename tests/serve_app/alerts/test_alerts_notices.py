"""The notifications of each verdict: constant labels, rises, merges, ends, and incomplete verdicts."""

from dataclasses import replace
from datetime import timedelta

import pytest

from model.verdict import Incident, Reason, Suspect, Verdict, Watched
from serve_app.alerts.alert import AlertState, MeshAlerts, Transition
from serve_app.alerts.annotations import truncate
from serve_app.alerts.event_text import news, what_happened
from serve_app.alerts.links import Links
from serve_app.alerts.transitions import resolve_all
from tests.serve_app.alerts.alerting import (
    CALM,
    HIDDEN,
    MINUTE,
    MUTE,
    MUTE_END,
    NOW,
    PLACE,
    change,
    incident,
    kinds,
    notice,
    play,
    transition,
    verdict,
)

STEP = (
    "Roll back v1.4.2 of shop/cart: it was deployed 40 s before this began, and its p99 latency rose to 1.2 s, usually "
    "0.08 s; if that does not help, look at shop/web (its p99 latency rose to 1.2 s, usually 0.08 s)."
)


def test_an_incident_is_one_alert_with_all_details() -> None:
    (transition,) = play(verdict(incident("a", changes=(change(),))))
    (page,) = transition.alerts.open
    alert = page.alert
    assert alert.labels == {
        "alertname": "TagaeIncident",
        "cluster": "eu-1",
        "mesh": "shop",
        "incident": "a",
        "namespace": "shop",
        "service": "cart",
        "severity": "minor",
    }
    assert (alert.starts_at, alert.ends_at) == (NOW - timedelta(seconds=120), None)
    assert alert.annotations == {
        "summary": "Cause uncertain, shop/cart or shop/web: shop/cart has been slow since the deploy of v1.4.2, 40 s "
        "before: p99 latency 1.2 s, usually 0.08 s. 2 services affected.",
        "kind": "slow",
        "title": "shop/cart",
        "next_step": STEP,
        "description": "Minor incident in mesh shop since 2026-03-01 03:12 UTC.\n"
        f"What to do: {STEP}\n"
        "1. shop/cart (0.60): p99 latency 1.2 s, expected 0.08 s, since 03:12 UTC\n"
        "2. shop/web (0.30): p99 latency 1.2 s, expected 0.08 s, since 03:12 UTC\n"
        "Affected: shop/cart, shop/web.\n"
        "Planned: began 40 s after deploy of shop/cart (v1.4.2).",
        "page_url": "https://tagae.example/#mesh=shop&incident=a",
        "runbook_url": "https://runbooks.example/shop?incident=a",
        "dashboard_url": "https://tagae.example/#mesh=shop&incident=a",
    }
    assert alert.url == "https://tagae.example/v1/meshes/shop/verdict"
    assert kinds(transition.events) == ["opened"]


def test_a_notice_is_an_alert_with_a_severity_of_its_own() -> None:
    first, second = play(verdict(notice(seconds=2400.0)), verdict(notice(seconds=1800.0)))
    (open_notice,) = first.alerts.open
    assert open_notice.alert.labels["severity"] == "notice"
    assert open_notice.alert.annotations["summary"] == "Memory of shop/cart reaches its limit in 40 minutes (25 to 70)."
    assert open_notice.alert.annotations["description"].splitlines() == [
        "Notice in mesh shop since 2026-03-01 03:12 UTC. A resource is running out; users are not affected yet.",
        "What to do: Restart shop/cart before its memory is full, in about 40 min, then look for the leak: its memory "
        "is at 62%, usually 40%, and rises steadily.",
        "1. shop/cart (1.00): memory of shop/cart reaches its limit in 40 minutes (25 to 70); 62%, expected 40%, "
        "since 02:54 UTC",
        "Affected: shop/cart.",
    ]
    assert "in 30 minutes (19 to 52)" in second.alerts.open[0].alert.annotations["summary"]
    assert (kinds(first.events), kinds(second.events)) == (["opened"], [])


def test_a_sudden_shortage_shows_the_usual_value() -> None:
    high = Suspect("shop/cart", 1.0, (Reason(metric="memory_utilization", observed=0.62, expected=0.4, since=NOW),))
    (transition,) = play(verdict(notice(suspects=(high,))))
    assert transition.alerts.open[0].alert.annotations["summary"] == "Memory of shop/cart: 62%, usually 40%."


def test_a_notice_ends_or_merges_when_an_alert_begins_at_its_service() -> None:
    _, later = play(verdict(notice()), verdict(incident("a", age=0)))
    assert [(e.document["event"], e.document.get("reason")) for e in later.events] == [
        ("resolved", "over"),
        ("opened", None),
    ]
    _, earlier = play(verdict(notice()), verdict(incident("a", age=600)))
    assert kinds(earlier.events) == ["merged", "opened"]


def test_an_alert_is_over_although_a_notice_shares_its_suspect() -> None:
    both = verdict(incident("a", "shop/web", "shop/cart"), notice(age=600))
    *_, last = play(both, verdict(notice(age=600)))
    assert [e.document["event"] for e in last.events] == ["resolved"]


def test_a_recovering_incident_is_shown_as_recovering_while_it_is_open() -> None:
    first, second = play(verdict(incident("a")), verdict(incident("a", recovering=True)))
    line = "\nRecovering: its services are back to normal.\n"
    assert line not in first.alerts.open[0].alert.annotations["description"]
    assert line in second.alerts.open[0].alert.annotations["description"]
    assert second.alerts.open[0].document["recovering"] is True


def test_a_recovering_incident_is_over_although_another_fault_is_at_its_services() -> None:
    both = verdict(incident("old", "shop/cart", age=900, recovering=True), incident("new", "pay/bank", "shop/cart"))
    *_, last = play(both, verdict(incident("new", "pay/bank", "shop/cart")))
    assert [(e.document["event"], e.document["incident"]["id"]) for e in last.events] == [("resolved", "old")]


def test_labels_stay_while_suspects_and_score_change() -> None:
    first, second = play(
        verdict(incident("a", "shop/cart")), verdict(incident("a", "pay/bank", "shop/cart", score=99.0))
    )
    assert second.alerts.open[0].alert.labels == first.alerts.open[0].alert.labels
    assert second.alerts.open[0].alert.starts_at == first.alerts.open[0].alert.starts_at
    assert "pay/bank" in second.alerts.open[0].alert.annotations["summary"]
    assert (second.ended, second.events) == ((), ())
    texts = {text for transition in (first, second) for text in transition.alerts.open[0].alert.labels.values()}
    assert not any("99" in text or "7.5" in text for text in texts)


def test_a_rise_ends_one_alert_and_fires_another() -> None:
    _, risen, fallen = play(
        verdict(incident("a")), verdict(incident("a", severity="critical")), verdict(incident("a", severity="minor"))
    )
    (before,), (page,) = risen.ended, risen.alerts.open
    assert before.labels == {**page.alert.labels, "severity": "minor"}
    assert page.alert.labels["severity"] == "critical"
    assert page.alert.annotations["description"].startswith("Critical")
    assert (before.ends_at, before.annotations["superseded"]) == (NOW + MINUTE, "severity rose to critical")
    assert before.starts_at == page.alert.starts_at
    (event,) = risen.events
    assert (event.document["previous_severity"], event.document["incident"]["severity"]) == ("minor", "critical")
    # If the severity falls, the alert keeps its highest severity.
    assert (fallen.ended, fallen.events) == ((), ())
    assert fallen.alerts.open[0].alert.labels["severity"] == "critical"
    assert fallen.alerts.open[0].document["severity"] == "critical"


def test_merged_incidents_end_into_the_survivor() -> None:
    old, young = incident("old", "shop/cart", age=300), incident("young", "pay/bank", "pay/card")
    _, merged = play(verdict(old, young), verdict(incident("old", "shop/cart", "pay/card", age=300)))
    (ended,) = merged.ended
    assert (ended.labels["incident"], ended.annotations["merged_into"]) == ("young", "old")
    assert [page.incident for page in merged.alerts.open] == ["old"]
    assert [(e.document["event"], e.document["merged_into"]) for e in merged.events] == [("merged", "old")]


def test_it_merges_into_the_incident_with_most_of_its_services() -> None:
    last = incident("c", "a/1", "a/2", "a/3")
    one, two = incident("x", "b/1", age=300), incident("y", "b/2", age=400)
    after = verdict(replace(one, affected=("b/1", "a/1", "a/2")), replace(two, affected=("b/2", "a/3")))
    assert play(verdict(one, two, last), after)[1].ended[0].annotations["merged_into"] == "x"


@pytest.mark.parametrize("coverage", [1.0, 0.5])
def test_an_incident_that_begins_after_an_end_is_another_one(coverage: float) -> None:
    """It has the same services but begins later. No incident merges into one that did not exist yet."""
    _, after = play(verdict(incident("a", age=300)), verdict(incident("b", age=30), coverage=coverage))
    assert kinds(after.events) == (["resolved", "opened"] if coverage == 1 else ["opened"])


def test_a_merge_is_seen_in_a_partial_verdict() -> None:
    old, young = incident("old", "shop/cart", age=300), incident("young", "pay/bank")
    _, merged = play(verdict(old, young), verdict(incident("old", "pay/bank", age=300), coverage=0.5))
    assert kinds(merged.events) == ["merged"]


def test_an_incident_that_is_no_longer_listed_is_over() -> None:
    _, over, quiet = play(verdict(incident("a"), incident("b", "pay/bank")), verdict(incident("a")), verdict())
    assert [(alert.labels["incident"], alert.ends_at) for alert in over.ended] == [("b", NOW + MINUTE)]
    assert [(e.document["event"], e.document["reason"]) for e in over.events] == [("resolved", "over")]
    assert [alert.labels["incident"] for alert in quiet.ended] == ["a"]
    assert quiet.alerts.open == ()


def test_an_incident_that_was_closed_unseen_is_resolved_and_says_so() -> None:
    """While no data arrives there is no verdict, so the alert stays. The first one afterwards may see only a part."""
    gone = replace(verdict(incident("b", "shop/cart", age=300), coverage=0.75), lost=("a",))
    _, closed = play(verdict(incident("a"), incident("b", "pay/bank", age=300)), gone)
    assert [(e.document["event"], e.document["reason"]) for e in closed.events] == [("resolved", "unseen")]
    assert [alert.labels["incident"] for alert in closed.ended] == ["a"]


def test_an_incident_that_a_mute_hides_is_muted_and_not_over() -> None:
    _, muted, again = play(verdict(incident("a")), HIDDEN, HIDDEN)
    (event,) = muted.events
    assert (event.document["event"], event.document["sequence"]) == ("muted", 2)
    assert (event.document["muted_until"], event.document["mute_reason"]) == (MUTE_END.isoformat(), "repair")
    assert news(event.document) == "Muted until 2026-03-01 03:34 UTC (repair), still failing."
    assert what_happened(event.document) == "Muted until 2026-03-01 03:34 UTC, still failing: minor incident in shop"
    (ended,), (page,) = muted.ended, muted.alerts.open
    assert page.alert.labels == {**ended.labels, "muted": "true"}
    assert page.alert.annotations["muted"] == news(event.document)
    assert (page.alert.ends_at, ended.annotations["superseded"]) == (None, "muted")
    assert (again.events, again.ended) == ((), ()), "one notification is enough"
    elsewhere = replace(MUTE, services=("pay/bank",), hides=("pay/bank",))
    _, over = play(verdict(incident("a")), replace(verdict(), muted=(elsewhere,)))
    assert [e.document["reason"] for e in over.events] == ["over"]


def test_an_end_during_a_mute_is_one_notification() -> None:
    """A snapshot in which a mute hides nothing proves nothing, neither before nor after the notification."""
    *before, over, later = play(verdict(incident("a")), CALM, HIDDEN, CALM, HIDDEN, CALM, CALM, CALM, CALM)
    assert [kinds(change.events) for change in before] == [["opened"], [], ["muted"], [], [], [], []]
    assert [(e.document["event"], e.document["reason"]) for e in over.events] == [("resolved", "over")]
    (ended,) = over.ended
    assert ended.labels["muted"] == "true"
    assert "muted" not in ended.annotations, "it does not fail any more"
    assert (later.alerts.open, later.events) == ((), ())


@pytest.mark.parametrize("shown", [incident("a"), notice("a")], ids=["alert", "notice"])
def test_an_incident_that_outlasts_its_mute_is_one_notification(shown: Incident) -> None:
    *_, muted, unmuted, later = play(verdict(shown), *[HIDDEN] * 20, verdict(shown), verdict(shown))
    assert (muted.events, muted.ended) == ((), ())
    (event,) = unmuted.events
    assert (event.document["event"], event.document["sequence"], event.document["incident"]["id"]) == (
        "unmuted",
        3,
        "a",
    )
    assert news(event.document) == "Its mute ended, and it still fails."
    (ended,), (page,) = unmuted.ended, unmuted.alerts.open
    assert ended.labels == {**page.alert.labels, "muted": "true"}
    assert "muted" not in page.alert.annotations
    assert (later.events, later.ended) == ((), ())


def test_a_muted_notice_is_over_after_ten_minutes_without_it() -> None:
    changes = play(verdict(notice("a")), HIDDEN, *[CALM] * 9, HIDDEN, *[CALM] * 11)
    assert [(i, *kinds(change.events)) for i, change in enumerate(changes) if change.events] == [
        (0, "opened"), (1, "muted"), (22, "resolved"),
    ]  # fmt: skip


def test_an_incident_that_is_worse_after_its_mute_is_one_notification() -> None:
    *_, unmuted = play(verdict(incident("a")), HIDDEN, verdict(incident("a", severity="critical")))
    assert kinds(unmuted.events) == ["unmuted"]
    assert [(page.severity, page.alert.labels["severity"]) for page in unmuted.alerts.open] == [
        ("critical", "critical")
    ]


@pytest.mark.parametrize("waits", [0, 1], ids=["at once", "after a snapshot"])
def test_an_incident_that_outlasts_its_mute_continues_as_another(waits: int) -> None:
    *_, unmuted, later = play(
        verdict(incident("a")), HIDDEN, *[verdict()] * waits, verdict(incident("b", age=-300)), verdict(incident("b"))
    )
    merged, opened = (event.document for event in unmuted.events)
    assert (merged["event"], merged["incident"]["id"], merged["merged_into"]) == ("merged", "a", "b")
    assert news(merged) == "Its mute ended, and it still fails: it continues as incident b."
    assert (opened["event"], opened["incident"]["id"], opened["continues"]) == ("opened", "b", "a")
    assert [alert.labels.get("muted") for alert in unmuted.ended] == ["true"]
    (page,) = unmuted.alerts.open
    assert "muted" not in page.alert.labels
    assert (later.events, later.ended) == ((), ())


def test_watched_services_are_sent_to_no_one() -> None:
    watched = Watched("shop/tax", 4.9, 5.8, NOW, 1, 3)
    (quiet,) = play(replace(verdict(), watching=(watched,)))
    assert (quiet.alerts.open, quiet.ended, quiet.events) == ((), (), ())
    (opened,) = play(replace(verdict(incident("a")), watching=(watched,)))
    assert "shop/tax" not in repr((opened.alerts, opened.events))


@pytest.mark.parametrize(
    "blind",
    [
        verdict(status="warming_up"),
        verdict(status="partial", coverage=0.75),
        verdict(incident("b", "pay/bank"), coverage=0.75),
    ],
    ids=["warming_up", "partial", "anomalous elsewhere"],
)
def test_an_incident_in_an_unscored_part_is_not_over(blind: Verdict) -> None:
    first, unseen, again, seen = play(verdict(incident("a")), blind, blind, verdict())
    page = next(page for page in again.alerts.open if page.incident == "a")
    assert page.alert.labels == first.alerts.open[0].alert.labels
    assert not unseen.ended
    text = page.alert.annotations["description"]
    assert text.count("Not seen at") == 1
    assert ("Not seen at 2026-03-01 03:16 UTC: 75% of the services" in text) == (blind.coverage < 1)
    assert "a" in [alert.labels["incident"] for alert in seen.ended]


def test_the_same_verdict_again_changes_nothing() -> None:
    alerts = transition(MeshAlerts(), "shop", verdict(incident("a")), NOW, PLACE).alerts
    again = transition(alerts, "shop", verdict(incident("a")), NOW + MINUTE, PLACE)
    assert again == Transition(replace(alerts, at=NOW + MINUTE))


def test_a_start_ahead_of_the_clock_is_now() -> None:
    (transition,) = play(verdict(incident("a", age=-60)))
    alert = transition.alerts.open[0].alert
    assert alert.starts_at == NOW
    assert alert.resolve(NOW - MINUTE).ends_at == NOW  # never before its start, even if the clock is set back


def test_an_incident_that_returns_is_notified_again() -> None:
    opened, over, again = play(verdict(incident("a")), verdict(), verdict(incident("a")))
    assert again.alerts.open[0].alert.labels == opened.alerts.open[0].alert.labels
    assert kinds(again.events) == ["opened"]
    assert len({event.id for transition in (opened, over, again) for event in transition.events}) == 3
    book = AlertState().apply("shop", over, {}).apply("shop", again, {})
    assert book.ended == ()  # it fires: it must not be reported as ended in the same batch


def test_a_deleted_mesh_has_no_open_alerts() -> None:
    (transition,) = play(verdict(incident("a"), incident("b", "pay/bank")))
    gone = resolve_all(transition.alerts, "shop", NOW + MINUTE, PLACE, "mesh_deleted")
    assert gone.alerts.open == ()
    assert [alert.ends_at for alert in gone.ended] == [NOW + MINUTE] * 2
    assert [e.document["reason"] for e in gone.events] == ["mesh_deleted"] * 2


def test_without_suspects_and_links_there_is_still_an_alert() -> None:
    unaffected = replace(incident("a"), suspects=(), affected=())
    (transition,) = play(verdict(unaffected), links=Links())
    alert = transition.alerts.open[0].alert
    assert alert.labels.keys() == {"alertname", "cluster", "mesh", "incident", "severity"}
    assert alert.annotations["summary"] == "a deviates, cause unclear. 0 services affected."
    assert alert.annotations.keys() == {"summary", "title", "next_step", "description", "kind"}
    assert alert.url == ""
    (transition,) = play(verdict(replace(unaffected, affected=("shop/web",))), links=Links())
    assert transition.alerts.open[0].alert.labels["service"] == "web"


def test_long_lists_and_texts_are_cut() -> None:
    names = tuple(f"shop/{'x' * 200}{i}" for i in range(100))
    huge: Incident = replace(incident("a"), suspects=tuple(Suspect(n, 0.01) for n in names), affected=names)
    (transition,) = play(verdict(huge))
    text = transition.alerts.open[0].alert.annotations["description"]
    assert len(text) <= 4096
    assert "6. " not in text
    (transition,) = play(verdict(replace(incident("a"), affected=tuple(f"shop/s{i}" for i in range(25)))))
    assert "shop/s19 and 5 more." in transition.alerts.open[0].alert.annotations["description"]
    assert truncate("x\ud800y", 10) == "x?y"
