"""The archive of incidents: their content, and when they are written.

An incident is archived as it was at its highest score, with the part of the mesh around it: its suspects, affected
services and their neighbours. The archive has this part's snapshots and scores from shortly before the incident to its
end.

While an incident is young, the stored window has all of this. So an incident is written only when it opens, when it
ends, and a few times per window in between. If a process is killed in between, nothing is lost.
"""

import json
import zlib
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple, Self

import msgspec
import numpy as np

from model.snapshot import EdgeMetric, IntArray, MeshSnapshot, find_rows
from model.verdict import Severity
from serve_app.api.codec import pack_snapshot, unpack_snapshot
from serve_app.api.schemas.actions import ActionKind
from serve_app.api.schemas.incidents import ArchivedIncidentDocument
from serve_app.api.schemas.verdict import VerdictDocument
from serve_app.api.subject import likely_suspects
from serve_app.api.views import Deviations
from serve_app.stores.history_files import round_metrics
from serve_app.stores.records import ArchivedIncident
from serve_app.stores.scored_snapshot import ScoredSnapshot, StoredVerdict, match_verdicts
from serve_app.stores.state_store import StateStore

WRITES_PER_WINDOW = 4  # of an incident that stays open
BEFORE = 40  # snapshots before an incident
MAX_MOMENTS = 80  # snapshots of an incident, without the peak
MAX_SUSPECTS, MAX_SUBJECTS, MAX_NEIGHBOURS, MAX_CALLS = 5, 60, 20, 300  # of the part around an incident
MAX_DETAIL_BYTES = 256 * 2**10  # of one incident; beyond, snapshots are left out
PAUSE = timedelta(hours=1)  # gap after which the end of an incident is unknown
LEVEL = 6  # of zlib
ROUNDING = 13  # bits of a metric's 24 that are left out except at the peak: 0.02% of the value
SEVERITIES = [severity.value for severity in Severity]  # by rank


@dataclass(frozen=True, slots=True)
class ArchivedSnapshot:
    """A packed snapshot, the packed deviations of its services and calls, and the JSON of its verdict."""

    snapshot: bytes
    deviations: bytes
    verdict: bytes


@dataclass(frozen=True, slots=True)
class Details:
    """The part of a mesh around an incident, over time.

    Attributes:
        services, calls: numbers of the whole mesh, at the highest score.
        gone: suspects and affected services that had disappeared then.
        moments: snapshots of the part with their verdicts, oldest first. The verdicts have no other incidents, and this
            one in full only at its highest score.
    """

    services: int
    calls: int
    gone: tuple[str, ...]
    moments: tuple[ArchivedSnapshot, ...]

    def pack(self) -> bytes:
        return zlib.compress(msgspec.msgpack.encode(self), LEVEL)

    @classmethod
    def unpack(cls, content: bytes) -> Self:
        return msgspec.msgpack.decode(zlib.decompress(content), type=cls)

    def read(self, before: datetime | None = None) -> list[ScoredSnapshot]:
        """Return the moments, or only those before a time."""
        size = self.services, self.calls
        verdicts = [StoredVerdict(self.services, moment.verdict, moment.deviations) for moment in self.moments]
        return [
            ScoredSnapshot(unpack_snapshot(moment.snapshot), verdict, size)
            for moment, verdict in zip(self.moments, verdicts, strict=True)
            if before is None or verdict.head.observed_at < before
        ]


def pack_document(document: ArchivedIncidentDocument) -> bytes:
    """Compress a document for the archive."""
    return zlib.compress(document.model_dump_json().encode(), LEVEL)


def unpack_document(content: bytes) -> ArchivedIncidentDocument:
    """Inverse of :func:`pack_document`."""
    return ArchivedIncidentDocument.model_validate_json(unpack_json(content))


def unpack_json(content: bytes) -> bytes:
    """Return the document's JSON that :func:`pack_document` compressed."""
    return zlib.decompress(content)


def archive_updates(
    store: StateStore,
    mesh: str,
    verdict: VerdictDocument,
    record: StoredVerdict,
    snapshots: Sequence[MeshSnapshot],
    keep: int,
) -> tuple[ArchivedIncident, ...]:
    """Return the incidents to write with a verdict; ``record`` is its stored form, ``snapshots`` the mesh's window."""
    names = _due(verdict, store.open_incidents(mesh), keep)
    if not names:
        return ()
    # If another session has deleted the mesh, there are no verdicts, and the write raises StoreConflict.
    verdicts = map(StoredVerdict.unpack, store.verdicts(mesh, None, keep))
    window = match_verdicts(snapshots, [*verdicts, record])
    updates: dict[str, ArchivedIncident] = {}
    for name in names:
        if (incident := archive(name, window, verdict.sequence, store.incident(mesh, name))) is not None:
            updates[name] = incident
    for incident in [incident for incident in updates.values() if incident.until is not None]:
        into = _merged_into(incident.id, window)
        home = None if into is None else updates.get(into) or store.incident(mesh, into)
        if home is not None and (merged_home := _merge_actions(home, incident)) is not home:
            updates[home.id] = merged_home
    return tuple(updates.values())


