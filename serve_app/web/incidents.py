"""Incidents, open and archived: lists and documents."""

from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import replace
from datetime import datetime
from itertools import islice

from serve_app.actions.feedback import encode_feedback
from serve_app.api.schemas.actions import ActionKind, KeptActionDocument, KeptFeedbackDocument
from serve_app.api.schemas.incidents import (
    ArchivedIncidentDocument,
    IncidentsDocument,
    SeenBeforeDocument,
)
from serve_app.api.schemas.verdict import IncidentDocument, VerdictDocument
from serve_app.api.subject import likely_suspects
from serve_app.stores.archive import SEVERITIES, Details, unpack_document
from serve_app.stores.records import ArchivedIncident, IncidentFilter
from serve_app.stores.repository import MeshRepository
from serve_app.stores.rows import microseconds
from serve_app.stores.scored_snapshot import ScoredSnapshot

BLOCK = 200  # archived incidents that are read at once
MAX_SHOWN = 5  # earlier incidents that resemble one, and actions that helped then
MAX_READ = 50  # of them, for what helped
NOTICE = SEVERITIES.index("notice")
SAME_SUSPECTS = 0.5  # of the likely suspects of two incidents together, from which they resemble each other


class IncidentViews:
    """Answers questions about the incidents of the meshes of a session. Each raises ``UnknownMesh`` for an unknown one.

    Args:
        meshes: repository of the session.
    """

    def __init__(self, meshes: MeshRepository) -> None:
        self._meshes = meshes

    def overview(self, mesh: str, wanted: IncidentFilter, of_period: bool, team: str | None = None) -> bytes:
        """JSON of the incidents that match: of a period, or those that are open now. ``team``: only those that belong
        to it; None: all."""
        newest = VerdictDocument.model_validate_json(self._meshes.load_verdict(mesh).document)
        found, following = (
            self._past(mesh, newest, wanted, team) if of_period else (self._find_open(mesh, newest, wanted, team), None)
        )
        feedback = self._feedback(mesh)
        given = [one.model_copy(update={"feedback": feedback.get(one.id, one.feedback)}) for one in found]
        document = IncidentsDocument(observed_at=newest.observed_at, incidents=given, next=following)
        return document.model_dump_json().encode()

    def detail(self, mesh: str, incident: str) -> bytes:
        """JSON of an incident at its highest score; errors as of :meth:`load`."""
        return self.load(mesh, incident).model_dump_json().encode()

    def load(self, mesh: str, incident: str) -> ArchivedIncidentDocument:
        """An incident at its highest score, with all that is known of it.

        Raises:
            UnknownMesh, UnknownIncident: there is none.
        """
        document = unpack_document(self._meshes.load_incident(mesh, incident).document)
        feedback = self._feedback(mesh).get(incident, document.feedback)
        return document.model_copy(update={"feedback": feedback, "seen_before": self.seen_before(mesh, document)})

    def moments(self, mesh: str, incident: str, kept: Sequence[ScoredSnapshot]) -> Sequence[ScoredSnapshot]:
        """The moments to report an incident from: of the archive if it is over or its highest score is no longer kept,
        else all that are ``kept``, so that the report of an archived incident stays the same."""
        archived = self._read_archived(mesh, incident)
        if archived is None or (archived.until is None and _is_kept(archived.strongest_at, kept)):
            return kept
        return self.archived_moments(mesh, incident)

    def archived_moments(self, mesh: str, incident: str) -> list[ScoredSnapshot]:
        """The archived moments around an incident, oldest first; all of them are of the part of the mesh around it.

        Raises:
            UnknownIncident: there is none.
        """
        return Details.unpack(self._meshes.load_incident(mesh, incident).details).read()

    def seen_before(self, mesh: str, incident: IncidentDocument) -> SeenBeforeDocument | None:
        """The incidents that ended before one began and resemble it: the same first suspect and kind, or mostly the
        same suspects. Notices only resemble notices: the notice of an incident is not an incident of its own."""
        suspects = likely_suspects(incident.suspects)
        near = self._meshes.store.incidents(mesh, IncidentFilter(until=incident.since, suspects=suspects))
        same = [
            one
            for one in near
            if one.until is not None
            and one.until <= incident.since
            and (one.severity == NOTICE) == incident.is_notice
            and (
                (one.suspects[0] == suspects[0] and one.kind == incident.kind)
                or len({*one.suspects} & {*suspects}) >= SAME_SUSPECTS * len({*one.suspects, *suspects})
            )
        ]
        if not same:
            return None
        last = same[0].since
        return SeenBeforeDocument(
            times=len(same),
            last=last,
            incidents=[one.id for one in same[:MAX_SHOWN]],
            text=_seen_before_text(len(same), last, incident.since),
            helped=list(islice(_what_helped(same[:MAX_READ]), MAX_SHOWN)),
        )

    def _find_open(
        self,
        mesh: str,
        newest: VerdictDocument,
        wanted: IncidentFilter,
        team: str | None,
        known: Set[str] = frozenset(),
    ) -> list[ArchivedIncidentDocument]:
        """The open incidents that match, without those that are ``known``."""
        matching = (one for one in newest.incidents if _matches(one, wanted) and team in (None, one.team))
        found = [one for one in matching if one.id not in known][: wanted.limit]
        documents = [_with_course(one, self._read_archived(mesh, one.id)) for one in found]
        return [one.model_copy(update={"seen_before": self.seen_before(mesh, one)}) for one in documents]

    def _past(
        self, mesh: str, newest: VerdictDocument, wanted: IncidentFilter, team: str | None
    ) -> tuple[list[ArchivedIncidentDocument], str | None]:
        """The archived incidents that match, and the cursor of the next page."""
        rows = self._load(mesh, replace(wanted, limit=wanted.limit + 1), team)
        shown = rows[: wanted.limit]
        following = f"{microseconds(shown[-1].since)}~{shown[-1].id}" if len(rows) > len(shown) else None
        live = {one.id: one for one in newest.incidents}
        archived = [
            unpack_document(one.document) for one in shown if one.id not in live or _matches(live[one.id], wanted)
        ]
        found = [_with_course(live[one.id], one) if one.id in live else one for one in archived]
        if following is None:  # the archive may lag behind open incidents, which became severe since
            known = {one.id for one in rows}
            found += self._find_open(mesh, newest, replace(wanted, limit=wanted.limit - len(found)), team, known)
        return sorted(found, key=lambda one: one.since, reverse=True), following

    def _load(self, mesh: str, wanted: IncidentFilter, team: str | None) -> list[ArchivedIncident]:
        """The archived incidents that match. The team is in their documents only, so they are read block by block."""
        if team is None:
            return self._meshes.store.incidents(mesh, wanted)
        found: list[ArchivedIncident] = []
        before = wanted.before
        while len(found) < wanted.limit:
            block = self._meshes.store.incidents(mesh, replace(wanted, before=before, limit=BLOCK))
            if not block:
                break
            found += [one for one in block if unpack_document(one.document).team == team]
            before = block[-1].since, block[-1].id
        return found[: wanted.limit]

    def _read_archived(self, mesh: str, incident: str) -> ArchivedIncidentDocument | None:
        archived = self._meshes.store.incident(mesh, incident, details=False)
        return None if archived is None else unpack_document(archived.document)

    def _feedback(self, mesh: str) -> dict[str, KeptFeedbackDocument]:
        memory = self._meshes.load_state(mesh).memory
        return {one.incident: encode_feedback(one) for one in memory.feedback}


