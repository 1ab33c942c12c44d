"""What people said about an incident, and how long it lasted, in words."""

from datetime import timedelta
from typing import Any

import pytest

from model.verdict import IncidentKind
from serve_app.api.schemas.actions import ActionKind, FeedbackEffect, KeptActionDocument, KeptFeedbackDocument
from serve_app.api.schemas.incidents import ArchivedIncidentDocument
from tests.builders import START

FEEDBACK: dict[str, Any] = {
    "incident": "20260301T031200Z-1f3870be",
    "was_incident": True,
    "missed": False,
    "services": ["shop/cart"],
    "since": START,
    "until": START,
    "given_at": START,
    "culprit": None,
    "note": "",
    "page_levels": {},
}
OLD = {"effect": FeedbackEffect.RECORDED}


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({}, "Confirmed."),
        ({"given_by": "alice", "culprit": "shop/cart"}, "Confirmed by alice: shop/cart."),
        ({"was_incident": False, "note": "a batch"}, "Marked as a false alarm. Note: a batch"),
        (OLD, "Confirmed. The incident is old, so this changes no alerts."),
    ],
)
def test_feedback_in_words(given: dict[str, Any], text: str) -> None:
    document = KeptFeedbackDocument(**FEEDBACK | given)
    assert document.text == text
    assert KeptFeedbackDocument.model_validate_json(document.model_dump_json()) == document


@pytest.mark.parametrize(
    ("kind", "by", "text", "words"),
    [
        ("acknowledge", "alice", "", "alice is on it"),
        ("acknowledge", "", "", "someone is on it"),
        ("note", "alice", "the pool is full", "Note by alice: the pool is full"),
        ("done", "alice", "restarted it", "What helped, by alice: restarted it"),
        ("accept", "alice", "the new release", "Accepted as normal by alice: the new release"),
    ],
)
def test_an_action_in_words(kind: str, by: str, text: str, words: str) -> None:
    action = KeptActionDocument(incident="i", kind=ActionKind(kind), text=text, by=by, at=START)
    assert action.words == words
    assert KeptActionDocument.model_validate_json(action.model_dump_json()) == action


@pytest.mark.parametrize(
    ("minutes", "unseen", "text"),
    [(None, False, ""), (12, False, "12 min"), (12, True, "at least 12 min; closed, outcome unknown")],
)
def test_how_long_an_incident_lasted(minutes: int | None, unseen: bool, text: str) -> None:
    document = ArchivedIncidentDocument(
        id="i",
        kind=IncidentKind.SLOW,
        severity="minor",
        score=6.0,
        since=START,
        until=None if minutes is None else START + timedelta(minutes=minutes),
        ended_unseen=unseen,
        suspects=[],
        affected=[],
        changes=[],
    )
    assert document.lasted == text
    assert ArchivedIncidentDocument.model_validate_json(document.model_dump_json()) == document
