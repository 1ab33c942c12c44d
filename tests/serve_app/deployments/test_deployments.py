"""Decisions of the deployments, without Ray."""

import json
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pytest
import torch

import kernels
from lab.simulator.mesh.topology import MeshSpec
from lab.simulator.simulator import Simulator
from model.checkpoint import load
from model.network.autoencoder import Autoencoder
from model.network.contract import Decoding, MeshGraph, MeshNetwork
from model.scoring.score import PartitionTask, score
from serve_app.app import nest
from serve_app.deployments.http.routes.views import mesh_document
from serve_app.deployments.scoring.in_session import score_parts
from serve_app.deployments.scoring.passes import measure_memory, probe, score_groups
from serve_app.deployments.scoring.replicas import balance
from serve_app.errors import CorruptState
from serve_app.exporter import PrometheusInstruments
from serve_app.metrics import PARTS_SCORED, STAGE
from serve_app.pipeline import Mesh, Options, cut_tasks, prepare
from serve_app.runtime.devices import choose_device
from serve_app.settings import Settings
from serve_app.stores.cache import CachedMesh, MeshCache, size_bytes
from serve_app.stores.records import StoredMesh
from serve_app.stores.scored_snapshot import StoredVerdict, gauges

BUDGET = Settings().alert.budget


def part(index: int, calls: int) -> PartitionTask:
    """Return a task of which only the size matters."""
    rows = np.zeros((1, 45), np.float32)
    none = np.zeros(0, np.int64)
    attended = np.ones(calls, bool)
    return PartitionTask(
        nodes=rows,
        edges=np.zeros((calls, 21), np.float32),
        edge_index=np.zeros((2, calls), np.int32),
        attended_callers=attended,
        attended_callees=attended,
        core=1,
        owned=calls,
        boundary=none,
        part=index,
    )


@pytest.mark.parametrize(
    ("calls", "count", "loads"),
    [
        ([7], 4, [7]),  # one part, one call
        ([5, 5], 1, [10]),
        ([1, 9, 4, 5], 2, [9, 10]),
        ([0, 0, 0, 0], 2, [0, 0]),  # parts without calls are distributed too
    ],
)
def test_groups_are_balanced_and_hold_each_part_once(calls: list[int], count: int, loads: list[int]) -> None:
    groups = balance([part(i, c) for i, c in enumerate(calls)], count)
    assert sorted(sum(len(t.edges) for t in group) for group in groups) == loads
    assert sorted(t.part for group in groups for t in group) == list(range(len(calls)))
    assert max(map(len, groups)) - min(map(len, groups)) <= len(calls) // 2


def test_a_bad_group_does_not_fail_the_others(weights: Path) -> None:
    checkpoint = load(weights)
    good = probe(checkpoint)
    bad = (replace(good[0], edge_index=np.array([[0], [99]], np.int32)),)
    outcomes = score_groups(checkpoint.network, [good, bad, good])
    assert isinstance(outcomes[1], Exception)
    alone = score(checkpoint.network, good)[0]
    for outcome in (outcomes[0], outcomes[2]):
        assert not isinstance(outcome, Exception)
        np.testing.assert_allclose(outcome[0].node_expected, alone.node_expected, atol=1e-6)
    assert score_groups(checkpoint.network, []) == []


class OfLittleMemory(Autoencoder):
    """A network that runs out of memory above a number of services."""

    def __init__(self, network: MeshNetwork, most: int) -> None:
        assert isinstance(network, Autoencoder)
        super().__init__(network.config)
        self.load_state_dict(network.state_dict())
        self.most = most
        self.sizes: list[int] = []

    def forward(self, graph: MeshGraph) -> Decoding:
        self.sizes.append(len(graph.nodes))
        if len(graph.nodes) > self.most:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return super().forward(graph)


def test_a_pass_that_runs_out_of_memory_is_halved(weights: Path, caplog: pytest.LogCaptureFixture) -> None:
    checkpoint = load(weights)
    group = probe(checkpoint)  # two services
    network = OfLittleMemory(checkpoint.network, most=5)
    outcomes = score_groups(network, [group] * 8)
    assert network.sizes == [16, 8, 4, 4, 8, 4, 4]
    assert [record.levelname for record in caplog.records] == ["WARNING"] * 3
    assert "a pass over 8 groups of parts failed, so each half is scored alone: CUDA out of memory" in caplog.text
    alone = score(checkpoint.network, group)[0]
    for outcome in outcomes:
        assert not isinstance(outcome, Exception)
        np.testing.assert_allclose(outcome[0].node_expected, alone.node_expected, atol=1e-6)
    outcomes = score_groups(OfLittleMemory(checkpoint.network, most=1), [group] * 2)
    assert [type(outcome) for outcome in outcomes] == [torch.OutOfMemoryError] * 2


