"""The meshes that people connect on the page, beside the meshes of the settings: the address of each Prometheus."""

import json

from serve_app.stores.documents import change_document
from serve_app.stores.state_store import StateStore

NAME = "connections"


class Connections:
    """Addresses of Prometheus by mesh. All processes read them, and they outlast a restart. Errors as of
    :func:`change_document`."""

    def __init__(self, store: StateStore) -> None:
        self._store = store

    def all(self) -> dict[str, str]:
        return _read(self._store.read_document(NAME).content)

    def add(self, mesh: str, prometheus: str) -> None:
        change_document(self._store, NAME, lambda content: (_write({**_read(content), mesh: prometheus}), None))

    def remove(self, mesh: str) -> bool:
        """Remove a mesh. Returns whether it was connected."""

        def change(content: bytes) -> tuple[bytes | None, bool]:
            known = _read(content)
            return (_write(known), True) if known.pop(mesh, None) else (None, False)

        return change_document(self._store, NAME, change)


def _read(content: bytes) -> dict[str, str]:
    known: dict[str, str] = json.loads(content or b"{}")
    return known


def _write(known: dict[str, str]) -> bytes:
    return json.dumps(known).encode() if known else b""
