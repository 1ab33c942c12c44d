"""Incidents, open and archived: lists and documents."""

from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import replace
from datetime import datetime
from itertools import islice

from serve_app.actions.feedback import encode_feedback
from serve_app.api.schemas.actions import ActionKind, KeptActionDocument, KeptFeedbackDocument
from serve_app.api.schemas.incidents import ArchivedIncidentDocument, IncidentsDocument, SeenBeforeDocument
from serve_app.api.schemas.verdict import IncidentDocument, VerdictDocument
from serve_app.api.subject import likely_suspects
from serve_app.errors import UnknownIncident
from serve_app.stores.archive import SEVERITIES, Details, archive, unpack_document
from serve_app.stores.records import ArchivedIncident, IncidentFilter
from serve_app.stores.repository import MeshRepository
from serve_app.stores.rows import microseconds
from serve_app.stores.scored_snapshot import ScoredSnapshot
from serve_app.stores.state_store import StateStore

BLOCK = 200  # archived incidents that are read at once
MAX_SHOWN = 5  # similar earlier incidents, and actions that helped then
MAX_READ = 50  # similar incidents that are searched for actions that helped
NOTICE = SEVERITIES.index("notice")
SAME_SUSPECTS = 0.5  # share of two incidents' likely suspects that both have, from which they are similar


class IncidentViews:
    """Answers questions about incidents in a session's meshes. Each raises ``UnknownMesh`` for an unknown mesh."""

    def __init__(self, store: StateStore, meshes: MeshRepository) -> None:
        self._store, self._meshes = store, meshes

    def overview(self, mesh: str, query: IncidentFilter, of_period: bool, team: str | None = None) -> bytes:
        """Return JSON of the incidents that match, in a period or open now; with ``team``, those that belong to it."""
        newest = VerdictDocument.model_validate_json(self._meshes.load_verdict(mesh).document)
        incidents, cursor = (
            self._find_archived(mesh, newest, query, team)
            if of_period
            else (self._find_open(mesh, newest, query, team), None)
        )
        feedback = self._feedback(mesh)
        incidents = [
            incident.model_copy(update={"feedback": feedback.get(incident.id, incident.feedback)})
            for incident in incidents
        ]
        document = IncidentsDocument(observed_at=newest.observed_at, incidents=incidents, next=cursor)
        return document.model_dump_json().encode()

    def detail(self, mesh: str, incident: str) -> bytes:
        """Return JSON of :meth:`load`."""
        return self.load(mesh, incident).model_dump_json().encode()

    def load(self, mesh: str, incident: str) -> ArchivedIncidentDocument:
        """Return an incident at its highest score, with feedback, actions and similar earlier incidents.

        Raises:
            UnknownIncident: there is none.
        """
        document = unpack_document(self._find_record(mesh, incident).document)
        feedback = self._feedback(mesh).get(incident, document.feedback)
        return document.model_copy(update={"feedback": feedback, "seen_before": self.seen_before(mesh, document)})

    def moments(self, mesh: str, incident: str, window: Sequence[ScoredSnapshot]) -> Sequence[ScoredSnapshot]:
        """Return the moments to report an incident from: the archived ones if it is over or its highest score has left
        the window, else the window. So the report of an archived incident stays the same."""
        document = self._read_archived(mesh, incident)
        if document is None or (document.until is None and _is_kept(document.strongest_at, window)):
            return window
        return self.archived_moments(mesh, incident)

    def archived_moments(self, mesh: str, incident: str) -> list[ScoredSnapshot]:
        """Return the archived moments around an incident, oldest first, with the part of the mesh around it.

        Raises:
            UnknownIncident: there is none.
        """
        return Details.unpack(self._find_record(mesh, incident).details).read()

    def seen_before(self, mesh: str, incident: IncidentDocument) -> SeenBeforeDocument | None:
        """Return the incidents that ended before this one began and resemble it: the same first suspect and kind, or
        mostly the same suspects. Notices only resemble notices: an incident's notice is not an incident of its own."""
        suspects = likely_suspects(incident.suspects)
        candidates = self._store.incidents(mesh, IncidentFilter(until=incident.since, suspects=suspects))
        similar = [
            earlier
            for earlier in candidates
            if earlier.until is not None
            and earlier.until <= incident.since
            and (earlier.severity == NOTICE) == incident.is_notice
            and (
                (earlier.suspects[0] == suspects[0] and earlier.kind == incident.kind)
                or len({*earlier.suspects} & {*suspects}) >= SAME_SUSPECTS * len({*earlier.suspects, *suspects})
            )
        ]
        if not similar:
            return None
        last = similar[0].since
        return SeenBeforeDocument(
            times=len(similar),
            last=last,
            incidents=[earlier.id for earlier in similar[:MAX_SHOWN]],
            text=_seen_before_text(len(similar), last, incident.since),
            helped=list(islice(_helpful_actions(similar[:MAX_READ]), MAX_SHOWN)),
        )

    def _find_open(
        self,
        mesh: str,
        newest: VerdictDocument,
        query: IncidentFilter,
        team: str | None,
        excluded_ids: Set[str] = frozenset(),
    ) -> list[ArchivedIncidentDocument]:
        """Return the open incidents that match and are not in ``excluded_ids``."""
        incidents = [
            incident
            for incident in newest.incidents
            if incident.id not in excluded_ids and _matches(incident, query) and team in (None, incident.team)
        ][: query.limit]
        documents = [_with_course(incident, self._read_archived(mesh, incident.id)) for incident in incidents]
        return [document.model_copy(update={"seen_before": self.seen_before(mesh, document)}) for document in documents]

    def _find_archived(
        self, mesh: str, newest: VerdictDocument, query: IncidentFilter, team: str | None
    ) -> tuple[list[ArchivedIncidentDocument], str | None]:
        """Return the archived incidents that match, and the cursor of the next page."""
        rows = self._load(mesh, replace(query, limit=query.limit + 1), team)
        page = rows[: query.limit]
        cursor = f"{microseconds(page[-1].since)}~{page[-1].id}" if len(rows) > len(page) else None
        live = {incident.id: incident for incident in newest.incidents}
        incidents = []
        for row in page:
            if row.id not in live:
                incidents.append(unpack_document(row.document))
            elif _matches(live[row.id], query):
                incidents.append(_with_course(live[row.id], unpack_document(row.document)))
        if cursor is None:  # the archive may lag behind open incidents, which became severe since
            ids = {row.id for row in rows}
            incidents += self._find_open(mesh, newest, replace(query, limit=query.limit - len(incidents)), team, ids)
        return sorted(incidents, key=lambda incident: incident.since, reverse=True), cursor

    def _load(self, mesh: str, query: IncidentFilter, team: str | None) -> list[ArchivedIncident]:
        """Return the archived incidents that match. Only documents have the team, so they are read block by block."""
        if team is None:
            return self._store.incidents(mesh, query)
        incidents: list[ArchivedIncident] = []
        before = query.before
        while len(incidents) < query.limit:
            block = self._store.incidents(mesh, replace(query, before=before, limit=BLOCK))
            if not block:
                break
            incidents += [incident for incident in block if unpack_document(incident.document).team == team]
            before = block[-1].since, block[-1].id
        return incidents[: query.limit]

    def _find_record(self, mesh: str, incident: str) -> ArchivedIncident:
        """Return an archived incident with its details, an open one as of the newest snapshot. Raise
        ``UnknownIncident`` if there is none."""
        self._meshes.load_verdict(mesh)  # raises if the mesh is unknown
        record = self._store.incident(mesh, incident)
        if record is None or record.until is None:
            state = self._meshes.load_state(mesh)
            window = self._meshes.load_window(mesh, state)
            record = archive(incident, window, state.sequence, record) if window else record
        if record is None:
            raise UnknownIncident(
                f"mesh {mesh!r}: expected an incident of its archive, got {incident[:80]!r}; take an id from the "
                "list of incidents"
            )
        return record

    def _read_archived(self, mesh: str, incident: str) -> ArchivedIncidentDocument | None:
        row = self._store.incident(mesh, incident, details=False)
        return None if row is None else unpack_document(row.document)

    def _feedback(self, mesh: str) -> dict[str, KeptFeedbackDocument]:
        memory = self._meshes.load_state(mesh).memory
        return {feedback.incident: encode_feedback(feedback) for feedback in memory.feedback}


