"""What sessions and scorers tell the ingress; apart from them, so that the ingress needs no torch."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Judged:
    """The answer to one snapshot.

    Attributes:
        verdict: its JSON document.
        status: of the verdict; empty for a repeat, which is counted once.
        model: digest of the weights.
        seconds: by stage.
        scorers: parts scored, by replica.
        missing: parts without an answer.
        lost: calls that were repeated since a replica died, by deployment.
    """

    verdict: bytes
    status: str = ""
    model: str = ""
    seconds: dict[str, float] = field(default_factory=dict)
    scorers: dict[str, int] = field(default_factory=dict)
    missing: int = 0
    lost: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Equipment:
    """What a replica works with: ``cpu`` or ``cuda``, the kernels' backend, the digest of the weights, and why they are
    not the configured ones, where they are not."""

    device: str
    kernels: str
    model: str
    refused: str = ""
