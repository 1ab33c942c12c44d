"""A file never chooses which code runs."""

import json
import sys
from pathlib import Path

import pytest
from safetensors import safe_open
from safetensors.torch import save_file

from model.checkpoint import DOCUMENT, SHIPPED, load, name_of, network_class
from model.errors import IncompatibleWeights
from model.mesh_weights import load_weights
from model.network.autoencoder import Autoencoder


def naming(network: object, path: Path) -> Path:
    """Write the shipped checkpoint as one that names a class."""
    with safe_open(SHIPPED, "pt") as file:
        document = json.loads(file.metadata()[DOCUMENT]) | {"network": network}
        save_file({key: file.get_tensor(key) for key in file.keys()}, path, {DOCUMENT: json.dumps(document)})  # noqa: SIM118
    return path


@pytest.mark.parametrize("allowed", [None, "colorsys:Other", "colorsys"])
def test_a_file_that_names_a_class_imports_nothing_unless_the_settings_name_it(
    allowed: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    with pytest.raises(IncompatibleWeights, match=r"got 'colorsys:Network'; .*set model\.network"):
        load(naming("colorsys:Network", tmp_path / "w"), network=allowed)
    assert "colorsys" not in sys.modules


@pytest.mark.parametrize("network", [7, ["colorsys:Network"], {}, True])
def test_a_name_that_is_not_a_text_is_refused(network: object, tmp_path: Path) -> None:
    with pytest.raises(IncompatibleWeights):
        load(naming(network, tmp_path / "w"))


def test_the_built_in_network_is_loaded_whatever_is_allowed() -> None:
    assert load(SHIPPED, network="colorsys:Network").digest == load(SHIPPED).digest
    assert name_of(load().network) is None
    assert network_class(None) is Autoencoder


@pytest.mark.parametrize(
    "name", ["no_such_package:Network", "torch.nn:NoSuchNetwork", "torch.nn:Linear", "colorsys:rgb_to_hsv", "torch", ""]
)
def test_a_name_that_is_no_network_is_refused(name: str) -> None:
    with pytest.raises(IncompatibleWeights, match="expected"):
        network_class(name)


def test_weights_of_an_unknown_class_are_refused_and_the_shipped_ones_used(tmp_path: Path) -> None:
    path = naming("no_such_package:Network", tmp_path / "w")
    weights = load_weights(path, {}, network="no_such_package:Network")
    assert weights.default.digest == load().digest
    assert "no_such_package" in weights.refused[0]
