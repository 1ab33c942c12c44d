"""What people do about an incident reaches each receiver once, in its own words."""

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from serve_app.alerts.alert import AlertState, MeshAlerts
from serve_app.alerts.delivery import utc_now
from serve_app.alerts.event_text import event_title, news
from serve_app.alerts.receivers.slack import slack_message
from serve_app.alerts.transitions import act
from serve_app.alerts.verdict_feed import VerdictFeed
from serve_app.api.codec import encode_verdict
from serve_app.api.schemas.actions import ActionKind, KeptActionDocument
from serve_app.api.schemas.incidents import ArchivedIncidentDocument
from serve_app.settings import StoreSettings
from serve_app.stores.archive import pack_document
from serve_app.stores.opening import open_store
from serve_app.stores.records import ArchivedIncident
from serve_app.stores.state_store import StateStore
from tests.serve_app.alerts.alerting import (
    MINUTE,
    NOW,
    PATIENT,
    PLACE,
    accept,
    eventually,
    incident,
    metric_value,
    play,
    receivers,
    run_notifier,
    start_endpoints,
    start_notifier,
    store_verdict,
    transition,
    verdict,
)
from tests.serve_app.alerts.stand_ins import Answering, OtherSide, StandInGrafana, StandInPagerDuty, StandInSlack, serve

HOSTILE = "<!channel> <b>done</b> & *bold*\nnext"


def action(kind: str, text: str = "", by: str = "ana", of: str = "a", minutes: float = 0) -> dict[str, Any]:
    document = KeptActionDocument(incident=of, kind=ActionKind(kind), text=text, by=by, at=NOW + minutes * MINUTE)
    return document.model_dump(mode="json")


ACTIONS = [action("acknowledge"), action("note", HOSTILE, "ben"), action("done", "restarted it"), action("accept")]
ON_IT = "ana since 2026-03-01 03:14 UTC"


def check_pagerduty(there: Any) -> None:
    opened, acknowledged = there.events
    assert (opened["event_action"], acknowledged["event_action"]) == ("trigger", "acknowledge")
    assert acknowledged["dedup_key"] == opened["dedup_key"]
    assert acknowledged["payload"]["summary"].startswith("ana is on it: minor incident in shop: ")
    assert acknowledged["payload"]["custom_details"]["on it"] == ON_IT


def check_slack(there: Any) -> None:
    (message,) = there.roots()
    sections = [block["text"]["text"] for block in message["blocks"][:-1]]
    assert sections[0] == "Accepted as normal by ana: minor incident in shop: shop/cart"
    assert f"*On it*\n{ON_IT}" in sections
    assert [reply["text"] for reply in there.replies(message["ts"])] == [
        "ana is on it",
        "Note by ben: &lt;!channel&gt; &lt;b&gt;done&lt;/b&gt; &amp; *bold*\nnext",
        "What helped, by ana: restarted it",
        "Accepted as normal by ana",
    ]


def check_grafana(there: Any) -> None:
    (annotation,) = there.annotations.values()
    assert "acknowledged" in annotation["tags"]
    assert f"<br>On it: {ON_IT}<br>" in annotation["text"]
    assert "timeEnd" not in annotation


def check_webhook(there: Any) -> None:
    events = [body for _, body in there.requests]
    assert [event["event"] for event in events] == ["opened", *["acted"] * 4]
    assert [event["actions"] for event in events] == [ACTIONS[:i] for i in range(5)]
    assert [event["sequence"] for event in events] == [1, 2, 3, 4, 5]
    assert [event["on_it"] for event in events] == ["", *[ON_IT] * 4]


@pytest.mark.parametrize(
    ("other_side", "check"),
    [
        (StandInPagerDuty, check_pagerduty),
        (StandInSlack, check_slack),
        (StandInGrafana, check_grafana),
        (Answering, check_webhook),
    ],
)
async def test_each_receiver_gets_each_action_once_in_its_own_words(
    other_side: type[OtherSide], check: Callable[[Any], None], tmp_path: Path
) -> None:
    with serve(other_side()) as there:
        async with start_notifier(there.to(tmp_path), tmp_path) as (notifier, instruments):
            accept(notifier, "shop", verdict(incident("a")), NOW)
            for _ in range(2):  # a look at the archive finds all actions every time
                notifier.accept_actions("shop", {"a": ACTIONS}, NOW + MINUTE)
            await eventually(
                lambda: metric_value(instruments, "tagae_notifications_sent_total", receiver=other_side.kind) == 5
            )
        assert there.refusals == []
        check(there)


