"""Which tests run by default, and which share a worker when several run at once (``pytest -n 2``)."""

import logging
import re
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from tests.timing import TIME_FACTOR

TESTS = Path(__file__).parent
UNASKED = {"live", "days", "page", "kubernetes"}
LONG = ("slow", "ray")

settings.register_profile("patient", deadline=None)  # no test depends on how fast the machine is
settings.load_profile("patient")


def split_scope(nodeid: str) -> str:
    """Return what one worker runs as a whole: the files that talk to the shared service, or one other file."""
    path = nodeid.split("::")[0]
    return "service" if talks_to_service(path) else path


@cache
def talks_to_service(path: str) -> bool:
    text = (TESTS.parent / path).read_text(encoding="utf-8")
    return re.search(r"^def test.*\bservice: Service", text, re.MULTILINE) is not None


@pytest.hookimpl(trylast=True)  # after -m and -k
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect tests that run on request only, by ``-m live`` or by their folder, unless they are requested.

    Live tests need programs that a checkout does not contain, and processors that no other test uses. Tests of the
    page and of whole days are treated alike. All time limits are multiplied by the factor of the environment.

    Several workers start with the files that take longest, so that none of them runs alone at the end.
    """
    asked = {name for name in UNASKED if re.search(rf"\b{name}\b", config.option.markexpr or "")}
    asked |= {name for name in UNASKED if any(f"tests/{name}" in arg for arg in config.args)}
    unasked = [item for item in items if any(item.get_closest_marker(name) for name in UNASKED - asked)]
    config.hook.pytest_deselected(items=unasked)
    for item in items if TIME_FACTOR != 1 else ():
        if limit := item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(limit.args[0] * TIME_FACTOR), append=False)
    dropped = set(unasked)
    items[:] = [item for item in items if item not in dropped]
    if hasattr(config, "workerinput"):
        long = Counter(split_scope(item.nodeid) for item in items for name in LONG if item.get_closest_marker(name))
        items.sort(key=lambda item: (-long[split_scope(item.nodeid)], split_scope(item.nodeid)))


@pytest.fixture(autouse=True)
def own_log() -> None:
    """Undo the changes of loggers by a service that was started in this process, so that ``caplog`` sees each record
    once."""
    for package in ("serve_app", "model"):
        logger = logging.getLogger(package)
        logger.handlers.clear()
        logger.propagate = True


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Use one worker for all files that talk to the shared service, so that it starts once. Distribute other files."""
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
        def _split_scope(self, nodeid: str) -> str:
            return split_scope(nodeid)

    config.option.loadscopereorder = False  # the hook above has put them in order
    return ByFile(config, log)
