"""What all tests of the page share."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.page.browsing import Tab, chromium, tab
from tests.page.serving import push_all, serve


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A Chromium for the tests of one file."""
    with chromium() as one:
        yield one


@pytest.fixture(scope="module")
def base(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A service with the ``SETTINGS`` of a test file, to which the snapshots of ``PUSHED``, by mesh, were pushed."""
    with serve(tmp_path_factory.mktemp("state"), getattr(request.module, "SETTINGS", None)) as url:
        for mesh, snapshots in getattr(request.module, "PUSHED", {}).items():
            push_all(url, mesh, snapshots)
        yield url


@pytest.fixture
def one(request: pytest.FixtureRequest, browser: Any, base: str) -> Iterator[Tab]:
    """A tab at the service of the file; at the end the page must not have complained, except of ``IGNORED``."""
    with tab(browser, base) as opened:
        yield opened
        opened.assert_clean(getattr(request.module, "IGNORED", ()))
