"""Passes stored verdicts, and people's actions on incidents, to the delivery of notifications.

A verdict is stored in the same transaction as its mesh's state, so the window of verdicts is the outbox, and sessions
send nothing to the notifier. The delivery records its newest verdict together with the resulting notifications. So
nothing is lost if a process is killed on either side. People's actions are in the archive, with their incident.
"""

import asyncio
import logging
from collections.abc import Iterable, Set
from datetime import UTC, datetime
from typing import Any

from serve_app.alerts.delivery import FORGET_AFTER, AlertDelivery
from serve_app.api.schemas.verdict import VerdictDocument
from serve_app.errors import CorruptState, ServeError
from serve_app.observability.logs import set_log_context
from serve_app.stores.archive import unpack_document
from serve_app.stores.scored_snapshot import StoredVerdict
from serve_app.stores.state_store import StateStore

# Time between two reads of all meshes' revisions. With a thousand meshes, one takes 2 ms of a core with SQLite, 14 ms
# with Redis.
POLL_SECONDS = 1.0
log = logging.getLogger(__name__)


class VerdictFeed:
    """Finds new verdicts and actions in a store."""

    def __init__(self, store: StateStore) -> None:
        self._store = store
        self._revisions: dict[str, int] = {}  # by mesh, as of the last read
        self._is_away = False

    async def follow(self, to: AlertDelivery) -> None:
        """Pass on all verdicts that the delivery lacks, until cancelled."""
        self._revisions.clear()
        while True:
            try:
                await self.hand_on(to)
                self._is_away = False
            except ServeError as error:
                if not self._is_away:
                    log.warning("verdicts wait for the store before people are notified of them: %s", error)
                self._is_away = True
            await asyncio.sleep(POLL_SECONDS)

    async def hand_on(self, to: AlertDelivery) -> None:
        """Pass on the verdicts that are stored now, and report deleted meshes.

        Raises:
            ServeError: the store cannot be read; nothing is skipped.
        """
        revisions = await asyncio.to_thread(self._store.revisions)
        self._revisions = {mesh: revision for mesh, revision in self._revisions.items() if mesh in revisions}
        for mesh in [mesh for mesh, revision in revisions.items() if self._revisions.get(mesh) != revision]:
            with set_log_context(mesh):
                try:
                    verdicts = await asyncio.to_thread(self._read_new, mesh, to.newest(mesh))
                except CorruptState as error:  # the store has set the mesh aside
                    log.error("mesh %s: damaged verdicts are left out: %s", mesh, error)
                    continue
                open_before = to.open_incidents(mesh)
                await self._hand_on_actions(mesh, open_before, to)  # before the verdict ends their incident
                _hand_on(mesh, verdicts, to)
                await self._hand_on_actions(mesh, to.open_incidents(mesh) - open_before, to)
            self._revisions[mesh] = revisions[mesh]
        for mesh in to.known_meshes() - revisions.keys():
            # A mesh that was set aside returns with its next snapshot.
            if not await asyncio.to_thread(self._store.was_set_aside, mesh):
                to.forget_mesh(mesh, datetime.now(UTC))

    async def _hand_on_actions(self, mesh: str, incidents: Set[str], to: AlertDelivery) -> None:
        if not incidents:
            return
        try:
            actions = await asyncio.to_thread(self._read_actions, mesh, incidents)
            to.accept_actions(mesh, actions, datetime.now(UTC))
        except ServeError:
            raise  # the caller retries
        except Exception:  # the verdicts of this mesh, and other meshes, must not wait
            log.exception("mesh %s: unexpected error; no one is notified of what people did", mesh)

    def _read_actions(self, mesh: str, incidents: Set[str]) -> dict[str, list[dict[str, Any]]]:
        records = [self._store.incident(mesh, record, details=False) for record in sorted(incidents)]
        documents = [unpack_document(record.document) for record in records if record is not None]
        return {record.id: [action.model_dump(mode="json") for action in record.actions] for record in documents}

    def _read_new(self, mesh: str, since: datetime | None) -> list[bytes]:
        """Return the verdicts after the snapshot at ``since``, oldest first. If the mesh is new to the delivery, or has
        begun again at an earlier time, return only the newest one."""
        verdicts = [] if since is None else self._store.verdicts(mesh, since, limit=-1)
        if not verdicts:
            newest = self._store.load(mesh)
            if newest is not None and newest.observed_at not in (None, since):
                verdicts = [newest.verdict]
        return verdicts


def _hand_on(mesh: str, verdicts: Iterable[bytes], to: AlertDelivery) -> None:
    for content in verdicts:
        try:
            stored, now = StoredVerdict.unpack(content), datetime.now(UTC)
            made_at = now if stored.made_at is None else datetime.fromtimestamp(stored.made_at, UTC)
            if now - made_at > FORGET_AFTER:
                continue
            verdict = VerdictDocument.model_validate_json(stored.document)
            if not verdict.replayed:
                to.accept_verdict(mesh, verdict, made_at, stored.interval or 0.0)
        except CorruptState as error:
            log.error("mesh %s: a damaged verdict is left out: %s", mesh, error)
        except Exception:  # one verdict must not hold up those behind it
            log.exception("mesh %s: unexpected error; no one is notified of this verdict", mesh)
