"""What many tests build: clocks, meshes, incidents, verdicts, recordings, models, certificates, replicas."""

import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import ArrayLike

from model.checkpoint import Checkpoint, load
from model.incidents.open_incident import OpenIncident
from model.mesh_weights import Weights, load_weights
from model.snapshot import EDGE_METRICS, NODE_METRICS, MeshSnapshot
from model.verdict import Incident, Reason, Severity, Status, Verdict
from serve_app.api.schemas.models import ModelPin
from serve_app.exporter import PrometheusInstruments
from serve_app.models.card import describe
from serve_app.models.loader import open_loader
from serve_app.models.registry import Registry
from serve_app.models.served import ServedModels, open_models
from serve_app.pipeline import Mesh, Options, advance
from serve_app.recordings.format import LabelledIncident
from serve_app.recordings.writer import RecordingWriter
from serve_app.settings import Settings
from serve_app.stores.state_store import StateStore

AT = datetime(2026, 3, 1, 3, 12, tzinfo=UTC)
START = datetime(2026, 1, 1, tzinfo=UTC)  # time of the first snapshot
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


def reason(metric: str, observed: float, expected: float, **more: Any) -> Reason:
    """Return a reason since the first snapshot; ``more``: its other fields."""
    return Reason(**{"metric": metric, "observed": observed, "expected": expected, "since": START, **more})


def open_incident(*members: str, **fields: Any) -> OpenIncident:
    """Return a minor incident that opened with the first snapshot; ``fields``: those that differ."""
    return OpenIncident(**{"id": "x", "since": START, "severity": Severity.MINOR, "members": members, **fields})


def incident(*affected: str, **fields: Any) -> Incident:
    """Return a major incident of these services without suspects; ``fields``: those that differ."""
    base: dict[str, Any] = {"id": "a", "since": START, "severity": Severity.MAJOR, "score": 9.0, "suspects": ()}
    return Incident(**base | {"affected": affected, **fields})


def verdict(*incidents: Incident, **fields: Any) -> Verdict:
    """Return a verdict with these incidents, anomalous if there is one; ``fields``: those that differ."""
    base: dict[str, Any] = {"observed_at": AT, "sequence": 20, "mesh_score": 9.0, "threshold": 4.0, "probability": 0.9}
    status = Status.ANOMALOUS if incidents else Status.NORMAL
    return Verdict(**base | {"status": status, "suspects": (), "incidents": incidents, **fields})


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
    content = path.read_bytes()
    card = describe(load(path), content)
    registry.add(content, card)
    return ModelPin(version=card.version, sha256=card.sha256)


def served_models(settings: Settings, weights: Weights) -> ServedModels:
    """The models of a session without a registry."""
    instruments = PrometheusInstruments()
    return ServedModels(settings, weights, open_loader(settings, torch.device("cpu"), instruments), instruments)


def models_of(store: StateStore, registry: Registry, *, sidecar: str | None = None, **settings: Any) -> ServedModels:
    """The models of a session with a registry that has just started; ``sidecar``: its name, if it is one."""
    chosen = Settings(models={"registry": registry.place}, **settings)
    weights = load_weights(chosen.model.weights, chosen.weights_by_mesh)
    models = open_models(chosen, weights, store, PrometheusInstruments(), sidecar)
    models.follow()
    return models


def write_recording(
    folder: Path, snapshots: Iterable[MeshSnapshot], *incidents: LabelledIncident, interval_seconds: float = 15.0
) -> Path:
    with RecordingWriter(folder, interval_seconds) as writer:
        for snapshot in snapshots:
            writer.write(snapshot)
        for one in incidents:
            writer.add_incident(one)
    return folder


def write_certificate(folder: Path) -> tuple[Path, Path]:
    """Write a self-signed certificate for 127.0.0.1, and its key."""
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    subprocess.run([*OPENSSL, "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True)
    return certificate, key


def http_scope(method: str, path: str, *headers: tuple[bytes, bytes], client: object, **more: str) -> dict[str, Any]:
    """Return the ASGI scope of a request over HTTP/1.1; ``more``: fields that differ."""
    base = {"type": "http", "http_version": "1.1", "scheme": "http", "method": method, "path": path}
    return {**base, "headers": headers, "client": client, **more}


def allow_deployments(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let deployments be built in this process, as in a replica, though Ray does not run."""
    context = SimpleNamespace(
        replica_id=SimpleNamespace(unique_id="replica"), _deployment_config=SimpleNamespace(max_ongoing_requests=100)
    )
    monkeypatch.setattr("ray.serve.get_replica_context", lambda: context)
    of_ray = SimpleNamespace(get_session_name=lambda: "session", worker=SimpleNamespace(mode=None))
    monkeypatch.setattr("ray.get_runtime_context", lambda: of_ray)