def _due(verdict: VerdictDocument, open_incidents: Mapping[str, int], window_size: int) -> list[str]:
    """Return the ids of the incidents to write with a verdict: new and ended ones, and open ones now and then.

    Args:
        open_incidents: the archive's open incidents, with the sequence at which each was written.
        window_size: number of snapshots that the store keeps.
    """
    current = {incident.id for incident in verdict.incidents}
    pause = max(1, window_size // WRITES_PER_WINDOW)
    recent = {name for name, sequence in open_incidents.items() if 0 <= verdict.sequence - sequence < pause}
    return [*sorted(current - recent), *sorted(open_incidents.keys() - current)]


def archive(
    incident: str, window: Sequence[ScoredSnapshot], sequence: int, before: ArchivedIncident | None
) -> ArchivedIncident | None:
    """Return an incident for the archive after the newest snapshot; None if nothing is known about it.

    Args:
        window: the stored snapshots with their verdicts, oldest first, at least one.
        sequence: of the newest snapshot.
        before: the incident as archived so far.
    """
    if not any(snapshot.find(incident) for snapshot in window):
        is_lost = any(snapshot.has_lost(incident) for snapshot in window)
        return None if before is None else _end(before, sequence, window[-1].at, ended_unseen=is_lost)
    details, old_document = Details(0, 0, (), ()), None
    if before is not None:
        details, old_document = Details.unpack(before.details), unpack_document(before.document)
    snapshots = [*details.read(window[0].at), *window]
    course = {i: fields for i, snapshot in enumerate(snapshots) if (fields := snapshot.find(incident)) is not None}
    first, last = min(course), max(course)
    # While an incident is over except for a pause, its headline says so.
    highest = max(course, key=lambda i: (not course[i]["recovering"], course[i]["score"]))
    peak, at_peak, newest = snapshots[highest], course[highest], course[last]
    ended_unseen, until = False, None
    if last + 1 < len(snapshots):
        after = snapshots[last + 1]
        ended_unseen = after.has_lost(incident)
        has_gap = after.at - snapshots[last].at > PAUSE
        until = snapshots[last].at if ended_unseen or has_gap else after.at
    document = ArchivedIncidentDocument.model_validate(
        {
            **at_peak,
            # Collected up to its last snapshot.
            **{name: newest[name] for name in ("severity", "changes", "events", "error_budgets")},
            "recovering": until is None and newest["recovering"],
            "trend": newest["trend"] if until is None else None,
            "opened_at": snapshots[first].at if old_document is None else old_document.opened_at or snapshots[first].at,
            "strongest_at": peak.at,
            "until": until,
            "ended_unseen": ended_unseen,
            "replayed": snapshots[last].fields["replayed"],
            "actions": [] if old_document is None else old_document.actions,
        }
    )
    if peak.at >= window[0].at:
        gone = tuple(sorted({*_suspects_of(at_peak), *at_peak["affected"]}.difference(peak.snapshot.node_ids)))
        details = Details(peak.snapshot.num_nodes, peak.snapshot.num_edges, gone, ())
    part = _Part.of(peak, at_peak, snapshots)
    moments = _cut(incident, snapshots[max(0, first - BEFORE) : last + 2], part, peak)
    return ArchivedIncident(
        incident,
        document.since,
        until,
        sequence,
        Severity(document.severity).rank,
        document.kind,
        likely_suspects(document.suspects),
        tuple(dict.fromkeys([*(suspect.service for suspect in document.suspects), *document.affected])),
        pack_document(document),
        _fit(details, moments, peak.at),
    )


def _merge_actions(home: ArchivedIncident, merged: ArchivedIncident) -> ArchivedIncident:
    """Add people's actions on an incident to the one into which it merged. An incident whose level was accepted did not
    merge: it ended."""
    document, actions = unpack_document(home.document), unpack_document(merged.document).actions
    new_actions = [action for action in actions if action not in document.actions]
    is_accepted = any(action.kind is ActionKind.ACCEPT and action.incident == merged.id for action in actions)
    if not new_actions or is_accepted:
        return home
    actions = sorted([*document.actions, *new_actions], key=lambda action: action.at)
    return replace(home, document=pack_document(document.model_copy(update={"actions": actions})))


def _merged_into(incident: str, window: Sequence[ScoredSnapshot]) -> str | None:
    """Return the id of the incident into which one merged with the newest snapshot; None: it is over, or was closed.

    A merge keeps the oldest incident, which then has the services of both. A recovering incident is over.
    """
    before = next((fields for snapshot in reversed(window) if (fields := snapshot.find(incident)) is not None), None)
    if before is None or before["recovering"] or window[-1].has_lost(incident):
        return None
    services = {*_suspects_of(before), *before["affected"]}
    since = datetime.fromisoformat(before["since"])
    older = [other for other in window[-1].fields["incidents"] if datetime.fromisoformat(other["since"]) <= since]
    overlaps = [
        (len(services.intersection((*_suspects_of(other), *other["affected"]))), other["id"]) for other in older
    ]
    count, name = max(overlaps, default=(0, ""))
    return name if count else None


def _suspects_of(incident: Mapping[str, Any]) -> list[str]:
    return [suspect["service"] for suspect in incident["suspects"]]


def _shorten(incident: str, scored: ScoredSnapshot, *, in_full: bool) -> bytes:
    """Return the verdict with this incident alone; unless ``in_full``, only with its course."""
    fields = scored.find(incident)
    if fields is not None and not in_full:
        texts = {"headline": "", "next_step": ""}
        fields = {**fields, "suspects": [], "affected": [], "changes": [], "events": [], **texts}
    verdict = {
        **scored.fields,
        "suspects": [] if fields is None else fields["suspects"],
        "incidents": [] if fields is None else [fields],
        "muted": [],
        "silence": None,
        "watching": [],
        "lost": [incident] if scored.has_lost(incident) else [],
    }
    return json.dumps(verdict).encode()


class _Part(NamedTuple):
    """The part of a mesh around an incident: its subjects, and with their neighbours all ``names``."""

    subjects: frozenset[str]
    names: frozenset[str]

    @classmethod
    def of(cls, peak: ScoredSnapshot, incident: Mapping[str, Any], snapshots: Sequence[ScoredSnapshot]) -> Self:
        """Return the part around an incident at its highest score, in ``peak``, one of the ``snapshots``."""
        subjects, first = _subjects_of(peak, incident), next(iter(_suspects_of(incident)), None)
        earlier = (item.snapshot for item in reversed(snapshots) if item.at <= peak.at)
        with_first = next((snapshot for snapshot in earlier if first in snapshot.node_ids), peak.snapshot)
        return cls(subjects, subjects | _neighbours([peak.snapshot, with_first], subjects, first))


def _cut(
    incident: str, snapshots: Sequence[ScoredSnapshot], part: _Part, peak: ScoredSnapshot
) -> dict[datetime, ArchivedSnapshot]:
    """Cut a part out of at most ``MAX_MOMENTS`` snapshots, by time, without those that have none of it."""
    rows_at: dict[datetime, dict[str, int]] = {}
    rows: dict[str, int] = {}
    names: tuple[str, ...] = ()  # to which the rows belong; most snapshots share their names
    for scored in snapshots:
        if scored.snapshot.node_ids is not names:
            names, rows = scored.snapshot.node_ids, find_rows(scored.snapshot.node_ids, part.names, rows)
        if rows:
            rows_at[scored.at] = rows
    moments: dict[datetime, ArchivedSnapshot] = {}
    times = _thin_out(rows_at, peak.at, MAX_MOMENTS)
    for scored in snapshots:
        if scored.at in times:
            snapshot, deviations = _share(scored, part, rows_at[scored.at])
            is_peak = scored is peak
            content = pack_snapshot(snapshot if is_peak else _round(snapshot))
            moments[scored.at] = ArchivedSnapshot(content, deviations, _shorten(incident, scored, in_full=is_peak))
    return moments


def _share(scored: ScoredSnapshot, part: _Part, rows: Mapping[str, int]) -> tuple[MeshSnapshot, bytes]:
    """Return the share of a snapshot in which the services of a part have these rows, and its deviations."""
    snapshot = scored.snapshot
    calls = _calls_of(snapshot, [rows[name] for name in part.subjects & rows.keys()])
    is_inside = np.zeros(snapshot.num_nodes, bool)
    is_inside[list(rows.values())] = True
    calls = calls[is_inside[snapshot.edge_index[:, calls]].all(axis=0)]
    if len(calls) > MAX_CALLS:
        requests = snapshot.edge_features[calls, EdgeMetric.REQUESTS_PER_SECOND]
        calls = np.sort(calls[np.argsort(-requests, kind="stable")[:MAX_CALLS]])
    services = np.flatnonzero(is_inside)
    changes = tuple(change for change in snapshot.changes if change.service in part.names)
    part_snapshot = replace(snapshot.take(services, calls), changes=changes, policies=())
    return part_snapshot, Deviations.take_packed(scored.stored.deviations, snapshot, services, calls)


def _calls_of(snapshot: MeshSnapshot, services: Sequence[int]) -> IntArray:
    is_endpoint = np.zeros(snapshot.num_nodes, bool)
    is_endpoint[services] = True
    source, destination = snapshot.edge_index
    calls: IntArray = np.flatnonzero(is_endpoint[source] | is_endpoint[destination])
    return calls


def _round(snapshot: MeshSnapshot) -> MeshSnapshot:
    """Round the metrics, so that they compress to half the size."""
    nodes, edges = (round_metrics(values, ROUNDING) for values in (snapshot.node_features, snapshot.edge_features))
    return replace(snapshot, node_features=nodes, edge_features=edges)


def _subjects_of(peak: ScoredSnapshot, incident: Mapping[str, Any]) -> frozenset[str]:
    """Return an incident's suspects, the ends of calls in their reasons, and the most unusual affected services."""
    suspects = incident["suspects"][:MAX_SUSPECTS]
    ends = [
        reason.get(end) for suspect in suspects for reason in suspect["reasons"] for end in ("source", "destination")
    ]
    scores = np.nan_to_num(peak.deviations.services)
    rows = find_rows(peak.snapshot.node_ids, set(incident["affected"]))
    affected = sorted(incident["affected"], key=lambda name: -scores[rows[name]] if name in rows else 0.0)
    names = dict.fromkeys([*_suspects_of(incident)[:MAX_SUSPECTS], *filter(None, ends), *affected])
    return frozenset(list(names)[:MAX_SUBJECTS])


def _neighbours(snapshots: Iterable[MeshSnapshot], subjects: frozenset[str], first: str | None) -> frozenset[str]:
    """Return callers and callees of subjects: of the first suspect, then those with the most requests."""
    order: dict[str, tuple[bool, float]] = {}
    rows: dict[str, int] = {}
    for snapshot in snapshots:
        rows = find_rows(snapshot.node_ids, subjects, rows)
        for e in _calls_of(snapshot, list(rows.values())).tolist():
            source, destination = (snapshot.node_ids[i] for i in snapshot.edge_index[:, e].tolist())
            if source in subjects and destination in subjects:
                continue
            service, neighbour = (source, destination) if source in subjects else (destination, source)
            key = service != first, -float(snapshot.edge_features[e, EdgeMetric.REQUESTS_PER_SECOND])
            order[neighbour] = min(order.get(neighbour, key), key)
    return frozenset(sorted(order, key=lambda name: (order[name], name))[:MAX_NEIGHBOURS])


def _end(before: ArchivedIncident, sequence: int, at: datetime, *, ended_unseen: bool) -> ArchivedIncident:
    """Return an incident that the window no longer shows, as ended now."""
    update = {"until": at, "recovering": False, "trend": None, "ended_unseen": ended_unseen}
    document = unpack_document(before.document).model_copy(update=update)
    return replace(before, until=at, sequence=sequence, document=pack_document(document))


def _fit(details: Details, moments: Mapping[datetime, ArchivedSnapshot], peak: datetime) -> bytes:
    """Pack details with as many of the snapshots as ``MAX_DETAIL_BYTES`` allows."""
    max_moments = MAX_MOMENTS
    while True:
        times = _thin_out(moments, peak, max_moments)
        content = replace(details, moments=tuple(moment for at, moment in moments.items() if at in times)).pack()
        if len(content) <= MAX_DETAIL_BYTES or max_moments <= 1:
            return content
        max_moments //= 2


def _thin_out(times: Collection[datetime], peak: datetime, max_moments: int) -> Set[datetime]:
    """Return the first time in each of ``max_moments`` equal spans, and the peak; all times if they are few."""
    if len(times) <= max_moments:
        return set(times)
    begin, end = min(times), max(times)
    firsts: dict[int, datetime] = {}
    for at in times:
        firsts.setdefault(int(max_moments * ((at - begin) / (end - begin))), at)
    return {*firsts.values(), peak}
