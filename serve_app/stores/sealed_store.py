"""What every store of sealed rows does alike: it unseals them, and sets a mesh aside if one of its rows is damaged."""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Generic, TypeVar

from serve_app.errors import CorruptState
from serve_app.settings.base import check_mesh_name
from serve_app.stores import rows
from serve_app.stores.base import (
    ArchiveLimit,
    MeshLimit,
    MeshSummary,
    StoredMesh,
    StoredState,
    StoredVerdict,
    WholeMesh,
)

log = logging.getLogger(__name__)
V = TypeVar("V")
S = TypeVar("S")
W = TypeVar("W")


class SealedStore(ABC, Generic[V, S, W]):
    """The reading half of a :class:`~serve_app.stores.base.StateStore`. A subclass fetches the rows, and writes.

    ``V``, ``S`` and ``W`` are what it fetches: a sealed verdict with its time and digest, the rows of a state, and all
    rows of a mesh.

    Args:
        name: of the store, for messages: its path or URL.
        limit: how many meshes it may hold; None: any number.
        archive: what the archive of each mesh keeps; None: everything.
        on_evicted: called with the name of a mesh that was deleted to make room for another, in the writing thread.
    """

    def __init__(
        self,
        name: str,
        limit: MeshLimit | None,
        archive: ArchiveLimit | None,
        on_evicted: Callable[[str], None] | None,
    ) -> None:
        self.name = name
        self._limit, self._archive, self._on_evicted = limit, archive, on_evicted

    def load(self, mesh: str) -> StoredMesh | None:
        check_mesh_name(mesh)
        found = self._fetch_newest(mesh)
        if found is None:
            return None
        revision, sequence, sealed = found
        if not sequence:
            return StoredMesh(mesh, revision, 0, None, "", b"")
        with self._setting_aside_damage(mesh):
            at, digest, verdict = self._unseal_verdict(mesh, sequence, sealed)
        return StoredMesh(mesh, revision, sequence, at, digest, verdict)

    def load_state(self, mesh: str) -> StoredState | None:
        check_mesh_name(mesh)
        found = self._fetch_state(mesh)
        if found is None:
            return None
        with self._setting_aside_damage(mesh):
            return self._unseal_state(mesh, found)

    def verdict_at(self, mesh: str, observed_at: datetime) -> StoredVerdict | None:
        check_mesh_name(mesh)
        for found, digest, verdict in reversed(self._unseal_all(mesh, self._fetch_verdicts_of(mesh, observed_at))):
            if found == observed_at:  # a store may round times
                return StoredVerdict(digest, verdict)
        return None

    def verdicts(self, mesh: str, since: datetime | None, limit: int) -> list[bytes]:
        check_mesh_name(mesh)
        return [verdict for *_, verdict in self._unseal_all(mesh, self._fetch_verdicts(mesh, since, limit))]

    def window(self, mesh: str) -> Iterator[tuple[int, bytes]]:
        check_mesh_name(mesh)  # now, and not with the first ``next``
        return self._window(mesh)

    def meshes(self) -> list[MeshSummary]:
        found = self._fetch_all_newest()
        return [one for mesh, sequence, sealed in found if (one := self._summary(mesh, sequence, sealed)) is not None]

    def set_aside(self, mesh: str, why: str, *, revision: int) -> bool:
        check_mesh_name(mesh)
        is_changed = self._move_aside(mesh, why, revision)
        if is_changed:
            self._log_set_aside(mesh, why)
        return is_changed

    def read_whole(self, mesh: str) -> WholeMesh | None:
        check_mesh_name(mesh)
        found = self._fetch_whole(mesh)
        if found is None:
            return None
        with self._setting_aside_damage(mesh):
            return self._unseal_whole(mesh, found)

    @abstractmethod
    def _fetch_newest(self, mesh: str) -> tuple[int, int, V] | None:
        """Revision, sequence and newest verdict of a mesh; None if nothing is stored."""

    @abstractmethod
    def _fetch_all_newest(self) -> Iterable[tuple[str, int, V]]:
        """Name, sequence and newest verdict of all meshes, in order of name."""

    @abstractmethod
    def _fetch_verdicts(self, mesh: str, since: datetime | None, limit: int) -> Iterable[tuple[int, V]]:
        """At most ``limit`` kept verdicts after ``since`` with their sequences, oldest first."""

    @abstractmethod
    def _fetch_verdicts_of(self, mesh: str, observed_at: datetime) -> Iterable[tuple[int, V]]:
        """The kept verdicts of this time with their sequences, oldest first."""

    @abstractmethod
    def _fetch_window(self, mesh: str) -> Iterator[tuple[int, bytes]]:
        """The kept snapshots, sealed, with their sequences, oldest first, in one view."""

    @abstractmethod
    def _fetch_state(self, mesh: str) -> S | None:
        """The rows of the newest state; None if nothing is stored."""

    @abstractmethod
    def _fetch_whole(self, mesh: str) -> W | None:
        """All rows of a mesh, in one view; None if nothing is stored."""

    @abstractmethod
    def _unseal_verdict(self, mesh: str, sequence: int, sealed: V) -> tuple[datetime, str, bytes]:
        """Time, digest and verdict; raises ``CorruptState`` if the row is damaged. So do the next two."""

    @abstractmethod
    def _unseal_state(self, mesh: str, found: S) -> StoredState: ...

    @abstractmethod
    def _unseal_whole(self, mesh: str, found: W) -> WholeMesh: ...

    @abstractmethod
    def _move_aside(self, mesh: str, why: str, revision: int) -> bool:
        """Set a mesh aside if it has this revision. Returns whether it was."""

    @abstractmethod
    def _move_aside_if_damaged(self, mesh: str, why: str) -> bool:
        """Set a mesh aside if a row of it is damaged: another process may have done so already. Returns whether it
        was."""

    @contextmanager
    def _setting_aside_damage(self, mesh: str) -> Iterator[None]:
        """Set a mesh aside if its rows turn out to be damaged, and raise the error again."""
        try:
            yield
        except CorruptState as error:
            if self._move_aside_if_damaged(mesh, str(error)):
                self._log_set_aside(mesh, str(error))
            raise CorruptState(
                f"state store {self.name}: {error}; the mesh was set aside and starts learning again with its next "
                "snapshot",
                mesh=mesh,
            ) from error

    def _report_evicted(self, mesh: str) -> None:
        """Report that an idle mesh was deleted to make room for another."""
        log.warning("state store %s: mesh %r was idle and was deleted to make room", self.name, mesh)
        if self._on_evicted is not None:
            self._on_evicted(mesh)

    def _window(self, mesh: str) -> Iterator[tuple[int, bytes]]:
        with self._setting_aside_damage(mesh):
            for sequence, sealed in self._fetch_window(mesh):
                yield sequence, rows.unseal_snapshot(mesh, sequence, sealed)

    def _unseal_all(self, mesh: str, found: Iterable[tuple[int, V]]) -> list[tuple[datetime, str, bytes]]:
        with self._setting_aside_damage(mesh):
            return [self._unseal_verdict(mesh, sequence, sealed) for sequence, sealed in found]

    def _summary(self, mesh: str, sequence: int, sealed: V) -> MeshSummary | None:
        """The summary of one mesh; None if it had to be set aside, so that the others are still listed."""
        if not sequence:
            return MeshSummary(mesh, 0, None, b"")
        try:
            at, _, verdict = self._unseal_verdict(mesh, sequence, sealed)
        except CorruptState:  # damaged, or overwritten while it was read
            try:
                stored = self.load(mesh)
            except CorruptState:  # logged when it was set aside
                return None
            if stored is None:
                return None
            return MeshSummary(mesh, stored.sequence, stored.observed_at, stored.verdict)
        return MeshSummary(mesh, sequence, at, verdict)

    def _log_set_aside(self, mesh: str, why: str) -> None:
        log.error("state store %s: mesh %r was set aside and starts learning again: %s", self.name, mesh, why)
