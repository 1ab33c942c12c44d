"""Places of registries: a folder, and an object store."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest


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
