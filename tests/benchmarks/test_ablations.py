"""Small ablations: inputs that a variant removes have no effect in training and scoring, and weights are cached."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks import figures
from benchmarks.ablation.variants import FULL, OF_NEIGHBOURS, VARIANTS, rank_columns
from benchmarks.ablation.weights import Plan, detector, needs_training, train_variant, weights_path
from benchmarks.ablations import lines
from lab.comparison.lines import score
from lab.comparison.parts import evaluate_task, group_parts, recording_tasks
from lab.comparison.plan import Job
from lab.simulator.events.faults import Fault
from lab.simulator.mesh.topology import MeshSpec
from lab.simulator.simulator import Simulator
from lab.training.dataset import LabelledFault, TrainingRun
from lab.training.meshes import TrainingMeshes
from lab.training.train import TrainingOptions
from model.checkpoint import SHIPPED, Checkpoint, load
from model.incidents.memory import IncidentMemory
from model.scoring.evidence import Evidence
from model.scoring.kinds import EvidenceKind
from model.scoring.meta_inputs import rank_inputs
from model.scoring.score import PartitionScore
from model.scoring.score import score as score_parts
from model.scoring.suspects import suspects
from model.snapshot import MeshSnapshot
from serve_app.pipeline import Mesh, MetaInput, PreparedSnapshot, advance, build_meta_input, calibrate, options, prepare
from serve_app.recordings.format import LabelledIncident
from serve_app.recordings.writer import RecordingWriter
from serve_app.settings import Settings

pytestmark = pytest.mark.slow

OPTIONS = options(Settings())


class Small(Plan):
    """Three meshes for a hundred snapshots; an error burst towards the end of two of them."""

    __slots__ = ()

    def runs(self) -> list[TrainingRun]:
        return [small_run(900), small_run(901), small_run(902)]


def small_run(seed: int) -> TrainingRun:
    simulator = Simulator(MeshSpec(services=20, calls_per_service=2.0, seed=seed), snapshots=100)
    busy = int(np.argmax(simulator.mesh.usual_rate))
    faults = [Fault("error_burst", simulator.node_ids[busy], 60, 80)] if seed != 902 else []
    simulator.schedule(*faults)
    kept = tuple(simulator.snapshots())
    labels = [LabelledFault(kept[f.start].observed_at, kept[f.end].observed_at, f.service) for f in faults]
    return TrainingRun(f"seed {seed}", lambda: kept, tuple(labels))


@pytest.fixture(scope="module")
def shop() -> tuple[list[MeshSnapshot], Fault]:
    """Forty snapshots; the calls into a busy service fail and are slow in the last ten."""
    spec = MeshSpec(services=16, calls_per_service=2.5, seed=8)
    simulator = Simulator(spec, snapshots=40)
    called = np.isin(np.arange(len(simulator.node_ids)), simulator.mesh.topology.destination)
    fault = Fault("error_burst", simulator.node_ids[int(np.argmax(simulator.mesh.usual_rate * called))], 30, 40)
    simulator.schedule(fault)
    return list(simulator.snapshots()), fault


def last(checkpoint: Checkpoint, snapshots: list[MeshSnapshot]) -> tuple[PreparedSnapshot, PartitionScore, MetaInput]:
    """Return the intermediate results of the last snapshot's verdict."""
    mesh = Mesh()
    for snapshot in snapshots[:-1]:
        mesh = advance(checkpoint, mesh, snapshot, OPTIONS)[1]
    laid = prepare(checkpoint, mesh, snapshots[-1], OPTIONS)
    (scores,) = score_parts(checkpoint.network, [laid.whole])
    return (
        laid,
        scores,
        build_meta_input(checkpoint, laid, calibrate(checkpoint, laid, [scores]), snapshots[-1], OPTIONS),
    )


def kinds(evidence: Evidence, *names: str) -> float:
    return float(evidence.kinds[:, [EvidenceKind[name.upper()] for name in names]].max())


def test_removed_inputs_have_no_effect(shop: tuple[list[MeshSnapshot], Fault]) -> None:
    snapshots, _ = shop
    results = {name: last(variant.of(load()), snapshots) for name, variant in VARIANTS.items()}
    laid, _, full = results[FULL]
    into = ("calls_in_latency", "calls_in_error", "calls_out")
    assert kinds(full.evidence, *into) > 3, "there must be inputs to remove"
    assert kinds(results["without_edges"][2].evidence, *into, "structure") < 1e-3
    assert kinds(results["without_edges"][2].evidence, "error", "error_raw") > 3, "other services keep their inputs"
    mute = results["without_network"][1]
    assert not any(values.any() for values in (mute.node_expected, mute.edge_expected, mute.root_cause_logit))
    task = laid.whole
    for name, changed in (
        ("without_h_t", replace(task, edges=1 - task.edges)),
        ("without_graph", replace(task, nodes=np.concatenate([task.nodes[:1] + 5, task.nodes[1:]]))),
    ):
        for variant, alike in ((name, True), (FULL, False)):
            network = VARIANTS[variant].of(load()).network
            before, after = (score_parts(network, [one])[0] for one in (task, changed))
            assert np.array_equal(before.root_cause_logit[1:], after.root_cause_logit[1:]) is alike, (name, variant)
            if name == "without_graph":
                assert np.array_equal(before.edge_expected, after.edge_expected) is alike
                assert np.array_equal(before.node_expected[1:], after.node_expected[1:]) is alike


