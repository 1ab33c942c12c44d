"""One mesh collected for ever: which instants are due, asked in turn, and handed on until they are taken.

Nothing here ends the loop: what fails is told, and asked for again an interval later, never faster. The instants missed
meanwhile are caught up on, oldest first, up to a bound; a Prometheus that does not answer is asked for one instant an
interval, however many are missed.
"""

import asyncio
import hashlib
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Protocol

from model.snapshot import MeshSnapshot
from serve_app.collect.kubernetes.watch import Watched
from serve_app.collect.prometheus.source import Poll
from serve_app.errors import DeadlineExceeded, NoCapacity, Overloaded, SameTimeOtherContent, ServeError, StaleSnapshot
from serve_app.settings import CollectorSettings

log = logging.getLogger("ray.serve")
LATER = (Overloaded, NoCapacity, DeadlineExceeded)  # of a push: the same again may succeed
DONE = (StaleSnapshot, SameTimeOtherContent)  # somebody else has pushed this instant, or a later one

Push = Callable[[MeshSnapshot], Awaitable[None]]


class Polled(Protocol):
    """A source that can be asked for any instant; it may block."""

    def poll(self, at: datetime) -> Poll: ...


@dataclass(frozen=True, slots=True)
class PollSchedule:
    """When a mesh is asked.

    Attributes:
        interval_seconds: between two instants.
        behind_seconds: how far the newest instant to ask for lies in the past, so that all targets are in.
        catch_up: instants that were missed and are asked for at most; older ones are given up.
        phase_seconds: after a multiple of the interval, so that meshes do not ask all at once.
    """

    interval_seconds: float = 15.0
    behind_seconds: float = 15.0
    catch_up: int = 20
    phase_seconds: float = 0.0

    def newest(self, now: float) -> float:
        """The newest instant that can be asked for, Unix time."""
        last = (now - self.behind_seconds - self.phase_seconds) // self.interval_seconds
        return last * self.interval_seconds + self.phase_seconds

    def due(self, done: float, now: float) -> list[float]:
        """Instants to ask for, oldest first: those after ``done``, at most ``catch_up`` of them."""
        newest = self.newest(now)
        missed = int((newest - done) / self.interval_seconds + 1e-6)
        return [newest - i * self.interval_seconds for i in reversed(range(min(missed, self.catch_up)))]

    def seconds_to_next(self, now: float) -> float:
        """Until another instant can be asked for."""
        return self.newest(now) + self.interval_seconds + self.behind_seconds - now


def phase_of(mesh: str, interval_seconds: float) -> float:
    """Where in the interval a mesh has its instants, s: always the same one, and each mesh its own."""
    digest = hashlib.blake2b(mesh.encode(), digest_size=4).digest()
    return int.from_bytes(digest) / 2**32 * interval_seconds


def rhythm(mesh: str, collector: CollectorSettings) -> PollSchedule:
    """When a mesh is asked: each at its own place in the interval."""
    return PollSchedule(
        collector.interval_seconds,
        collector.behind_seconds,
        collector.catch_up_snapshots,
        phase_of(mesh, collector.interval_seconds),
    )


@dataclass(frozen=True, slots=True)
class CollectorState:
    """How collecting one mesh goes.

    Attributes:
        mesh: its name.
        done: Unix time of the newest instant that is over; None: it has not begun.
        handed_on: Unix time of the newest snapshot that was taken.
        polls: by outcome: ``taken``, ``empty`` (nobody was there), ``failed`` (no snapshot could be made), ``refused``
            (a snapshot that is not taken, whatever is done), ``given_up`` (too old to be caught up on).
        failures: queries without an answer, by why.
        stale_seconds: the age of the oldest values that stand in for a failed query.
        masked: queries that the newest snapshot does without.
        unheeded: annotations that say what nobody here knows.
        services, calls: in the newest snapshot.
        seconds: that its queries took.
        problem: of the newest poll or push; empty where all is well.
        events: how listening to its cluster's Events goes; None: nobody does.
    """

    mesh: str
    done: float | None = None
    handed_on: float | None = None
    polls: dict[str, int] = field(default_factory=dict)
    failures: dict[str, int] = field(default_factory=dict)
    stale_seconds: float = 0.0
    masked: tuple[str, ...] = ()
    unheeded: tuple[str, ...] = ()
    services: int = 0
    calls: int = 0
    seconds: float = 0.0
    problem: str = ""
    events: Watched | None = None

    def counted(self, outcome: str, amount: int = 1) -> "CollectorState":
        """One more poll of this outcome."""
        return replace(self, polls={**self.polls, outcome: self.polls.get(outcome, 0) + amount})

    def after(self, poll: Poll) -> "CollectorState":
        """With what one poll has shown."""
        failures = dict(self.failures)
        for answer in poll.answers.values():
            if answer.failed:
                failures[answer.failed] = failures.get(answer.failed, 0) + 1
        snapshot = poll.snapshot
        return replace(
            self,
            failures=failures,
            stale_seconds=max(poll.stale_seconds.values(), default=0.0),
            masked=tuple("/".join(role) for role in poll.masked),
            unheeded=poll.unheeded if snapshot else self.unheeded,
            services=snapshot.num_nodes if snapshot else self.services,
            calls=snapshot.num_edges if snapshot else self.calls,
            seconds=max((answer.seconds for answer in poll.answers.values()), default=0.0),
            problem=poll.why,
        )


