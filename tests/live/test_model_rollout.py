"""The life of a model under load, on several Ray nodes that share a Redis: train, add, shadow, canary, promote, and a
rollback by rule. Every snapshot has one verdict, of the weights that the verdict names."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lab.simulator.mesh.topology import MeshSpec
from model.checkpoint import SHIPPED, load, save
from model.snapshot import MeshSnapshot
from serve_app.api.client import Client
from serve_app.api.schemas.models import ModelPin, RolloutAction, TrialDocument
from serve_app.cli import app
from serve_app.cli.models import find_version
from serve_app.errors import UnknownModel
from serve_app.models.card import write_card
from serve_app.models.rollout import pins_of, uses_candidate
from tests.live.loaded_cluster import CLIENT_SECONDS, Cluster, run_under_load
from tests.live.redis import ON_RAY_NODES
from tests.serve_app.running import record_simulation
from tests.serve_app.test_kills import await_that

pytestmark = ON_RAY_NODES

MESHES = (3, 4, 5, 6, 7)  # seeds
LIMITS = {  # only a model that hardly ever agrees is rolled back
    "min_agreement": 0.5,
    "max_alerts": "inf",
}


def tagae(*arguments: object) -> str:
    done = CliRunner().invoke(app, list(map(str, arguments)), env={"COLUMNS": "1000"})
    assert done.exit_code == 0, done.output
    return done.stdout.strip()


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Weights after a few steps of training."""
    weights = tmp_path_factory.mktemp("trained") / "mine.safetensors"
    size = ("--meshes", 6, "--snapshots", 200, "--steps", 10, "--meta-steps", 10)
    tagae("train", weights, *size, "--parent", load(SHIPPED).digest)
    return weights


@pytest.fixture(scope="module")
def nervous(trained: Path) -> Path:
    """The shipped weights with a page level so low that almost every snapshot raises an alert."""
    weights = trained.with_name("nervous.safetensors")
    shipped = load(SHIPPED)
    save(replace(shipped, page_offset=shipped.page_offset - 8.0), weights)
    write_card(weights, parent=shipped.digest)
    return weights


def record_calm(spec: MeshSpec, length: int) -> list[MeshSnapshot]:
    return record_simulation(spec, length)


def last_models(cluster: Cluster) -> dict[str, set[str]]:
    """The models of the last two verdicts of each mesh."""
    return {sender.mesh: {verdict["model"] for verdict in sender.verdicts[-2:]} for sender in cluster.senders}


def await_models(cluster: Cluster, client: Client) -> None:
    """Wait until each mesh has verdicts of the model that the rollout says."""
    rollout, default = client.models().rollout, load(SHIPPED).digest
    pins = {sender.mesh: pins_of(rollout, sender.mesh)[0] for sender in cluster.senders}
    wanted = {mesh: {default if pin is None else pin.version} for mesh, pin in pins.items()}
    await_that(lambda: last_models(cluster) == wanted, f"verdicts of {wanted}", CLIENT_SECONDS)


@pytest.mark.parametrize("place", ["session", "replicas"])
def test_a_model_is_tried_promoted_and_replaced_under_load(
    tmp_path: Path, trained: Path, nervous: Path, place: str
) -> None:
    registry = tmp_path / "models"
    mine, bad = (tagae("models", "add", weights, "--registry", registry) for weights in (trained, nervous))
    with (
        run_under_load(
            tmp_path,
            seeds=MESHES,
            record=record_calm,
            model={},
            models={"registry": str(registry), **LIMITS},
            scorer={"device": "cpu", "place": place},
        ) as cluster,
        Client(cluster.nodes.url, patience_seconds=CLIENT_SECONDS) as client,
    ):
        cluster.weights.extend([trained, nervous])
        assert find_version(client.models().models, mine).parent == load(SHIPPED).digest

        client.try_model(mine, 0.0)
        await_that(lambda: compared(client, mine) >= 60, "snapshots scored in the shadow", 2 * CLIENT_SECONDS)
        assert set().union(*last_models(cluster).values()) == {load(SHIPPED).digest}, "the shadow is silent"

        client.try_model(mine, share_of_some(cluster, mine))
        await_models(cluster, client)
        assert len({frozenset(models) for models in last_models(cluster).values()}) == 2, "some meshes, not all"

        client.promote_model(mine)
        await_models(cluster, client)
        rollout = client.models().rollout
        assert (rollout.trial, rollout.history[-1].action) == (None, RolloutAction.PROMOTE)

        client.roll_back_model(reason="for this test")
        await_models(cluster, client)
        assert set().union(*last_models(cluster).values()) == {load(SHIPPED).digest}

        client.try_model(bad, 1.0)
        await_that(lambda: client.models().rollout.trial is None, "a rollback by rule", 2 * CLIENT_SECONDS)
        event = client.models().rollout.history[-1]
        assert (event.action, event.by) == (RolloutAction.ROLLBACK, "")
        assert event.reason.startswith("it agrees with the baseline in")
        await_models(cluster, client)
        assert set().union(*last_models(cluster).values()) == {load(SHIPPED).digest}
        cluster.await_verdicts()
    used = {verdict["model"] for sender in cluster.senders for verdict in sender.verdicts}
    assert used == {load(SHIPPED).digest, mine, bad}


def share_of_some(cluster: Cluster, version: str) -> float:
    """A share with which some meshes use a candidate, but not all: which ones depends on its version."""
    pin = ModelPin(version=version, sha256="0" * 64)
    for share in (i / 20 for i in range(1, 20)):
        trial = TrialDocument(candidate=pin, baseline=None, share=share, since=datetime(2026, 3, 1, tzinfo=UTC))
        if 0 < sum(uses_candidate(sender.mesh, trial) for sender in cluster.senders) < len(cluster.senders):
            return share
    raise AssertionError("no share divides the meshes")


def compared(client: Client, version: str) -> int:
    """How many snapshots both models of a trial have scored."""
    try:
        return client.compare_models(version).snapshots
    except UnknownModel:  # none yet
        return 0
