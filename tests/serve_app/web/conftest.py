"""Stores for meshes that are scored as in a session."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.serve_app.web.slow_service import MESH, SNAPSHOTS
from tests.serve_app.web.watching import Watched


@pytest.fixture
def watched_mesh(tmp_path: Path) -> Iterator[Watched]:
    kept = Watched(tmp_path)
    with closing(kept.store):
        yield kept


@pytest.fixture(scope="session")
def seen_mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    """The recording of a slow service, scored and stored. Tests only read it, or add other meshes."""
    kept = Watched(tmp_path_factory.mktemp("seen"))
    with closing(kept.store):
        kept.see(MESH, SNAPSHOTS)
        yield kept
