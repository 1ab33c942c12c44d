"""The registry of models: only complete, unchanged weights that this version can read come out of it."""

import hashlib
import json
import os
import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest

from model.checkpoint import SHIPPED, load
from model.errors import IncompatibleWeights
from model.features import SCHEMA
from serve_app.api.schemas.models import ModelCard
from serve_app.errors import BadSettings, RegistryGone, UnknownModel
from serve_app.models.card import describe, write_card
from serve_app.models.registry import CARD, WEIGHTS, Registry, open_registry

CONTENT = SHIPPED.read_bytes()
SHIPPED_VERSION = load(SHIPPED).digest


def shipped_card(year: int = 2026) -> ModelCard:
    return describe(load(SHIPPED), CONTENT, created_at=datetime(year, 3, 1, tzinfo=UTC))


def other_card(path: Path, year: int = 2027) -> ModelCard:
    return describe(load(path), path.read_bytes(), created_at=datetime(year, 3, 1, tzinfo=UTC), parent=SHIPPED_VERSION)


def test_a_card_says_what_the_weights_are() -> None:
    card = shipped_card()
    assert card.version == SHIPPED_VERSION
    assert card.sha256 == hashlib.sha256(CONTENT).hexdigest()
    assert card.size_bytes == len(CONTENT)
    assert card.network == "model.network.autoencoder:Autoencoder"
    assert card.architecture["neighbours"] == load(SHIPPED).network.config.neighbours
    assert [channel.name for channel in card.features.services] == [channel.name for channel in SCHEMA.node]
    assert card.data["seed"] == "0"


def test_versions_come_back_oldest_first(place_of_registry: str, other_weights: Path) -> None:
    registry = Registry(place_of_registry)
    assert registry.cards() == []
    second, first = other_card(other_weights), shipped_card()
    assert registry.add(other_weights.read_bytes(), second)
    assert registry.add(CONTENT, first)
    assert registry.cards() == [first, second]
    assert registry.card(second.version) == second
    assert registry.load(second.version, second.sha256).digest == load(other_weights).digest


def test_a_model_that_is_there_stays(place_of_registry: str) -> None:
    registry = Registry(place_of_registry)
    assert registry.add(CONTENT, shipped_card(2026))
    assert not registry.add(CONTENT, shipped_card(2030))
    assert registry.cards() == [shipped_card(2026)]


def test_weights_that_were_changed_are_refused(tmp_path: Path, other_weights: Path) -> None:
    registry = Registry(str(tmp_path))
    registry.add(CONTENT, card := shipped_card())
    (tmp_path / card.version / WEIGHTS).write_bytes(other_weights.read_bytes())
    with pytest.raises(IncompatibleWeights, match=f"expected SHA-256 {card.sha256}, got"):
        registry.load(card.version, card.sha256)


def test_a_card_of_another_version_is_refused_and_left_out_of_the_list(tmp_path: Path, other_weights: Path) -> None:
    registry = Registry(str(tmp_path))
    registry.add(CONTENT, card := shipped_card())
    other = other_card(other_weights)
    registry.add(other_weights.read_bytes(), other)
    (tmp_path / card.version / CARD).write_text(other.model_dump_json())
    with pytest.raises(IncompatibleWeights, match=f"expected version {card.version}, got {other.version}"):
        registry.card(card.version)
    assert registry.cards() == [other]


def test_a_version_without_its_card_is_not_complete(tmp_path: Path) -> None:
    registry = Registry(str(tmp_path))
    registry.add(CONTENT, card := shipped_card())
    (tmp_path / card.version / CARD).unlink()
    (tmp_path / "notes").mkdir()
    assert registry.cards() == []
    assert registry.add(CONTENT, card)  # as if it had been interrupted
    assert registry.cards() == [card]


@pytest.mark.parametrize("version", ["0" * 16, "../../etc", "", "A" * 16])
def test_an_unknown_version_is_named(tmp_path: Path, version: str) -> None:
    registry = Registry(str(tmp_path))
    registry.add(CONTENT, shipped_card())
    with pytest.raises(UnknownModel, match="model"):
        registry.card(version)


def test_fields_of_a_newer_card_are_ignored(tmp_path: Path) -> None:
    registry = Registry(str(tmp_path))
    registry.add(CONTENT, card := shipped_card())
    path = tmp_path / card.version / CARD
    path.write_text(json.dumps({**json.loads(path.read_text()), "licence": "new"}))
    assert registry.card(card.version) == card


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_folder_without_access_is_named(tmp_path: Path) -> None:
    tmp_path.chmod(0)
    try:
        with pytest.raises(RegistryGone, match=r"correct models\.registry or its access"):
            Registry(str(tmp_path)).cards()
    finally:
        tmp_path.chmod(0o700)


def test_a_file_is_no_registry(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(RegistryGone, match="expected an answer"):
        Registry(str(file)).add(CONTENT, shipped_card())


def test_a_place_that_disappears_while_a_model_is_added_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = Registry(str(tmp_path / "models"))
    monkeypatch.setattr("serve_app.models.registry.encode_card", lambda card: shutil.rmtree(tmp_path / "models"))
    with pytest.raises(RegistryGone, match="FileNotFoundError"):
        registry.add(CONTENT, shipped_card())


def test_a_url_that_cannot_be_opened_is_named() -> None:
    with pytest.raises(BadSettings, match=r"models\.registry: expected a folder or a URL that fsspec can open"):
        Registry("nonsense://models")


def test_no_place_is_no_registry() -> None:
    assert open_registry(None) is None


def test_a_card_lies_beside_the_weights_that_were_trained(tmp_path: Path) -> None:
    weights = tmp_path / "mine.safetensors"
    weights.write_bytes(CONTENT)
    card = write_card(weights, parent="0123456789abcdef", figures={"culprit_first": 0.9})
    stored_card = ModelCard.model_validate_json((tmp_path / "mine.card.json").read_bytes())
    assert stored_card == card
    assert (stored_card.parent, stored_card.figures) == ("0123456789abcdef", {"culprit_first": 0.9})