def apply(alerts: MeshAlerts, *actions: dict[str, Any]) -> tuple[MeshAlerts, list[dict[str, Any]]]:
    change = act(alerts, "shop", {"a": actions}, NOW + MINUTE, PLACE)
    assert change.ended == ()
    return change.alerts, [event.document for event in change.events]


def test_an_incoming_webhook_of_slack_shows_the_action() -> None:
    (opened,) = play(verdict(incident("a")))
    _, (_, noted) = apply(opened.alerts, *ACTIONS[:2])
    sections = [block["text"]["text"] for block in slack_message(noted)["blocks"][:-1]]
    assert sections[:2] == [
        "Note by ben: minor incident in shop: shop/cart",
        "Note by ben: &lt;!channel&gt; &lt;b&gt;done&lt;/b&gt; &amp; *bold*\nnext",
    ]
    assert (event_title(noted), news(noted)) == (sections[0], f"Note by ben: {HOSTILE}")


def test_an_alert_keeps_its_labels_and_says_who_is_on_it() -> None:
    (opened,) = play(verdict(incident("a")))
    alerts, _ = apply(opened.alerts, action("acknowledge"), action("acknowledge", by="", minutes=2))
    on_it = f"{ON_IT}, someone since 2026-03-01 03:16 UTC"
    assert alerts.open[0].alert.labels == opened.alerts.open[0].alert.labels
    assert alerts.open[0].alert.annotations["on_it"] == on_it
    raised = transition(alerts, "shop", verdict(incident("a", severity="critical")), NOW + MINUTE, PLACE)
    assert raised.alerts.open[0].alert.annotations["on_it"] == on_it, "also after the next verdict"
    over = transition(raised.alerts, "shop", verdict(), NOW + 2 * MINUTE, PLACE)
    assert [event.document["on_it"] for event in (*raised.events, *over.events)] == [on_it, on_it]
    state = AlertState(meshes={"shop": alerts})
    assert msgspec.json.decode(msgspec.json.encode(state), type=AlertState) == state


def test_actions_on_a_merged_incident_are_no_further_events() -> None:
    (opened,) = play(verdict(incident("a")))
    alerts, events = apply(opened.alerts, action("acknowledge", of="b"), action("note", "mine"))
    assert [event["actions"][-1]["text"] for event in events] == ["mine"]
    assert events[0]["on_it"] == ON_IT
    assert apply(alerts, action("acknowledge", of="b"), action("note", "mine")) == (alerts, [])


def test_an_event_has_the_last_actions_and_everyone_who_is_on_it() -> None:
    (opened,) = play(verdict(incident("a")))
    _, events = apply(opened.alerts, action("acknowledge"), *(action("note", str(i)) for i in range(30)))
    assert [action["text"] for action in events[-1]["actions"]] == [str(i) for i in range(20, 30)]
    assert events[-1]["on_it"] == ON_IT


def test_actions_on_a_muted_incident_or_one_that_is_over_are_no_events() -> None:
    (opened,) = play(verdict(incident("a")))
    muted = replace(opened.alerts, open=(replace(opened.alerts.open[0], is_muted=True),))
    assert apply(muted, *ACTIONS) == (muted, [])
    assert apply(MeshAlerts(), *ACTIONS) == (MeshAlerts(), [])


async def test_actions_are_read_from_the_archive(place: StoreSettings, store: StateStore) -> None:
    """Those that came before the notifier looked, and one just before the end of its incident."""

    def archive(revision: int, *actions: dict[str, Any]) -> None:
        of_verdict = encode_verdict(verdict(incident("a"))).incidents[0]
        document = ArchivedIncidentDocument.from_object(
            of_verdict, actions=[KeptActionDocument.model_validate(action) for action in actions]
        )
        record = ArchivedIncident("a", NOW, None, 1, 1, "slow", (), (), pack_document(document))
        store.replace("shop", b"state", revision=revision, incidents=(record,))

    async with start_endpoints(200) as (hook,):
        to = receivers(webhooks=[hook], deadline_seconds=PATIENT)
        with_opened = store_verdict(store, "shop", verdict(incident("a")), 1)
        archive(with_opened, ACTIONS[0])
        with closing(open_store(place)) as opened:
            feed = VerdictFeed(opened)
            async with run_notifier(to, opened, utc_now) as (notifier, _):
                await feed.hand_on(notifier)
                await hook.until(lambda requests: len(requests) == 2)
                archive(store.revision("shop"), *ACTIONS[:2])
                store_verdict(store, "shop", verdict(), 2)
                await feed.hand_on(notifier)
                await hook.until(lambda requests: len(requests) == 4)
    sent = [(request.json["event"], len(request.json["actions"])) for request in hook.requests]
    assert sent == [("opened", 0), ("acted", 1), ("acted", 2), ("resolved", 2)]
