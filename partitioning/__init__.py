"""Plans that cut a mesh into parts: pure functions on numpy arrays."""

from partitioning.errors import InvalidGraph, MissingMetis, PartitioningError
from partitioning.halo import closure
from partitioning.plan import Partition, PartitionPlan, plan, topology_digest
from partitioning.quality import Quality
from partitioning.rebalance import rebalance

__all__ = [
    "InvalidGraph",
    "MissingMetis",
    "Partition",
    "PartitionPlan",
    "PartitioningError",
    "Quality",
    "closure",
    "plan",
    "rebalance",
    "topology_digest",
]
