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

from model.incidents.open_incident import LIKELY_SHARE
from model.snapshot import EdgeMetric, IntArray, MeshSnapshot, find_rows
from model.verdict import Severity
from serve_app.api.codec import pack_snapshot, unpack_snapshot
from serve_app.api.schemas.incidents import ArchivedIncidentDocument
from serve_app.api.schemas.verdict import SuspectDocument, VerdictDocument
from serve_app.api.views import Deviations
from serve_app.stores.base import ArchivedIncident
from serve_app.stores.history_files import round_metrics
from serve_app.stores.record import Record, StoredSnapshot, match

WRITES_PER_WINDOW = 4  # of an incident that stays open
BEFORE = 40  # snapshots kept before an incident
MAX_MOMENTS = 80  # snapshots kept in all
MAX_SUSPECTS, MAX_TOUCHED, MAX_NEIGHBOURS, MAX_CALLS = 5, 60, 20, 300  # kept of the part around an incident
MAX_DETAIL_BYTES = 256 * 2**10  # of one incident; beyond, snapshots are left out
PAUSE = timedelta(hours=1)  # without a snapshot, after which an end is unknown
LEVEL = 6  # of zlib
ROUNDING = 13  # of the 24 bits of a metric that are left out, except at the highest score: 0.02% of the value
SEVERITIES = [severity.value for severity in Severity]  # by rank


