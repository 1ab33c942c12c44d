"""The state of a stage runner: its snapshot's deadline, durations, scores, and the answer to the ingress."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from model.checkpoint import Checkpoint
from model.scoring.score import PartitionScore
from serve_app.deployments.scoring.messages import SnapshotAnswer
from serve_app.deployments.scoring.queue import ScoredGroup
from serve_app.errors import DeadlineExceeded, ServeError
from serve_app.pipeline import stage_span
from serve_app.runtime.rpc import RETRY_AFTER_SECONDS, Deadline

log = logging.getLogger(__name__)


class SnapshotRunner:
    """The part of a :class:`~serve_app.pipeline.StageRunner` that session and replicas share.

    Attributes:
        deadline: no stage begins after it.
        retries: calls repeated because a replica died, by deployment.
    """

    def __init__(self, mesh: str, deadline: Deadline, checkpoint: Checkpoint) -> None:
        self.mesh, self.deadline, self.checkpoint = mesh, deadline, checkpoint
        self._scored_groups: list[ScoredGroup] = []
        self.retries: Counter[str] = Counter()
        self.seconds: dict[str, float] = {}
        self.missing_parts = 0

    def accept_scores(self, parts: int, groups: Sequence[ScoredGroup | Exception]) -> list[PartitionScore]:
        """Return the scores in the order of the parts. The rest of the ``parts`` count as missing."""
        self._scored_groups = [group for group in groups if isinstance(group, ScoredGroup)]
        for group in groups:
            if isinstance(group, Exception):
                is_unknown = not isinstance(group, ServeError)
                log.warning("mesh %s: a group of parts was not scored: %s", self.mesh, group, exc_info=is_unknown)
        scores = sorted(
            (score for group in self._scored_groups for score in group.scores), key=lambda score: score.part
        )
        self.missing_parts = parts - len(scores)
        return scores

    @property
    def pass_seconds(self) -> float:
        """Duration of the longest network pass."""
        return max((group.seconds for group in self._scored_groups), default=0.0)

    @property
    def parts_by_replica(self) -> dict[str, int]:
        parts: Counter[str] = Counter()
        for group in self._scored_groups:
            parts[group.replica] += len(group.scores)
        return dict(parts)

    def answer(self, document: bytes) -> SnapshotAnswer:
        return SnapshotAnswer(document, {**self.seconds, "inference": self.pass_seconds}, dict(self.retries))

    def require_time(self) -> None:
        if self.deadline.remaining_seconds <= 0:
            raise DeadlineExceeded(
                f"mesh {self.mesh!r}: the deadline passed before the verdict was ready; nothing was changed; try "
                "again, or raise serve.deadline_seconds",
                retry_after_seconds=RETRY_AFTER_SECONDS,
                stored="no",
            )

    @contextmanager
    def measure(self, stage: str, function: Callable[..., Any] | None = None) -> Iterator[None]:
        """Add the block's duration to the stage. The block is a span, named after the function that it calls, if
        any."""
        start = time.perf_counter()
        with stage_span(stage, function):
            yield
        self.seconds[stage] = self.seconds.get(stage, 0.0) + time.perf_counter() - start
