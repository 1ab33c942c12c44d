"""Documents of incidents, open and archived."""

from pydantic import Field, computed_field

from serve_app.api.number_text import span_text
from serve_app.api.schemas.actions import KeptActionDocument, KeptFeedbackDocument
from serve_app.api.schemas.base import Document, Instant, KeptDocument
from serve_app.api.schemas.verdict import IncidentDocument


class SeenBeforeDocument(Document):
    """Earlier incidents in the archive that resemble an incident: the same first suspect and kind, or mostly the same
    likely suspects."""

    times: int = Field(ge=1, description="number of them")
    last: Instant = Field(description="start of the newest one")
    incidents: list[str] = Field(description="ids, at most five, the newest first")
    text: str = Field(description="the same in words", examples=["Seen before: 3 times, last on Tue 17 Nov 14:05 UTC"])
    helped: list[KeptActionDocument] = Field(
        [], description="people's actions that helped then (`done`): at most five, by incident, the newest first"
    )


class ArchivedIncidentDocument(IncidentDocument, KeptDocument):
    """An incident at its highest score, with its course."""

    opened_at: Instant | None = Field(None, description="snapshot of the first verdict with it; null: not archived")
    strongest_at: Instant | None = Field(None, description="snapshot of its highest score; null: not archived")
    until: Instant | None = Field(
        None, description="first snapshot without it, or the last with it if snapshots then paused; null: it is open"
    )
    ended_unseen: bool = Field(
        False,
        description="whether it was closed because no data was received for too long; its outcome is unknown, and "
        "`until` is the last snapshot with it",
    )
    replayed: bool = Field(
        False,
        description="true: it was over in the past that the service read when the mesh was new; no notification was "
        "sent",
    )
    feedback: KeptFeedbackDocument | None = Field(None, description="people's feedback; null: none")
    actions: list[KeptActionDocument] = Field([], description="people's actions, oldest first")
    seen_before: SeenBeforeDocument | None = Field(
        None, description="incidents before it that resemble it; null: none, or the list is of a period"
    )

    @computed_field(description="in words; empty: it is open", examples=["12 min"])  # type: ignore[prop-decorator]
    @property
    def lasted(self) -> str:
        """``12 min``, ``at least 12 min; closed, outcome unknown``; empty: it is open."""
        if self.until is None:
            return ""
        text = span_text((self.until - self.since).total_seconds())
        return f"at least {text}; closed, outcome unknown" if self.ended_unseen else text


class IncidentsDocument(Document):
    """The open incidents of a mesh, or the incidents of a period."""

    observed_at: Instant = Field(description="time of the newest snapshot")
    incidents: list[ArchivedIncidentDocument] = Field(
        description="open ones: notices last; of a period: the newest first; empty if there is none"
    )
    next: str | None = Field(None, description="`cursor` of the next page; null: this is the last one")
