"""Documents of what people say to a mesh: feedback on its incidents, and mutes."""

from typing import Annotated

from pydantic import ConfigDict, Field

from serve_app.api.schemas.base import (
    LONGEST_ID,
    MOST_REASON,
    Document,
    GivenService,
    GivenServices,
    Instant,
    NoteText,
    PagedServices,
    ServiceKey,
    Text,
)

Culprit = Annotated[GivenService | None, Field(description="whose doing it was, where that is known")]
Note = Annotated[NoteText, Field(description="for people", examples=["nightly batch"])]


class FeedbackDocument(Document):
    """What somebody says of an incident that paged. It takes the place of what was said of the same one before."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"incident": "20260301T031200Z-1f3870be", "was_incident": False, "note": "nightly batch"},
                {"incident": "20260301T031200Z-1f3870be", "was_incident": True, "culprit": "shop/cart"},
            ]
        }
    )

    incident: Text = Field(min_length=1, max_length=LONGEST_ID, description="id, as verdicts tell it")
    was_incident: bool = Field(strict=True, description="false: it should have paged nobody")
    culprit: Culprit = None
    note: Note = ""


class MissedDocument(Document):
    """An incident that paged nobody and should have."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"services": ["shop/cart"], "since": "2026-03-01T03:12:00Z", "until": "2026-03-01T03:20:00Z"},
            ]
        }
    )

    services: list[GivenService] = Field(min_length=1, max_length=1000, description="that should have paged")
    since: Instant
    until: Instant | None = Field(None, description="absent: the same as `since`")
    culprit: Culprit = None
    note: Note = ""


class PageLevels(Document):
    """By what a service's page level is raised, for each symptom, in decades of improbability; below 0: lowered."""

    latency: float
    errors: float
    disappearance: float
    resources: float


class KeptFeedbackDocument(Document):
    """What is kept of what somebody said of one incident, and what it does."""

    incident: str = Field(description="id; that of a missed incident is made from its time and services")
    was_incident: bool
    missed: bool = Field(description="it paged nobody")
    services: list[ServiceKey]
    since: Instant
    until: Instant
    given_at: Instant = Field(description="the newest snapshot when it was said")
    culprit: ServiceKey | None
    note: str
    page_levels: dict[str, PageLevels] = Field(description="by service; of those whose level it moves")


class FeedbackListDocument(Document):
    """All that is kept of what people said of a mesh."""

    feedback: list[KeptFeedbackDocument] = Field(description="in the order in which it was said")


class MuteDocument(Document):
    """Services that page nobody for a while; a maintenance window where it is the whole mesh."""

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
    end: Instant = Field(description="of the mesh's clock, as `observed_at`; at most 30 days after the start")
    reason: Text = Field(
        min_length=1,
        max_length=MOST_REASON,
        pattern=r"\S",
        description="for people; verdicts tell it",
        examples=["database upgrade"],
    )


class KeptMuteDocument(Document):
    """A mute as it is kept."""

    id: str = Field(description="by which it is taken back; verdicts name it", examples=["20260301T050000Z-1f3870be"])
    services: list[PagedServices] = Field(description="empty: the whole mesh")
    start: Instant
    end: Instant
    reason: str
    given_at: Instant = Field(description="the newest snapshot when it was given")
    in_force: bool = Field(description="as of the newest snapshot; false: it is to come")


class MuteListDocument(Document):
    """The mutes of a mesh, in force and to come."""

    mutes: list[KeptMuteDocument] = Field(description="in the order in which they were given")
