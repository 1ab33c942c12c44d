"""Embeddings of a running service: the routes, and the export."""

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from lab.simulator.mesh.topology import MeshSpec
from model.checkpoint import load
from serve_app.api.client import Client
from serve_app.api.codec import ARROW
from serve_app.api.codec.arrow_embeddings import decode_embeddings
from serve_app.cli import app
from serve_app.pipeline import Mesh, Options, advance, embed
from tests.serve_app.running import Service, push, record_simulation

pytestmark = [pytest.mark.ray, pytest.mark.timeout(240)]

MESH = "embedded"
SNAPSHOTS = record_simulation(MeshSpec(services=30, seed=3), 14)


@pytest.fixture(scope="module")
def verdict(service: Service) -> dict[str, object]:
    return [push(service, MESH, snapshot) for snapshot in SNAPSHOTS][-1]


def test_embeddings_are_those_of_the_stored_state(service: Service, verdict: dict[str, object]) -> None:
    response = service.http.get(f"/v1/meshes/{MESH}/embeddings")
    assert response.headers["content-type"] == ARROW
    found = decode_embeddings(response.content)
    assert (found.mesh, found.model, found.status) == (MESH, verdict["model"], verdict["status"])
    checkpoint, mesh = load(), Mesh()
    for snapshot in SNAPSHOTS:
        _, mesh = advance(checkpoint, mesh, snapshot, Options())
    newest, vectors = embed(checkpoint, mesh.state, Options())
    assert list(found.services) == list(newest.node_ids)
    np.testing.assert_allclose(found.vectors, vectors, rtol=1e-4, atol=1e-5)


@pytest.mark.usefixtures("verdict")
def test_an_export_writes_a_file_for_each_mesh(service: Service, tmp_path: Path) -> None:
    command = ["embeddings", "export", "--to", str(tmp_path), "--url", service.url, "--mesh", MESH]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.stderr
    assert "of 1 meshes" in result.stderr
    with Client(service.url) as client:
        found = client.embeddings(MESH)
    table = pq.read_table(tmp_path / f"{MESH}.parquet")
    assert table["service"].to_pylist() == list(found.services)
    np.testing.assert_allclose(table["embedding"].to_pylist(), found.vectors)
