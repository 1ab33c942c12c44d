"""Random meshes, ready to be scored. Only torch and numpy are needed, so they can be made on a bare machine."""

import numpy as np

from model.network.contract import EDGE_INPUTS, NODE_INPUTS
from model.scoring.score import PartitionTask

NEIGHBOURS = 6  # most callers and most callees that a service attends to, as in the shipped network


def random_task(services: int, calls: int, seed: int = 0) -> PartitionTask:
    """A mesh in one part: calls between random services, some services called by many."""
    rng = np.random.default_rng(seed)
    weight = rng.permutation((np.arange(services) + 1.0) ** -0.6)
    callee = rng.choice(services, calls, p=weight / weight.sum())
    caller = rng.integers(0, services, calls)
    return PartitionTask(
        nodes=rng.standard_normal((services, NODE_INPUTS), np.float32),
        edges=rng.standard_normal((calls, EDGE_INPUTS), np.float32),
        edge_index=np.stack([caller, callee]).astype(np.int32),
        attended_callers=first_of_each(callee, NEIGHBOURS),
        attended_callees=first_of_each(caller, NEIGHBOURS),
        core=services,
        owned=calls,
        boundary=np.zeros(0, np.int64),
    )


def first_of_each(keys: np.ndarray, most: int) -> np.ndarray:
    """Which entries are among the first ``most`` of their key."""
    order = np.argsort(keys, kind="stable")
    starts = np.flatnonzero(np.r_[True, np.diff(keys[order]) != 0])
    lengths = np.diff(np.r_[starts, len(keys)])
    rank = np.arange(len(keys)) - np.repeat(starts, lengths)
    chosen = np.zeros(len(keys), bool)
    chosen[order] = rank < most
    return chosen