def test_an_uncut_mesh_that_takes_too_much_memory_is_scored_in_parts(
    weights: Path, caplog: pytest.LogCaptureFixture
) -> None:
    checkpoint = load(weights)
    [snapshot] = Simulator(MeshSpec(services=120, namespaces=4, seed=3), snapshots=1).snapshots()
    prepared = prepare(checkpoint, Mesh(), snapshot, Options(max_services=40))
    sizes = [len(task.nodes) for task in cut_tasks(prepared)]
    whole = OfLittleMemory(checkpoint.network, most=120)
    assert [type(outcome) for outcome in score_parts(whole, prepared)] == [tuple] * len(sizes)
    assert whole.sizes == [120]
    parts = OfLittleMemory(checkpoint.network, most=max(sizes) - 1)
    failed = [isinstance(outcome, Exception) for outcome in score_parts(parts, prepared)]
    assert failed == [size == max(sizes) for size in sizes]
    assert not all(failed)
    assert "scored separately" in caplog.text


def test_a_scorer_on_a_cpu_leaves_gpus_alone() -> None:
    instruments = PrometheusInstruments()
    before = kernels.backend_reason("cuda"), torch.cuda.is_initialized()
    measure_memory(torch.device("cpu"), instruments)
    assert (kernels.backend_reason("cuda"), torch.cuda.is_initialized()) == before
    assert b"tagae_gpu_memory_peak_bytes{" not in instruments.text()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_scorer_on_a_gpu_gives_the_scores_of_a_cpu(weights: Path) -> None:
    device, instruments = torch.device("cuda"), PrometheusInstruments()
    assert choose_device("cuda", 0.5, is_promised=True).is_gpu
    here, there = load(weights), load(weights, device)
    for ours, theirs in zip(score(there.network, probe(here)), score(here.network, probe(here)), strict=True):
        for name in ("node_expected", "edge_expected", "structure", "embeddings", "embedding_sum"):
            np.testing.assert_allclose(getattr(ours, name), getattr(theirs, name), rtol=1e-4, atol=1e-4)
    measure_memory(device, instruments)
    (peak,) = re.findall(rb'tagae_gpu_memory_peak_bytes{device="cuda"} (\S+)', instruments.text())
    assert float(peak) > 0


def test_threads_read_the_cache_while_it_evicts() -> None:
    names, entry, done = [str(i) for i in range(40)], CachedMesh(Mesh(), 1), Event()
    cache = MeshCache(10 * size_bytes(entry.mesh))

    def read() -> None:
        while not done.is_set():
            for name in names:
                cache.get(name)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(2) as pool:
            reading = [pool.submit(read) for _ in range(2)]
            try:
                for name in 500 * names:
                    cache.put(name, entry)
            finally:
                done.set()
            for one in reading:
                one.result()
    finally:
        sys.setswitchinterval(interval)
    assert cache.bytes == 10 * size_bytes(entry.mesh)


@pytest.mark.parametrize(
    "verdict",
    [
        StoredVerdict(60, b'{"status":"normal"}', bytes(range(256))),
        StoredVerdict(60, b"{}", b"\x00\n", seconds=0.25, made_at=1_767_225_600.123456, interval=15.0),
        StoredVerdict(60, b"{}", made_at=1.5),
    ],
)
def test_a_verdict_is_loaded_unchanged(verdict: StoredVerdict) -> None:
    assert StoredVerdict.unpack(verdict.pack()) == verdict


def test_a_verdict_of_another_version_is_refused() -> None:
    with pytest.raises(CorruptState, match="use the version that wrote it"):
        StoredVerdict.unpack(b'60 250000\n{"status":"normal"}\n')


def incident(severity: str, *, recovering: bool = False, kind: str = "slow") -> dict[str, Any]:
    return {"severity": severity, "recovering": recovering, "kind": kind, "team": ""}


