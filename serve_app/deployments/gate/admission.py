"""Early load shedding: how many requests may run at once, and how long a refused client should wait.

The limit adapts to measured durations (additive increase, multiplicative decrease, as in TCP; Netflix's
concurrency-limits does the same for services). The limit grows while requests take less time than a target, and shrinks
as soon as they take longer. A refusal costs almost nothing, so accepted requests meet their deadlines under any load.
"""

import math
import random
from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum

TARGET_SHARE = 0.1  # share of the deadline that an accepted request may take before the limit shrinks
MIN = 4  # limit; a lower one would leave cores idle while a request waits for a disk
MAX = 256
SHRINK = 0.9
FIRST = 8.0
MAX_RETRY_AFTER_SECONDS = 15.0  # the client's next snapshot is due by then


class RequestKind(StrEnum):
    """Kinds of requests, by priority."""

    PUSH = "push"  # a mesh's live data: a snapshot, or OpenTelemetry metrics
    READ = "read"  # or a person's action: feedback, a mute
    BATCH = "batch"  # snapshots that no mesh waits for: a baseline, a recording to score


# The share of the limit that each kind may use, and the number of requests that no other kind can use up.
SHARES = {RequestKind.PUSH: 1.0, RequestKind.READ: 0.75, RequestKind.BATCH: 0.5}
RESERVED = {RequestKind.PUSH: MIN, RequestKind.READ: 16, RequestKind.BATCH: 1}


@dataclass(frozen=True, slots=True)
class Ticket:
    """A request that was admitted.

    Attributes:
        mesh: name; empty if it is about no mesh.
        began: time of admission, s of a monotonic clock.
    """

    kind: RequestKind
    mesh: str
    began: float


@dataclass(slots=True)
class Admission:
    """The running requests in one process. Use it from one event loop.

    Attributes:
        limit: maximum number of running requests, adapted to their durations.
    """

    deadline_seconds: float
    limit: float = FIRST
    _kinds: Counter[RequestKind] = field(default_factory=Counter)
    _meshes: Counter[str] = field(default_factory=Counter)
    _latest_requests: dict[str, float] = field(default_factory=dict)  # by mesh: its last request, the oldest first
    _refused_meshes: dict[str, float] = field(default_factory=dict)  # by mesh: its last refusal, unless admitted since
    _shrunk_at: float = -math.inf
    _refusals: float = 0.0  # recent number, decaying
    _completions: float = 0.0  # recent number, decaying
    _decayed_at: float = -math.inf

    def has_room(self, kind: RequestKind, mesh: str) -> bool:
        """Whether a request would be admitted now.

        A mesh gets at most its fair share of the limit, so that one client cannot starve the meshes of others. Meshes
        that were refused lately count too: they will ask again.

        Args:
            mesh: name; empty if it is about no mesh.
        """
        is_free = self._kinds.total() < self.limit * SHARES[kind] or self._kinds[kind] < RESERVED[kind]
        is_fair = kind is RequestKind.READ or self._meshes[mesh] < self._fair_share(mesh)
        return is_free and is_fair

    def refuse(self, kind: RequestKind, mesh: str, now: float) -> None:
        """Count a request that is not admitted: its client retries after :meth:`retry_after_seconds`."""
        self._note(kind, mesh, now)
        self._decay(now)
        self._refusals += 1
        _note_time(self._refused_meshes, mesh, now)

    def admit(self, kind: RequestKind, mesh: str, now: float) -> Ticket | None:
        """Return a ticket, or None if there is no capacity; see :meth:`has_room`. ``now``: s of a monotonic clock."""
        self._note(kind, mesh, now)
        if not self.has_room(kind, mesh):
            return None
        self._refused_meshes.pop(mesh, None)
        self._kinds[kind] += 1
        if kind is not RequestKind.READ:
            self._meshes[mesh] += 1
        return Ticket(kind, mesh, now)

    def finish(self, ticket: Ticket, now: float) -> None:
        """Free the capacity, and adapt the limit to the duration of a push."""
        was_full = self._kinds.total() >= self.limit * SHARES[ticket.kind] - 1
        self._kinds[ticket.kind] -= 1
        if ticket.kind is not RequestKind.READ:
            self._meshes[ticket.mesh] -= 1
        if not self._meshes[ticket.mesh]:
            del self._meshes[ticket.mesh]
        self._decay(now)
        self._completions += 1
        if ticket.kind is not RequestKind.PUSH:
            return
        if now - ticket.began <= TARGET_SHARE * self.deadline_seconds:
            if was_full:
                self.limit = min(MAX, self.limit + 1 / self.limit)
        elif ticket.began >= self._shrunk_at:  # once for all requests that ran together
            self.limit = max(MIN, self.limit * SHRINK)
            self._shrunk_at = now

    def retry_after_seconds(self) -> float:
        """How long a refused client should wait. The time is random, so that refused clients do not all retry at once.

        On average, it is the time in which every recently refused mesh can be served once: a client that retries sooner
        is probably refused again, and each refusal costs time. Clients of one mesh count by their refusals.
        """
        served_per_second = max(self._completions * math.log(2), 1.0)  # the count halves each second
        turn = max(len(self._refused_meshes) / served_per_second, 0.5 + self._refusals / max(self._completions, 1.0))
        longest = max(1.0, min(MAX_RETRY_AFTER_SECONDS, 1.5 * turn))
        return random.uniform(max(1.0, longest / 3), longest)

    def _note(self, kind: RequestKind, mesh: str, now: float) -> None:
        """Count a mesh among those that share the limit."""
        if kind is not RequestKind.READ:
            _note_time(self._latest_requests, mesh, now)

    def _fair_share(self, mesh: str) -> float:
        """The number of requests that one mesh may run; at least two, so that the next snapshot is ready when one is
        done."""
        return max(2.0, self.limit / (len(self._latest_requests) + (mesh not in self._latest_requests)))

    def _decay(self, now: float) -> None:
        if self._decayed_at == -math.inf:
            self._decayed_at = now
        factor = 0.5 ** (now - self._decayed_at)
        self._refusals, self._completions, self._decayed_at = self._refusals * factor, self._completions * factor, now


def _note_time(times: dict[str, float], mesh: str, now: float) -> None:
    """Make a mesh the newest entry, and drop entries that are too old."""
    times.pop(mesh, None)
    times[mesh] = now
    while now - times[first := next(iter(times))] > MAX_RETRY_AFTER_SECONDS:
        del times[first]
