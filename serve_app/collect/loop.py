"""Collect one mesh until cancelled: decide which instants are due, poll them and push the snapshots.

Failures never end the loop. A failed instant is retried one interval later, never sooner. Instants that were missed in
the meantime follow, oldest first, up to a limit. A Prometheus that does not answer gets the queries of only one instant
per interval, however many were missed.
"""

import asyncio
import hashlib
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Self

import msgspec

from model.snapshot import MeshSnapshot
from serve_app.collect.base import Poll, PollSource
from serve_app.collect.kubernetes.watch import WatchState
from serve_app.errors import (
    DeadlineExceeded,
    NoCapacity,
    Overloaded,
    SameTimeOtherContent,
    ServeError,
    StaleSnapshot,
    StoreConflict,
    StoreFull,
    StoreGone,
)
from serve_app.settings import CollectorSettings

log = logging.getLogger(__name__)
# After these errors, the same push may succeed.
RETRYABLE = (Overloaded, NoCapacity, DeadlineExceeded, StoreGone, StoreFull, StoreConflict)
ALREADY_PUSHED = (StaleSnapshot, SameTimeOtherContent)  # another client pushed this instant or a later one

Push = Callable[[MeshSnapshot], Awaitable[None]]
MAX_DETAIL = 300  # characters of the text about incomplete answers

ReadPast = Callable[[], Awaitable[float | None]]  # returns Unix time of the newest instant that it pushed; None: none


@dataclass(frozen=True, slots=True)
class PollSchedule:
    """When to poll a mesh."""

    interval_seconds: float = 15.0
    behind_seconds: float = 15.0  # delay before an instant is polled, so that all targets have been scraped
    catch_up: int = 20  # missed instants; older ones are given up
    phase_seconds: float = 0.0  # offset within the interval, so that not all meshes poll at once

    def newest(self, now: float) -> float:
        """Return the newest instant that can be polled, Unix time."""
        last = (now - self.behind_seconds - self.phase_seconds) // self.interval_seconds
        return last * self.interval_seconds + self.phase_seconds

    def due(self, done_until: float, now: float) -> list[float]:
        """Return the instants to poll: those after ``done_until``, oldest first, at most ``catch_up``."""
        newest = self.newest(now)
        count = int((newest - done_until) / self.interval_seconds + 1e-6)
        return [newest - i * self.interval_seconds for i in reversed(range(min(count, self.catch_up)))]

    def seconds_to_next(self, now: float) -> float:
        """Return the time until the next instant can be polled, s."""
        return self.newest(now) + self.interval_seconds + self.behind_seconds - now


def poll_schedule(mesh: str, collector: CollectorSettings) -> PollSchedule:
    """Return the schedule of a mesh. Its offset within the interval depends only on the mesh's name."""
    digest = hashlib.blake2b(mesh.encode(), digest_size=4).digest()
    interval = collector.interval_seconds
    phase = int.from_bytes(digest) / 2**32 * interval
    return PollSchedule(interval, collector.behind_seconds, collector.catch_up_snapshots, phase)


