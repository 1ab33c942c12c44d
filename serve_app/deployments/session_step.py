"""One snapshot on its way through a session, and what it leaves."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from model.verdict import ClusterEvent, Verdict
from serve_app.deployments.messages import Judged
from serve_app.deployments.rpc import RETRY_AFTER_SECONDS, remaining_seconds
from serve_app.deployments.scorer import Scored
from serve_app.errors import DeadlineExceeded
from serve_app.pipeline import Mesh
from serve_app.stores.record import Record


@dataclass(frozen=True, slots=True)
class Push:
    """One snapshot on its way.

    Attributes:
        mesh: name.
        packed: the snapshot as the store keeps it.
        expires_at: deadline, Unix time.
        counted: False for a baseline.
        events: what Kubernetes told of the mesh's services lately, newest first.
    """

    mesh: str
    packed: bytes
    expires_at: float
    counted: bool = True
    events: tuple[ClusterEvent, ...] = ()

    def in_time(self) -> None:
        """Go on only while there is time left.

        Raises:
            DeadlineExceeded: there is none.
        """
        if remaining_seconds(self.expires_at) <= 0:
            raise DeadlineExceeded(
                f"mesh {self.mesh!r}: the deadline passed before the verdict was there; nothing was changed; try "
                "again, or raise serve.deadline_seconds",
                retry_after_seconds=RETRY_AFTER_SECONDS,
                stored="no",
            )


class Stopwatch:
    """Seconds by stage."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Measure what is inside, and add it to what the stage took before."""
        started = time.perf_counter()
        yield
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - started


@dataclass(frozen=True, slots=True)
class Step:
    """A mesh one snapshot later.

    Attributes:
        mesh: after it.
        record: its verdict, as it is kept.
        verdict: the same.
        scored: what the scorers answered.
        missing: parts without an answer.
        lost: calls repeated since a replica died, by deployment.
    """

    mesh: Mesh
    record: Record
    verdict: Verdict
    scored: list[Scored]
    missing: int
    lost: dict[str, int]

    def judged(self, watch: Stopwatch) -> Judged:
        """As the ingress is told."""
        scorers: dict[str, int] = {}
        for answer in self.scored:
            scorers[answer.replica] = scorers.get(answer.replica, 0) + len(answer.scores)
        seconds = {**watch.seconds, "inference": max((answer.seconds for answer in self.scored), default=0.0)}
        return Judged(
            self.record.document,
            self.verdict.status.value,
            self.verdict.model_digest,
            seconds,
            scorers,
            self.missing,
            self.lost,
        )
