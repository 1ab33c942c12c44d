"""A session whose scorers and meta-model have other weights, as while new ones are rolled out."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from lab.simulator.mesh.topology import MeshSpec
from lab.simulator.simulator import Simulator
from model.checkpoint import load
from model.incidents.policy import AlertPolicy
from model.mesh_weights import Weights
from serve_app.api.codec import encode_verdict
from serve_app.deployments.scoring.passes import score_groups
from serve_app.deployments.scoring.queue import Group, ScoredGroup
from serve_app.deployments.scoring.replicas import ReplicaBackend
from serve_app.models.served import ServedModel
from serve_app.pipeline import Mesh, MetaInput, Options, advance, decide, run_stages
from serve_app.runtime.rpc import Deadline
from tests.serve_app.running import assert_same
from tests.timing import PATIENCE_SECONDS

OPTIONS = Options(max_services=20)


class Response:
    """The answer of a handle."""

    def __init__(self, answer: Awaitable[Any]) -> None:
        self._answer = answer

    def __await__(self) -> Any:
        return self._answer.__await__()

    def cancel(self) -> None:
        """Nothing waits."""


class Method:
    """A method of a handle, in this process."""

    deployment_name = "stand-in"

    def __init__(self, function: Callable[..., Awaitable[Any]]) -> None:
        self._function = function

    def remote(self, *arguments: Any) -> Response:
        return Response(self._function(*arguments))


class Scorer:
    """A scorer and a meta-model with weights of their own."""

    def __init__(self, weights: Weights) -> None:
        self._weights = weights
        self.score, self.decide = Method(self._score), Method(self._decide)

    async def _score(self, group: Group, deadline: Deadline, mesh: str, trace: str, pin: None, weight: float) -> Any:
        assert deadline.remaining_seconds > 0
        checkpoint = self._weights.of(mesh)
        (scores,) = score_groups(checkpoint.network, [group])
        assert not isinstance(scores, Exception)
        return ScoredGroup("scorer-1", checkpoint.digest, scores, 0.0)

    async def _decide(self, meta_input: MetaInput, policy: AlertPolicy, mesh: str, trace: str, pin: None) -> Any:
        return decide(self._weights.of(mesh), meta_input, policy)


@pytest.mark.parametrize("is_same", [True, False])
async def test_a_verdict_has_the_weights_of_its_session(
    weights: Path, is_same: bool, caplog: pytest.LogCaptureFixture
) -> None:
    ours, others = load(weights), load(weights)
    if not is_same:
        with torch.no_grad():
            for parameter in others.network.parameters():
                parameter.mul_(2.0)
        others = replace(others, digest="other")
    place: Any = Scorer(Weights(others))
    replicas = ReplicaBackend(place, place, groups=2)
    mesh, local = Mesh(), Mesh()
    for snapshot in Simulator(MeshSpec(services=60, namespaces=4, seed=3), snapshots=12).snapshots():
        runner = replicas.runner("shop", Deadline.after(PATIENCE_SECONDS), ServedModel(ours))
        advanced = await run_stages(runner, mesh, snapshot, OPTIONS)
        mesh = advanced.mesh
        wanted, local = advance(ours, local, snapshot, OPTIONS)
        assert runner.missing_parts == 0
        assert advanced.verdict.model_digest == ours.digest
        came, expected = (encode_verdict(one).model_dump(mode="json") for one in (advanced.verdict, wanted))
        assert_same(came, expected)
    assert ("the session scores in place of scorer scorer-1" in caplog.text) is not is_same
    assert ("the session decides in place of the meta-model: it has other weights" in caplog.text) is not is_same


async def test_replicas_score_each_mesh_with_its_weights(
    weights: Path, other_weights: Path, caplog: pytest.LogCaptureFixture
) -> None:
    known = Weights(load(weights), {"shop": load(other_weights)})
    place: Any = Scorer(known)
    replicas = ReplicaBackend(place, place, groups=2)
    snapshots = list(Simulator(MeshSpec(services=60, namespaces=4, seed=3), snapshots=12).snapshots())
    for name in ("shop", "plain"):
        mesh, local = Mesh(), Mesh()
        for snapshot in snapshots:
            runner = replicas.runner(name, Deadline.after(PATIENCE_SECONDS), ServedModel(known.of(name)))
            advanced = await run_stages(runner, mesh, snapshot, OPTIONS)
            mesh = advanced.mesh
            wanted, local = advance(known.of(name), local, snapshot, OPTIONS)
            assert runner.missing_parts == 0
            assert advanced.verdict.model_digest == wanted.model_digest == known.of(name).digest
            assert advanced.verdict.mesh_score == pytest.approx(wanted.mesh_score, rel=1e-4)
    assert "other weights" not in caplog.text
