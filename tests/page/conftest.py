"""What all tests of the page share."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.page.browsing import chromium


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A Chromium for the tests of one file."""
    with chromium() as one:
        yield one
