"""What all tests of the page share."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.page.browsing import Tab, chromium, tab


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A Chromium for the tests of one file."""
    with chromium() as one:
        yield one


@pytest.fixture
def one(browser: Any, base: str) -> Iterator[Tab]:
    """A tab at the service of the file, its fixture ``base``; the page must not have complained at the end."""
    with tab(browser, base) as opened:
        yield opened
        opened.assert_clean()
