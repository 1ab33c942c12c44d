"""Messages of sessions and scorers to ingress and collector, in a file of their own because those need no torch."""

from dataclasses import dataclass, field
from typing import Literal

RunnerPlace = Literal["session", "replicas"]


@dataclass(frozen=True, slots=True)
class SnapshotAnswer:
    """The answer to one snapshot.

    Attributes:
        verdict: its JSON document.
        seconds: duration of each stage; empty for a repeated snapshot.
        retries: calls repeated because a replica died, by deployment; the ingress counts them with its own.
    """

    verdict: bytes
    seconds: dict[str, float] = field(default_factory=dict)
    retries: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Resume:
    """Where the collector of a mesh continues.

    Attributes:
        at: Unix time of the newest snapshot with a verdict; None: there is none.
        reads_past: whether to read the past of a new mesh, or the rest of it. A mesh whose state was damaged is watched
            again at once, since people may be waiting for the end of an incident.
    """

    at: float | None
    reads_past: bool


@dataclass(frozen=True, slots=True)
class ScorerInfo:
    """The device, kernels and weights of a replica.

    Attributes:
        device: ``cpu`` or ``cuda``.
        model: digest of the weights.
        refused: for each configured weights that are not in use, a sentence that says why.
        receivers: for each receiver of notifications that has a problem, a sentence for everybody, and one with its
            address.
    """

    device: str
    kernels: str
    model: str
    refused: tuple[str, ...] = ()
    receivers: tuple[tuple[str, str], ...] = ()
