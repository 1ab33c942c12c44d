"""Documents for people's actions: feedback, actions on incidents, mutes, connections, and test alerts."""

from enum import StrEnum
from typing import Annotated

from pydantic import AfterValidator, ConfigDict, Field, ValidationInfo, computed_field, field_validator

from serve_app.api.schemas.base import (
    MAX_ID,
    MAX_REASON,
    Document,
    GivenService,
    GivenServices,
    Instant,
    KeptDocument,
    NoteText,
    PagedServices,
    ServiceKey,
    Text,
)
from serve_app.net.endpoint import check_url

MAX_URL = 2000  # characters
Culprit = Annotated[GivenService | None, Field(description="the service that caused it, if known")]
Note = Annotated[NoteText, Field(description="for people", examples=["nightly batch"])]


class FeedbackDocument(Document):
    """Feedback on an incident in a verdict, including notices. It replaces earlier feedback on the same incident."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"incident": "20260301T031200Z-1f3870be", "was_incident": False, "note": "nightly batch"},
                {"incident": "20260301T031200Z-1f3870be", "was_incident": True, "culprit": "shop/cart"},
            ]
        }
    )

    incident: Text = Field(min_length=1, max_length=MAX_ID, description="id from a verdict")
    was_incident: bool = Field(strict=True, description="false: it was a false alarm, or a useless notice")
    culprit: Culprit = None
    note: Note = ""


class MissedDocument(Document):
    """An incident that raised no alert but should have."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"services": ["shop/cart"], "since": "2026-03-01T03:12:00Z", "until": "2026-03-01T03:20:00Z"}]
        }
    )

    services: list[GivenService] = Field(
        min_length=1, max_length=1000, description="services that should have raised an alert"
    )
    since: Instant
    until: Instant | None = Field(None, description="absent: the same as `since`")
    culprit: Culprit = None
    note: Note = ""


class FeedbackEffect(StrEnum):
    """The effect of feedback."""

    APPLIED = "applied"
    RECORDED = "recorded"


class PageLevels(Document):
    """Change of a service's level for each symptom, in decades of improbability; below 0: lowered."""

    latency: float
    errors: float
    disappearance: float
    resources: float
    shortage: float = Field(0.0, description="level of notices; the others are levels of alerts")


class KeptFeedbackDocument(KeptDocument):
    """Stored feedback on one incident, and its effect."""

    incident: str = Field(description="id; the id of a missed incident is made from its time and services")
    was_incident: bool
    missed: bool = Field(description="it raised no alert")
    services: list[ServiceKey]
    since: Instant
    until: Instant
    given_at: Instant = Field(description="time of the newest snapshot when the feedback was given")
    culprit: ServiceKey | None
    note: str
    given_by: str = Field("", description="name of the user or token that gave it; empty: unknown")
    page_levels: dict[str, PageLevels] = Field(description="by service, for services whose level it changes")
    effect: FeedbackEffect = Field(
        FeedbackEffect.APPLIED,
        description="`applied`: it counts from the next snapshot on; `recorded`: it is stored with the archived "
        "incident, and changes no level, threshold or ranking, because the evidence is no longer kept",
    )

    @computed_field(description="the same in words", examples=["Confirmed by alice: shop/cart."])  # type: ignore[prop-decorator]
    @property
    def text(self) -> str:
        """``Confirmed by alice: shop/cart. Note: the new release``."""
        judgement = "Confirmed" if self.was_incident else "Marked as a false alarm"
        about = f": {self.culprit}" if self.was_incident and self.culprit else ""
        remark = " The incident is old, so this changes no alerts." if self.effect is FeedbackEffect.RECORDED else ""
        by, note = f" by {self.given_by}" if self.given_by else "", f" Note: {self.note}" if self.note else ""
        return f"{judgement}{by}{about}.{remark}{note}"


class FeedbackListDocument(Document):
    """All stored feedback on a mesh."""

    feedback: list[KeptFeedbackDocument] = Field(description="in the order in which it was given")


class ActionKind(StrEnum):
    """What a person does about an incident."""

    ACKNOWLEDGE = "acknowledge"
    NOTE = "note"
    DONE = "done"
    ACCEPT = "accept"


