"""The counts of one process for the service level, in time slots.

A slot is a bag of counts, so slots of different processes are merged by addition. Each process numbers its slots by its
own monotonic clock, so clocks of nodes need not agree.
"""

import re
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

from model.names import MESH_NAME
from serve_app.deployments.sla.durations import bin_of
from serve_app.settings.sla import SlaSettings

WINDOW_SECONDS = 3600.0  # that the service level is about; longer periods are a matter of Prometheus
SLOTS = 120  # of a window
SLOT_SECONDS = WINDOW_SECONDS / SLOTS
REPORT_SECONDS = 5.0  # between two reports of a process
MAX_MESHES = 32  # with a count of their own in one slot of one process; the others share OTHERS
OTHERS = ""
EXTENSION = "tagae.counts"  # of the scope of a gate's own request; no part of HTTP, so no client can send it
GATEWAY_TIMEOUT, TOO_MANY_REQUESTS = 504, 429

Counts = Counter[tuple[str, str | int]]


class Outcome(StrEnum):
    """The outcome of a request."""

    SERVED = "served"
    FAILED = "failed"  # through the service: 5xx, or an answer that broke off
    SHED = "shed"  # 429: refused because of overload
    CLIENT = "client"  # another 4xx, the client's own error
    ABANDONED = "abandoned"  # the client left before the answer


class Count(StrEnum):
    """Names of counts; what the second part of a key is."""

    REQUEST = "request"  # outcome; pushes are requests, too
    PUSH = "push"  # outcome
    DURATION = "duration"  # bin; of pushes, from the end of the request to the end of the answer
    MILLISECONDS = "milliseconds"  # up or down: time for which it is known whether the service could answer
    MESH = "mesh"  # name; pushes of it that failed, were shed, or were slower than the target of the 95th percentile
    CAUSE = "cause"  # the same pushes, as far as the cause is known


UP, DOWN = "up", "down"


class Cause(StrEnum):
    """Why a push was bad. Of a slow one, it is what took longest."""

    SHED = "shed"  # refused because of overload
    DEADLINE = "deadline"  # it was not ready in time
    FAILED = "failed"
    STORE = "slow_store"
    SCORER = "slow_scorer"
    DECODE = "slow_decode"
    PIPELINE = "slow_pipeline"  # the stages before and after scoring
    QUEUE = "queue"  # it waited for room, for a thread, or between processes


STAGES = {"store": Cause.STORE, "score": Cause.SCORER, "decode": Cause.DECODE}  # of Server-Timing; others: PIPELINE
PARTS_OF_STAGES = {"total", "inference"}  # in Server-Timing: no stages of their own


def stages_of(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, float]:
    """The stages in the ``Server-Timing`` of an answer, s."""
    timing = next((value for name, value in headers if name == b"server-timing"), b"").decode("latin-1")
    found = re.findall(r"([a-z]+);dur=(\d+(?:\.\d+)?)", timing)
    return {stage: float(milliseconds) / 1000 for stage, milliseconds in found}


def cause_of(outcome: Outcome, seconds: float | None, stages: Mapping[str, float]) -> Cause | None:
    """Why a push was bad; None: unknown.

    Args:
        outcome: what became of it.
        seconds: its time, if that counts: a failed push that has one missed its deadline.
        stages: durations, s; empty: unknown.
    """
    if outcome is Outcome.SHED:
        return Cause.SHED
    if outcome is Outcome.FAILED:
        return Cause.FAILED if seconds is None else Cause.DEADLINE
    if seconds is None or not stages:
        return None
    parts = dict.fromkeys(Cause, 0.0)
    for stage, duration in stages.items():
        if stage not in PARTS_OF_STAGES:
            parts[STAGES.get(stage, Cause.PIPELINE)] += duration
    parts[Cause.QUEUE] = seconds - sum(parts.values())
    return max(parts, key=parts.__getitem__)


