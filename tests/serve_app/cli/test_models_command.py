"""``tagae models``: adds models to a registry, shows them, and fetches weights. Only those with the expected digest,
which this version can read, come in."""

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest
from typer.testing import Result

from model.checkpoint import SHIPPED, load
from serve_app.models.card import write_card
from serve_app.models.registry import Registry
from tests.http_server import QuietHandler, serve_in_thread
from tests.serve_app.cli.command import tagae

models = partial(tagae, "models")
CONTENT = SHIPPED.read_bytes()
FULL = Path("/dev/full")
DIGEST = hashlib.sha256(CONTENT).hexdigest()
VERSION = load(SHIPPED).digest


def fetch(source: object, target: Path, digest: str = DIGEST) -> Result:
    return models("fetch", source, target, "--sha256", digest)


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """A file with the shipped weights."""
    file = tmp_path / "mine.safetensors"
    file.write_bytes(CONTENT)
    return file


class Store(QuietHandler):
    """An object store with one file behind a signed URL."""

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        if path == "/moved":
            self.send(307, location="/weights?signature=secret")
            return
        is_allowed = query == "signature=secret"
        whole = path in ("/weights", "/cut")
        self.send_response(200 if whole and is_allowed else 403)
        self.send_header("Content-Length", str(len(CONTENT) if whole and is_allowed else 0))
        self.end_headers()
        if whole and is_allowed:
            self.wfile.write(CONTENT[: len(CONTENT) // 2] if path == "/cut" else CONTENT)


@contextmanager
def run_store() -> Iterator[str]:
    with serve_in_thread(ThreadingHTTPServer(("127.0.0.1", 0), Store)) as url:
        yield url


def test_a_model_with_a_card_needs_no_digest(tmp_path: Path, mine: Path) -> None:
    write_card(mine, parent="0123456789abcdef", figures={"culprit_first": 0.91, "false_alerts_per_day": 1.25})
    result = models("add", mine, "--registry", tmp_path / "models")
    assert result.exit_code == 0, result.output
    assert VERSION in result.stdout.splitlines()
    (card,) = Registry(str(tmp_path / "models")).cards()
    assert (card.parent, card.figures["culprit_first"]) == ("0123456789abcdef", 0.91)
    again = models("add", mine, "--registry", tmp_path / "models")
    assert "already" in again.output
    table = tagae("models", "list", "--registry", tmp_path / "models", columns=20)
    assert f"{VERSION} " in table.output
    assert "culprit first in 91%; 1.2 false alerts per day" in table.output
    lines = models("list", "--json", "--registry", tmp_path / "models").stdout.splitlines()
    assert json.loads(lines[0])["version"] == VERSION
    card_output = models("show", VERSION[:6], "--registry", tmp_path / "models")
    assert json.loads(card_output.stdout)["sha256"] == DIGEST


def test_a_model_from_a_url_goes_to_the_registry_of_the_settings(tmp_path: Path) -> None:
    with run_store() as url:
        source = f"{url}/weights?signature=secret"
        options = ["--sha256", DIGEST, "--set", f"models.registry={tmp_path}", "--parent", "0123456789abcdef"]
        result = models("add", source, *options)
    assert result.exit_code == 0, result.output
    assert Registry(str(tmp_path)).card(VERSION).parent == "0123456789abcdef"
    assert "secret" not in result.output


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        ([], 2, "expected the SHA-256 of"),
        (["--sha256", "abc"], 2, "64 hexadecimal digits"),
        (["--sha256", "0" * 64], 1, f"expected SHA-256 {'0' * 64}, got {DIGEST}"),
    ],
)
def test_what_is_not_pinned_is_not_added(
    tmp_path: Path, mine: Path, options: list[str], code: int, message: str
) -> None:
    result = models("add", mine, "--registry", tmp_path / "models", *options)
    assert result.exit_code == code
    assert message in result.output
    assert Registry(str(tmp_path / "models")).cards() == []


def test_weights_that_differ_from_their_card_are_not_added(tmp_path: Path, mine: Path, other_weights: Path) -> None:
    write_card(mine)
    mine.write_bytes(other_weights.read_bytes())
    result = models("add", mine, "--registry", tmp_path / "models")
    assert result.exit_code == 1
    assert f"expected SHA-256 {DIGEST}" in result.output