def verdict_of(**changed: Any) -> bytes:
    known = {
        "status": "normal", "mesh_score": 1.5, "threshold": None, "probability": 0.1, "incidents": [], "coverage": 1.0,
        "silence": None, "muted": [], "reconstruction": None, "replayed": False,
    }  # fmt: skip
    return json.dumps(known | changed).encode()


def test_a_list_has_what_the_state_of_each_mesh_needs() -> None:
    incidents = [
        incident("major", recovering=True),
        incident("minor"),
        incident("minor", recovering=True, kind="telemetry_missing"),
        incident("notice", recovering=True),
    ]
    document = verdict_of(
        status="anomalous", mesh_score=5.5, threshold=3.5, probability=0.9, incidents=incidents, coverage=0.75,
        silence={"services": 4}, muted=[{"hides": ["a/x", "a/y"]}, {"hides": ["a/x"]}],
    )  # fmt: skip
    verdict = StoredVerdict(200, document, made_at=1000.0, interval=30.0)
    row = gauges(StoredMesh("m", 9, 3, datetime(2026, 3, 1, tzinfo=UTC), "", verdict.pack()))
    found = mesh_document(row, 1540.0, BUDGET)
    assert (found.incidents, found.recovering, found.unseen, found.notices) == (3, 1, 1, 1)
    assert (found.silent, found.hidden) == (4, 2)
    assert (found.coverage, found.mesh_score, found.threshold, found.interval_seconds) == (0.75, 5.5, 3.5, 30.0)
    assert found.alert_budget_per_day == BUDGET(200)
    assert mesh_document(gauges(StoredMesh("m", 9, 0, None, "", b"")), 9.0, BUDGET).alert_budget_per_day is None


def test_a_mesh_with_a_baseline_only_is_warming_up() -> None:
    row = gauges(StoredMesh("m", 9, 0, None, "", b""))
    assert (row.status, row.services, row.score, row.made_at) == ("warming_up", 0, None, None)
    assert mesh_document(row, 9.0, BUDGET).age_seconds is None


def test_a_list_has_the_age_of_a_verdict_by_the_clock_of_the_service() -> None:
    document = verdict_of()
    year_1970 = datetime(1970, 1, 1, tzinfo=UTC)  # of a simulated mesh
    row = gauges(StoredMesh("m", 9, 3, year_1970, "", StoredVerdict(2, document, made_at=1000.0).pack()))
    assert mesh_document(row, 1540.0, BUDGET).age_seconds == 540.0
    assert mesh_document(row, 999.0, BUDGET).age_seconds == 0.0, "a clock that is behind"


def test_metrics_have_the_current_meshes() -> None:
    instruments = PrometheusInstruments(replica="r1")
    instruments.count(PARTS_SCORED, 3, scorer="s1")
    instruments.observe(STAGE, 0.004, stage="prepare")
    incidents = [incident(severity) for severity in ("minor", "notice", "notice")]
    document = verdict_of(status="anomalous", mesh_score=7.5, probability=0.9, incidents=incidents)
    at = datetime(2026, 1, 1, tzinfo=UTC)
    text = instruments.text([gauges(StoredMesh("prod", 9, 12, at, "", StoredVerdict(60, document).pack()))]).decode()
    assert 'tagae_parts_scored_total{replica="r1",scorer="s1"} 3.0' in text
    assert 'tagae_stage_seconds_bucket{le="0.005",replica="r1",stage="prepare"} 1.0' in text
    assert 'tagae_mesh_score{mesh="prod"} 7.5' in text
    assert "tagae_mesh_threshold{" not in text
    assert 'tagae_mesh_incidents{mesh="prod"} 1.0' in text
    assert 'tagae_mesh_notices{mesh="prod"} 2.0' in text
    assert 'tagae_mesh_observed_timestamp_seconds{mesh="prod"} 1.7672256e+09' in text
    assert 'tagae_mesh_status{mesh="prod",status="anomalous"} 1.0' in text
    assert 'tagae_mesh_status{mesh="prod",status="normal"} 0.0' in text
    assert "tagae_mesh_score{" not in instruments.text().decode()


def test_dotted_names_meet_nested_values() -> None:
    given = {"scorer.num_replicas": "4", "scorer": {"device": "cpu"}, "model.threads": "1", "config": None}
    assert nest(given) == {
        "scorer": {"num_replicas": "4", "device": "cpu"},
        "model": {"threads": "1"},
        "config": None,
    }
    assert given["scorer"] == {"device": "cpu"}