def _is_kept(at: datetime | None, kept: Sequence[ScoredSnapshot]) -> bool:
    return at is not None and bool(kept) and at >= kept[0].verdict.observed_at


def _matches(incident: IncidentDocument, wanted: IncidentFilter) -> bool:
    severity, suspects = SEVERITIES.index(incident.severity), likely_suspects(incident.suspects)
    services = tuple(incident.services)
    return wanted.has(
        ArchivedIncident(incident.id, incident.since, None, 0, severity, incident.kind, suspects, services, b"")
    )


def _with_course(incident: IncidentDocument, archived: ArchivedIncidentDocument | None) -> ArchivedIncidentDocument:
    """An open incident of the newest verdict, with its course from the archive."""
    course = {name: getattr(archived, name) for name in ("opened_at", "strongest_at", "actions")} if archived else {}
    return ArchivedIncidentDocument.from_object(incident, **course)


def _what_helped(incidents: Iterable[ArchivedIncident]) -> Iterator[KeptActionDocument]:
    """What people did that helped, incident by incident; each is read only when it is its turn."""
    for one in incidents:
        actions = unpack_document(one.document).actions
        yield from (action for action in actions if action.kind is ActionKind.DONE)


def _seen_before_text(times: int, last: datetime, now: datetime) -> str:
    when = f"{last:%a} {last.day} {last:%b}{'' if last.year == now.year else f' {last.year}'} {last:%H:%M} UTC"
    return f"Seen before: once, on {when}" if times == 1 else f"Seen before: {times} times, last on {when}"
