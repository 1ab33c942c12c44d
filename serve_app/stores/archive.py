"""The archive of incidents: what is kept of an incident, and when it is written.

An incident is kept at its highest score, with the part of the mesh around it: its suspects, affected services and their
neighbours. Of this part the archive has the snapshots and scores from shortly before the incident to its end.

The stored window already has all of this while the incident is young. So the archive is written only when an incident
opens, when it ends, and a few times per window in between. A process that is killed in between loses nothing.
"""

import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
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
from serve_app.stores.scored_snapshot import ScoredSnapshot, StoredVerdict

WRITES_PER_WINDOW = 4  # of an incident that stays open
BEFORE = 40  # snapshots kept before an incident
MAX_MOMENTS = 80  # snapshots kept in all
MAX_SUSPECTS, MAX_TOUCHED, MAX_NEIGHBOURS, MAX_CALLS = 5, 60, 20, 300  # kept of the part around an incident
MAX_DETAIL_BYTES = 256 * 2**10  # of one incident; beyond, snapshots are left out
PAUSE = timedelta(hours=1)  # gap after which the end of an incident is unknown
LEVEL = 6  # of zlib
ROUNDING = 13  # of the 24 bits of a metric that are left out, except at the highest score: 0.02% of the value
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
        moments: snapshots of the part with their verdicts, oldest first. The verdicts have no other incident, and only
            the one at the highest score has all of this one.
    """

    services: int
    calls: int
    gone: tuple[str, ...]
    moments: tuple[ArchivedSnapshot, ...]

    def pack(self) -> bytes:
        return zlib.compress(msgspec.msgpack.encode(self), LEVEL)

    @classmethod
    def unpack(cls, packed: bytes) -> Self:
        return msgspec.msgpack.decode(zlib.decompress(packed), type=cls)

    def read(self) -> list[ScoredSnapshot]:
        of_mesh = self.services, self.calls
        return [
            ScoredSnapshot(
                unpack_snapshot(one.snapshot), StoredVerdict(self.services, one.verdict, one.deviations), of_mesh
            )
            for one in self.moments
        ]


def pack_document(document: ArchivedIncidentDocument) -> bytes:
    """Compress a document for the archive."""
    return zlib.compress(document.model_dump_json().encode(), LEVEL)


def unpack_document(packed: bytes) -> ArchivedIncidentDocument:
    """Inverse of :func:`pack_document`."""
    return ArchivedIncidentDocument.model_validate_json(unpack_json(packed))


def unpack_json(packed: bytes) -> bytes:
    """JSON of the document that :func:`pack_document` compressed."""
    return zlib.decompress(packed)


def due(verdict: VerdictDocument, archived: Mapping[str, int], window_size: int) -> list[str]:
    """Return the ids of the incidents to write with a verdict: new and ended ones, and open ones now and then.

    Args:
        archived: incidents that are open in the archive, with the sequence at which they were written.
        window_size: number of snapshots that the store keeps.
    """
    found = {incident.id for incident in verdict.incidents}
    pause = max(1, window_size // WRITES_PER_WINDOW)
    fresh = {name for name, written in archived.items() if 0 <= verdict.sequence - written < pause}
    return [*sorted(found - fresh), *sorted(archived.keys() - found)]


def archive(
    incident: str, scored: Sequence[ScoredSnapshot], sequence: int, before: ArchivedIncident | None
) -> ArchivedIncident | None:
    """Return what the archive has of an incident after the newest snapshot; None if nothing is known about it.

    Args:
        scored: the kept snapshots with their verdicts, oldest first, at least one.
        sequence: of the newest snapshot.
        before: what the archive had of it.
    """
    if not any(one.find(incident) for one in scored):
        is_lost = any(one.has_lost(incident) for one in scored)
        return None if before is None else _end(before, sequence, scored[-1].at, ended_unseen=is_lost)
    old, known = Details(0, 0, (), ()), None
    if before is not None:
        old, known = Details.unpack(before.details), unpack_document(before.document)
    seen = [*(one for one in old.read() if one.at < scored[0].at), *scored]
    course = {i: mine for i, one in enumerate(seen) if (mine := one.find(incident)) is not None}
    first, last = min(course), max(course)
    # While an incident is over except for a pause, its headline says so.
    strongest = max(course, key=lambda i: (not course[i]["recovering"], course[i]["score"]))
    worst, at_worst = seen[strongest], course[strongest]
    following = seen[last + 1] if last + 1 < len(seen) else None
    ended_unseen, until = False, None
    if following is not None:
        ended_unseen = following.has_lost(incident)
        was_paused = following.at - seen[last].at > PAUSE
        until = seen[last].at if ended_unseen or was_paused else following.at
    document = ArchivedIncidentDocument.model_validate(
        {
            **at_worst,
            # What it collected up to the last snapshot with it.
            **{name: course[last][name] for name in ("severity", "changes", "events", "error_budgets")},
            "recovering": until is None and course[last]["recovering"],
            "trend": course[last]["trend"] if until is None else None,
            "opened_at": seen[first].at if known is None else known.opened_at or seen[first].at,
            "strongest_at": worst.at,
            "until": until,
            "ended_unseen": ended_unseen,
            "replayed": seen[last].fields["replayed"],
            "actions": [] if known is None else known.actions,
        }
    )
    details = replace(old, moments=())
    if worst.at >= scored[0].at:
        named = {*_suspects_of(at_worst), *at_worst["affected"]}
        gone = tuple(sorted(named.difference(worst.snapshot.node_ids)))
        details = Details(worst.snapshot.num_nodes, worst.snapshot.num_edges, gone, ())
    moments = _cut(incident, seen[max(0, first - BEFORE) : last + 2], _Part.of(worst, at_worst, seen), worst)
    return ArchivedIncident(
        incident,
        document.since,
        until,
        sequence,
        Severity(document.severity).rank,
        document.kind,
        likely_suspects(document.suspects),
        tuple(dict.fromkeys([*(one.service for one in document.suspects), *document.affected])),
        pack_document(document),
        _fit(details, moments, worst.at),
    )


def merge_actions(home: ArchivedIncident, merged: ArchivedIncident) -> ArchivedIncident:
    """Return an archived incident that also has the actions of people on another one, which merged into it. One whose
    level was accepted ended by that."""
    document, actions = unpack_document(home.document), unpack_document(merged.document).actions
    added = [one for one in actions if one not in document.actions]
    if not added or any(one.kind is ActionKind.ACCEPT and one.incident == merged.id for one in actions):
        return home
    actions = sorted([*document.actions, *added], key=lambda one: one.at)
    return replace(home, document=pack_document(document.model_copy(update={"actions": actions})))


def merged_into(incident: str, scored: Sequence[ScoredSnapshot]) -> str | None:
    """Return the id of the incident that one merged into with the newest snapshot; None: it is over, or was closed.

    A merge keeps the oldest, which has the services of both then. An incident that was recovering is over.
    """
    before = next((found for one in reversed(scored) if (found := one.find(incident)) is not None), None)
    if before is None or before["recovering"] or scored[-1].has_lost(incident):
        return None
    services = {*_suspects_of(before), *before["affected"]}
    since = datetime.fromisoformat(before["since"])
    older = [one for one in scored[-1].fields["incidents"] if datetime.fromisoformat(one["since"]) <= since]
    shared = [(len(services.intersection((*_suspects_of(one), *one["affected"]))), one["id"]) for one in older]
    count, name = max(shared, default=(0, ""))
    return name if count else None


def _suspects_of(incident: Mapping[str, Any]) -> list[str]:
    return [one["service"] for one in incident["suspects"]]


def _shorten(incident: str, one: ScoredSnapshot, *, whole: bool) -> bytes:
    """The verdict with this incident alone; if not ``whole``, only with its course."""
    mine = one.find(incident)
    if mine is not None and not whole:
        texts = {"headline": "", "next_step": ""}
        mine = {**mine, "suspects": [], "affected": [], "changes": [], "events": [], **texts}
    more = {"muted": [], "silence": None, "watching": [], "lost": [incident] if one.has_lost(incident) else []}
    found = (
        {"suspects": mine["suspects"], "incidents": [mine]} if mine is not None else {"suspects": [], "incidents": []}
    )
    return json.dumps({**one.fields, **found, **more}).encode()


class _Part(NamedTuple):
    """The part of a mesh around an incident: the services that it is about, and these with their neighbours."""

    touched: frozenset[str]
    names: frozenset[str]

    @classmethod
    def of(cls, worst: ScoredSnapshot, incident: Mapping[str, Any], seen: Sequence[ScoredSnapshot]) -> Self:
        """The part around an incident, as it was at its highest score: in ``worst``, one of the ``seen`` snapshots."""
        touched, first = _touched_services(worst, incident), next(iter(_suspects_of(incident)), None)
        earlier = (one.snapshot for one in reversed(seen) if one.at <= worst.at)
        with_first = next((snapshot for snapshot in earlier if first in snapshot.node_ids), worst.snapshot)
        return cls(touched, touched | _neighbours([worst.snapshot, with_first], touched, first))


def _cut(
    incident: str, seen: Iterable[ScoredSnapshot], part: _Part, worst: ScoredSnapshot
) -> dict[datetime, ArchivedSnapshot]:
    """Return the share of a part in snapshots, by time; those that have none are left out."""
    found: dict[datetime, ArchivedSnapshot] = {}
    row: dict[str, int] = {}
    of: tuple[str, ...] = ()  # whose rows those are; most snapshots share their names
    for one in seen:
        if one.snapshot.node_ids is not of:
            of, row = one.snapshot.node_ids, find_rows(one.snapshot.node_ids, part.names, row)
        if row:
            cut, deviations = _share(one, part, row)
            is_worst = one is worst
            packed = pack_snapshot(cut if is_worst else _round(cut))
            found[one.at] = ArchivedSnapshot(packed, deviations, _shorten(incident, one, whole=is_worst))
    return found


def _share(one: ScoredSnapshot, part: _Part, row: Mapping[str, int]) -> tuple[MeshSnapshot, bytes]:
    """Return the share of a snapshot in which the services of a part have these rows, and its deviations."""
    snapshot = one.snapshot
    calls = _calls_of(snapshot, [row[name] for name in part.touched & row.keys()])
    inside = np.zeros(snapshot.num_nodes, bool)
    inside[list(row.values())] = True
    calls = calls[inside[snapshot.edge_index[:, calls]].all(axis=0)]
    if len(calls) > MAX_CALLS:
        requests = snapshot.edge_features[calls, EdgeMetric.REQUESTS_PER_SECOND]
        calls = np.sort(calls[np.argsort(-requests, kind="stable")[:MAX_CALLS]])
    services = np.flatnonzero(inside)
    changes = tuple(change for change in snapshot.changes if change.service in part.names)
    cut = replace(snapshot.take(services, calls), changes=changes, policies=())
    return cut, Deviations.take_packed(one.stored.deviations, snapshot, services, calls)


def _calls_of(snapshot: MeshSnapshot, services: Sequence[int]) -> IntArray:
    chosen = np.zeros(snapshot.num_nodes, bool)
    chosen[services] = True
    source, destination = snapshot.edge_index
    calls: IntArray = np.flatnonzero(chosen[source] | chosen[destination])
    return calls


def _round(snapshot: MeshSnapshot) -> MeshSnapshot:
    """Round the metrics, so that they compress to half the size."""
    nodes, edges = (round_metrics(values, ROUNDING) for values in (snapshot.node_features, snapshot.edge_features))
    return replace(snapshot, node_features=nodes, edge_features=edges)


def _touched_services(worst: ScoredSnapshot, incident: Mapping[str, Any]) -> frozenset[str]:
    """The services that an incident is about: suspects, the ends of calls in reasons, the most unusual affected
    ones."""
    leading = incident["suspects"][:MAX_SUSPECTS]
    ends = [reason.get(end) for one in leading for reason in one["reasons"] for end in ("source", "destination")]
    scores = np.nan_to_num(worst.deviations.services)
    row = find_rows(worst.snapshot.node_ids, set(incident["affected"]))
    affected = sorted(incident["affected"], key=lambda name: -scores[row[name]] if name in row else 0.0)
    names = dict.fromkeys([*_suspects_of(incident)[:MAX_SUSPECTS], *filter(None, ends), *affected])
    return frozenset(list(names)[:MAX_TOUCHED])


def _neighbours(snapshots: Iterable[MeshSnapshot], touched: frozenset[str], first: str | None) -> frozenset[str]:
    """The callers and callees of touched services: of the first suspect, then those with the most requests."""
    order: dict[str, tuple[bool, float]] = {}
    row: dict[str, int] = {}
    for snapshot in snapshots:
        row = find_rows(snapshot.node_ids, touched, row)
        for e in _calls_of(snapshot, list(row.values())).tolist():
            one, other = (snapshot.node_ids[i] for i in snapshot.edge_index[:, e].tolist())
            if one in touched and other in touched:
                continue
            mine, neighbour = (one, other) if one in touched else (other, one)
            key = mine != first, -float(snapshot.edge_features[e, EdgeMetric.REQUESTS_PER_SECOND])
            order[neighbour] = min(order.get(neighbour, key), key)
    return frozenset(sorted(order, key=lambda name: (order[name], name))[:MAX_NEIGHBOURS])


def _end(before: ArchivedIncident, sequence: int, at: datetime, *, ended_unseen: bool) -> ArchivedIncident:
    """An incident of which the window has nothing left: it ends now."""
    update = {"until": at, "recovering": False, "trend": None, "ended_unseen": ended_unseen}
    ended = unpack_document(before.document).model_copy(update=update)
    return replace(before, until=at, sequence=sequence, document=pack_document(ended))


def _fit(details: Details, moments: Mapping[datetime, ArchivedSnapshot], worst: datetime) -> bytes:
    """Pack details with as many of the snapshots as the limits allow; ``worst``: time of the highest score."""
    max_moments = MAX_MOMENTS
    while True:
        packed = replace(details, moments=tuple(_thin_out(moments, worst, max_moments))).pack()
        if len(packed) <= MAX_DETAIL_BYTES or max_moments <= 1:
            return packed
        max_moments //= 2


def _thin_out(
    moments: Mapping[datetime, ArchivedSnapshot], worst: datetime, max_moments: int
) -> list[ArchivedSnapshot]:
    """The first snapshot in each of ``max_moments`` equal spans of time, and the one at the highest score."""
    if len(moments) <= max_moments:
        return list(moments.values())
    begin, end = min(moments), max(moments)
    firsts: dict[int, datetime] = {}
    for at in moments:
        firsts.setdefault(int(max_moments * ((at - begin) / (end - begin))), at)
    return [one for at, one in moments.items() if at in {*firsts.values(), worst}]
