"""A mesh is connected while the service runs: no settings, no restart."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.live.programs import needs
from tests.live.test_doctor_report import MESHES
from tests.live.test_surveyed_series import prometheus_of
from tests.serve_app.running import eventually, problem
from tests.serve_app.sidecar.beside import FAST, start_sidecar
from tests.timing import PATIENCE_SECONDS

pytestmark = [pytest.mark.live, pytest.mark.timeout(600), needs("prometheus", "promtool")]
DEAD = "http://127.0.0.1:9"  # the port of the discard protocol


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with prometheus_of(tmp_path_factory.mktemp("istio"), *MESHES["istio"]) as monitor:
        yield monitor.url


def sequence(http: httpx.Client, mesh: str) -> int:
    """How many snapshots of a mesh have their verdict."""
    listed = {one["mesh"]: one["sequence"] for one in http.get("/v1/meshes").json()}
    return int(listed.get(mesh, 0))


def client(url: str) -> httpx.Client:
    return httpx.Client(base_url=url, timeout=PATIENCE_SECONDS, trust_env=False)


def test_a_connected_mesh_is_read_until_it_is_deleted_also_after_a_restart(prometheus: str, tmp_path: Path) -> None:
    settings = {**FAST, "store.path": str(tmp_path / "state"), "serve.deadline_seconds": "60"}
    with start_sidecar(settings=settings) as sidecar, client(sidecar.url) as http:
        nothing = http.post("/v1/meshes/shop/source", json={"prometheus": DEAD})
        assert DEAD in problem(nothing, 502, "no-telemetry")["detail"]
        assert http.get("/v1/meshes").json() == []
        found = http.post("/v1/meshes/shop/source", json={"prometheus": prometheus})
        assert (found.status_code, found.json()) == (
            200,
            {"services": 4, "calls": 3, "entry_points": ["shop/gw"], "odd": []},
        ), found.text
        assert eventually(lambda: sequence(http, "shop") > 1)
        assert http.get("/v1/meshes/shop").json()["source"]["collected"]
        before = sequence(http, "shop")
        sidecar.process.kill()
        sidecar.process.wait(PATIENCE_SECONDS)
    with start_sidecar(settings=settings) as sidecar, client(sidecar.url) as http:
        assert eventually(lambda: sequence(http, "shop") > before + 1)
        assert http.delete("/v1/meshes/shop").status_code == 204
        assert http.post("/v1/meshes/other/source", json={"prometheus": prometheus}).status_code == 200
        assert eventually(lambda: sequence(http, "other") > 2)
        assert [one["mesh"] for one in http.get("/v1/meshes").json()] == ["other"]
        assert http.delete("/v1/meshes/shop").status_code == 404


def test_the_settings_win(prometheus: str, tmp_path: Path) -> None:
    settings = {**FAST, "store.path": str(tmp_path / "state"), "meshes.shop.prometheus": DEAD}
    with start_sidecar(settings=settings) as sidecar, client(sidecar.url) as http:
        refused = http.post("/v1/meshes/shop/source", json={"prometheus": prometheus})
        assert "in the settings" in problem(refused, 422, "invalid-parameter")["detail"]
