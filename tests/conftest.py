"""Which tests share a worker when several run at once (``pytest -n 2``)."""

import pytest


@pytest.hookimpl(tryfirst=True)  # before the plugin that reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One worker for all that talk to the shared service, so that it is started once; else a file stays together."""
    for item in items:
        shared = "service" in getattr(item, "fixturenames", ())
        item.add_marker(pytest.mark.xdist_group("service" if shared else item.path.name))
