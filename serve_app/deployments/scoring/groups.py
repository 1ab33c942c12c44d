"""Groups of parts of one snapshot, which a scorer scores in one call."""

import asyncio
from dataclasses import dataclass, field

from model.checkpoint import Checkpoint
from model.scoring.score import PartitionScore, PartitionTask
from serve_app.runtime.deadline import Deadline

Group = tuple[PartitionTask, ...]
Scores = tuple[PartitionScore, ...]


@dataclass(frozen=True, slots=True)
class ScoredGroup:
    """The scores of one group of parts.

    Attributes:
        replica: that scored it.
        model: digest of the weights it was scored with.
        scores: of its parts, in order.
        seconds: duration of the pass that scored it, with other groups.
    """

    replica: str
    model: str
    scores: Scores
    seconds: float


Outcome = ScoredGroup | Exception


@dataclass(frozen=True, slots=True, eq=False)
class WaitingGroup:
    """A group that waits for its pass.

    Attributes:
        deadline: after which it is not scored.
        arrived_at: of the monotonic clock, s.
        in_shadow: whether no one waits for it.
        outcome: its scores, or the error, when it had its pass.
    """

    group: Group
    deadline: Deadline
    arrived_at: float
    checkpoint: Checkpoint
    in_shadow: bool = False
    outcome: asyncio.Future[Outcome] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    @property
    def work(self) -> int:
        """Services and calls of its parts."""
        return work_of(self.group)


def work_of(group: Group) -> int:
    """Services and calls of a group."""
    return sum(len(task.nodes) + len(task.edges) for task in group)
