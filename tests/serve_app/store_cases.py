"""A store's content in tests."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from serve_app.stores.base import NewSnapshot, StateStore

START = datetime(2026, 3, 1, tzinfo=UTC)


def at(sequence: int) -> datetime:
    """Return the time of a snapshot."""
    return START + timedelta(seconds=15 * sequence, microseconds=sequence)


def append(
    store: StateStore, sequence: int, mesh: str = "prod", keep: int = 3, revision: int | None = None, **changed: Any
) -> int:
    """Append a snapshot whose content contains its number."""
    new = NewSnapshot(
        sequence,
        at(sequence),
        b"snapshot %d" % sequence,
        f"digest {sequence}",
        b"state %d" % sequence,
        b"verdict %d" % sequence,
    )
    return store.append(mesh, replace(new, **changed), keep=keep, revision=revision)
