"""Which mesh and which of its snapshots the code that runs now works on. Log lines name them."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Topic:
    """What some work is about.

    Attributes:
        mesh: name; None: no single mesh.
        sequence: number of the snapshot in its mesh; None: no snapshot, or its number is not known yet.
    """

    mesh: str | None = None
    sequence: int | None = None


_NOTHING = Topic()
_topic: ContextVar[Topic | None] = ContextVar("topic", default=None)


def topic() -> Topic:
    """The topic of the code that runs now."""
    return _topic.get() or _NOTHING


@contextmanager
def set_topic(mesh: str, sequence: int | None = None) -> Iterator[None]:
    """Set the topic of the block, and of tasks that it starts."""
    token = _topic.set(Topic(mesh, sequence))
    try:
        yield
    finally:
        _topic.reset(token)
