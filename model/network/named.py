"""Networks by name, ``package.module:Class``. Only a setting or a command line chooses a name, never a file."""

from importlib import import_module
from typing import cast

from torch import nn

from model.errors import IncompatibleWeights
from model.network.autoencoder import Autoencoder
from model.network.contract import MeshNetwork


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
        found = getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise IncompatibleWeights(
            f"network {name}: expected an importable class, package.module:Class, got {error}; correct model.network, "
            "or install its package on every node"
        ) from error
    parts = [part for part in ("Config", "forward", "structure") if not hasattr(found, part)]
    if not (isinstance(found, type) and issubclass(found, nn.Module)) or parts:
        missing = f" without {', '.join(parts)}" if parts else ""
        raise IncompatibleWeights(
            f"network {name}: expected a torch.nn.Module with Config, forward and structure, got {found!r}{missing}; "
            "see model.network.contract"
        )
    return cast(type[MeshNetwork], found)
