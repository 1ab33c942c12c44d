"""One service for all tests that need Ray, because its start takes about ten seconds."""

import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest
import torch

from model.checkpoint import SHIPPED, Checkpoint, load, save
from serve_app.settings import Settings, StoreSettings
from serve_app.stores.opening import open_store
from serve_app.stores.state_store import StateStore
from tests.live.programs import missing_programs
from tests.serve_app.running import Service
from tests.timing import PATIENCE_SECONDS, TIME_FACTOR

if TYPE_CHECKING:
    from tests.live.redis import RedisProgram


@pytest.fixture(scope="session")
def weights() -> Path:
    return SHIPPED


@pytest.fixture(scope="module")
def checkpoint(weights: Path) -> Iterator[Checkpoint]:
    """The shipped weights, with one thread, because several threads are slower on small meshes."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield load(weights)
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def other_weights(weights: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint that gives other scores."""
    checkpoint = load(weights)
    with torch.no_grad():
        for parameter in checkpoint.network.parameters():
            parameter.mul_(1.01)
    path = tmp_path_factory.mktemp("weights") / "other.safetensors"
    save(checkpoint, path)
    return path


@pytest.fixture(scope="session")
def redis_program(tmp_path_factory: pytest.TempPathFactory) -> Iterator["RedisProgram"]:
    """A Redis for all tests of stores; each has its own keys."""
    from tests.live.redis import PROGRAM, RedisProgram

    if missing := missing_programs(PROGRAM):
        pytest.skip(f"not here: {'; '.join(missing)}")
    program = RedisProgram(tmp_path_factory.mktemp("redis"))
    try:
        yield program
    finally:
        program.end()


@pytest.fixture(params=["local", "redis"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> StoreSettings:
    """Settings of an empty store of each kind."""
    if request.param == "local":
        return StoreSettings(path=tmp_path / "stores")
    program: RedisProgram = request.getfixturevalue("redis_program")
    return program.settings(key_prefix=f"t-{uuid.uuid4().hex[:12]}", timeout_seconds=PATIENCE_SECONDS)


@pytest.fixture
def store(place: StoreSettings) -> Iterator[StateStore]:
    with closing(open_store(place)) as opened:
        yield opened


@pytest.fixture
def elsewhere(place: StoreSettings, tmp_path: Path) -> StoreSettings:
    """Settings of another empty store of the same kind."""
    return place.model_copy(update={"path": tmp_path / "elsewhere", "key_prefix": f"{place.key_prefix}-elsewhere"})


@pytest.fixture(scope="session")
def service(weights: Path, other_weights: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """The application on a free loopback port. Meshes above 40 services are cut into parts, and two have other
    weights."""
    from serve_app.app import start, stop

    settings = Settings(
        model={"weights": weights},
        meshes={f"own-{place}": {"weights": other_weights} for place in ("session", "replicas")},
        scorer={"device": "cpu", "num_replicas": 2},
        partition={"max_services": 40},
        # One ingress, since its counters belong to one process.
        serve={"port": 0, "ingress_replicas": 1, "deadline_seconds": 5.0 * TIME_FACTOR},
        limits={"max_services": 500, "max_body_bytes": 2**23},
        store={"path": tmp_path_factory.mktemp("state")},
    )
    url = start(settings)
    try:
        with httpx.Client(base_url=url, timeout=PATIENCE_SECONDS) as http:
            yield Service(url, settings, http)
    finally:
        stop()
