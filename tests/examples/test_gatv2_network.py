"""examples/gatv2_network.py: a network of another package is trained, evaluated and served like ours."""

import json
from pathlib import Path

import httpx
import pytest
from typer.testing import Result

pytest.importorskip("torch_geometric", reason="the pyg extra is not installed")

from examples.gatv2_network import GATv2Network
from lab.contracts.networks import NetworkContract
from lab.export.check import TOLERANCE, require_same
from lab.export.files import FORMATS
from model.checkpoint import SHIPPED, Checkpoint, load
from model.errors import IncompatibleWeights
from serve_app.api.codec import snapshot_document
from serve_app.models.registry import Registry
from serve_app.recordings.reader import RecordingReader
from tests.serve_app.cli.command import tagae as run
from tests.serve_app.running import start_service
from tests.site_pages import ROOT
from tests.timing import PATIENCE_SECONDS

NAME = "examples.gatv2_network:GATv2Network"
ALLOWED = f"model.network={NAME}"


class TestGATv2Network(NetworkContract):
    network = GATv2Network


def tagae(*arguments: object) -> Result:
    result = run(*arguments)
    assert result.exit_code == 0, result.stderr
    return result


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("gatv2") / "gatv2.safetensors"
    sizes = ("--meshes", 6, "--snapshots", 200, "--steps", 10, "--meta-steps", 10, "--jobs", 1)
    tagae("train", path, "--network", NAME, *sizes)
    return path


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("recording") / "faulty"
    tagae("simulate", path, "--services", 20, "--calls-per-service", 2, "--snapshots", 120, "--first-fault", 30)
    return path


@pytest.mark.slow
def test_its_checkpoint_is_loaded_only_under_its_name(trained: Path) -> None:
    assert isinstance(load(trained, network=NAME).network, GATv2Network)
    with pytest.raises(IncompatibleWeights, match=r"set model\.network"):
        load(trained)
    refused = run("score", ROOT, "--weights", trained)
    assert refused.exit_code == 1


@pytest.mark.slow
def test_the_registry_has_it_under_its_name(trained: Path, tmp_path: Path) -> None:
    refused = run("models", "add", trained, "--registry", tmp_path)
    assert refused.exit_code == 1
    version = tagae("models", "add", trained, "--registry", tmp_path, "--set", ALLOWED).stdout.strip()
    registry = Registry(str(tmp_path), NAME)
    card = registry.card(version)
    assert card.network == NAME
    assert isinstance(registry.load(version, card.sha256).network, GATv2Network)
    with pytest.raises(IncompatibleWeights, match=r"set model\.network"):
        Registry(str(tmp_path)).load(version, card.sha256)


@pytest.mark.slow
def test_it_is_evaluated(trained: Path, recording: Path, tmp_path: Path) -> None:
    tagae("score", recording, "--weights", trained, "--set", ALLOWED, "-o", tmp_path / "gatv2.jsonl")
    tagae("score", recording, "-o", tmp_path / "tagae.jsonl")
    verdicts = [f"{name}={tmp_path / name}.jsonl" for name in ("gatv2", "tagae")]
    figures = json.loads(tagae("evaluate", recording, "-v", verdicts[0], "-v", verdicts[1], "--json", "-").stdout)
    assert {"gatv2", "tagae"} <= set(json.dumps(figures).replace('"', " ").split())
    lines = {name: (tmp_path / f"{name}.jsonl").read_text("utf-8").splitlines() for name in ("gatv2", "tagae")}
    assert len(lines["gatv2"]) == len(lines["tagae"]) == 120
    assert json.loads(lines["gatv2"][-1])["model"] == load(trained, network=NAME).digest


@pytest.mark.slow
@pytest.mark.ray
def test_it_is_served(trained: Path, recording: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))  # an installed package needs no path
    settings = (ALLOWED, f"model.weights={trained}", f"store.path={tmp_path}", "serve.port=0")
    snapshots = list(RecordingReader(recording).snapshots())[:12]
    digest = load(trained, network=NAME).digest
    with (
        start_service(*(word for setting in settings for word in ("--set", setting))) as (_, url),
        httpx.Client(base_url=url, timeout=PATIENCE_SECONDS) as http,
    ):
        model = http.get("/v1/model").json()
        assert model["digest"] == digest
        assert model["architecture"] == {"hidden": 64, "embedding": 32, "heads": 4, "neighbours": 6}
        for snapshot in snapshots:
            answer = http.post("/v1/meshes/shop/snapshots", content=json.dumps(snapshot_document(snapshot)))
            assert answer.status_code == 200, answer.text
            verdict = answer.json()
        assert verdict["model"] == digest
        assert verdict["status"] in ("normal", "anomalous")


@pytest.mark.slow
@pytest.mark.parametrize("kind", FORMATS)
def test_it_is_exported(kind: str, tmp_path: Path) -> None:
    pytest.importorskip("onnxscript", reason="the export extra is not installed")
    network = GATv2Network(GATv2Network.Config()).eval()
    shipped = load(SHIPPED)
    write, open_file = FORMATS[kind]
    write(
        Checkpoint(network=network, meta=shipped.meta, node_tail=shipped.node_tail, edge_tail=shipped.edge_tail),
        tmp_path / f"gatv2.{kind}",
    )
    assert require_same(network, open_file(tmp_path / f"gatv2.{kind}")) <= TOLERANCE
