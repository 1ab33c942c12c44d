"""Hands the verdicts that a store has to the delivery of notifications.

A verdict is stored in the same transaction as the state of its mesh, so the window of verdicts is the outbox of
notifications. The delivery notes the newest verdict that it has, beside the notifications that it made of it. So a
process that is killed in between, on either side, loses none. No session sends anything to the notifier.
"""

import asyncio
import logging
from collections.abc import Collection, Iterable
from datetime import UTC, datetime, timedelta
from typing import Protocol

from serve_app.api.schemas.verdict import VerdictDocument
from serve_app.errors import CorruptState, ServeError
from serve_app.observability.log_context import set_log_context
from serve_app.stores.record import Record
from serve_app.stores.state_store import StateStore

# Between two looks at the revisions of all meshes: with a thousand meshes, 1 ms in SQLite, 20 ms in Redis.
LOOK_SECONDS = 1.0
TOO_OLD = timedelta(hours=24)  # as long as events wait for a receiver
log = logging.getLogger(__name__)


class VerdictReader(Protocol):
    """Who gets the verdicts."""

    def known_meshes(self) -> Collection[str]:
        """The meshes of which it had a verdict."""

    def newest(self, mesh: str) -> datetime | None:
        """Time of the snapshot of the newest verdict of a mesh that it had."""

    def accept_verdict(self, mesh: str, verdict: VerdictDocument, now: datetime) -> None:
        """Take the next verdict of a mesh, which was made ``now``."""

    def forget_mesh(self, mesh: str, now: datetime) -> None:
        """Take note that a mesh was deleted."""


class VerdictFeed:
    """Finds what is new in a store.

    Args:
        store: of the sessions.
    """

    def __init__(self, store: StateStore) -> None:
        self._store = store
        self._stored: dict[str, int] = {}  # revision of each mesh
        self._read: dict[str, int] = {}  # and as of when its verdicts were read
        self._is_away = False

    async def follow(self, reader: VerdictReader) -> None:
        """Hand on all verdicts that a reader has not had, until cancelled."""
        self._read.clear()
        while True:
            try:
                await self.hand_on(reader)
                self._is_away = False
            except ServeError as error:
                if not self._is_away:
                    log.warning("verdicts wait for the store before people are notified of them: %s", error)
                self._is_away = True
            await asyncio.sleep(LOOK_SECONDS)

    async def hand_on(self, reader: VerdictReader) -> None:
        """Hand on the verdicts that are stored now, and the meshes that were deleted.

        Raises:
            ServeError: the store cannot be read; nothing is left out by that.
        """
        self._stored = await asyncio.to_thread(self._store.revisions)
        for mesh in [mesh for mesh, revision in self._stored.items() if self._read.get(mesh) != revision]:
            with set_log_context(mesh):
                try:
                    records = await asyncio.to_thread(self._read_new, mesh, reader.newest(mesh))
                except CorruptState as error:  # the store has set the mesh aside
                    log.error("mesh %s: damaged verdicts are left out: %s", mesh, error)
                    continue
                _hand_on(mesh, records, reader)
            self._read[mesh] = self._stored[mesh]
        known = reader.known_meshes()
        for mesh in await asyncio.to_thread(self._find_deleted, known):
            reader.forget_mesh(mesh, datetime.now(UTC))
            self._read.pop(mesh, None)

    def _read_new(self, mesh: str, since: datetime | None) -> list[Record]:
        """The verdicts after the one of the snapshot at ``since``, oldest first.

        Of a mesh that is new to the reader, or that has begun again at an earlier time, only the newest one.
        """
        found = [] if since is None else self._store.verdicts(mesh, since, limit=-1)
        if not found:
            newest = self._store.load(mesh)
            if newest is not None and newest.observed_at not in (None, since):
                found = [newest.verdict]
        return [Record.unpack(verdict) for verdict in found]

    def _find_deleted(self, known: Collection[str]) -> list[str]:
        """The known meshes that are not stored. One that was set aside comes back with its next snapshot."""
        return [mesh for mesh in known if mesh not in self._stored and not self._store.was_set_aside(mesh)]


def _hand_on(mesh: str, records: Iterable[Record], reader: VerdictReader) -> None:
    for record in records:
        now = datetime.now(UTC)
        made_at = now if record.made_at is None else datetime.fromtimestamp(record.made_at, UTC)
        if now - made_at > TOO_OLD:
            continue
        try:
            reader.accept_verdict(mesh, VerdictDocument.model_validate_json(record.document), made_at)
        except Exception:  # one verdict must not hold up those behind it
            log.exception("mesh %s: unexpected error; no one is notified of this verdict", mesh)
