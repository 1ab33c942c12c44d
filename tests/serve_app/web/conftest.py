"""A store of the test for meshes that are scored as in a session."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.serve_app.web.watching import Watched


@pytest.fixture
def watched_mesh(tmp_path: Path) -> Iterator[Watched]:
    kept = Watched(tmp_path)
    with closing(kept.store):
        yield kept
