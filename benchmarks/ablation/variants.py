"""What is left out, and how: parts of a checkpoint that are silenced by hooks of torch, in training and scoring alike.

The code of the detector knows nothing of it. A variant whose network is silenced is trained anew from the start; in the
others tails and network stay, and page level and meta-model are fitted again. Meshes that are cut in parts (above 2,000
services) decode calls between parts without these hooks, so variants are compared on smaller ones.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from model.checkpoint import Checkpoint
from model.features import Array
from model.network.autoencoder import C_EDGE, Autoencoder, Decoding, MeshGraph
from model.network.layers import Neighbourhoods
from model.scoring.calibration import SeriesTail, Tail
from model.scoring.evidence import KINDS, K, page_score
from model.scoring.meta_model import EITHER_WAY
from model.snapshot import IntArray
from model.state.filters import Deviation

FULL = "full"
OF_NEIGHBOURS = ("callees", "callers", "remotes")  # kinds of evidence that are what neighbours show
CERTAIN = 30.0  # logit of a call that is no news


@dataclass(frozen=True, slots=True)
class Variant:
    """The detector without a part.

    Attributes:
        name: of it and of its files.
        title: of its column.
        silence: of a network that is to be trained, in place; None: it is the full detector's.
        reduce: of a checkpoint, silenced or not; before page level and meta-model are fitted, and before it is used.
        shipped: nothing of the shipped weights is left out, and nothing is trained.
        adapts: to each mesh.
    """

    name: str
    title: str
    silence: Callable[[Autoencoder], None] | None
    reduce: Callable[[Checkpoint], Checkpoint]
    shipped: bool = False
    adapts: bool = True

    def of(self, checkpoint: Checkpoint) -> Checkpoint:
        """As it is used: a checkpoint that was trained for this variant, silenced and reduced."""
        if self.silence is not None:
            self.silence(checkpoint.network)
        return self.reduce(checkpoint)


class Unmeasured(Tail):
    """A tail in which nothing is ever strange."""

    __slots__ = ()

    def of(self, past: Deviation, exposure: IntArray, impact: Array) -> SeriesTail:
        """As if nothing had been measured."""
        return super().of(replace(past, observed=np.zeros_like(past.observed)), exposure, impact)


def silence_trajectories(network: Autoencoder) -> None:
    """No h_t: neither in the weight nor in the value of attention."""
    network.trajectory.register_forward_hook(_zeros)


def silence_neighbours(network: Autoencoder) -> None:
    """No messages: services hear nobody, and a call is expected from its own past alone."""
    network.register_forward_pre_hook(_alone)
    for ends in (network.call_load, network.call_symptoms):
        ends.register_forward_pre_hook(_own_past)


def without_edges(checkpoint: Checkpoint) -> Checkpoint:
    """Calls are no evidence: neither what they measure nor that they should not be there."""
    tail = checkpoint.edge_tail
    blind = Unmeasured(tail.rate, tail.mean_excess, tail.shape)
    return replace(without_structure(checkpoint), edge_tail=blind)


def without_neighbours(checkpoint: Checkpoint) -> Checkpoint:
    """What callers and callees show is no evidence, and the structure, which is learned from messages, neither."""
    checkpoint.meta.rank.register_forward_pre_hook(_without_neighbours)
    return without_structure(checkpoint)


def without_network(checkpoint: Checkpoint) -> Checkpoint:
    """Nothing is expected from neighbours and nobody is blamed: the statistics of each series alone."""
    checkpoint.network.register_forward_hook(_nothing_said)
    return without_structure(checkpoint)


def without_structure(checkpoint: Checkpoint) -> Checkpoint:
    """Every call is as expected as can be."""
    with torch.no_grad():
        checkpoint.network.as_source.weight.zero_()
        checkpoint.network.sparsity.fill_(CERTAIN)
    return checkpoint


def with_maximum(checkpoint: Checkpoint) -> Checkpoint:
    """Ranked by the page score alone, and as probable as the highest page score makes it."""
    checkpoint.meta.rank.register_forward_hook(_highest)
    checkpoint.meta.detect.register_forward_pre_hook(_first_alone)
    return checkpoint


def unchanged(checkpoint: Checkpoint) -> Checkpoint:
    """As it is."""
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
        Variant("without_adaptation", "without online adaptation", None, unchanged, shipped=True, adapts=False),
    )
}


def rank_columns(kinds: tuple[str, ...]) -> list[int]:
    """Where these kinds of evidence stand among the inputs of the ranking: as they are and beside the strongest, and,
    where both signs count, again with the other one."""
    width = K + len(EITHER_WAY)
    rows = [KINDS.index(kind) for kind in kinds if kind in KINDS]
    places = rows + [K + EITHER_WAY.index(row) for row in rows if row in EITHER_WAY]
    return [table * width + place for table in (0, 1) for place in places]


def _zeros(_: Any, __: Any, out: Tensor) -> Tensor:
    return torch.zeros_like(out)


def _alone(_: Any, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    graph, *rest = inputs
    none = torch.zeros(0, dtype=torch.int64, device=graph.nodes.device)
    indptr = torch.zeros(len(graph.nodes) + 1, dtype=torch.int64, device=graph.nodes.device)
    nobody = Neighbourhoods(indptr, none, none)
    alone: MeshGraph = replace(graph, callers=nobody, callees=nobody)
    return alone, *rest


def _own_past(_: Any, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    (table,) = inputs
    kept = torch.zeros_like(table)
    kept[:, : 2 * C_EDGE] = table[:, : 2 * C_EDGE]  # the rest is what the services at its ends show
    return (kept,)


def _nothing_said(_: Any, __: Any, said: Decoding) -> Decoding:
    return replace(
        said,
        node_expected=torch.zeros_like(said.node_expected),
        edge_expected=torch.zeros_like(said.edge_expected),
        structure=torch.full_like(said.structure, CERTAIN),
        blame=torch.zeros_like(said.blame),
    )


def _without_neighbours(_: Any, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    (table,) = inputs
    table = table.clone()
    table[:, rank_columns(OF_NEIGHBOURS)] = 0
    return (table,)


def _highest(_: Any, inputs: tuple[Tensor, ...], __: Any) -> Tensor:
    kinds = inputs[0][:, :K].detach().numpy() * 5  # as in rank_inputs; the sign of ``callees`` does not matter here
    return torch.from_numpy(page_score(kinds))[:, None]


def _first_alone(_: Any, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    (table,) = inputs
    kept = torch.zeros_like(table)
    kept[..., 0] = table[..., 0]
    return (kept,)
