"""What the benchmark of the start counts."""

import subprocess
import sys
from collections.abc import Iterator

import psutil
import pytest

from benchmarks.bench_start import cpu_seconds, memory
from tests.serve_app.running import eventually

CODE = "import subprocess, sys; print(flush=True); subprocess.run([sys.executable, '-c', 'input()'])"


@pytest.fixture
def command() -> Iterator[psutil.Process]:
    """A process with one below it, which waits for input."""
    with subprocess.Popen([sys.executable, "-c", CODE], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as it:
        assert it.stdout is not None
        it.stdout.readline()
        yield psutil.Process(it.pid)
        it.communicate(b"\n")


def test_processes_below_the_command_count_by_role(command: psutil.Process) -> None:
    assert eventually(command.children)
    sizes = memory(command)
    assert len(sizes["keeper"]) == 1
    assert sum(len(pairs) for pairs in sizes.values()) == 2
    for pss, uss in (pair for pairs in sizes.values() for pair in pairs):
        assert pss >= uss > 0
    assert cpu_seconds(command) >= command.cpu_times().user
