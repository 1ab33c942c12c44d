import numpy as np
import pytest
import torch

from model.network.layers import Attention, MeshLayer, Neighbourhoods
from model.state.topology import sort_neighbours

NODES, CALLS, INPUTS, OUTPUTS, HEADS, TRAJECTORY = 12, 40, 6, 8, 2, 3


def random_calls(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Return distinct calls. The last service has none in either direction."""
    pairs = np.random.default_rng(seed).permutation((NODES - 1) ** 2)[:CALLS]
    return torch.from_numpy(pairs // (NODES - 1)), torch.from_numpy(pairs % (NODES - 1))


def neighbourhoods_of(
    listener: torch.Tensor, speaker: torch.Tensor, attended: torch.Tensor, nodes: int
) -> Neighbourhoods:
    found = sort_neighbours(listener.numpy(), speaker.numpy(), attended.numpy(), nodes)
    return Neighbourhoods(*map(torch.from_numpy, found))


def attention(seed: int = 0) -> Attention:
    torch.manual_seed(seed)
    return Attention(INPUTS, OUTPUTS, HEADS, TRAJECTORY, 0.2)


def test_neighbourhoods_are_the_sampled_calls_by_service() -> None:
    listener, speaker = torch.tensor([2, 0, 2, 1]), torch.tensor([0, 1, 1, 2])
    neighbourhoods = neighbourhoods_of(listener, speaker, torch.tensor([True, True, True, False]), 4)
    assert neighbourhoods.indptr.tolist() == [0, 1, 1, 3, 3]
    assert neighbourhoods.indices.tolist() == [1, 0, 1]
    assert neighbourhoods.edges.tolist() == [1, 0, 2]


def test_without_trajectories_attention_is_gatv2() -> None:
    pytest.importorskip("torch_geometric", reason="the pyg extra is not installed")
    from torch_geometric.nn import GATv2Conv

    ours = attention()
    oracle = GATv2Conv(INPUTS, OUTPUTS // HEADS, HEADS, negative_slope=0.2, add_self_loops=False)
    with torch.no_grad():
        ours.trajectory.zero_()
        ours.trajectory_value.zero_()
        oracle.lin_l.load_state_dict(ours.key.state_dict())  # of neighbours
        oracle.lin_r.load_state_dict(ours.query.state_dict())  # of the service itself
        oracle.att.copy_(ours.attention[None])
        oracle.bias.zero_()
    x, trajectories = torch.randn(NODES, INPUTS), torch.randn(CALLS, TRAJECTORY)
    source, target = random_calls()
    callers = neighbourhoods_of(target, source, torch.ones(CALLS, dtype=torch.bool), NODES)
    with torch.inference_mode():
        output = ours(x, trajectories, callers)
        expected = oracle(x, torch.stack([source, target]))
    torch.testing.assert_close(output, expected, atol=1e-5, rtol=1e-5)
    assert output[: NODES - 1].abs().sum() > 1


def test_a_layer_keeps_the_sides_apart() -> None:
    """Reversed calls give another result, because callers and callees have different weights."""
    torch.manual_seed(0)
    layer = MeshLayer(INPUTS, OUTPUTS, HEADS, TRAJECTORY, 0.2)
    x, trajectories = torch.randn(NODES, INPUTS), torch.randn(CALLS, TRAJECTORY)
    source, target = random_calls()
    every = torch.ones(CALLS, dtype=torch.bool)
    callers = neighbourhoods_of(target, source, every, NODES)
    callees = neighbourhoods_of(source, target, every, NODES)
    one, from_callers, from_callees = layer(x, trajectories, callers, callees)
    turned, _, _ = layer(x, trajectories, callees, callers)
    assert one.shape == from_callers.shape == from_callees.shape == (NODES, OUTPUTS)
    assert (one - turned)[:-1].abs().max() > 0.05
    torch.testing.assert_close(one[-1], turned[-1])  # a service without calls has neither callers nor callees
