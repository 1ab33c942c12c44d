"""One rendering for all tests that check it."""

from pathlib import Path

import pytest

from tests.cluster.cases import DEPLOYMENT_CASES, RAY_SERVICE_CASES, Make
from tests.cluster.rendering import Rendered

_RENDERED: dict[Make, Rendered] = {}


@pytest.fixture(params=[*RAY_SERVICE_CASES, *DEPLOYMENT_CASES])
def rendered(request: pytest.FixtureRequest, tmp_path: Path) -> Rendered:
    """Each rendering in turn."""
    return _once(request.param, tmp_path)


@pytest.fixture(params=RAY_SERVICE_CASES)
def ray_service(request: pytest.FixtureRequest, tmp_path: Path) -> Rendered:
    """Each rendering that KubeRay runs."""
    return _once(request.param, tmp_path)


@pytest.fixture(params=DEPLOYMENT_CASES)
def one_pod(request: pytest.FixtureRequest, tmp_path: Path) -> Rendered:
    """Each rendering of one pod without KubeRay."""
    return _once(request.param, tmp_path)


def _once(make: Make, folder: Path) -> Rendered:
    if make not in _RENDERED:
        _RENDERED[make] = make(folder)
    return _RENDERED[make]
