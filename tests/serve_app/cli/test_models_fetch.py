"""``tagae models fetch``: only weights with the expected digest, which this version can read, replace a file."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest
from typer.testing import Result

from model.checkpoint import SHIPPED, load
from tests.http_server import QuietHandler, serve_in_thread
from tests.serve_app.cli.command import tagae

CONTENT = SHIPPED.read_bytes()
FULL = Path("/dev/full")
DIGEST = hashlib.sha256(CONTENT).hexdigest()


def fetch(source: object, target: Path, digest: str = DIGEST) -> Result:
    return tagae("models", "fetch", source, target, "--sha256", digest)


class Store(QuietHandler):
    """An object store with one file behind a signed URL."""

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        if path == "/moved":
            self.send(307, location="/weights?signature=secret")
            return
        allowed = query == "signature=secret"
        whole = path in ("/weights", "/cut")
        self.send_response(200 if whole and allowed else 403)
        self.send_header("Content-Length", str(len(CONTENT) if whole and allowed else 0))
        self.end_headers()
        if whole and allowed:
            self.wfile.write(CONTENT[: len(CONTENT) // 2] if path == "/cut" else CONTENT)


@contextmanager
def run_store() -> Iterator[str]:
    with serve_in_thread(ThreadingHTTPServer(("127.0.0.1", 0), Store)) as url:
        yield url


@pytest.mark.parametrize("path", ["/weights?signature=secret", "/moved"])
def test_weights_come_from_a_url(tmp_path: Path, path: str) -> None:
    target = tmp_path / "weights.safetensors"
    with run_store() as url:
        done = fetch(url + path, target)
    assert done.exit_code == 0, done.output
    assert target.read_bytes() == CONTENT
    assert load(target).digest in done.output
    assert [one.name for one in tmp_path.iterdir()] == [target.name]


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
        done = fetch(url + path, target, digest)
    assert done.exit_code == 1
    assert message in done.output
    assert "signature" not in done.output
    assert target.read_bytes() == b"before"
    assert [one.name for one in tmp_path.iterdir()] == [target.name]


def test_a_server_that_is_away_changes_nothing(tmp_path: Path) -> None:
    with run_store() as url:
        pass
    done = fetch(f"{url}/weights", tmp_path / "weights.safetensors")
    assert done.exit_code == 1
    assert "expected the whole file, got ConnectError" in done.output
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_no_checkpoint_is_refused(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_bytes(b"not a checkpoint")
    done = fetch(other, tmp_path / "weights.safetensors", hashlib.sha256(b"not a checkpoint").hexdigest())
    assert done.exit_code == 1
    assert "expected a checkpoint of this version" in done.output
    assert [one.name for one in tmp_path.iterdir()] == ["other"]


def test_a_folder_that_does_not_exist_is_named(tmp_path: Path) -> None:
    done = fetch(SHIPPED, tmp_path / "absent" / "weights.safetensors")
    assert done.exit_code == 2
    assert f"expected a folder that exists, got {tmp_path / 'absent'}" in done.output


@pytest.mark.skipif(not FULL.exists(), reason="needs a device that is always full, as Linux has it")
def test_a_full_disk_is_no_fault_of_the_source(tmp_path: Path) -> None:
    (tmp_path / "weights.safetensors.part").symlink_to(FULL)
    done = fetch(SHIPPED, tmp_path / "weights.safetensors")
    assert done.exit_code == 1
    assert "No space left on device" in done.output
    assert "expected a readable file" not in done.output


@pytest.mark.parametrize(
    ("source", "digest", "message"),
    [
        ("https://models.example/weights", "abc", "64 hexadecimal digits"),
        ("ftp://models.example/w", DIGEST, "https://"),
    ],
)
def test_a_wrong_command_line_names_the_argument(tmp_path: Path, source: str, digest: str, message: str) -> None:
    done = fetch(source, tmp_path / "weights.safetensors", digest)
    assert done.exit_code == 2
    assert message in done.output