def outcome_of(status: int) -> Outcome:
    """The outcome of a request that was answered with this HTTP status."""
    if status == TOO_MANY_REQUESTS:
        return Outcome.SHED
    if status >= 500:
        return Outcome.FAILED
    return Outcome.CLIENT if status >= 400 else Outcome.SERVED


def has_time(status: int) -> bool:
    """Whether the time of a push with this answer counts: it was served, or it missed its deadline."""
    return status == GATEWAY_TIMEOUT or outcome_of(status) is Outcome.SERVED


@dataclass(frozen=True, slots=True)
class Report:
    """Slots of one process.

    Attributes:
        process: a random name.
        now: number of the current slot.
        slots: of the window, by number.
    """

    process: str
    now: int
    slots: dict[int, Counts]


@dataclass(slots=True)
class RequestCounts:
    """The slots of this process. It forgets slots that left the window.

    Attributes:
        settings: targets.
        process: a random name.
        clock: monotonic, s.
    """

    settings: SlaSettings
    process: str = field(default_factory=lambda: uuid.uuid4().hex)
    clock: Callable[[], float] = time.monotonic
    _slots: dict[int, Counts] = field(default_factory=dict)  # oldest first

    def count_request(self, outcome: Outcome) -> None:
        """Count a request that does not push a snapshot."""
        self._slot()[Count.REQUEST, outcome] += 1

    def count_push(
        self, outcome: Outcome, mesh: str, seconds: float | None, stages: Mapping[str, float] = MappingProxyType({})
    ) -> None:
        """Count a push of a snapshot.

        Args:
            outcome: what became of it.
            mesh: name in the request.
            seconds: time to its verdict, or to the deadline if that passed; None: not measured.
            stages: their durations, s, as in ``Server-Timing``; empty: unknown.
        """
        slot = self._slot()
        slot[Count.REQUEST, outcome] += 1
        slot[Count.PUSH, outcome] += 1
        if seconds is not None:
            slot[Count.DURATION, bin_of(seconds)] += 1
        is_slow = seconds is not None and seconds > self.settings.p95_seconds
        if is_slow or outcome in (Outcome.FAILED, Outcome.SHED):
            slot[Count.MESH, self._known_mesh(slot, mesh)] += 1
            if cause := cause_of(outcome, seconds, stages):
                slot[Count.CAUSE, cause] += 1

    def count_time(self, seconds: float, *, is_up: bool) -> None:
        """Count a time that ends now, in which the service could, or could not, answer."""
        length, until = SLOT_SECONDS, self.clock()
        began = until - seconds
        for number in range(int(began // length), int(until // length) + 1):
            part = min(until, (number + 1) * length) - max(began, number * length)
            if part > 0:
                self._slot(number)[Count.MILLISECONDS, UP if is_up else DOWN] += round(1000 * part)

    def report(self) -> Report:
        """The slots of the window."""
        now = self._now()
        self._slots = {number: slot for number, slot in self._slots.items() if number > now - SLOTS}
        return Report(self.process, now, {number: Counter(one) for number, one in self._slots.items()})

    def _now(self) -> int:
        return int(self.clock() // SLOT_SECONDS)

    def _slot(self, number: int | None = None) -> Counts:
        """A slot, by default the one of now."""
        return self._slots.setdefault(self._now() if number is None else number, Counter())

    def _known_mesh(self, slot: Counts, mesh: str) -> str:
        """The name to count a mesh under. Requests can have any name, so names are checked, and their number has a
        limit."""
        if not re.fullmatch(MESH_NAME, mesh):
            return OTHERS
        known = sum(name is Count.MESH for name, _ in slot)
        return mesh if (Count.MESH, mesh) in slot or known < MAX_MESHES else OTHERS


def of_kind(counts: Counts, kind: Count) -> Iterator[tuple[str | int, int]]:
    """The counts with this first part of their key: second part and number."""
    return ((detail, number) for (name, detail), number in counts.items() if name == kind)
