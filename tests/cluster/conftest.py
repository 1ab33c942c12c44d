"""One rendering for all tests that check it."""

from pathlib import Path

import pytest

from tests.cluster.cases import DEPLOYMENT_CASES, RAY_SERVICE_CASES, Make
from tests.cluster.rendering import Manifests

_RENDERED: dict[Make, Manifests] = {}


@pytest.fixture(params=[*RAY_SERVICE_CASES, *DEPLOYMENT_CASES])
def manifests(request: pytest.FixtureRequest, tmp_path: Path) -> Manifests:
    """Each rendering in turn."""
    return _render_once(request.param, tmp_path)


@pytest.fixture(params=RAY_SERVICE_CASES)
def ray_service(request: pytest.FixtureRequest, tmp_path: Path) -> Manifests:
    """Each rendering that KubeRay runs."""
    return _render_once(request.param, tmp_path)


@pytest.fixture(params=DEPLOYMENT_CASES)
def one_pod(request: pytest.FixtureRequest, tmp_path: Path) -> Manifests:
    """Each rendering of one pod without KubeRay."""
    return _render_once(request.param, tmp_path)


def _render_once(make: Make, folder: Path) -> Manifests:
    if make not in _RENDERED:
        _RENDERED[make] = make(folder)
    return _RENDERED[make]
