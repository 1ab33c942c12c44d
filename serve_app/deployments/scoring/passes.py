"""Runs and measures network passes over groups of parts."""

import logging
import traceback
from collections.abc import Sequence
from datetime import UTC, datetime

import torch

from model.checkpoint import Checkpoint
from model.network.contract import MeshNetwork
from model.scoring.joining import count_neighbours, score_joined
from model.scoring.score import PartitionTask
from model.snapshot import EDGE_METRICS, NODE_METRICS, MeshSnapshot
from serve_app.deployments.scoring.queue import Group, Scores
from serve_app.metrics import (
    GPU_MEMORY_FRAGMENTED,
    GPU_MEMORY_PEAK,
    GPU_MEMORY_RESERVED,
    INFERENCE,
    NEIGHBOURS_FETCHED,
    NEIGHBOURS_RECOMPUTED,
    Instruments,
)
from serve_app.pipeline import Mesh, Options, advance, prepare

log = logging.getLogger(__name__)


def score_groups(network: MeshNetwork, groups: Sequence[Group]) -> list[Scores | Exception]:
    """Score all groups in one pass. If that fails, score each half separately, which needs less memory. In the end, a
    bad group affects no other."""
    if not groups:
        return []
    scores = _score_together(network, groups)
    if not isinstance(scores, Exception):
        return scores
    if len(groups) == 1:
        return [scores]
    log.warning("a pass over %d groups of parts failed, so each half is scored alone: %s", len(groups), scores)
    middle = len(groups) // 2
    return [*score_groups(network, groups[:middle]), *score_groups(network, groups[middle:])]


def score_group(network: MeshNetwork, group: Group) -> Scores:
    """Score one group in a separate pass."""
    return tuple(score_joined(network, group))


def _score_together(network: MeshNetwork, groups: Sequence[Group]) -> list[Scores | Exception] | Exception:
    try:
        scores = iter(score_joined(network, [task for group in groups for task in group]))
        return [tuple(next(scores) for _ in group) for group in groups]
    except Exception as error:
        traceback.clear_frames(error.__traceback__)  # they hold this pass's tensors, while the next one needs memory
        return error


def probe(checkpoint: Checkpoint) -> Group:
    """The smallest mesh with a call, ready to be scored."""
    return (prepare(checkpoint, Mesh(), _smallest_mesh(), Options()).whole,)


def warm_up(checkpoint: Checkpoint) -> None:
    """Run all stages once. Otherwise, a process's first verdict takes 22 ms longer, for a mesh of any size."""
    advance(checkpoint, Mesh(), _smallest_mesh(), Options())


def _smallest_mesh() -> MeshSnapshot:
    return MeshSnapshot.create(
        node_ids=["probe/a", "probe/b"],
        edge_index=[[0], [1]],
        node_features=[[1.0] * len(NODE_METRICS)] * 2,
        edge_features=[[1.0] * len(EDGE_METRICS)],
        observed_at=datetime.fromtimestamp(0, UTC),
    )


def observe_pass(instruments: Instruments, tasks: Sequence[PartitionTask], seconds: float, model: str) -> None:
    """Record one pass; ``model``: the weights' digest."""
    instruments.observe(INFERENCE, seconds, model_version=model)
    neighbours, shared_services = count_neighbours(tasks)
    instruments.count(NEIGHBOURS_FETCHED, neighbours)
    instruments.count(NEIGHBOURS_RECOMPUTED, shared_services)


def measure_memory(device: torch.device, instruments: Instruments) -> None:
    """Export the memory that torch holds on a GPU; does nothing for a CPU."""
    if device.type != "cuda":
        return
    stats = torch.cuda.memory_stats(device)
    reserved_bytes = stats.get("reserved_bytes.all.current", 0)
    unused_bytes = stats.get("inactive_split_bytes.all.current", 0)
    instruments.set(GPU_MEMORY_PEAK, stats.get("allocated_bytes.all.peak", 0), device=str(device))
    instruments.set(GPU_MEMORY_RESERVED, reserved_bytes, device=str(device))
    instruments.set(GPU_MEMORY_FRAGMENTED, unused_bytes / reserved_bytes if reserved_bytes else 0.0, device=str(device))
