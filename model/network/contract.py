"""The contract of a network: its inputs, its outputs, and what makes a module one.

:class:`~model.network.autoencoder.Autoencoder` fulfils it. So can a module of another package, which then takes the
autoencoder's place (``model.network = "package.module:Class"``): training, evaluation, checkpoints, cuts into parts and
serving stay the same. ``lab.contracts.networks`` has the contract as tests.

Columns of the inputs, in blocks as wide as the channels (:data:`~model.features.NODE_CHANNELS`, 9, and
:data:`~model.features.EDGE_CHANNELS`, 5):

======== ====================================================================================================
services deviation now, whether it was observed (0 or 1), standing among the other services, short and long
         average of the deviations before now
calls    deviation now, whether it was observed, short and long average before now, and one more column: whether
         the call is in the snapshot (0 or 1)
======== ====================================================================================================

Deviations, standings and averages are asinh of sigmas; missing ones are 0.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import Field, dataclass
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor, nn

from model.features import EDGE_CHANNELS, NODE_CHANNELS, RATE
from model.network.layers import Neighbourhoods

C_NODE, C_EDGE = len(NODE_CHANNELS), len(EDGE_CHANNELS)
NODE_INPUTS = 5 * C_NODE
EDGE_INPUTS = 4 * C_EDGE + 1
CURRENT = slice(0, 2 * C_NODE)  # now and observed, of a service
NODE_PAST = slice(3 * C_NODE, 5 * C_NODE)
EDGE_PAST = slice(2 * C_EDGE, 4 * C_EDGE)
OWN_LOAD = slice(RATE, 2 * C_NODE, C_NODE)  # the request rate's deviation and whether it was observed
LOAD_INPUTS = 2  # width of these
CALL_LOAD = [0, 4]  # channels of a call that its source decides: traffic and weight
CALL_SYMPTOMS = [1, 2, 3]  # channels of a call that its destination decides: errors and latency
REACH = 2  # calls: a part of a cut mesh comes with the services that are so far away
EXPECTED_LIMIT = 4.0  # in asinh of sigmas: 27 sigmas


@dataclass(frozen=True, slots=True)
class MeshGraph:
    """Inputs of a network: one mesh, one part, or several of them side by side.

    Attributes:
        nodes: float32 ``[N, NODE_INPUTS]``.
        edges: float32 ``[E, EDGE_INPUTS]``.
        edge_index: int64 ``[2, E]``: caller and callee of each call, as rows of ``nodes``.
        callers, callees: which neighbours each node attends to.
    """

    nodes: Tensor
    edges: Tensor
    edge_index: Tensor
    callers: Neighbourhoods
    callees: Neighbourhoods


@dataclass(frozen=True, slots=True)
class Decoding:
    """Outputs of a network. All of them are finite for any finite input.

    Attributes:
        embeddings: ``[N, D]``.
        node_expected: ``[N, 9]`` expected deviations in asinh of sigmas, from -``EXPECTED_LIMIT`` to it.
        edge_expected: ``[E, 5]`` likewise.
        structure: ``[E]`` logits: whether this call should exist.
    """

    embeddings: Tensor
    node_expected: Tensor
    edge_expected: Tensor
    structure: Tensor


class NetworkConfig(Protocol):
    """Sizes of a network: a frozen dataclass of numbers, each with a default."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    @property
    def embedding(self) -> int: ...

    @property
    def neighbours(self) -> int: ...


class MeshNetwork(Protocol):
    """A ``torch.nn.Module`` with a class attribute ``Config``, built as ``Network(Network.Config())``.

    What an output may read:

    - Messages pass along ``graph.callers`` and ``graph.callees`` only, and ``REACH`` calls far. Outputs of a call may
      also read its two ends. A service does not see more in a cut mesh, and meshes side by side do not mix.
    - An expectation never reads what it predicts, or every fault would be expected. The expected request rate of a
      service reads none of its current values. Its other expectations read its current request rate (``OWN_LOAD``), and
      no other current value of the service. The expectations of a call read none of its current values.
    - ``structure`` is ``self.structure`` of the embeddings and ``edge_index``, because the embeddings of two parts of a
      mesh meet elsewhere.
    - No parameter belongs to a service, and the order of services and calls does not matter.

    Attention may weigh neighbours by a service's own current values, as a softmax over one neighbour is always 1.
    """

    Config: ClassVar[type[Any]]

    def __init__(self, config: Any) -> None: ...

    @property
    def config(self) -> NetworkConfig: ...

    def forward(self, graph: MeshGraph) -> Decoding:
        """Run one pass over services and calls. All calls of the graph are decoded, present or vanished."""
        ...

    def structure(self, z_source: Tensor, z_target: Tensor, source: Tensor, target: Tensor) -> Tensor:
        """Return logits ``[E]`` of calls between rows of two sets of embeddings ``[*, D]``."""
        ...

    # Of torch.nn.Module:
    training: bool
    __call__: Callable[..., Any]

    def parameters(self) -> Iterator[nn.Parameter]: ...
    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state_dict: Mapping[str, Any]) -> Any: ...
    def to(self, device: torch.device) -> Any: ...
    def eval(self) -> Any: ...
