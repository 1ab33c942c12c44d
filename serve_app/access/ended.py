"""Ids that can no longer be used: of sign-ins that were signed out, and of attempts to sign in that succeeded.

They are one document of the store, which all replicas read. An id stays on it until what it names would have expired.
Only users who signed in at the provider can add to it, so it stays small.
"""

import json
from collections.abc import Callable

from serve_app.access.documents import Documents, change_document

NAME = "access/ended"


class EndedIds:
    """The ids of a store.

    Args:
        now: s since 1970.
    """

    def __init__(self, documents: Documents, now: Callable[[], float]) -> None:
        self._documents, self._now = documents, now

    def add(self, id: str, until: float) -> bool:
        """Add an id.

        Args:
            id: random.
            until: when it expires by itself, s since 1970.

        Returns:
            False if it was on the list already.

        Raises:
            ServeError: the store cannot be used.
        """

        def change(content: bytes) -> tuple[bytes | None, bool]:
            ids = self._valid(content)
            if id in ids:
                return None, False
            return json.dumps({**ids, id: until}).encode(), True

        return change_document(self._documents, NAME, change)

    def all(self) -> frozenset[str]:
        """All ids that have not expired.

        Raises:
            ServeError: the store cannot be used.
        """
        kept = self._documents.read_document(NAME)
        return frozenset(self._valid(kept.content)) if kept else frozenset()

    def _valid(self, content: bytes) -> dict[str, float]:
        ids: dict[str, float] = json.loads(content or b"{}")
        now = self._now()
        return {id: until for id, until in ids.items() if until > now}
