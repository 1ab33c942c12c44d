"""Checkpoints: one safetensors file with weights, tails, feature schema and provenance. Nothing in it is executed.

A checkpoint of a network that is not ours names its class. It is loaded only if the caller, who has the name from the
settings, names the same class.
"""

import hashlib
import json
from dataclasses import asdict, dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import nn

from model.decision.meta_model import MetaModel
from model.drift.reference import TrainingReference
from model.errors import IncompatibleWeights
from model.features import SCHEMA, FeatureSchema
from model.network.autoencoder import Autoencoder
from model.network.contract import MeshNetwork
from model.scoring.calibration import Tail

DOCUMENT = "tagae"  # key of the metadata
SHIPPED = Path(__file__).parent / "weights" / "tagae.safetensors"


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """Everything that was learned.

    Attributes:
        node_tail, edge_tail: shipped tails per channel.
        page_offset: surprise added to the page level so that normal training traffic keeps the budget.
        refused: why the configured weights are not used; empty if they are.
        reference: what the training meshes look like, for the distance of other meshes; None: not known.
    """

    network: MeshNetwork
    meta: MetaModel
    node_tail: Tail
    edge_tail: Tail
    page_offset: float = 0.0
    provenance: dict[str, str] = field(default_factory=dict)
    digest: str = ""
    refused: str = ""
    reference: TrainingReference | None = None

    def to(self, device: torch.device) -> "Checkpoint":
        """Move the network to ``device``. The meta-model is small and stays on the CPU."""
        self.network.to(device)
        return self


def save(checkpoint: Checkpoint, path: Path) -> None:
    """Write a checkpoint atomically."""
    tensors = {f"network.{k}": v.contiguous().cpu() for k, v in checkpoint.network.state_dict().items()}
    tensors |= {f"meta.{k}": v.contiguous().cpu() for k, v in checkpoint.meta.state_dict().items()}
    for name, tail in (("node_tail", checkpoint.node_tail), ("edge_tail", checkpoint.edge_tail)):
        for key in ("rate", "mean_excess", "shape"):
            tensors[f"{name}.{key}"] = torch.from_numpy(np.ascontiguousarray(getattr(tail, key)))
    if checkpoint.reference is not None:
        tensors |= {name: torch.from_numpy(array) for name, array in checkpoint.reference.to_arrays().items()}
    document: dict[str, Any] = {
        "schema": SCHEMA.to_json(),
        "config": asdict(checkpoint.network.config),
        "page_offset": checkpoint.page_offset,
        "provenance": checkpoint.provenance,
    }
    if (network := name_of(checkpoint.network)) is not None:
        document["network"] = network
    part = path.with_suffix(".part")
    # One key, because safetensors does not sort several, and equal checkpoints should be equal files.
    save_file(tensors, part, {DOCUMENT: json.dumps(document, sort_keys=True)})
    part.chmod(0o644)  # safetensors writes files that only their owner can read
    part.replace(path)


def load(path: Path = SHIPPED, device: torch.device | None = None, network: str | None = None) -> Checkpoint:
    """Read a checkpoint.

    Args:
        network: class that the checkpoint may name, ``package.module:Class``; see :mod:`model.network.contract`.

    Raises:
        IncompatibleWeights: the file does not exist, is not a checkpoint, has another feature schema, or names a class
            that is not ``network`` or cannot be imported.
    """
    if not path.is_file():
        raise IncompatibleWeights(f"weights: expected a file at {path}, found none; run `tagae train` or give its path")
    try:
        with safe_open(path, "pt") as file:
            document = json.loads((file.metadata() or {})[DOCUMENT])
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 - not a mapping
        SCHEMA.require(FeatureSchema.from_json(document["schema"]), f"weights {path}")
        class_name = document.get("network")
        if class_name is not None and class_name != network:
            raise IncompatibleWeights(
                f"weights {path}: expected the class {network or 'that is built in'}, got {class_name!r}; if you "
                "trust it, set model.network to its name"
            )
        kind = network_class(class_name)
        loaded_network = kind(kind.Config(**document["config"]))
        loaded_network.load_state_dict(_with_prefix(tensors, "network."))
        meta = MetaModel()
        meta.load_state_dict(_with_prefix(tensors, "meta."))
        tails = [
            Tail(**{k: v.numpy() for k, v in _with_prefix(tensors, f"{n}_tail.").items()}) for n in ("node", "edge")
        ]
        offset, provenance = float(document["page_offset"]), dict(document["provenance"])
        digest = hashlib.blake2b(path.read_bytes(), digest_size=8).hexdigest()
        reference = TrainingReference.from_arrays({name: tensor.numpy() for name, tensor in tensors.items()})
    except IncompatibleWeights:
        raise
    except (SafetensorError, KeyError, TypeError, ValueError, RuntimeError) as error:
        raise IncompatibleWeights(
            f"weights {path}: expected a checkpoint of this version, got something else ({error}); train again"
        ) from error
    loaded_network.eval().to(device or torch.device("cpu"))
    return Checkpoint(
        network=loaded_network,
        meta=meta.eval(),
        node_tail=tails[0],
        edge_tail=tails[1],
        page_offset=offset,
        provenance=provenance,
        digest=digest,
        reference=reference,
    )


def load_or_shipped(path: Path | None, device: torch.device | None = None, network: str | None = None) -> Checkpoint:
    """Read the configured weights, or the shipped ones if those are refused.

    A detector with other weights is better than none, and ``refused`` says why. The refused file is left unchanged.

    Raises:
        IncompatibleWeights: the shipped weights cannot be read either.
    """
    if path is None:
        return load(SHIPPED, device)
    try:
        return load(path, device, network)
    except IncompatibleWeights as error:
        return replace(load(SHIPPED, device), refused=str(error))


def _with_prefix(tensors: dict[str, torch.Tensor], prefix: str) -> dict[str, torch.Tensor]:
    return {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}


def name_of(network: MeshNetwork) -> str | None:
    """Return the name of a network's class; None if it is the autoencoder, which needs none."""
    kind = type(network)
    return None if kind is Autoencoder else f"{kind.__module__}:{kind.__qualname__}"


def network_class(name: str | None) -> type[MeshNetwork]:
    """Return the class of this name, and import its module; the autoencoder for None.

    Raises:
        IncompatibleWeights: it cannot be imported, or is not a network.
    """
    if name is None:
        return Autoencoder
    module, _, attribute = name.partition(":")
    try:
        candidate = getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise IncompatibleWeights(
            f"network {name}: expected an importable class, package.module:Class, got {error}; correct model.network, "
            "or install its package on every node"
        ) from error
    parts = [part for part in ("Config", "forward", "structure") if not hasattr(candidate, part)]
    if not (isinstance(candidate, type) and issubclass(candidate, nn.Module)) or parts:
        missing = f" without {', '.join(parts)}" if parts else ""
        raise IncompatibleWeights(
            f"network {name}: expected a torch.nn.Module with Config, forward and structure, got "
            f"{candidate!r}{missing}; see model.network.contract"
        )
    return cast(type[MeshNetwork], candidate)
