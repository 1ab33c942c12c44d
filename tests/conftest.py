"""Which tests share a worker when several run at once (``pytest -n 2``)."""

import re
from pathlib import Path
from typing import Any

import pytest

TESTS = Path(__file__).parent


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """One worker for all files that talk to the shared service, so that it is started once; else file by file."""
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            path = nodeid.split("::")[0]
            text = (TESTS.parent / path).read_text(encoding="utf-8")
            return "service" if re.search(r"^def test.*\bservice: Service", text, re.MULTILINE) else path

    return ByFile(config, log)
