"""``tagae models``: adds models to a registry and shows them."""

import hashlib
import json
from functools import partial
from pathlib import Path

import pytest

from model.checkpoint import SHIPPED, load
from serve_app.models.card import write_card
from serve_app.models.registry import Registry
from tests.serve_app.cli.command import tagae
from tests.serve_app.cli.test_models_fetch import run_store

models = partial(tagae, "models")
CONTENT = SHIPPED.read_bytes()
DIGEST = hashlib.sha256(CONTENT).hexdigest()
VERSION = load(SHIPPED).digest


def test_a_model_with_a_card_needs_no_digest(tmp_path: Path) -> None:
    weights = tmp_path / "mine.safetensors"
    weights.write_bytes(CONTENT)
    write_card(weights, parent="0123456789abcdef", figures={"culprit_first": 0.91, "false_alerts_per_day": 1.25})
    done = models("add", weights, "--registry", tmp_path / "models")
    assert done.exit_code == 0, done.output
    assert VERSION in done.stdout.splitlines()
    (card,) = Registry(str(tmp_path / "models")).cards()
    assert (card.parent, card.figures["culprit_first"]) == ("0123456789abcdef", 0.91)
    again = models("add", weights, "--registry", tmp_path / "models")
    assert "already" in again.output
    listed = models("list", "--registry", tmp_path / "models")
    assert VERSION in listed.output
    assert "culprit first in 91%; 1.2 false alerts per day" in listed.output
    lines = models("list", "--json", "--registry", tmp_path / "models").stdout.splitlines()
    assert json.loads(lines[0])["version"] == VERSION
    shown = models("show", VERSION[:6], "--registry", tmp_path / "models")
    assert json.loads(shown.stdout)["sha256"] == DIGEST


def test_a_model_from_a_url_goes_to_the_registry_of_the_settings(tmp_path: Path) -> None:
    with run_store() as url:
        source = f"{url}/weights?signature=secret"
        options = ["--sha256", DIGEST, "--set", f"models.registry={tmp_path}", "--parent", "0123456789abcdef"]
        done = models("add", source, *options)
    assert done.exit_code == 0, done.output
    assert Registry(str(tmp_path)).card(VERSION).parent == "0123456789abcdef"
    assert "secret" not in done.output


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        ([], 2, "expected the SHA-256 of"),
        (["--sha256", "abc"], 2, "64 hexadecimal digits"),
        (["--sha256", "0" * 64], 1, f"expected SHA-256 {'0' * 64}, got {DIGEST}"),
    ],
)
def test_what_is_not_pinned_is_not_added(tmp_path: Path, options: list[str], code: int, message: str) -> None:
    weights = tmp_path / "mine.safetensors"
    weights.write_bytes(CONTENT)
    done = models("add", weights, "--registry", tmp_path / "models", *options)
    assert done.exit_code == code
    assert message in done.output
    assert Registry(str(tmp_path / "models")).cards() == []


def test_weights_that_differ_from_their_card_are_not_added(tmp_path: Path, other_weights: Path) -> None:
    weights = tmp_path / "mine.safetensors"
    weights.write_bytes(CONTENT)
    write_card(weights)
    weights.write_bytes(other_weights.read_bytes())
    done = models("add", weights, "--registry", tmp_path / "models")
    assert done.exit_code == 1
    assert f"expected SHA-256 {DIGEST}" in done.output


def test_a_registry_is_needed(tmp_path: Path) -> None:
    done = models("add", SHIPPED, "--sha256", DIGEST)
    assert done.exit_code == 1
    assert "models.registry: expected a folder or URL, got none" in done.output


@pytest.mark.parametrize(("version", "message"), [("ff", "expected a version of the registry"), ("", "got ''")])
def test_a_version_that_is_not_there_is_named(tmp_path: Path, version: str, message: str) -> None:
    models("add", SHIPPED, "--sha256", DIGEST, "--registry", tmp_path)
    done = models("show", version, "--registry", tmp_path)
    assert done.exit_code == 2
    assert message in done.output
