"""What README and the packages' pages tell people to type works as written."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

from serve_app.cli import app
from serve_app.settings import load

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```bash\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
PORT = 8000
PAGES = sorted(path for path in ROOT.rglob("README.md") if not {".venv", "node_modules"} & set(path.parts))
EXAMPLES = [
    pytest.param(text, id=f"{page.parent.relative_to(ROOT).as_posix()}-{i}")
    for page in PAGES
    for i, text in enumerate(re.findall(r"^```python\n(.*?)^```$", page.read_text("utf-8"), re.MULTILINE | re.DOTALL))
]


def block(word: str) -> str:
    """The one block with a word in it."""
    (found,) = [text for text in BLOCKS if word in text]
    return found


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder to type in, whose .venv is the one that runs the tests."""
    (tmp_path / ".venv").symlink_to(sys.prefix)
    return tmp_path


def test_make_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    told = set(re.findall(r"(?:^|`)make ([a-z]+)", README + CONTRIBUTING, re.MULTILINE))
    assert {"setup", "demo", "bench", "test", "check"} <= told
    assert all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in told)


def test_commands_and_their_options_exist() -> None:
    told = re.findall(r"\btagae ((?:[a-z]+ ?)+)", README)
    assert {"simulate", "score", "train", "serve", "config"} <= {command.split()[0] for command in told}
    for line in re.findall(r"^\.venv/bin/tagae (.*)$", README, re.MULTILINE):
        command, *words = line.split()
        shown = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "200"})
        assert shown.exit_code == 0
        assert all(word in shown.stdout for word in words if word.startswith("--"))


def test_files_exist() -> None:
    links = [
        page.parent / target.split("#")[0]
        for page in (*PAGES, ROOT / "CONTRIBUTING.md")
        for target in re.findall(r"\]\(([^)]+)\)", page.read_text("utf-8"))
        if "://" not in target
    ]
    assert len(links) >= 8
    assert [link for link in links if not link.exists()] == []


@pytest.mark.parametrize("text", EXAMPLES)
def test_python_examples_run(text: str, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", text], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("text", re.findall(r"^```toml\n(.*?)^```$", README, re.MULTILINE | re.DOTALL))
def test_settings_of_examples_are_valid(text: str, tmp_path: Path) -> None:
    config = tmp_path / "tagae.toml"
    config.write_text(text, encoding="utf-8")
    settings = load(config)
    assert settings.alert.policies("shop") or (settings.collector.meshes and settings.notify.alertmanagers)


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 2


def test_recordings_block(home: Path) -> None:
    subprocess.run(["bash", "-euc", block("tagae simulate")], cwd=home, check=True, capture_output=True, timeout=300)
    lines = (home / "out" / "verdicts.jsonl").read_text().splitlines()
    assert len(lines) == 300
    assert {"normal", "warming_up"} <= {json.loads(line)["status"] for line in lines}


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.skipif(shutil.which("curl") is None, reason="README uses curl, which is not here")
def test_serve_and_curl_blocks(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(socket.socket()) as probe:
        if not probe.connect_ex(("127.0.0.1", PORT)):
            pytest.skip(f"port {PORT}, which README uses, is taken here")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    with served(block("serve run"), home):
        typed, told, hushed = (
            subprocess.run(["bash", "-euc", block(word)], cwd=home, check=True, capture_output=True, timeout=60)
            for word in ("/snapshots", "/feedback", "/mutes")
        )
    decoder = json.JSONDecoder()
    pushed, end = decoder.raw_decode(typed.stdout.decode())
    assert pushed["status"] == "warming_up"
    assert pushed["sequence"] == 1
    assert {suspect["service"] for suspect in pushed["suspects"]} <= {"shop/web", "shop/cart"}
    assert decoder.decode(typed.stdout.decode()[end:].strip()) == pushed
    kept, end = decoder.raw_decode(told.stdout.decode())
    assert (kept["missed"], kept["services"]) == (True, ["shop/cart"])
    assert decoder.decode(told.stdout.decode()[end:].strip()) == {"feedback": [kept]}
    mute, end = decoder.raw_decode(hushed.stdout.decode())
    assert (mute["services"], mute["in_force"]) == (["shop/cart"], True)
    assert decoder.decode(hushed.stdout.decode()[end:].strip()) == {"mutes": [mute]}, "the last one says nothing"


@contextmanager
def served(text: str, folder: Path) -> Iterator[None]:
    """The block's last line running, `make setup` being done; ended by a signal."""
    *_, command = text.splitlines()
    process = subprocess.Popen(
        ["bash", "-c", f"exec {command}"],
        cwd=folder,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    said = []
    try:
        for line in process.stdout:
            said.append(line)
            if "is ready at" in line:
                break
        else:
            raise AssertionError("".join(said)[-2000:])
        yield
    finally:
        # Not as by Ctrl-C: where this suite runs in a shell's background, the child is born deaf to it.
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
