"""All renderings that the tests check: the shipped manifests, and variants of the chart."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.rendering import ONE_POD_VALUES, SHIPPED, SMALL_VALUES, Manifests, needs_helm, render
from tests.cluster.variants import DEPLOYMENTS, RAY_SERVICES

Make = Callable[[Path], Manifests]


def _from_values(values: dict[str, Any], *files: Path) -> Make:
    return lambda folder: render(folder, values, *files)


def _shipped(name: str) -> Make:
    return lambda _: SHIPPED[name]


RAY_SERVICE_CASES = [
    pytest.param(_shipped("cluster"), id="cluster.yaml"),
    pytest.param(_shipped("gpu"), id="gpu.yaml"),
    pytest.param(_from_values({}, SMALL_VALUES), id="rayservice-small", marks=needs_helm),
    *(pytest.param(_from_values(v), id=f"rayservice-{name}", marks=needs_helm) for name, v in RAY_SERVICES.items()),
]
DEPLOYMENT_CASES = [
    pytest.param(_shipped("one-pod"), id="one-pod.yaml"),
    *(
        pytest.param(_from_values(v, ONE_POD_VALUES), id=f"deployment-{name}", marks=needs_helm)
        for name, v in DEPLOYMENTS.items()
    ),
]
