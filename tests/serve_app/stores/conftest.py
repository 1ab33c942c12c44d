"""What tests of stores share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.serve_app.stores.small_disk import mount_disk


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 12 MB."""
    with mount_disk(tmp_path / "disk", 12 * 2**20) as folder:
        yield folder
