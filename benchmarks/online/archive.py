"""Calm snapshots of one mesh, as the network reads them."""

from dataclasses import dataclass

from model.scoring.score import PartitionTask
from model.state.mesh_state import Observation


@dataclass(frozen=True, slots=True)
class CalmMoment:
    """A snapshot without an open incident: against the past of its mesh, and as inputs of the network."""

    observation: Observation
    task: PartitionTask
