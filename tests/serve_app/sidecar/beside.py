"""The service in one process beside a workload, and helpers to talk to it."""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc
import psutil
from google.protobuf import json_format

from model.snapshot import MeshSnapshot
from serve_app.api.codec import snapshot_document
from serve_app.sidecar.generated.verdicts_pb2 import Snapshot
from serve_app.sidecar.generated.verdicts_pb2_grpc import VerdictsStub
from tests.serve_app.running import TAGAE, start_process
from tests.timing import PATIENCE_SECONDS

SECONDS = PATIENCE_SECONDS  # time limit of one request
FAST = {  # one second stands for fifteen
    "collector.interval_seconds": "1",
    "collector.behind_seconds": "0",
    "collector.deadline_seconds": "60",
    "collector.replay_hours": "0",
}
READY = r"(?s)Page: (https?://\S+)/\s.*gRPC: (127\.0\.0\.1:\d+).*Stop with Ctrl-C"


@dataclass(frozen=True, slots=True)
class Sidecar:
    """A running process.

    Attributes:
        process: the process.
        address: of its gRPC port.
        url: of HTTP.
        output: its output until it was ready.
    """

    process: psutil.Process
    address: str
    url: str
    output: str


@contextmanager
def start_sidecar(
    *arguments: str,
    socket: Path | None = None,
    settings: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Iterator[Sidecar]:
    """Run ``tagae serve --single`` on free ports, and on a socket too. No process is left over."""
    places = ["127.0.0.1:0", *([f"unix:{socket}"] if socket else [])]
    every = {"serve.grpc": json.dumps(places), **(settings or {})}
    assigned = [part for name, value in every.items() for part in ("--set", f"{name}={value}")]
    command = [*TAGAE, "serve", "--single", "--port", "0", *arguments, *assigned]
    with start_process(command, READY, {**os.environ, **(environment or {})}) as (process, found):
        yield Sidecar(process, found[2], found[1], found.string)


@contextmanager
def open_client(address: str) -> Iterator[VerdictsStub]:
    with grpc.insecure_channel(address) as channel:
        yield VerdictsStub(channel)


def message(snapshot: MeshSnapshot) -> Snapshot:
    return json_format.ParseDict(snapshot_document(snapshot), Snapshot())