class MeshCollector:
    """Collects one mesh.

    Args:
        mesh: its name.
        source: of its snapshots.
        push: hands one on; it raises what the service answers.
        rhythm: when to ask.
    """

    def __init__(self, mesh: str, source: Polled, push: Push, rhythm: PollSchedule) -> None:
        self._source, self._push, self.rhythm = source, push, rhythm
        self._waiting: MeshSnapshot | None = None  # was made, and is not taken yet
        self.state = CollectorState(mesh)

    def begin(self, done: float | None) -> None:
        """After the newest snapshot that the service has, Unix time; None: from now on."""
        self.state = replace(self.state, done=done)

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            try:
                await self.tick(time.time())
            except Exception as error:  # a mistake of ours must not end the watch; it is told, and counted as a failure
                log.exception("mesh %s: collecting failed", self.state.mesh)
                self.state = replace(self.state.counted("failed"), problem=f"{type(error).__name__}: {error}")
            await asyncio.sleep(max(self.rhythm.seconds_to_next(time.time()), 0.05))

    async def tick(self, now: float) -> None:
        """Everything that is due now, as far as it goes well."""
        done = self.state.done
        if done is None:  # from now on
            done = self.rhythm.newest(now) - self.rhythm.interval_seconds
            self.state = replace(self.state, done=done)
        due = self.rhythm.due(done, now)
        lost = round((due[0] - done) / self.rhythm.interval_seconds) - 1 if due else 0
        if lost > 0:
            self.state = self.state.counted("given_up", lost)
        for at in due:
            if not await self._collected(at):
                return

    async def _collected(self, at: float) -> bool:
        """Whether one instant is over, well or not."""
        when = datetime.fromtimestamp(at, UTC)
        snapshot = self._waiting if self._waiting and self._waiting.observed_at == when else None
        if snapshot is None:
            poll = await asyncio.to_thread(self._source.poll, when)
            self._tell(poll)
            self.state = self.state.after(poll)
            snapshot = poll.snapshot
            if snapshot is None:
                failed = any(answer.failed for answer in poll.answers.values())
                self.state = self.state.counted("failed" if failed else "empty")
                if not failed:  # Prometheus knows nobody of that instant, and will know nobody later
                    self.state = replace(self.state, done=at)
                return not failed
            if self._waiting is not None:  # was given up: what was planned then is told now
                snapshot = replace(snapshot, changes=(*self._waiting.changes, *snapshot.changes))
        return await self._handed_on(snapshot, at)

    async def _handed_on(self, snapshot: MeshSnapshot, at: float) -> bool:
        self._waiting = snapshot  # its planned changes are told of once: it must not be lost
        try:
            await self._push(snapshot)
        except LATER as error:
            self.state = replace(self.state, problem=f"not taken yet: {error}")
            log.warning("mesh %s: the snapshot of %s waits: %s", self.state.mesh, snapshot.observed_at, error)
            return False
        except DONE:
            outcome, problem = "taken", ""
        except ServeError as error:
            outcome, problem = "refused", str(error)
            log.error("mesh %s: the snapshot of %s is refused: %s", self.state.mesh, snapshot.observed_at, error)
        else:
            outcome, problem = "taken", ""
            self.state = replace(self.state, handed_on=at)
        self._waiting = None
        self.state = replace(self.state.counted(outcome), done=at, problem=problem)
        return True

    def _tell(self, poll: Poll) -> None:
        """What changed for the worse or the better, once."""
        before, now = set(self.state.masked), {"/".join(role) for role in poll.masked}
        if poll.why and poll.why != self.state.problem:
            log.warning("mesh %s: no snapshot of %s: %s", self.state.mesh, poll.at, poll.why)
        if now - before:
            why = "; ".join(f"{'/'.join(r)}: {a.failed}, {a.detail}" for r, a in poll.answers.items() if a.failed)
            log.warning("mesh %s: without %s from now on (%s)", self.state.mesh, ", ".join(sorted(now - before)), why)
        if poll.snapshot is not None:
            for annotation in sorted(set(poll.unheeded) - set(self.state.unheeded)):
                log.warning("mesh %s: an annotation is not heeded: %s", self.state.mesh, annotation)
        if before - now and not poll.why:
            log.info("mesh %s: %s came back", self.state.mesh, ", ".join(sorted(before - now)))
