"""The content that tests of stores write, and how it is read back."""

import random
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from multiprocessing.connection import Connection
from typing import Any

from serve_app.settings import StoreSettings
from serve_app.stores.opening import open_store
from serve_app.stores.records import ArchivedIncident, ChunkKey, HistoryUpdate, IncidentFilter, NewSnapshot, Retention
from serve_app.stores.state_store import StateStore

START = datetime(2026, 3, 1, tzinfo=UTC)
LIMIT = Retention(timedelta(days=90), 2**20)


def at(sequence: int) -> datetime:
    """Return the time of a snapshot."""
    return START + timedelta(seconds=15 * sequence, microseconds=sequence)


def random_bytes(seed: int, count: int) -> bytes:
    """Return bytes that a store cannot compress."""
    return random.Random(seed).randbytes(count)


def append(
    store: StateStore, sequence: int, mesh: str = "prod", keep: int = 3, revision: int | None = None, **changed: Any
) -> int:
    """Append a snapshot whose content contains its number; without a revision, to what is stored."""
    if revision is None:
        stored = store.load(mesh)
        revision = stored.revision if stored else 0
    new = NewSnapshot(
        sequence,
        at(sequence),
        b"snapshot %d" % sequence,
        f"digest {sequence}",
        b"state %d" % sequence,
        b"verdict %d" % sequence,
    )
    return store.append(mesh, replace(new, **changed), keep=keep, revision=revision)


def write_history(store: StateStore, update: HistoryUpdate, mesh: str = "prod") -> bool:
    """Write files of the history beside what is stored of a mesh. Returns whether that was possible."""
    stored = store.load_state(mesh)
    assert stored is not None
    full = stored.sequence - len(stored.steps), stored.state_revision
    return store.write_history(mesh, update, full=full)


def snapshots(store: StateStore, mesh: str = "prod") -> list[bytes]:
    """Return the kept snapshots, whose numbers must be consecutive."""
    window = list(store.window(mesh))
    assert [number - window[0][0] for number, _ in window] == list(range(len(window)))
    return [snapshot for _, snapshot in window]


def states(store: StateStore, mesh: str = "prod") -> dict[int, bytes]:
    """Return the state in full and the steps since, each by the number of its snapshot."""
    stored = store.load_state(mesh)
    if stored is None:
        return {}
    parts = (stored.state, *stored.steps)
    return dict(enumerate(parts, stored.sequence - len(stored.steps)))


def is_step(sequence: int) -> bool:
    """Return whether tests store only a step with this snapshot: two of three times."""
    return sequence % 3 != 1


def incident(number: int, until: datetime | None = None, **changed: object) -> ArchivedIncident:
    """An incident that began with snapshot ``number``."""
    made = ArchivedIncident(
        id=f"incident-{number}",
        since=at(number),
        until=until,
        sequence=number,
        severity=1,
        kind="slow",
        suspects=("shop/cart",),
        services=("shop/cart", "shop/web"),
        document=b"document %d" % number,
        details=b"details %d" % number,
    )
    return replace(made, **changed)  # type: ignore[arg-type]


def chunk_key(number: int) -> ChunkKey:
    """Return the key of a file of the history."""
    return ChunkKey(60 if number % 2 else 600, 3600 * (number // 4), number % 4)


def chunks(*numbers: int) -> dict[ChunkKey, bytes]:
    """Return files of the history, each with a key and a content of its own."""
    return {chunk_key(number): b"chunk %d" % number for number in numbers}


def incident_ids(store: StateStore, mesh: str = "prod", **fields: object) -> list[str]:
    """Return the ids of the archived incidents that match."""
    return [incident.id for incident in store.incidents(mesh, IncidentFilter(**fields))]  # type: ignore[arg-type]


def contents(store: StateStore, mesh: str = "prod") -> tuple[object, ...]:
    """Return what a store has of a mesh, except for its history."""
    return (
        store.load(mesh),
        store.load_state(mesh),
        snapshots(store, mesh),
        store.verdicts(mesh, None, -1),
        store.open_incidents(mesh),
        [store.incident(mesh, name) for name in incident_ids(store, mesh)],
    )


def append_for_ever(place: StoreSettings, acknowledged: Connection) -> None:
    """Append snapshots with an archive, steps and full states, and report each, until the process is killed."""
    with closing(open_store(place)) as store:
        revision = 0
        for sequence in range(1, 1_000_000):
            state, opened = random_bytes(sequence, 320_000), incident(sequence)
            content: dict[str, Any] = {"state": state, "snapshot": random_bytes(-sequence, 40_000)}
            content["incidents"] = (opened, incident(sequence - 1, until=at(sequence))) if sequence > 1 else (opened,)
            revision = append(store, sequence, is_step=is_step(sequence), revision=revision, **content)
            if sequence % 6 == 0:  # the last step before the next full state
                stored = store.load_state("prod")
                assert stored is not None
                full = sequence - len(stored.steps), stored.state_revision
                assert store.compact("prod", state, sequence=sequence, revision=revision, full=full)
                store.tidy()
            acknowledged.send(sequence)


def check_appended(place: StoreSettings, last: int) -> None:
    """Check that a store has everything that was reported up to ``last``, and at most one write more."""
    with closing(open_store(place)) as store:
        mesh = store.load("prod")
        assert mesh is not None
        assert mesh.sequence in (last, last + 1)  # at most one write was done but not yet acknowledged
        stored = states(store)
        assert max(stored) == mesh.sequence
        assert stored == {number: random_bytes(number, 320_000) for number in stored}
        assert snapshots(store)[-1] == random_bytes(-mesh.sequence, 40_000)
        assert store.open_incidents("prod") == {f"incident-{mesh.sequence}": mesh.sequence}
        incidents = store.incidents("prod", IncidentFilter(limit=10**6))
        assert [incident.id for incident in incidents] == [f"incident-{n}" for n in range(mesh.sequence, 0, -1)]
        assert [incident.until for incident in incidents[1:]] == [at(n) for n in range(mesh.sequence, 1, -1)]
        append(store, mesh.sequence + 1, revision=mesh.revision)
