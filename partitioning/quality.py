"""The quality of a plan."""

from collections.abc import Sequence
from dataclasses import dataclass

from partitioning.graph import FloatArray, IntArray


@dataclass(frozen=True, slots=True)
class Quality:
    """Metrics of a plan. A mesh in one part has cuts of 0, balance 1 and replication 1.

    Attributes:
        traffic_cut: share of the traffic between services of different parts, 0..1.
        call_cut: share of the calls between services of different parts, 0..1.
        balance: services of the largest core over the mean core, at least 1.
        replication: core and halo over core, of all parts together, at least 1.
        calls: calls that each part computes, the halo's included: the cost of a part.
    """

    traffic_cut: float
    call_cut: float
    balance: float
    replication: float
    calls: tuple[int, ...]

    def clearly_worse_than(self, other: "Quality", factor: float) -> bool:
        """Return whether balance, replication or traffic cut exceeds ``factor`` times the other's.

        Cuts below one percent of the traffic count as one percent, because differences between tiny cuts do not matter.
        """
        return (
            self.balance > factor * other.balance
            or self.replication > factor * other.replication
            or self.traffic_cut > factor * max(other.traffic_cut, 0.01)
        )


def measure(
    crossing: IntArray, edge_weight: FloatArray, cores: Sequence[int], halos: Sequence[int], calls: Sequence[int]
) -> Quality:
    """Compute the quality of a plan."""
    total = float(edge_weight.sum())
    services = sum(cores)
    return Quality(
        traffic_cut=float(edge_weight[crossing].sum()) / total if total > 0 else 0.0,
        call_cut=len(crossing) / len(edge_weight) if len(edge_weight) else 0.0,
        balance=max(cores) * len(cores) / services if services else 1.0,
        replication=(services + sum(halos)) / services if services else 1.0,
        calls=tuple(calls),
    )