class KeptSnapshot(NamedTuple):
    """A snapshot, the packed deviations of its services and calls, and its verdict as a plain object."""

    snapshot: MeshSnapshot
    deviations: bytes
    verdict: dict[str, Any]

    @classmethod
    def match(cls, window: Iterable[MeshSnapshot], records: Iterable[Record]) -> list[Self]:
        """The records of snapshots of the window, with their snapshots, in order."""
        pairs = match(window, records)
        return [cls(snapshot, record.deviations, json.loads(record.document)) for snapshot, record in pairs]


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
    moments: tuple[StoredSnapshot, ...]

    def pack(self) -> bytes:
        """Compress to bytes."""
        return zlib.compress(msgspec.msgpack.encode(self), LEVEL)

    @classmethod
    def unpack(cls, packed: bytes) -> Self:
        """Inverse of :meth:`pack`."""
        return msgspec.msgpack.decode(zlib.decompress(packed), type=cls)

    def read(self) -> list[KeptSnapshot]:
        """The moments, unpacked."""
        return [
            KeptSnapshot(unpack_snapshot(one.snapshot), one.deviations, json.loads(one.verdict)) for one in self.moments
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


def likely_suspects(suspects: Sequence[SuspectDocument]) -> tuple[str, ...]:
    """The suspects with a considerable share of the score, best first; at least the first one."""
    total = sum(one.score for one in suspects)
    return tuple(one.service for i, one in enumerate(suspects) if i == 0 or one.score >= LIKELY_SHARE * total)


def due(verdict: VerdictDocument, archived: Mapping[str, int], window_size: int) -> list[str]:
    """Return the ids of the incidents to write with a verdict: new and ended ones, and open ones now and then.

    Args:
        verdict: the newest one.
        archived: incidents that are open in the archive, with the sequence at which they were written.
        window_size: number of snapshots that the store keeps.
    """
    found = {incident.id for incident in verdict.incidents}
    pause = max(1, window_size // WRITES_PER_WINDOW)
    fresh = {name for name, written in archived.items() if 0 <= verdict.sequence - written < pause}
    return [*sorted(found - fresh), *sorted(archived.keys() - found)]


def archive(
    incident: str, scored: Sequence[KeptSnapshot], sequence: int, before: ArchivedIncident | None
) -> ArchivedIncident | None:
    """Return what the archive has of an incident after the newest snapshot; None if nothing is known about it.

    Args:
        incident: its id.
        scored: the kept snapshots with their verdicts, oldest first, at least one.
        sequence: of the newest snapshot.
        before: what the archive had of it; None: nothing.
    """
    window = [_SnapshotAndVerdict.of(one, incident) for one in scored]
    if all(one.incident is None for one in window):
        is_lost = any(one.is_lost for one in window)
        return None if before is None else _end(before, sequence, window[-1].at, ended_unseen=is_lost)
    old, opened_at, accepted = Details(0, 0, (), ()), None, None
    if before is not None:
        known = unpack_document(before.document)
        old, opened_at, accepted = Details.unpack(before.details), known.opened_at, known.accepted
    earlier = [_SnapshotAndVerdict.of(one, incident) for one in old.read()]
    seen = [*(one for one in earlier if one.at < window[0].at), *window]
    rows = [i for i, one in enumerate(seen) if one.incident is not None]
    worst = max((seen[i] for i in rows), key=lambda one: (not one.is_recovering, one.score))
    after = _end_time(seen, rows[-1])
    ended_unseen = after is not None and seen[rows[-1] + 1].is_lost
    document = _document(worst, seen[rows[-1]], opened_at or seen[rows[0]].at, after).model_copy(
        update={"accepted": accepted, "ended_unseen": ended_unseen, "replayed": seen[rows[-1]].is_replayed}
    )
    size, gone = (worst.snapshot.num_nodes, worst.snapshot.num_edges), _list_gone(worst)
    if worst.at < window[0].at:
        size, gone = (old.services, old.calls), old.gone
    moments = _Part(worst, seen).cut(seen[max(0, rows[0] - BEFORE) : rows[-1] + 2])
    return ArchivedIncident(
        incident,
        document.since,
        after,
        sequence,
        SEVERITIES.index(document.severity),
        document.kind,
        likely_suspects(document.suspects),
        tuple(dict.fromkeys([*(one.service for one in document.suspects), *document.affected])),
        pack_document(document),
        _fit(Details(*size, gone, ()), moments, worst),
    )


@dataclass(frozen=True, slots=True, eq=False)
class _SnapshotAndVerdict:
    """A snapshot with its verdict.

    Attributes:
        name: id of the incident.
        at: its time.
        snapshot: of the mesh, or of the part in the archive.
        deviations: packed.
        verdict: as a plain object.
        incident: in the verdict; None: it was not open.
        is_lost: whether the verdict closed it because nothing was seen of it for too long.
    """

    name: str
    at: datetime
    snapshot: MeshSnapshot
    deviations: bytes
    verdict: dict[str, Any]
    incident: dict[str, Any] | None
    is_lost: bool

    @classmethod
    def of(cls, scored: KeptSnapshot, incident: str) -> Self:
        found = next((one for one in scored.verdict["incidents"] if one["id"] == incident), None)
        lost = scored.verdict.get("lost", ())
        return cls(incident, scored.snapshot.observed_at, *scored, found, incident in lost)

    @property
    def score(self) -> float:
        return self.incident["score"] if self.incident else 0.0

    @property
    def is_replayed(self) -> bool:
        return bool(self.verdict.get("replayed"))

    @property
    def is_recovering(self) -> bool:
        """Whether the incident was over except for a pause, so that its headline says so."""
        return bool(self.incident and self.incident.get("recovering"))

    @property
    def suspects(self) -> list[str]:
        return [one["service"] for one in self.incident["suspects"]] if self.incident else []

    def shorten(self, *, whole: bool) -> bytes:
        """The verdict with this incident alone; if not ``whole``, only with its course."""
        incident = self.incident
        if incident is not None and not whole:
            texts = {"headline": "", "next_step": ""}
            incident = {**incident, "suspects": [], "affected": [], "changes": [], "events": [], **texts}
        mine = [] if incident is None else [incident]
        suspects = incident["suspects"] if incident is not None else []
        more = {"muted": [], "silence": None, "watching": [], "lost": [self.name] if self.is_lost else []}
        return json.dumps({**self.verdict, "suspects": suspects, "incidents": mine, **more}).encode()


class _Part:
    """The part of a mesh around an incident.

    Args:
        worst: its highest score.
        seen: snapshots of the incident, ``worst`` among them.
    """

    def __init__(self, worst: _SnapshotAndVerdict, seen: Sequence[_SnapshotAndVerdict]) -> None:
        self._worst = worst
        self._touched = _touched_services(worst)
        first = next(iter(worst.suspects), None)
        earlier = (one.snapshot for one in reversed(seen) if one.at <= worst.at)
        with_first = next((snapshot for snapshot in earlier if first in snapshot.node_ids), worst.snapshot)
        self._names = self._touched | _neighbours([worst.snapshot, with_first], self._touched, first)

    def cut(self, seen: Iterable[_SnapshotAndVerdict]) -> list[tuple[_SnapshotAndVerdict, StoredSnapshot]]:
        """Return snapshots, each with its share of this part; those that have none are left out."""
        found: list[tuple[_SnapshotAndVerdict, StoredSnapshot]] = []
        row: dict[str, int] = {}
        of: tuple[str, ...] = ()  # whose rows those are; most snapshots share their names
        for one in seen:
            if one.snapshot.node_ids is not of:
                of, row = one.snapshot.node_ids, find_rows(one.snapshot.node_ids, self._names, row)
            if row:
                found.append((one, self._cut(one, row)))
        return found

    def _cut(self, one: _SnapshotAndVerdict, row: Mapping[str, int]) -> StoredSnapshot:
        """Return the share of a snapshot in which the services of this part have these rows."""
        snapshot = one.snapshot
        calls = _calls_of(snapshot, [row[name] for name in self._touched & row.keys()])
        inside = np.zeros(snapshot.num_nodes, bool)
        inside[list(row.values())] = True
        calls = calls[inside[snapshot.edge_index[:, calls]].all(axis=0)]
        if len(calls) > MAX_CALLS:
            requests = snapshot.edge_features[calls, EdgeMetric.REQUESTS_PER_SECOND]
            calls = np.sort(calls[np.argsort(-requests, kind="stable")[:MAX_CALLS]])
        services, whole = np.sort(list(row.values())), one is self._worst
        part = snapshot.take(services, calls)
        changes = tuple(change for change in snapshot.changes if change.service in self._names)
        part = replace(part, changes=changes, policies=())
        return StoredSnapshot(
            pack_snapshot(part if whole else _round(part)),
            Deviations.take_packed(one.deviations, snapshot, services, calls),
            one.shorten(whole=whole),
        )


def _calls_of(snapshot: MeshSnapshot, services: Sequence[int]) -> IntArray:
    """Return the calls from or to some services, in the order of the snapshot."""
    chosen = np.zeros(snapshot.num_nodes, bool)
    chosen[services] = True
    source, destination = snapshot.edge_index
    calls: IntArray = np.flatnonzero(chosen[source] | chosen[destination])
    return calls


def _round(snapshot: MeshSnapshot) -> MeshSnapshot:
    """Round the metrics, so that they compress to half the size."""
    nodes, edges = (round_metrics(values, ROUNDING) for values in (snapshot.node_features, snapshot.edge_features))
    return replace(snapshot, node_features=nodes, edge_features=edges)


def _touched_services(worst: _SnapshotAndVerdict) -> frozenset[str]:
    """The services that an incident is about: suspects, the ends of calls in reasons, the most unusual affected
    ones."""
    assert worst.incident is not None
    leading = worst.incident["suspects"][:MAX_SUSPECTS]
    ends = [reason.get(end) for one in leading for reason in one["reasons"] for end in ("source", "destination")]
    scores = np.nan_to_num(Deviations.unpack(worst.deviations, worst.snapshot).services)
    row = find_rows(worst.snapshot.node_ids, set(worst.incident["affected"]))
    affected = sorted(worst.incident["affected"], key=lambda name: -scores[row[name]] if name in row else 0.0)
    names = dict.fromkeys([*worst.suspects[:MAX_SUSPECTS], *filter(None, ends), *affected])
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


def _list_gone(worst: _SnapshotAndVerdict) -> tuple[str, ...]:
    """The services of an incident that its strongest snapshot does not have."""
    assert worst.incident is not None
    return tuple(sorted({*worst.suspects, *worst.incident["affected"]}.difference(worst.snapshot.node_ids)))


def _document(
    worst: _SnapshotAndVerdict, last: _SnapshotAndVerdict, opened_at: datetime, until: datetime | None
) -> ArchivedIncidentDocument:
    """The incident at its highest score, with what it collected up to the last snapshot with it."""
    assert worst.incident is not None
    assert last.incident is not None
    collected = {name: last.incident.get(name, []) for name in ("severity", "changes", "events", "error_budgets")}
    times = {"opened_at": opened_at, "strongest_at": worst.at, "until": until}
    is_open = until is None
    course = {"recovering": is_open and last.incident.get("recovering", False)}
    course["trend"] = last.incident.get("trend") if is_open else None
    return ArchivedIncidentDocument.model_validate({**worst.incident, **collected, **times, **course})


def _end_time(seen: Sequence[_SnapshotAndVerdict], last: int) -> datetime | None:
    """The time of the first snapshot without an incident; if snapshots paused before it, or nothing was seen of it, of
    the last one with it. None if the incident is open."""
    if last + 1 == len(seen):
        return None
    following = seen[last + 1]
    return seen[last].at if following.is_lost or following.at - seen[last].at > PAUSE else following.at


def _end(before: ArchivedIncident, sequence: int, at: datetime, *, ended_unseen: bool) -> ArchivedIncident:
    """An incident of which the window has nothing left: it ends now."""
    update = {"until": at, "recovering": False, "trend": None, "ended_unseen": ended_unseen}
    ended = unpack_document(before.document).model_copy(update=update)
    return replace(before, until=at, sequence=sequence, document=pack_document(ended))


def _fit(
    details: Details, moments: Sequence[tuple[_SnapshotAndVerdict, StoredSnapshot]], worst: _SnapshotAndVerdict
) -> bytes:
    """Pack details with as many of the moments as the limits allow."""
    most = MAX_MOMENTS
    while True:
        packed = replace(details, moments=tuple(_thin_out(moments, worst, most))).pack()
        if len(packed) <= MAX_DETAIL_BYTES or most <= 1:
            return packed
        most //= 2


def _thin_out(
    moments: Sequence[tuple[_SnapshotAndVerdict, StoredSnapshot]], worst: _SnapshotAndVerdict, most: int
) -> list[StoredSnapshot]:
    """The first moment of each of ``most`` equal spans of time, and the one at the highest score."""
    if len(moments) <= most:
        return [stored for _, stored in moments]
    begin, end = moments[0][0].at, moments[-1][0].at
    spans = [int(most * ((one.at - begin) / (end - begin))) for one, _ in moments]
    return [stored for i, (one, stored) in enumerate(moments) if i == 0 or spans[i] != spans[i - 1] or one is worst]
