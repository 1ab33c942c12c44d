"""Small documents of the service: connected meshes and revoked ids. Several processes change them with
compare-and-set."""

import json
from collections.abc import Callable
from typing import TypeVar

from serve_app.errors import StoreConflict
from serve_app.stores.state_store import StateStore

ATTEMPTS = 20  # while other processes change the document, too
CONNECTIONS, ENDED = "connections", "access/ended"
T = TypeVar("T")


def change_document(store: StateStore, name: str, change: Callable[[bytes], tuple[bytes | None, T]]) -> T:
    """Change a document, and try again if another process changed it meanwhile.

    Args:
        change: takes the content, empty if there is none. It returns the new content, None to leave it, and a result.

    Returns:
        The result of the change that was written.

    Raises:
        StoreConflict: other processes kept changing it.
    """
    for attempt in range(ATTEMPTS):
        document = store.read_document(name)
        content, result = change(document.content)
        if content is None:
            return result
        try:
            store.write_document(name, content, revision=document.revision)
        except StoreConflict:
            if attempt == ATTEMPTS - 1:
                raise
        else:
            return result
    raise AssertionError


class EndedIds:
    """Revoked ids: ended sessions and consumed login attempts, shared by all replicas.

    An id stays until its session or attempt would have expired. Only users who signed in at the provider can add ids,
    so they stay few.

    Args:
        now: returns Unix time, s.
    """

    def __init__(self, store: StateStore, now: Callable[[], float]) -> None:
        self._store, self._now = store, now

    def add(self, id: str, until: float) -> bool:
        """Add an id that expires at ``until``, Unix time, s. Returns False if it was there already."""

        def change(content: bytes) -> tuple[bytes | None, bool]:
            ids = self._valid(content)
            return (None, False) if id in ids else (json.dumps({**ids, id: until}).encode(), True)

        return change_document(self._store, ENDED, change)

    def all(self) -> frozenset[str]:
        """Return the ids that have not expired."""
        return frozenset(self._valid(self._store.read_document(ENDED).content))

    def _valid(self, content: bytes) -> dict[str, float]:
        ids: dict[str, float] = json.loads(content or b"{}")
        return {id: until for id, until in ids.items() if until > self._now()}


class Connections:
    """The meshes that people connect on the page, each with the address of its Prometheus. All processes share them.

    Methods raise the errors of :func:`change_document`.
    """

    def __init__(self, store: StateStore) -> None:
        self._store = store

    def all(self) -> dict[str, str]:
        return _read_addresses(self._store.read_document(CONNECTIONS).content)

    def add(self, mesh: str, prometheus: str) -> None:
        def change(content: bytes) -> tuple[bytes, None]:
            return _write_addresses({**_read_addresses(content), mesh: prometheus}), None

        change_document(self._store, CONNECTIONS, change)

    def remove(self, mesh: str) -> bool:
        """Remove a mesh, and return whether it was connected."""

        def change(content: bytes) -> tuple[bytes | None, bool]:
            addresses = _read_addresses(content)
            return (_write_addresses(addresses), True) if addresses.pop(mesh, None) else (None, False)

        return change_document(self._store, CONNECTIONS, change)


def _read_addresses(content: bytes) -> dict[str, str]:
    addresses: dict[str, str] = json.loads(content or b"{}")
    return addresses


def _write_addresses(addresses: dict[str, str]) -> bytes:
    return json.dumps(addresses).encode() if addresses else b""