@dataclass(frozen=True, slots=True)
class CollectorState:
    """State of collecting one mesh.

    Attributes:
        done_until: Unix time of the newest instant that needs no further poll or push; None before the first poll.
        handed_on: Unix time of the newest snapshot that the service accepted.
        polls: count by outcome: ``taken`` (accepted), ``empty`` (no services), ``failed`` (no snapshot), ``refused``
            (the service refused the snapshot for a reason that a retry does not fix), ``given_up`` (too old).
        failures: count of failed queries by cause.
        stale_seconds: age of the oldest values that stand in for a failed query.
        masked: queries whose values are missing in the newest snapshot.
        incomplete: Prometheus' warnings about missing parts of its newest answers, which count as failed; empty if they
            are complete.
        seconds: duration of the newest poll's slowest query, s.
        events: Kubernetes Events; None if they are not watched.
        replayed_share: share of the mesh's past that has been read, from 0 to 1; None while that is not done.
    """

    mesh: str
    done_until: float | None = None
    handed_on: float | None = None
    polls: dict[str, int] = field(default_factory=dict)
    failures: dict[str, int] = field(default_factory=dict)
    stale_seconds: float = 0.0
    masked: tuple[str, ...] = ()
    incomplete: str = ""
    ignored_annotations: tuple[str, ...] = ()
    services: int = 0
    calls: int = 0
    seconds: float = 0.0
    problem: str = ""
    remarks: tuple[str, ...] = ()
    events: WatchState | None = None
    replayed_share: float | None = None

    @classmethod
    def unpack(cls, content: bytes) -> Self:
        return msgspec.json.decode(content, type=cls)

    def pack(self) -> bytes:
        """Return the state for other collectors, JSON."""
        return msgspec.json.encode(self)

    def count(self, outcome: str, amount: int = 1) -> "CollectorState":
        """Return the state with ``amount`` more polls of this outcome."""
        return replace(self, polls={**self.polls, outcome: self.polls.get(outcome, 0) + amount})

    def update(self, poll: Poll) -> "CollectorState":
        failures = dict(self.failures)
        for answer in poll.failures.values():
            failures[answer.failed] = failures.get(answer.failed, 0) + 1
        snapshot = poll.snapshot
        incomplete = dict.fromkeys(answer.detail for answer in poll.failures.values() if answer.failed == "incomplete")
        return replace(
            self,
            failures=failures,
            stale_seconds=max(poll.stale_seconds.values(), default=0.0),
            masked=tuple("/".join(role) for role in poll.masked),
            incomplete="; ".join(incomplete)[:MAX_DETAIL],
            ignored_annotations=poll.ignored_annotations if snapshot else self.ignored_annotations,
            services=snapshot.num_nodes if snapshot else self.services,
            calls=snapshot.num_edges if snapshot else self.calls,
            seconds=max((answer.seconds for answer in poll.answers.values()), default=0.0),
            problem="" if snapshot else poll.why,
            remarks=tuple(map(str, poll.remarks)),
        )


