"""The program that keeps a service running. Small programs stand for the service."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from serve_app.runtime import keeper
from tests.serve_app.running import eventually
from tests.timing import PATIENCE_SECONDS

BEGIN = """
import os, signal, sys, time
from pathlib import Path
from serve_app.runtime.service_start import ServiceStart
kept = ServiceStart.begin()
starts = Path(sys.argv[1])
with starts.open("a") as file:
    file.write(f"{os.getppid()} {kept.port} {kept.number} {os.environ.get('TAGAE_KEPT')}\\n")
"""


def run(code: str, *arguments: object) -> "subprocess.Popen[str]":
    return subprocess.Popen([sys.executable, "-c", BEGIN + code, *map(str, arguments)], text=True)


def read(starts: Path, count: int) -> list[list[str]]:
    """Wait for as many starts: parent, port and number of each."""
    assert eventually(lambda: starts.exists() and len(starts.read_text().splitlines()) >= count)
    return [line.split() for line in starts.read_text().splitlines()]


@pytest.mark.parametrize("end", ["os.abort()", "os.kill(os.getpid(), signal.SIGKILL)", "sys.exit(75)"])
def test_a_service_that_was_ready_starts_again_with_its_port(tmp_path: Path, end: str) -> None:
    starts = tmp_path / "starts"
    with run(f"kept.report(8123)\n{end} if not kept.number else time.sleep(600)", starts) as process:
        first, second = read(starts, 2)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_SECONDS) == 128 + signal.SIGTERM
    assert first == [str(process.pid), "0", "0", "None"]
    assert second == [str(process.pid), "8123", "1", "None"], "what it starts does not inherit that"


@pytest.mark.parametrize(("end", "code"), [("sys.exit(1)", 1), ("os.abort()", 128 + signal.SIGABRT)])
def test_a_first_start_that_is_impossible_ends_the_command(tmp_path: Path, end: str, code: int) -> None:
    with run(end, tmp_path / "starts") as process:
        assert process.wait(PATIENCE_SECONDS) == code
    assert len(read(tmp_path / "starts", 1)) == 1


def test_a_service_that_was_stopped_does_not_start_again(tmp_path: Path) -> None:
    with run("kept.report(8123); sys.exit(0)", tmp_path / "starts") as process:
        assert process.wait(PATIENCE_SECONDS) == 0


def test_starts_that_fail_are_tried_again_after_longer_pauses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those that are never ready: the first one was."""
    pauses: list[float] = []
    codes = [75, 1, 1, 1, 1, 1, 1, 1, 0]

    class Failing(keeper.Keeper):
        def _wait(self) -> int:
            return codes.pop(0)

        def _read_port(self) -> bytes:
            return b"" if pauses else b"8123"

    def spawn(program: str, command: Sequence[str], variables: dict[str, str]) -> int:
        spawned.append(variables[keeper.VARIABLE])
        return 1

    spawned: list[str] = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    monkeypatch.setattr(os, "posix_spawn", spawn)
    monkeypatch.setattr(signal, "signal", lambda number, handler: None)
    reading, writing = os.pipe()
    try:
        assert Failing(1, reading, writing, ["tagae"]).run() == 0
    finally:
        os.close(reading)
        os.close(writing)
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60]
    assert spawned[-1] == f"{writing} 8123 8"


def test_the_service_ends_with_its_keeper(tmp_path: Path) -> None:
    starts = tmp_path / "starts"
    code = "signal.signal(signal.SIGTERM, lambda *_: (starts.write_text('ended'), os._exit(0)))\n"
    with run(code + "starts.open('a').write('set')\ntime.sleep(600)", starts) as process:
        read(starts, 2)
        process.kill()
    assert eventually(lambda: starts.read_text() == "ended")
