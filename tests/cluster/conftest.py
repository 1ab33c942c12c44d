"""One rendering for all tests that check it: the shipped manifests, and variants of the chart."""

from pathlib import Path
from typing import Any

import pytest

from tests.cluster.rendering import ONE_POD_VALUES, SHIPPED, SMALL_VALUES, Manifests, needs_helm, render
from tests.cluster.variants import DEPLOYMENTS, RAY_SERVICES

# A shipped manifest by name, or values of the chart and a file with more of them.
Case = str | tuple[dict[str, Any], Path | None]
RAY_SERVICE_CASES = [
    pytest.param("cluster", id="cluster.yaml"),
    pytest.param("gpu", id="gpu.yaml"),
    pytest.param(({}, SMALL_VALUES), id="rayservice-small", marks=needs_helm),
    *(pytest.param((v, None), id=f"rayservice-{name}", marks=needs_helm) for name, v in RAY_SERVICES.items()),
]
DEPLOYMENT_CASES = [
    pytest.param("one-pod", id="one-pod.yaml"),
    *(pytest.param((v, ONE_POD_VALUES), id=f"deployment-{name}", marks=needs_helm) for name, v in DEPLOYMENTS.items()),
]
_RENDERED: dict[int, Manifests] = {}  # by the identity of the case


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


def _render_once(case: Case, folder: Path) -> Manifests:
    if isinstance(case, str):
        return SHIPPED[case]
    if id(case) not in _RENDERED:
        values, file = case
        _RENDERED[id(case)] = render(folder, values, *([file] if file else []))
    return _RENDERED[id(case)]