def test_a_registry_is_needed(tmp_path: Path) -> None:
    result = models("add", SHIPPED, "--sha256", DIGEST)
    assert result.exit_code == 1
    assert "models.registry: no folder or URL is set" in result.output


@pytest.mark.parametrize(("version", "message"), [("ff", "expected a version of the registry"), ("", "got ''")])
def test_a_version_that_is_not_there_is_named(tmp_path: Path, version: str, message: str) -> None:
    models("add", SHIPPED, "--sha256", DIGEST, "--registry", tmp_path)
    result = models("show", version, "--registry", tmp_path)
    assert result.exit_code == 2
    assert message in result.output


@pytest.mark.parametrize("path", ["/weights?signature=secret", "/moved"])
def test_weights_come_from_a_url(tmp_path: Path, path: str) -> None:
    target = tmp_path / "weights.safetensors"
    with run_store() as url:
        result = fetch(url + path, target)
    assert result.exit_code == 0, result.output
    assert target.read_bytes() == CONTENT
    assert load(target).digest in result.output
    assert [file.name for file in tmp_path.iterdir()] == [target.name]


def test_weights_come_from_a_volume(tmp_path: Path) -> None:
    target = tmp_path / "weights.safetensors"
    assert fetch(SHIPPED, target).exit_code == 0
    assert target.read_bytes() == CONTENT
    again = fetch(tmp_path / "absent", target)  # as when the container restarts
    assert again.exit_code == 0
    assert "already" in again.output


@pytest.mark.parametrize(
    ("path", "digest", "message"),
    [
        ("/weights?signature=secret", "0" * 64, f"expected SHA-256 {'0' * 64}, got {DIGEST}"),
        ("/cut?signature=secret", DIGEST, "expected the whole file"),
        ("/weights?signature=wrong", DIGEST, "expected status 200, got 403"),
    ],
)
def test_other_content_changes_nothing(tmp_path: Path, path: str, digest: str, message: str) -> None:
    target = tmp_path / "weights.safetensors"
    target.write_bytes(b"before")
    with run_store() as url:
        result = fetch(url + path, target, digest)
    assert result.exit_code == 1
    assert message in result.output
    assert "signature" not in result.output
    assert target.read_bytes() == b"before"
    assert [file.name for file in tmp_path.iterdir()] == [target.name]


def test_a_server_that_is_away_changes_nothing(tmp_path: Path) -> None:
    with run_store() as url:
        pass
    result = fetch(f"{url}/weights", tmp_path / "weights.safetensors")
    assert result.exit_code == 1
    assert "expected the whole file, got ConnectError" in result.output
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_no_checkpoint_is_refused(tmp_path: Path) -> None:
    unreadable = tmp_path / "other"
    unreadable.write_bytes(b"not a checkpoint")
    result = fetch(unreadable, tmp_path / "weights.safetensors", hashlib.sha256(b"not a checkpoint").hexdigest())
    assert result.exit_code == 1
    assert "expected a checkpoint of this version" in result.output
    assert [file.name for file in tmp_path.iterdir()] == ["other"]


def test_a_folder_that_does_not_exist_is_named(tmp_path: Path) -> None:
    result = fetch(SHIPPED, tmp_path / "absent" / "weights.safetensors")
    assert result.exit_code == 2
    assert f"expected a folder that exists, got {tmp_path / 'absent'}" in result.output


@pytest.mark.skipif(not FULL.exists(), reason="needs a device that is always full, as Linux has it")
def test_a_full_disk_is_no_fault_of_the_source(tmp_path: Path) -> None:
    (tmp_path / "weights.safetensors.part").symlink_to(FULL)
    result = fetch(SHIPPED, tmp_path / "weights.safetensors")
    assert result.exit_code == 1
    assert "No space left on device" in result.output
    assert "expected a readable file" not in result.output


@pytest.mark.parametrize(
    ("source", "digest", "message"),
    [
        ("https://models.example/weights", "abc", "64 hexadecimal digits"),
        ("ftp://models.example/w", DIGEST, "https://"),
    ],
)
def test_a_wrong_command_line_names_the_argument(tmp_path: Path, source: str, digest: str, message: str) -> None:
    result = fetch(source, tmp_path / "weights.safetensors", digest)
    assert result.exit_code == 2
    assert message in result.output
