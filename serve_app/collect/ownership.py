"""Leases, which decide which of several collectors collects a mesh.

A lease expires unless its owner extends it in time. So another collector takes over within :data:`LEASE_SECONDS` plus
:data:`RENEWAL_SECONDS` after the owner ends, however it ends. The owner measures the time by its own clock, from before
its request, and so stops first.

Leases save work; the verdicts do not depend on them. An owner that hangs and continues may push once more, beside the
next owner. The store counts each instant once, and refuses different content for it.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from serve_app.errors import ServeError

LEASE_SECONDS = 9.0
RENEWAL_SECONDS = 3.0
log = logging.getLogger(__name__)


class Leases(Protocol):
    """A store of leases, which several processes share. It needs two methods: ``hold`` is called for each mesh every
    :data:`RENEWAL_SECONDS`, and must be atomic across processes; ``end`` once for each mesh. Both may block."""

    def hold(self, mesh: str, note: bytes, seconds: float) -> bytes | None:
        """Take the lease of a mesh if it is free, or extend it if this process has it.

        Args:
            note: for the processes that do not have the lease.

        Returns:
            None: this process has it. The note of the owner: another process has it.

        Raises:
            ServeError: it is unknown whether this process has it.
        """

    def end(self, mesh: str) -> None:
        """End the lease if this process has it. Raises the errors of :meth:`hold`."""


class Ownership:
    """The meshes that this process collects. Use it from one event loop.

    Args:
        leases: None: there is one collector, which owns all.
        note: returns a mesh's message to the other collectors.
    """

    def __init__(
        self,
        meshes: Iterable[str],
        leases: Leases | None,
        note: Callable[[str], bytes],
        *,
        lease_seconds: float = LEASE_SECONDS,
        renewal_seconds: float = RENEWAL_SECONDS,
    ) -> None:
        self._leases, self._note = leases, note
        self._first = float("inf") if leases is None else 0.0  # initial end of ownership
        self._lease_seconds, self._renewal_seconds = lease_seconds, renewal_seconds
        self._until = dict.fromkeys(meshes, self._first)  # s of the monotonic clock
        self._notes: dict[str, bytes] = {}  # of other owners
        self._renewed = asyncio.Event()
        self._has_ended = False
        self._thread = ThreadPoolExecutor(1, "leases")  # of their own: leases never wait for a poll

    def add(self, mesh: str) -> None:
        """Try to own one more mesh from now on."""
        self._until[mesh] = self._first

    def remove(self, mesh: str) -> None:
        """No longer own a mesh. Its lease expires by itself."""
        self._until.pop(mesh, None)
        self._notes.pop(mesh, None)

    def is_owner(self, mesh: str) -> bool:
        """Return whether this process collects a mesh now."""
        return not self._has_ended and time.monotonic() < self._until.get(mesh, 0.0)

    def note_of(self, mesh: str) -> bytes | None:
        """Return the owner's last note; None if this process owns the mesh, or the owner is unknown."""
        return None if self.is_owner(mesh) else self._notes.get(mesh)

    async def wait_for(self, mesh: str) -> None:
        """Wait until this process owns a mesh."""
        while not self.is_owner(mesh):
            await self._renewed.wait()

    async def run(self) -> None:
        """Take and extend leases until cancelled."""
        if self._leases is None:
            await asyncio.Event().wait()
        while True:
            try:
                notes = {mesh: self._note(mesh) for mesh in self._until}
                await asyncio.get_running_loop().run_in_executor(self._thread, self._renew, notes)
            except ServeError as error:
                log.warning("leases of meshes could not be extended: %s", error)
            self._renewed.set()
            self._renewed = asyncio.Event()
            await asyncio.sleep(self._renewal_seconds)

    async def end(self) -> None:
        """End all leases, so that another collector takes over at once."""
        self._has_ended = True
        try:
            await asyncio.get_running_loop().run_in_executor(self._thread, self._end)
        except ServeError as error:  # they expire by themselves
            log.warning("leases of meshes could not be ended: %s", error)

    def _renew(self, notes: Mapping[str, bytes]) -> None:
        assert self._leases is not None
        for mesh, own_note in notes.items():
            if self._has_ended:
                return
            if mesh not in self._until:  # removed meanwhile
                continue
            request_time = time.monotonic()
            note = self._leases.hold(mesh, own_note, self._lease_seconds)
            was_owner = self.is_owner(mesh)
            if note is None:
                self._notes.pop(mesh, None)
                until = request_time + self._lease_seconds
            else:
                self._notes[mesh], until = note, 0.0
            if mesh in self._until:
                self._until[mesh] = until
            if was_owner != (note is None):
                log.warning(
                    "mesh %s: this process %s", mesh, "collects it from now on" if note is None else "stands by"
                )

    def _end(self) -> None:
        if self._leases is not None:
            for mesh in list(self._until):
                self._leases.end(mesh)
