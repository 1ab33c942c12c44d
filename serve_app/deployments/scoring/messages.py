"""Messages from sessions and scorers to the ingress. They have their own file because it does not need torch."""

from dataclasses import dataclass, field
from typing import Literal

RunnerPlace = Literal["session", "replicas"]


@dataclass(frozen=True, slots=True)
class SnapshotAnswer:
    """The answer to one snapshot.

    Attributes:
        verdict: its JSON document.
        seconds: duration of each stage; empty for a repeated snapshot.
        retries: calls repeated because a replica died, by deployment; the ingress adds them to its own.
    """

    verdict: bytes
    seconds: dict[str, float] = field(default_factory=dict)
    retries: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ScorerInfo:
    """A replica's device, kernels and weights.

    Attributes:
        device: ``cpu`` or ``cuda``.
        model: digest of the weights.
        refusals: a sentence for each configured checkpoint that is not in use, with the reason.
        receivers: for each failing receiver of notifications, a sentence without and one with its address.
    """

    device: str
    kernels: str
    model: str
    refusals: tuple[str, ...] = ()
    receivers: tuple[tuple[str, str], ...] = ()
