"""Lets snapshots wait a moment for capacity, the oldest first.

Without it, a short pause of the service (a busy disk, a garbage collection, a neighbour on the machine) would refuse
each snapshot that arrives meanwhile, and a refused client retries only after a second or more. The room is small and
waits are short, so under a lasting overload a refusal still comes quickly.
"""

import asyncio
import time
from collections.abc import Callable

from serve_app.deployments.gate.admission import TARGET_SHARE, Admission, RequestKind, Ticket


class WaitingRoom:
    """Admits requests. Use it from one event loop."""

    def __init__(self, admission: Admission, clock: Callable[[], float] = time.monotonic) -> None:
        self._admission, self._clock = admission, clock
        self._patience_seconds = TARGET_SHARE * admission.deadline_seconds
        self._waiting: dict[asyncio.Future[Ticket], str] = {}  # pending tickets in order of arrival, with the mesh

    def is_open(self, kind: RequestKind, mesh: str) -> bool:
        """Whether a request would be admitted or could wait. False: it counts as refused."""
        if self._admission.has_room(kind, mesh) or (kind is RequestKind.PUSH and self._has_place()):
            return True
        self._admission.refuse(kind, mesh, self._clock())
        return False

    async def enter(self, kind: RequestKind, mesh: str) -> Ticket | None:
        """Admit a request, at once or after a wait; None: it is refused. End it with :meth:`leave`."""
        goes_first = kind is not RequestKind.PUSH or not self._waiting
        ticket = self._admission.admit(kind, mesh, self._clock()) if goes_first else None
        if ticket is None and kind is RequestKind.PUSH and self._has_place():
            ticket = await self._wait(mesh)
        if ticket is None:
            self._admission.refuse(kind, mesh, self._clock())
        return ticket

    def leave(self, ticket: Ticket) -> None:
        self._admission.finish(ticket, self._clock())
        self._call_next()

    async def _wait(self, mesh: str) -> Ticket | None:
        turn: asyncio.Future[Ticket] = asyncio.get_running_loop().create_future()
        self._waiting[turn] = mesh
        self._call_next()  # there may be capacity that waiting requests of this mesh could not use
        try:
            await asyncio.wait([turn], timeout=self._patience_seconds)
        except asyncio.CancelledError:  # the client is gone
            if turn.done():
                self.leave(turn.result())
            raise
        finally:
            self._waiting.pop(turn, None)
        return turn.result() if turn.done() else None

    def _call_next(self) -> None:
        """Admit waiting requests in order while there is capacity. A request is skipped if its mesh has its share."""
        for turn, mesh in list(self._waiting.items()):
            ticket = self._admission.admit(RequestKind.PUSH, mesh, self._clock())
            if ticket is not None:
                del self._waiting[turn]
                turn.set_result(ticket)

    def _has_place(self) -> bool:
        """Whether one more request can wait. As many can wait as may run, and at least one."""
        return len(self._waiting) < max(1, int(self._admission.limit))