class ActionDocument(Document):
    """What a person does about an incident."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"kind": "acknowledge"},
                {"kind": "note", "text": "the pool of connections is full"},
                {"kind": "done", "text": "restarted shop/cart"},
                {"kind": "accept", "text": "the new release needs 200 ms"},
            ],
            "anyOf": [
                {"properties": {"kind": {"enum": ["acknowledge", "accept"]}}},
                {"properties": {"text": {"minLength": 1, "pattern": r"\S"}}, "required": ["text"]},
            ],
        }
    )

    kind: ActionKind = Field(
        description="`acknowledge`: is working on it; `note`: tells others something; `done`: says what helped; "
        "`accept`: accepts the present level as normal, which ends an open incident"
    )
    text: NoteText = Field(
        "",
        description="for people; a `note` and `done` need one",
        examples=["restarted shop/cart"],
        validate_default=True,
    )

    @field_validator("text")
    @classmethod
    def _require_text(cls, text: str, info: ValidationInfo) -> str:
        if info.data.get("kind") in (ActionKind.NOTE, ActionKind.DONE) and not text.strip():
            raise ValueError(f"expected a text, which an action of the kind {info.data['kind']} needs, got none")
        return text


_HEADS = {
    ActionKind.ACKNOWLEDGE: "{by} is on it",
    ActionKind.NOTE: "Note by {by}",
    ActionKind.DONE: "What helped, by {by}",
    ActionKind.ACCEPT: "Accepted as normal by {by}",
}


class KeptActionDocument(KeptDocument):
    """What a person did about an incident."""

    incident: str = Field(description="id of the incident; another one merged into the incident that lists it")
    kind: ActionKind
    text: str = Field(description="as it was given; may be empty", examples=["restarted shop/cart"])
    by: str = Field(description="name of the user or token; empty: unknown", examples=["alice"])
    at: Instant = Field(description="time of the newest snapshot then")

    @property
    def head(self) -> str:
        """Who did what, without the text: ``alice is on it``."""
        return _HEADS[self.kind].format(by=self.by or "someone")

    @computed_field(description="the same in words", examples=["alice is on it"])  # type: ignore[prop-decorator]
    @property
    def words(self) -> str:
        """``alice is on it``, ``What helped, by alice: restarted shop/cart``."""
        return f"{self.head}: {self.text}" if self.text else self.head


class MuteDocument(Document):
    """Services that raise no alert for a while; for a whole mesh, a maintenance window."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"end": "2026-03-01T05:00:00Z", "reason": "database upgrade"},
                {
                    "services": ["shop/cart", "batch/*"],
                    "start": "2026-03-02T01:00:00Z",
                    "end": "2026-03-02T03:00:00Z",
                    "reason": "load test",
                },
            ]
        }
    )

    services: list[GivenServices] | None = Field(
        None, min_length=1, max_length=1000, description="absent or null: the whole mesh"
    )
    start: Instant | None = Field(None, description="absent or null: from the next snapshot on")
    end: Instant = Field(description="by the mesh's clock, as `observed_at`; at most 30 days after the start")
    reason: Text = Field(
        min_length=1,
        max_length=MAX_REASON,
        pattern=r"\S",
        description="for people; verdicts include it",
        examples=["database upgrade"],
    )


class KeptMuteDocument(Document):
    """A stored mute."""

    id: str = Field(description="for removing the mute; verdicts include it", examples=["20260301T050000Z-1f3870be"])
    services: list[PagedServices] = Field(description="empty: the whole mesh")
    start: Instant
    end: Instant
    reason: str
    given_at: Instant = Field(description="time of the newest snapshot when the mute was created")
    given_by: str = Field("", description="name of the user or token that created it; empty: unknown")
    in_force: bool = Field(description="as of the newest snapshot; false: it has not started")


class MuteListDocument(Document):
    """The current and future mutes of a mesh."""

    mutes: list[KeptMuteDocument] = Field(description="in the order in which they were created")


class ConnectionDocument(Document):
    """Where the snapshots of a mesh come from."""

    prometheus: Annotated[Text, AfterValidator(check_url)] = Field(
        max_length=MAX_URL,
        description="base URL of its Prometheus, without credentials: the settings can have these",
        examples=["http://127.0.0.1:9090"],
    )


class ConnectedDocument(Document):
    """The mesh that its Prometheus shows now."""

    services: int = Field(ge=1)
    calls: int = Field(ge=0)
    entry_points: list[ServiceKey] = Field(description="services that get requests from outside, the busiest first")
    odd: list[str] = Field(description="what looks wrong, one sentence each")


class TestAlertDocument(Document):
    """Which receivers of notifications get a test alert."""

    __test__ = False  # pytest would collect it
    model_config = ConfigDict(json_schema_extra={"examples": [{}, {"receiver": "slack"}]})

    receiver: Text | None = Field(
        None, min_length=1, max_length=MAX_REASON, description="kind or address of receivers; absent or null: all"
    )


class ReceiverResult(Document):
    """Whether a receiver accepted a notification."""

    kind: str = Field(examples=["slack"])
    name: str = Field(description="its address, without secrets", examples=["https://slack.com/C0123456789"])
    failed: str = Field(description="why it did not; empty: it did", examples=["", "unreachable"])
    detail: str = Field(description="what it answered")


class TestResultsDocument(Document):
    """The receivers that should have got a test alert."""

    __test__ = False
    receivers: list[ReceiverResult] = Field(description="in the order of the settings")