class PollLoop:
    """Polls one mesh at every instant that is due, and pushes its snapshots.

    Args:
        push: sends a snapshot to the service; raises the service's error if it is refused.
        is_owner: whether this process collects the mesh now; another one may.
    """

    def __init__(
        self,
        mesh: str,
        source: PollSource,
        push: Push,
        schedule: PollSchedule,
        is_owner: Callable[[], bool] = lambda: True,
    ) -> None:
        self._source, self._push, self.schedule, self._is_owner = source, push, schedule, is_owner
        self._behind_seconds = schedule.behind_seconds  # while data arrive in time
        self._pending: MeshSnapshot | None = None  # not accepted yet
        self._read_past: ReadPast | None = None  # before the first snapshot
        self.state = CollectorState(mesh)

    def begin(self, done_until: float | None, read_past: ReadPast | None = None) -> None:
        """Continue after the instant ``done_until``, Unix time; None starts with the newest instant. With
        ``read_past``, the past comes first, as soon as the source answers."""
        self._pending, self._read_past = None, read_past
        self.state = replace(self.state, done_until=done_until)

    async def run(self) -> None:
        """Poll and push until cancelled, or until another process collects the mesh."""
        while self._is_owner():
            try:
                await self.tick(time.time())
            except Exception as error:  # a bug must not end the loop
                log.exception("mesh %s: collecting failed", self.state.mesh)
                self.state = replace(self.state.count("failed"), problem=f"{type(error).__name__}: {error}")
            await asyncio.sleep(max(self.schedule.seconds_to_next(time.time()), 0.05))

    async def tick(self, now: float) -> None:
        """Process all due instants, up to the first that fails."""
        done_until = self.state.done_until
        if done_until is None:  # start with the newest instant
            done_until = self.schedule.newest(now) - self.schedule.interval_seconds
            self.state = replace(self.state, done_until=done_until)
        due, interval = self.schedule.due(done_until, now), self.schedule.interval_seconds
        given_up = round((due[0] - done_until) / interval) - 1 if due else 0
        if given_up > 0:  # counted once, however long the source does not answer
            self.state = replace(self.state.count("given_up", given_up), done_until=due[0] - interval)
        for at in due:
            if not await self._collect(at):
                return

    async def _collect(self, at: float) -> bool:
        """Poll and push one instant. Returns whether it is done, successfully or not."""
        instant = datetime.fromtimestamp(at, UTC)
        snapshot = self._pending if self._pending and self._pending.observed_at == instant else None
        if snapshot is None:
            poll = await asyncio.to_thread(self._source.poll, instant)
            before, self.state = self.state, self.state.update(poll)
            self._log_changes(before, self.state, poll)
            waits = self._follow_lag(poll)
            snapshot = poll.snapshot
            if snapshot is None and waits:  # the instant has no data yet
                return False
            if snapshot is None:
                self.state = self.state.count("failed" if poll.failures else "empty")
                if not poll.failures:  # the source has no services at that instant, and will not have any later
                    self.state = replace(self.state, done_until=at)
                return not poll.failures
            if self._read_past is not None:
                read_past, self._read_past = self._read_past, None
                pushed_until = await read_past()
                if pushed_until is None:
                    pushed_until = at - self.schedule.interval_seconds
                self.state = replace(self.state, done_until=pushed_until)
                return False
            if self._pending is not None:  # that snapshot was given up, but its planned changes still count
                snapshot = replace(snapshot, changes=(*self._pending.changes, *snapshot.changes))
        return await self._push_snapshot(snapshot, at)

    def _follow_lag(self, poll: Poll) -> bool:
        """Poll as late as the data arrive. Returns whether that is later than before."""
        behind = max(self._behind_seconds, poll.behind_seconds)
        is_later = behind > self.schedule.behind_seconds
        self.schedule = replace(self.schedule, behind_seconds=behind)
        return is_later

    async def _push_snapshot(self, snapshot: MeshSnapshot, at: float) -> bool:
        self._pending = snapshot  # its planned changes are in no other snapshot
        if not self._is_owner():  # the poll took so long
            return False
        try:
            await self._push(snapshot)
        except RETRYABLE as error:
            self.state = replace(self.state, problem=f"not accepted yet: {error}")
            log.warning(
                "mesh %s: snapshot %s not accepted yet, retrying: %s", self.state.mesh, snapshot.observed_at, error
            )
            return False
        except ALREADY_PUSHED:
            outcome, problem = "taken", ""
        except ServeError as error:
            outcome, problem = "refused", str(error)
            log.error("mesh %s: snapshot %s refused: %s", self.state.mesh, snapshot.observed_at, error)
        else:
            outcome, problem = "taken", ""
            self.state = replace(self.state, handed_on=at)
        self._pending = None
        self.state = replace(self.state.count(outcome), done_until=at, problem=problem)
        return True

    def _log_changes(self, before: CollectorState, after: CollectorState, poll: Poll) -> None:
        """Log each problem once when it appears, and once when it is gone."""
        mesh, has_snapshot = after.mesh, poll.snapshot is not None
        newly_masked, available_again = set(after.masked) - set(before.masked), set(before.masked) - set(after.masked)
        if not has_snapshot and after.problem != before.problem:
            log.warning("mesh %s: no snapshot for %s: %s", mesh, poll.at, after.problem)
        if newly_masked:
            reasons = "; ".join(
                f"{'/'.join(role)}: {answer.failed}, {answer.detail}" for role, answer in poll.failures.items()
            )
            log.warning("mesh %s: no data for %s (%s)", mesh, ", ".join(sorted(newly_masked)), reasons)
        if after.incomplete and not before.incomplete:
            log.warning("mesh %s: answers of Prometheus may be incomplete, ignoring them: %s", mesh, after.incomplete)
        elif before.incomplete and not after.incomplete and has_snapshot:
            log.info("mesh %s: answers of Prometheus are complete again", mesh)
        for annotation in sorted(set(after.ignored_annotations) - set(before.ignored_annotations)):
            log.warning("mesh %s: annotation ignored: %s", mesh, annotation)
        for text in sorted(set(after.remarks) - set(before.remarks)):
            log.warning("mesh %s: %s", mesh, text)
        if available_again and has_snapshot:
            log.info("mesh %s: data for %s is available again", mesh, ", ".join(sorted(available_again)))
