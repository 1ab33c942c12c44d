"""The part of a store that access control needs: documents with compare-and-set."""

from collections.abc import Callable
from typing import Protocol, TypeVar

from serve_app.errors import StoreConflict

ATTEMPTS = 20  # at a document that others change at the same time
T = TypeVar("T")


class KeptDocument(Protocol):
    """A document and its token for compare-and-set."""

    @property
    def revision(self) -> int:
        """Changes with each write."""

    @property
    def content(self) -> bytes:
        """What was written."""


class Documents(Protocol):
    """Documents of the service; :class:`~serve_app.stores.base.StateStore` describes arguments and errors."""

    def read_document(self, name: str) -> KeptDocument | None:
        """A document; None if there is none."""

    def write_document(self, name: str, content: bytes, *, revision: int) -> int:
        """Replace a document, and return its new revision."""


def change_document(documents: Documents, name: str, change: Callable[[bytes], tuple[bytes | None, T]]) -> T:
    """Change a document, again if another process changed it meanwhile.

    Args:
        change: takes the content, empty if there is none; returns the new one, None to leave it, and a result.

    Returns:
        The result of the change that was written.

    Raises:
        StoreConflict: others kept changing it.
        ServeError: the store cannot be used.
    """
    for attempt in range(ATTEMPTS):
        kept = documents.read_document(name)
        content, result = change(kept.content if kept else b"")
        if content is None:
            return result
        try:
            documents.write_document(name, content, revision=kept.revision if kept else 0)
        except StoreConflict:
            if attempt == ATTEMPTS - 1:
                raise
        else:
            return result
    raise AssertionError
