"""Stores and registries: a registry is in a folder, or in an object store. Whatever waits for one is patient."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest

from serve_app.models import loader
from serve_app.models.registry import Registry
from tests.timing import PATIENCE_SECONDS


@pytest.fixture(autouse=True)
def is_patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test depends on how fast weights are loaded."""
    monkeypatch.setattr(loader, "MAX_WAIT_SECONDS", PATIENCE_SECONDS)


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    return Registry(str(tmp_path / "models"))


@pytest.fixture(params=["folder", "object store"])
def place_of_registry(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Where a registry can be; the object store is fsspec's own, in memory."""
    if request.param == "folder":
        yield str(tmp_path / "models")
        return
    name = uuid.uuid4().hex
    yield f"memory://{name}/models"
    files = fsspec.filesystem("memory")
    if files.exists(f"/{name}"):
        files.rm(f"/{name}", recursive=True)
