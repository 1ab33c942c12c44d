"""A store's content in tests."""

from datetime import UTC, datetime, timedelta
from typing import Any

from serve_app.stores.base import StateStore

START = datetime(2026, 3, 1, tzinfo=UTC)


def at(sequence: int) -> datetime:
    """When a snapshot was observed."""
    return START + timedelta(seconds=15 * sequence, microseconds=sequence)


def append(store: StateStore, sequence: int, mesh: str = "prod", keep: int = 3, **changed: Any) -> int:
    """Count a snapshot whose content tells its number."""
    values: dict[str, Any] = {
        "observed_at": at(sequence),
        "snapshot": b"snapshot %d" % sequence,
        "digest": f"digest {sequence}",
        "state": b"state %d" % sequence,
        "verdict": b"verdict %d" % sequence,
    }
    return store.append(mesh, sequence=sequence, keep=keep, **{**values, **changed})
