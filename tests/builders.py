"""What many tests build: clocks, meshes, verdicts, models of a registry, certificates and contexts of replicas."""

import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.typing import ArrayLike

from model.checkpoint import Checkpoint, load
from model.snapshot import EDGE_METRICS, NODE_METRICS, MeshSnapshot
from model.verdict import Verdict
from serve_app.api.schemas.models import ModelPin
from serve_app.models.card import describe
from serve_app.models.registry import Registry
from serve_app.pipeline import Mesh, Options, advance

AT = datetime(2026, 3, 1, 3, 12, tzinfo=UTC)
OPENSSL = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
OPENSSL += ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]


@dataclass(slots=True)
class Clock:
    """A clock that stands still until a test moves it, s."""

    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


def mesh_of(
    names: Sequence[str],
    calls: Mapping[tuple[str, str], float] | None = None,
    at: datetime = AT,
    nodes: ArrayLike = np.nan,
) -> MeshSnapshot:
    """Return a mesh with these services, and calls with these rates; their other metrics are not observed.

    ``nodes``: the metrics of each service, or one value for all of them; NaN is not observed.
    """
    row = {name: i for i, name in enumerate(names)}
    rates = dict(calls or {})
    edges = np.full((len(rates), len(EDGE_METRICS)), np.nan)
    edges[:, 0] = list(rates.values())
    return MeshSnapshot.create(
        node_ids=names,
        edge_index=np.array([[row[a], row[b]] for a, b in rates], np.int64).reshape(-1, 2).T,
        node_features=np.broadcast_to(nodes, (len(names), len(NODE_METRICS))),
        edge_features=edges,
        observed_at=at,
    )


def score_all(
    checkpoint: Checkpoint, mesh: Mesh, snapshots: Iterable[MeshSnapshot], options: Options | None = None
) -> tuple[list[Verdict], Mesh]:
    """Return the verdicts on snapshots that follow a state, and the state after them."""
    verdicts = []
    for snapshot in snapshots:
        verdict, mesh = advance(checkpoint, mesh, snapshot, options or Options())
        verdicts.append(verdict)
    return verdicts, mesh


def add_model(registry: Registry, path: Path) -> ModelPin:
    """Add weights to a registry."""
    content = path.read_bytes()
    card = describe(load(path), content)
    registry.add(content, card)
    return ModelPin(version=card.version, sha256=card.sha256)


def write_certificate(folder: Path) -> tuple[Path, Path]:
    """Write a self-signed certificate for 127.0.0.1, and its key."""
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    subprocess.run([*OPENSSL, "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True)
    return certificate, key


def allow_deployments(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let deployments be built in this process, as in a replica, though Ray does not run."""
    context = SimpleNamespace(
        replica_id=SimpleNamespace(unique_id="replica"), _deployment_config=SimpleNamespace(max_ongoing_requests=100)
    )
    monkeypatch.setattr("ray.serve.get_replica_context", lambda: context)
    of_ray = SimpleNamespace(get_session_name=lambda: "session", worker=SimpleNamespace(mode=None))
    monkeypatch.setattr("ray.get_runtime_context", lambda: of_ray)
