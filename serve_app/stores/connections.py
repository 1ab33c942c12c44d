"""The meshes that people connect on the page, in addition to those of the settings: each with its Prometheus."""

import json

from serve_app.stores.documents import change_document
from serve_app.stores.state_store import StateStore

NAME = "connections"


class Connections:
    """Addresses of Prometheus by mesh, shared by all processes. Methods raise the errors of :func:`change_document`."""

    def __init__(self, store: StateStore) -> None:
        self._store = store

    def all(self) -> dict[str, str]:
        return _read(self._store.read_document(NAME).content)

    def add(self, mesh: str, prometheus: str) -> None:
        change_document(self._store, NAME, lambda content: (_write({**_read(content), mesh: prometheus}), None))

    def remove(self, mesh: str) -> bool:
        """Remove a mesh, and return whether it was connected."""

        def change(content: bytes) -> tuple[bytes | None, bool]:
            addresses = _read(content)
            return (_write(addresses), True) if addresses.pop(mesh, None) else (None, False)

        return change_document(self._store, NAME, change)


def _read(content: bytes) -> dict[str, str]:
    addresses: dict[str, str] = json.loads(content or b"{}")
    return addresses


def _write(addresses: dict[str, str]) -> bytes:
    return json.dumps(addresses).encode() if addresses else b""