def _is_kept(at: datetime | None, window: Sequence[ScoredSnapshot]) -> bool:
    return at is not None and bool(window) and at >= window[0].verdict.observed_at


def _matches(incident: IncidentDocument, query: IncidentFilter) -> bool:
    severity, suspects = SEVERITIES.index(incident.severity), likely_suspects(incident.suspects)
    services = tuple(incident.services)
    return query.has(
        ArchivedIncident(incident.id, incident.since, None, 0, severity, incident.kind, suspects, services, b"")
    )


def _with_course(incident: IncidentDocument, document: ArchivedIncidentDocument | None) -> ArchivedIncidentDocument:
    """Return an open incident of the newest verdict, with its course from its archived document."""
    course = {name: getattr(document, name) for name in ("opened_at", "strongest_at", "actions")} if document else {}
    return ArchivedIncidentDocument.from_object(incident, **course)


def _helpful_actions(incidents: Iterable[ArchivedIncident]) -> Iterator[KeptActionDocument]:
    """Yield people's actions that helped, incident by incident; each is read only when needed."""
    for incident in incidents:
        actions = unpack_document(incident.document).actions
        yield from (action for action in actions if action.kind is ActionKind.DONE)


def _seen_before_text(times: int, last: datetime, since: datetime) -> str:
    year = "" if last.year == since.year else f" {last.year}"
    time = f"{last:%a} {last.day} {last:%b}{year} {last:%H:%M} UTC"
    return f"Seen before: once, on {time}" if times == 1 else f"Seen before: {times} times, last on {time}"
