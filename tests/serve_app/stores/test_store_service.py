"""A running service whose store is missing, full, or at the limit of meshes."""

import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from serve_app.stores.sqlite.file import FILE_NAME, MARKER_NAME
from tests.serve_app.running import Service, eventually, problem, start_service
from tests.timing import PATIENCE_SECONDS

pytestmark = [pytest.mark.ray, pytest.mark.timeout(300)]
START = datetime(2026, 3, 1, tzinfo=UTC)


def document(sequence: int, services: int = 3) -> dict[str, Any]:
    drawn = random.Random(sequence)
    return {
        "observed_at": (START + timedelta(seconds=15 * sequence)).isoformat(),
        "services": [
            {"namespace": "shop", "name": f"service-{number}", "metrics": {"request_rate": drawn.uniform(10, 20)}}
            for number in range(services)
        ],
        "calls": [],
    }


def push(http: httpx.Client, mesh: str, sequence: int, services: int = 3) -> httpx.Response:
    return http.post(f"/v1/meshes/{mesh}/snapshots", json=document(sequence, services))


def test_a_missing_store_is_503_on_all_routes_until_its_files_are_back(service: Service, tmp_path: Path) -> None:
    http, store = service.http, service.settings.store.path
    for sequence in (1, 2):
        answer = push(http, "store-gone", sequence)
        assert (answer.status_code, answer.json()["sequence"]) == (200, sequence)
    for path in store.iterdir():
        path.rename(tmp_path / path.name)
    try:
        # A probe joins a running check, which may have begun while the files were there.
        assert eventually(lambda: http.get("/readyz").status_code == 503)
        answers = [
            push(http, "store-gone", 3),
            push(http, "store-gone", 2),
            push(http, "another", 1),
            http.post("/v1/meshes/another/baseline", json=document(9)),
            http.get("/v1/meshes/store-gone/verdict"),
            http.get("/v1/meshes/store-gone/verdicts"),
            http.get("/v1/meshes/store-gone/mutes"),
            http.get("/v1/meshes"),
            http.delete("/v1/meshes/store-gone"),
            http.get("/readyz"),
        ]
        for answer in answers:
            detail = problem(answer, 503, "store-gone")["detail"]
            assert "put the same files back" in detail
            assert int(answer.headers["retry-after"]) > 0
        assert http.get("/healthz").status_code == 200  # a restart would not bring the files back
        assert {path.name for path in store.iterdir()} <= {MARKER_NAME}  # no new files were created
    finally:
        for path in tmp_path.iterdir():
            path.rename(store / path.name)
    # A probe joins a running check, and the check of `/healthz` may have begun while the files were missing.
    assert eventually(lambda: http.get("/readyz").status_code == 200)
    answer = push(http, "store-gone", 3)
    assert (answer.status_code, answer.json()["sequence"]) == (200, 3)
    assert http.delete("/v1/meshes/store-gone").status_code == 204


@pytest.mark.slow
def test_a_full_disk_is_freed_over_http(disk: Path) -> None:
    settings = (f"store.path={disk / 'state'}", "scorer.device=cpu", "limits.max_meshes=2")
    chosen = [word for setting in settings for word in ("--set", setting)]
    with (
        start_service("--port", "0", *chosen) as (_, url),
        httpx.Client(base_url=url, timeout=PATIENCE_SECONDS) as http,
    ):
        assert push(http, "small", 1).status_code == 200
        (disk / "ballast").write_bytes(
            bytes(6 * 2**20)
        )  # a file of another program, so that fewer snapshots fill the rest
        statuses: list[int] = []
        while 507 not in statuses:
            answer = push(http, "large", len(statuses) + 1, services=1000)
            statuses.append(answer.status_code)
            assert len(statuses) < 200, "the disk did not become full"
        assert "free space on the disk, or delete unused meshes" in problem(answer, 507, "store-full")["detail"]
        assert statuses.count(200) == len(statuses) - 1 > 3

        detail = problem(push(http, "third", 1), 409, "too-many-meshes")["detail"]
        assert "limits.max_meshes" in detail
        problem(http.post("/v1/meshes/third/baseline", json=document(1)), 409, "too-many-meshes")
        assert [mesh["mesh"] for mesh in http.get("/v1/meshes").json()] == ["large", "small"]

        assert http.delete("/v1/meshes/large").status_code == 204
        for sequence in range(2, 12):
            assert push(http, "small", sequence).json()["sequence"] == sequence
        assert push(http, "third", 1, services=2000).status_code == 200
        assert (disk / "state" / FILE_NAME).exists()
