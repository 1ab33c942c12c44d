"""Variants of the detector without one of its parts, made with hooks of torch in training and in scoring.

The detector's own code has no switches for them. If a variant silences a part of the network, its network is trained
from the start. Otherwise network and tails stay, and the page level and the meta-model are fitted again. Meshes above
2,000 services are partitioned and decode calls between partitions without these hooks, so smaller meshes are used.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from model.checkpoint import Checkpoint
from model.features import Array
from model.network.autoencoder import Autoencoder
from model.network.contract import Decoding, MeshGraph
from model.network.layers import Neighbourhoods
from model.scoring.calibration import SeriesTail, Tail
from model.scoring.kinds import EvidenceKind, K
from model.scoring.meta_inputs import EITHER_WAY
from model.scoring.page_score import page_score
from model.snapshot import IntArray
from model.state.filters import Deviation

FULL = "full"
# Kinds of evidence that come from neighbours.
OF_NEIGHBOURS = (EvidenceKind.CALLEES, EvidenceKind.CALLERS, EvidenceKind.REMOTES)
CERTAIN = 30.0  # logit of a call that is expected


@dataclass(frozen=True, slots=True)
class Variant:
    """The detector without a part.

    Attributes:
        name: name of the variant and of its files.
        title: title of its column.
        silence: changes a network before training, in place; None if the variant uses the full detector's network.
        reduce: changes a checkpoint before the page level and the meta-model are fitted, and before it is used.
        shipped: whether it uses the shipped weights unchanged.
    """

    name: str
    title: str
    silence: Callable[[Autoencoder], None] | None
    reduce: Callable[[Checkpoint], Checkpoint]
    shipped: bool = False

    def of(self, checkpoint: Checkpoint) -> Checkpoint:
        """Apply the variant to a checkpoint that was trained for it."""
        if self.silence is not None:
            self.silence(_autoencoder_of(checkpoint))
        return self.reduce(checkpoint)


class UnobservedTail(Tail):
    """A tail that treats every value as not observed."""

    __slots__ = ()

    def of(self, past: Deviation, exposure: IntArray, impact: Array) -> SeriesTail:
        """Return the tail of a series without observations."""
        return super().of(replace(past, observed=np.zeros_like(past.observed)), exposure, impact)


def silence_trajectories(network: Autoencoder) -> None:
    """Remove h_t from the weights and from the values of attention."""
    network.trajectory.register_forward_hook(_zeros)


def silence_neighbours(network: Autoencoder) -> None:
    """Remove messages between services; calls are predicted from their own past only."""
    network.register_forward_pre_hook(_remove_neighbours)
    for ends in (network.call_load, network.call_symptoms):
        ends.register_forward_pre_hook(_keep_own_past)


def without_edges(checkpoint: Checkpoint) -> Checkpoint:
    """Remove the evidence of calls: their metrics, and calls that should not exist."""
    tail = checkpoint.edge_tail
    blind = UnobservedTail(tail.rate, tail.mean_excess, tail.shape)
    return replace(without_structure(checkpoint), edge_tail=blind)


def without_neighbours(checkpoint: Checkpoint) -> Checkpoint:
    """Remove the evidence of callers and callees, and of the structure, which is learned from messages."""
    checkpoint.meta.rank.register_forward_pre_hook(_remove_neighbour_evidence)
    return without_structure(checkpoint)


def without_network(checkpoint: Checkpoint) -> Checkpoint:
    """Use only the statistics of each series: no predictions and no root-cause logits from the network."""
    _autoencoder_of(checkpoint).register_forward_hook(_expect_nothing)
    return without_structure(checkpoint)


def without_structure(checkpoint: Checkpoint) -> Checkpoint:
    """Treat every call as expected."""
    network = _autoencoder_of(checkpoint)
    with torch.no_grad():
        network.as_source.weight.zero_()
        network.sparsity.fill_(CERTAIN)
    return checkpoint


def with_maximum(checkpoint: Checkpoint) -> Checkpoint:
    """Use only the page score, for the ranking and for the probability."""
    checkpoint.meta.rank.register_forward_hook(_highest_page_score)
    checkpoint.meta.detect.register_forward_pre_hook(_keep_first_column)
    return checkpoint


def unchanged(checkpoint: Checkpoint) -> Checkpoint:
    """Return the checkpoint unchanged."""
    return checkpoint


VARIANTS = {
    one.name: one
    for one in (
        Variant(FULL, "full", None, unchanged, shipped=True),
        Variant("without_h_t", "without h_t", silence_trajectories, unchanged),
        Variant("without_edges", "without edge residuals", None, without_edges),
        Variant("without_graph", "without the graph", silence_neighbours, without_neighbours),
        Variant("without_network", "without the network", None, without_network),
        Variant("maximum", "maximum, no meta-model", None, with_maximum),
    )
}


def rank_columns(kinds: tuple[EvidenceKind, ...]) -> list[int]:
    """Return the columns of these kinds of evidence among the inputs of the ranking.

    Each kind has a column for its value and one relative to the strongest service, and both again with the opposite
    sign if both signs count.
    """
    width = K + len(EITHER_WAY)
    places = [*kinds, *(K + EITHER_WAY.index(kind) for kind in kinds if kind in EITHER_WAY)]
    return [table * width + place for table in (0, 1) for place in places]


def _zeros(_: Any, __: Any, out: Tensor) -> Tensor:
    return torch.zeros_like(out)


def _remove_neighbours(_: Any, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    graph, *rest = inputs
    none = torch.zeros(0, dtype=torch.int64, device=graph.nodes.device)
    indptr = torch.zeros(len(graph.nodes) + 1, dtype=torch.int64, device=graph.nodes.device)
    no_neighbours = Neighbourhoods(indptr, none, none)
    alone: MeshGraph = replace(graph, callers=no_neighbours, callees=no_neighbours)
    return alone, *rest


def _keep_own_past(_: Any, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    past, services, ends = inputs
    return past, torch.zeros_like(services), ends


def _autoencoder_of(checkpoint: Checkpoint) -> Autoencoder:
    """The network of a checkpoint, whose parts the variants change."""
    assert isinstance(checkpoint.network, Autoencoder)
    return checkpoint.network


def _expect_nothing(_: Any, __: Any, said: Decoding) -> Decoding:
    return replace(
        said,
        node_expected=torch.zeros_like(said.node_expected),
        edge_expected=torch.zeros_like(said.edge_expected),
        structure=torch.full_like(said.structure, CERTAIN),
        root_cause_logit=torch.zeros_like(said.root_cause_logit),
    )


def _remove_neighbour_evidence(_: Any, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    (table,) = inputs
    table = table.clone()
    table[:, rank_columns(OF_NEIGHBOURS)] = 0
    return (table,)


def _highest_page_score(_: Any, inputs: tuple[Tensor, ...], __: Any) -> Tensor:
    kinds = inputs[0][:, :K].detach().numpy() * 5  # as in rank_inputs; the sign of ``callees`` does not matter here
    return torch.from_numpy(page_score(kinds))[:, None]


def _keep_first_column(_: Any, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    (table,) = inputs
    kept = torch.zeros_like(table)
    kept[..., 0] = table[..., 0]
    return (kept,)