def test_ranking_without_neighbours_and_by_the_maximum(shop: tuple[list[MeshSnapshot], Fault]) -> None:
    case = last(load(), shop[0])[2]
    evidence, when = case.evidence, case.when
    rows = np.arange(len(evidence.names))

    def rank_rows(one: Checkpoint, changed: Evidence) -> torch.Tensor:
        scores: torch.Tensor = one.meta.rank(rank_inputs(changed, rows))
        return scores

    with torch.inference_mode():
        for kind in OF_NEIGHBOURS:
            louder = evidence.kinds.copy()
            louder[0, kind] += 7
            changed = replace(evidence, kinds=louder)
            moved = np.flatnonzero((rank_inputs(changed, rows) != rank_inputs(evidence, rows)).any(dim=0)).tolist()
            assert set(moved) <= set(rank_columns((kind,))), kind
            deaf = VARIANTS["without_graph"].of(load())
            assert torch.equal(rank_rows(deaf, changed), rank_rows(deaf, evidence))
            assert not torch.equal(rank_rows(load(), changed), rank_rows(load(), evidence))
        maximum = VARIANTS["maximum"].of(load())
        no_preference = np.zeros(len(rows), np.float32)
        named = suspects(maximum.meta, evidence, rows, IncidentMemory(), when, no_preference)
        highest = np.argsort(-evidence.page, kind="stable")[: len(named)]
        assert [suspect.service for suspect in named] == [evidence.names[i] for i in highest]
        inputs = torch.randn(4, 8)
        inputs[1:, 0] = inputs[0, 0]
        assert len(maximum.meta.detect(inputs).unique()) == 1, "only the highest page score counts"


def test_variants_are_trained_cached_scored_and_reported(
    shop: tuple[list[MeshSnapshot], Fault], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshots, fault = shop
    full, weights = tmp_path / "full.safetensors", tmp_path / "weights"
    shutil.copy(SHIPPED, full)
    plan = Small(TrainingMeshes(3), TrainingOptions(steps=10, batch=2, meta_steps=3), full=full)
    names = (FULL, "without_h_t", "without_edges")
    trained = load(full).network.state_dict()
    for name in names[1:]:
        variant, ticks = VARIANTS[name], [0]
        assert needs_training(variant, plan, weights)
        train_variant(variant, plan, weights, ticks.append)
        assert sum(ticks) == plan.steps(variant)
        assert not needs_training(variant, plan, weights), "the cached weights are used"
        assert needs_training(variant, replace(plan, options=replace(plan.options, seed=1)), weights), (
            "other options need other weights"
        )
        network = load(weights_path(name, plan, weights)).network.state_dict()
        same = torch.equal(network["blame.0.weight"], trained["blame.0.weight"])
        assert same is (variant.silence is None), "the autoencoder is trained again only if its inputs are removed"
    assert not needs_training(VARIANTS[FULL], plan, weights)
    full.write_bytes(full.read_bytes() + b" ")
    assert [needs_training(VARIANTS[name], plan, weights) for name in names] == [False, False, True], (
        "training began from those weights"
    )

    recording = tmp_path / "shop" / "day"
    with RecordingWriter(recording, 15.0) as writer:
        for snapshot in snapshots:
            writer.write(snapshot)
        span = snapshots[fault.start].observed_at, snapshots[-1].observed_at
        writer.add_incident(LabelledIncident(*span, fault.kind, fault.service.split("/")[1]))
    job = Job("shared", names, (recording,))
    shutil.copy(SHIPPED, full)
    score(job, tmp_path / "lines", make=lambda name: detector(name, plan, weights), code_digest=str)
    tasks = recording_tasks([job], tmp_path / "lines", names)
    found = lines(group_parts(tasks, [evaluate_task(one) for one in tasks]))
    recalls = {row["detector"]: row for row in found if row["measure"] == "recall"}
    assert list(recalls) == list(names)
    assert "full_ahead" not in recalls[FULL]
    assert recalls["without_edges"]["full_ahead"][0] == recalls[FULL]["value"] - recalls["without_edges"]["value"]
    assert {row["benchmark"] for row in found} == {"ablations"}


def test_the_table_marks_differences_per_incident(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def row(name: str, measure: str, value: float, *ahead: float) -> dict[str, object]:
        rows = {"part": figures.MESH, "measure": measure, "detector": name, "value": value, "low": 0.5, "high": 0.7}
        return rows | ({"full_ahead": list(ahead)} if ahead else {})

    rows = [
        row(FULL, "recall", 0.6), row("maximum", "recall", 0.4, 0.2, 0.1, 0.3), row(FULL, "false_pages_per_hour", 1.0),
        row("without_edges", "recall", 0.55, 0.05, -0.1, 0.2), row("without_edges", "false_pages_per_hour", 2.5),
    ]  # fmt: skip
    (tmp_path / "benchmarks" / "results").mkdir(parents=True)
    (tmp_path / "benchmarks" / "results" / "ablations.jsonl").write_text("\n".join(map(json.dumps, rows)))
    monkeypatch.setattr(figures, "ROOT", tmp_path)
    header, _, line = figures.ablations().splitlines()
    assert header == "| | full | without edge residuals | maximum, no meta-model |"
    assert line.endswith(
        "default threshold: recall, and false alerts per hour | 0.60 (0.50 to 0.70), 1 | 0.55, 2.5 | **0.40** |"
    )
