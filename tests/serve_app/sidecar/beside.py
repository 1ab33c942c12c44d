"""A sidecar in its own process, and helpers to talk to it."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import grpc
import psutil
import pytest
from google.protobuf import json_format

from model.snapshot import MeshSnapshot
from serve_app.api.codec import snapshot_document
from serve_app.sidecar.generated.verdicts_pb2 import Snapshot
from serve_app.sidecar.generated.verdicts_pb2_grpc import VerdictsStub
from tests.serve_app.running import kill_all
from tests.timing import PATIENCE_SECONDS

SECONDS = PATIENCE_SECONDS  # time limit of one request
FAST = {  # one second stands for fifteen
    "collector.interval_seconds": "1",
    "collector.behind_seconds": "0",
    "collector.deadline_seconds": "60",
}


@dataclass(frozen=True, slots=True)
class Sidecar:
    """A running process.

    Attributes:
        process: the sidecar's process.
        address: of its port.
        output: its output until it was ready.
    """

    process: psutil.Process
    address: str
    output: str


@contextmanager
def start_sidecar(
    *arguments: str, settings: Mapping[str, str] | None = None, environment: Mapping[str, str] | None = None
) -> Iterator[Sidecar]:
    """Run ``tagae sidecar`` on a free port. No process is left over."""
    assigned = [part for name, value in (settings or {}).items() for part in ("--set", f"{name}={value}")]
    command = [sys.executable, "-c", "from serve_app.cli import main; main()", "sidecar", "--port", "0"]
    variables = {**os.environ, "COLUMNS": "500", **(environment or {})}
    with subprocess.Popen([*command, *arguments, *assigned], stderr=subprocess.PIPE, text=True, env=variables) as it:
        process = psutil.Process(it.pid)
        try:
            assert it.stderr is not None
            output = []
            for line in it.stderr:
                output.append(line)
                if found := re.search(r"ready at (127\.0\.0\.1:\d+)", line):
                    break
            else:
                pytest.fail("".join(output))
            yield Sidecar(process, found[1], "".join(output))
        finally:
            kill_all(process)


@contextmanager
def open_client(address: str) -> Iterator[VerdictsStub]:
    """Open a client."""
    with grpc.insecure_channel(address) as channel:
        yield VerdictsStub(channel)


def message(snapshot: MeshSnapshot) -> Snapshot:
    """Return a snapshot as the message that a workload pushes."""
    return json_format.ParseDict(snapshot_document(snapshot), Snapshot())
