"""Exported files give the verdicts of the network that they were made from."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from lab.export.check import TOLERANCE, DifferentOutputs, require_same
from lab.export.files import FORMATS, OPSET, Run
from lab.export.program import INPUTS, OUTPUTS
from lab.simulator.events.faults import Fault
from lab.simulator.mesh.topology import MeshSpec
from lab.simulator.simulator import Simulator
from model.checkpoint import Checkpoint, load
from model.network.contract import Decoding, MeshGraph, MeshNetwork
from model.snapshot import MeshSnapshot
from model.verdict import Status, Verdict
from serve_app.pipeline import Mesh, Options, advance

pytest.importorskip("onnxscript", reason="the export extra is not installed")
SCORE_TOLERANCE = 1e-3  # of scores and probabilities in verdicts, which are sums over many outputs


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("exports")
    for kind, (write, _) in FORMATS.items():
        write(load(), folder / f"tagae.{kind}")
    return {kind: folder / f"tagae.{kind}" for kind in FORMATS}


class FromFile(nn.Module):
    """A network whose passes run in an exported file."""

    Config: ClassVar[type[Any]] = object

    def __init__(self, network: MeshNetwork, run: Run) -> None:
        super().__init__()
        self.config, self.of_network, self.run, self.passes = network.config, network, run, 0

    def forward(self, graph: MeshGraph) -> Decoding:
        self.passes += 1
        masks = [torch.zeros(len(graph.edges), dtype=torch.bool) for _ in range(2)]
        for mask, side in zip(masks, (graph.callers, graph.callees), strict=True):
            mask[side.edges] = True
        inputs = graph.nodes, graph.edges, graph.edge_index, *masks
        return Decoding(*map(torch.from_numpy, self.run([tensor.numpy() for tensor in inputs])))

    def structure(self, z_source: Tensor, z_target: Tensor, source: Tensor, target: Tensor) -> Tensor:
        return self.of_network.structure(z_source, z_target, source, target)


def recording() -> list[MeshSnapshot]:
    """A mesh with a slow service, and with services that come and go."""
    spec = MeshSpec(services=40, seed=7, namespaces=4)
    culprit = next(iter(Simulator(spec, snapshots=1).snapshots())).node_ids[5]
    fault = Fault("latency_injection", culprit, 45, 70, 6.0)
    return list(Simulator(spec, (fault,), snapshots=75).snapshots())


def verdicts(checkpoint: Checkpoint, options: Options) -> list[Verdict]:
    mesh, verdicts = Mesh(), []
    for snapshot in recording():
        verdict, mesh = advance(checkpoint, mesh, snapshot, options)
        verdicts.append(verdict)
    return verdicts


@pytest.mark.slow
@pytest.mark.parametrize("options", [Options(), Options(max_services=15)], ids=["whole", "cut"])
def test_a_recording_gets_the_same_verdicts(exported: dict[str, Path], options: Options) -> None:
    ours = verdicts(load(), options)
    assert Status.ANOMALOUS in {verdict.status for verdict in ours}, "the recording has an incident"
    for kind, path in exported.items():
        network = FromFile(load().network, FORMATS[kind][1](path))
        theirs = verdicts(replace(load(), network=network), options)
        assert network.passes >= len(theirs), "every snapshot went through the file"
        for theirs_verdict, ours_verdict in zip(theirs, ours, strict=True):
            assert theirs_verdict.status is ours_verdict.status
            assert culprits(theirs_verdict) == culprits(ours_verdict)
            for number in ("mesh_score", "threshold", "probability"):
                approximately = pytest.approx(getattr(ours_verdict, number), rel=SCORE_TOLERANCE, abs=SCORE_TOLERANCE)
                assert getattr(theirs_verdict, number) == approximately


def culprits(verdict: Verdict) -> list[Any]:
    """The suspects of the mesh and of each incident, best first."""
    return [
        [suspect.service for suspect in verdict.suspects],
        *([suspect.service for suspect in incident.suspects] for incident in verdict.incidents),
    ]


def test_a_file_says_what_it_is_and_needs_standard_operators_only(exported: dict[str, Path]) -> None:
    import onnx

    model = onnx.load(exported["onnx"])
    onnx.checker.check_model(model, full_check=True)
    assert [(opset.domain, opset.version) for opset in model.opset_import] == [("", OPSET)]
    assert {node.domain for node in model.graph.node} == {""}
    about = {entry.key: entry.value for entry in model.metadata_props}
    assert about["model_version"] == load().digest
    assert json.loads(about["feature_schema"])["version"] == 3
    for names, values in ((INPUTS, model.graph.input), (OUTPUTS, model.graph.output)):
        assert [value.name for value in values] == list(names)
    sizes = [[d.dim_param or d.dim_value for d in tensor.type.tensor_type.shape.dim] for tensor in model.graph.input]
    assert sizes == [["services", 45], ["calls", 21], [2, "calls"], ["calls"], ["calls"]]


def test_a_program_of_torch_has_our_ops(exported: dict[str, Path]) -> None:
    program = torch.export.load(exported["pt2"])
    names = {str(node.target) for node in program.graph.nodes if node.op == "call_function"}
    assert {name for name in names if name.startswith("tagae.")} == {
        f"tagae.{op}.default" for op in ("edge_dot", "join_sides", "perceptron", "project_and_attend")
    }


@pytest.mark.parametrize("kind", FORMATS)
def test_sizes_vary_at_run_time(exported: dict[str, Path], kind: str) -> None:
    assert require_same(load().network, FORMATS[kind][1](exported[kind])) <= TOLERANCE


def test_a_file_that_differs_is_refused(exported: dict[str, Path]) -> None:
    run = FORMATS["pt2"][1](exported["pt2"])

    def wrong(inputs: Sequence[Any]) -> list[Any]:
        first, *tail = run(inputs)
        return [first + 0.01, *tail]

    with pytest.raises(DifferentOutputs, match=r"embeddings: expected at most 0\.0001 from the network, got 0\.01"):
        require_same(load().network, wrong)
    with pytest.raises(DifferentOutputs, match="got nan"):
        require_same(load().network, lambda inputs: [output * np.nan for output in run(inputs)])
