"""Recordings: written and read values are equal, memory is small, and losses are reported."""

import json
import multiprocessing
import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model.snapshot import EDGE_METRICS, NODE_METRICS, MeshSnapshot, NodeMetric, PlannedChange, Signal, SignalKind
from serve_app.cli.reading import notes
from serve_app.collect.base import SnapshotSource
from serve_app.errors import BadRecording
from serve_app.recordings import reader as recording_reader
from serve_app.recordings import writer as recording_writer
from serve_app.recordings.format import LabelledIncident
from serve_app.recordings.reader import RecordingReader
from serve_app.recordings.writer import RecordingWriter

START = datetime(2026, 3, 1, tzinfo=UTC)
SHARED = Path(__file__).parents[4] / "shared" / "recordings"


def _mesh(seed: int, services: int, calls: int, at: datetime, changes: tuple[PlannedChange, ...] = ()) -> MeshSnapshot:
    """Return a random mesh with a third of its values unobserved."""
    rng = np.random.default_rng(seed)
    pairs = rng.choice(services * services, size=min(calls, services * services), replace=False)
    nodes = rng.random((services, len(NODE_METRICS)), dtype=np.float32)
    edges = rng.random((len(pairs), len(EDGE_METRICS)), dtype=np.float32)
    nodes[rng.random(nodes.shape) < 1 / 3] = np.nan
    edges[:, 1:][rng.random((len(pairs), 3)) < 1 / 3] = np.nan
    names = [f"ns-{i % 3}/a/{i}:é" for i in rng.permutation(services)]
    measured = rng.random((services, len(SignalKind))) < 0.1
    return MeshSnapshot.create(
        node_ids=names,
        edge_index=np.stack([pairs // services, pairs % services]),
        node_features=nodes,
        edge_features=edges,
        observed_at=at,
        changes=changes,
        signals=[Signal(kind, names[row], rng.random()) for row, kind in zip(*_places(measured), strict=True)],
    )


def _places(measured: np.ndarray[Any, Any]) -> tuple[list[int], list[SignalKind]]:
    rows, kinds = np.nonzero(measured)
    return rows.tolist(), [list(SignalKind)[kind] for kind in kinds]


def _write(path: Path, snapshots: Iterator[MeshSnapshot] | list[MeshSnapshot], **meta: Any) -> RecordingReader:
    with RecordingWriter(path, 15, meta) as writer:
        for snapshot in snapshots:
            writer.write(snapshot)
    return RecordingReader(path)


@given(
    shapes=st.lists(st.tuples(st.integers(1, 6), st.integers(0, 12)), max_size=5),
    gaps=st.lists(st.timedeltas(timedelta(microseconds=1), timedelta(days=2)), min_size=5, max_size=5),
    batch_rows=st.integers(1, 9),
    seed=st.integers(0, 2**32),
)
@settings(deadline=None, max_examples=40)
def test_a_recording_is_read_as_written_for_any_batch_size(
    tmp_path_factory: pytest.TempPathFactory,
    shapes: list[tuple[int, int]],
    gaps: list[timedelta],
    batch_rows: int,
    seed: int,
) -> None:
    change = PlannedChange("deploy", "ns-0/a", "v2")
    times = [START + sum(gaps[: i + 1], timedelta()) for i in range(len(shapes))]
    snapshots = [
        _mesh(seed + i, *shape, time, changes=(change,) * (i % 3))
        for i, (shape, time) in enumerate(zip(shapes, times, strict=True))
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recording_reader, "BATCH_ROWS", batch_rows)
        patch.setattr(recording_writer, "BATCH_ROWS", batch_rows)
        reader = _write(tmp_path_factory.mktemp("recording"), snapshots)
        back = list(reader.snapshots())
    assert [(s.observed_at, s.digest) for s in back] == [(s.observed_at, s.digest) for s in snapshots]
    assert (reader.dropped_calls, reader.unmeasured_calls) == (0, 0)
    assert reader.meta["counts"]["snapshots"] == len(snapshots)


def test_a_reader_is_a_source_with_its_metadata(tmp_path: Path) -> None:
    reader: SnapshotSource = _write(tmp_path / "new" / "folder", [_mesh(0, 3, 4, START)], seed=7)
    assert reader.interval_seconds == 15
    assert len(list(reader.snapshots())) == len(list(reader.snapshots())) == 1
    assert RecordingReader(tmp_path / "new" / "folder").meta["seed"] == 7


def test_incidents_keep_their_further_columns(tmp_path: Path) -> None:
    late = LabelledIncident(START + timedelta(hours=2), START + timedelta(hours=3), "cpu", "cart", "cpu_utilization")
    early = LabelledIncident(START, START + timedelta(hours=1), "delay", "pay", details={"severity": 3.5})
    with RecordingWriter(tmp_path, 15) as writer:
        writer.add_incident(late)
        writer.add_incident(early)
    first, second = RecordingReader(tmp_path).incidents()
    assert first == early
    assert (second.start, second.root_cause_metric, second.details) == (
        late.start,
        "cpu_utilization",
        {"severity": None},
    )
    assert pq.read_schema(tmp_path / "incidents.parquet").names[:3] == ["start", "end", "kind"]


def _tables(folder: Path, *, times: list[int], **columns: list[Any]) -> RecordingReader:
    """Write a recording of one service, as another tool would: with other types and few columns."""
    stamps = pa.array([START + timedelta(seconds=s) for s in times], pa.timestamp("ms", tz="UTC"))
    nodes = {"service": ["a"] * len(times), "namespace": ["n"] * len(times), "request_rate": [1.0] * len(times)}
    pq.write_table(pa.table({"time": stamps, **nodes, **columns}), folder / "nodes.parquet")
    _edges(folder, [])
    (folder / "meta.json").write_text('{"sampling_interval_seconds": 60}', encoding="utf-8")
    return RecordingReader(folder)


def _edges(folder: Path, rows: list[tuple[int, str, str, float | None]]) -> None:
    seconds, sources, destinations, rates = zip(*rows, strict=True) if rows else ((), (), (), ())
    columns = {
        "time": pa.array([START + timedelta(seconds=s) for s in seconds], pa.timestamp("us", tz="UTC")),
        "source": pa.array(sources, pa.large_string()),
        "source_namespace": pa.array(["n"] * len(rows), pa.large_string()),
        "destination": pa.array(destinations, pa.string()).dictionary_encode(),
        "destination_namespace": pa.array(["n"] * len(rows), pa.string()),
        "requests_per_second": pa.array(rates, pa.float64()),
    }
    pq.write_table(pa.table(columns), folder / "edges.parquet")


def test_absent_columns_and_nulls_are_not_observed(tmp_path: Path) -> None:
    reader = _tables(tmp_path, times=[0, 60], request_rate=[1.5, None])
    first, second = reader.snapshots()
    assert first.node_observed.tolist() == [[True] + [False] * 6]
    assert not second.node_observed.any()
    assert first.num_edges == 0
    assert reader.incidents() == []


def test_impossible_calls_are_left_out_and_counted(tmp_path: Path) -> None:
    reader = _tables(tmp_path, times=[0, 0, 60, 120], service=["a", "b", "a", "a"])
    before, between, after = (-5, "a", "a", 1.0), (90, "a", "a", 1.0), (500, "a", "a", 1.0)
    at_start = [(0, "a", "b", 1.0), (0, "a", "gone", 1.0), (0, "b", "a", None)]
    _edges(tmp_path, [before, *at_start, (60, "a", "b", 1.0), (60, "a", "a", 0.0), between, after])
    snapshots = list(reader.snapshots())
    assert [s.edge_index.tolist() for s in snapshots] == [[[0, 0], [1, 2]], [[0, 0], [1, 0]], [[], []]]
    assert (reader.dropped_calls, reader.unmeasured_calls) == (3, 1)


def test_an_end_of_a_call_without_a_row_is_a_service_without_measurements(tmp_path: Path) -> None:
    reader = _tables(tmp_path, times=[0, 0], service=["b", "a"])
    _edges(tmp_path, [(0, "a", "z", 1.0), (0, "b", "z", 2.0), (0, "c", "b", 3.0), (0, "d", "a", None)])
    [snapshot] = reader.snapshots()
    assert snapshot.node_ids == ("n/b", "n/a", "n/c", "n/z")
    assert snapshot.node_observed.any(axis=1).tolist() == [True, True, False, False]
    assert snapshot.edge_index.tolist() == [[1, 0, 2], [3, 3, 0]]
    assert (reader.dropped_calls, reader.unmeasured_calls) == (0, 1)


def test_events_belong_to_the_first_snapshot_at_or_after_them(tmp_path: Path) -> None:
    reader = _tables(tmp_path, times=[0, 60, 120])
    events = {
        "time": pa.array(
            [START + timedelta(seconds=s) for s in (90, -10, 60, 61, 500)], pa.timestamp("us")
        ),  # without a time zone
        "kind": ["late", "early", "on time", "next", "after the end"],
        "object": ["n/a"] * 5,
    }
    pq.write_table(pa.table(events), tmp_path / "events.parquet")
    assert [[c.kind for c in s.changes] for s in reader.snapshots()] == [["early"], ["on time"], ["next", "late"]]
    assert reader.changes()[0] == (START - timedelta(seconds=10), PlannedChange("early", "n/a"))


def test_a_change_of_no_service_is_left_out_and_counted(tmp_path: Path) -> None:
    reader = _tables(tmp_path, times=[0], service=["bank gateway"])
    events = {"time": [START] * 3, "kind": ["deploy"] * 3, "object": ["cart", "n/bank gateway", "n/retired"]}
    pq.write_table(pa.table(events), tmp_path / "events.parquet")
    (snapshot,) = reader.snapshots()
    assert [one.service for one in snapshot.changes] == ["n/bank gateway", "n/retired"]
    assert reader.unnamed_changes == 1
    assert list(notes([reader])) == [f"{tmp_path.name}: left out 1 planned change: its object is no service"]


def test_signals_are_optional_and_read_at_their_time(tmp_path: Path) -> None:
    first, second, third = (_mesh(i, 1, 0, START + timedelta(seconds=15 * i)) for i in range(3))
    first, second, third = (replace(one, signals=()) for one in (first, second, third))
    lag = Signal(SignalKind.QUEUE_DEPTH, second.node_ids[0], 5200.0)
    _write(tmp_path / "without", [first, second])
    assert not (tmp_path / "without" / "signals.parquet").exists()
    reader = _write(tmp_path / "with", [first, replace(second, signals=(lag,)), third])
    assert pq.read_table(tmp_path / "with" / "signals.parquet").to_pylist() == [
        {
            "time": second.observed_at,
            "service": "a/0:é",
            "namespace": "ns-0",
            "kind": "queue_depth",
            "value": 5200.0,
        }
    ]
    assert [snapshot.signals for snapshot in reader.snapshots()] == [(), (lag,), ()]


def test_an_unknown_kind_of_signal_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "recording"
    reader = _write(folder, [replace(_mesh(0, 1, 0, START), signals=())])
    rows = [{"time": START, "service": "a/0:é", "namespace": "ns-0", "kind": "queue", "value": 1.0}]
    pq.write_table(pa.Table.from_pylist(rows), folder / "signals.parquet")
    with pytest.raises(BadRecording, match=r"time .*: kind: expected one of cpu_throttling, .*, got 'queue'"):
        list(reader.snapshots())


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"times": [0, 120, 60]}, r"nodes\.parquet, row 2: expected rows sorted by time"),
        ({"service": ["a", "a"], "times": [0, 0]}, r"2026-03-01T00:00:00\+00:00: node 1: 'n/a' was already given"),
        ({"service": ["a", None], "times": [0, 0]}, r"node 1: expected an id"),
        ({"error_rate": [1.5], "times": [60]}, r"00:01:00\+00:00: node 0: error_rate: expected a ratio"),
        ({"time": ["today"], "times": [0]}, "time: expected a timestamp column, got string"),
        ({"time": pa.array([None], pa.timestamp("us", tz="UTC")), "times": [0]}, "time: expected a value in every row"),
    ],
)
def test_impossible_rows_are_refused_with_their_place(tmp_path: Path, columns: dict[str, Any], words: str) -> None:
    with pytest.raises(BadRecording, match=words):
        list(_tables(tmp_path, **columns).snapshots())


def test_a_missing_column_is_named(tmp_path: Path) -> None:
    reader = _tables(tmp_path, times=[0])
    pq.write_table(pq.read_table(tmp_path / "nodes.parquet").drop(["namespace"]), tmp_path / "nodes.parquet")
    with pytest.raises(BadRecording, match=r"nodes\.parquet: expected the columns .*; add namespace"):
        list(reader.snapshots())


def test_a_truncated_file_is_named(tmp_path: Path) -> None:
    reader = _write(tmp_path, [_mesh(0, 50, 100, START)])
    nodes = tmp_path / "nodes.parquet"
    nodes.write_bytes(nodes.read_bytes()[:-20])
    with pytest.raises(BadRecording, match=r"nodes\.parquet: expected a whole Parquet file"):
        list(reader.snapshots())


@pytest.mark.parametrize(
    "meta", ["", "[]", "{}", '{"sampling_interval_seconds": "?"}', '{"sampling_interval_seconds": 0}']
)
def test_wrong_metadata_is_refused(tmp_path: Path, meta: str) -> None:
    _write(tmp_path, [])
    (tmp_path / "meta.json").write_text(meta, encoding="utf-8")
    with pytest.raises(BadRecording, match="sampling_interval_seconds"):
        RecordingReader(tmp_path)


def test_the_writer_requires_order_and_keeps_existing_files(tmp_path: Path) -> None:
    with pytest.raises(BadRecording, match="oldest first"):
        _write(tmp_path, [_mesh(0, 2, 1, START), _mesh(1, 2, 1, START)])
    with pytest.raises(BadRecording, match=r"missing: meta\.json"):
        RecordingReader(tmp_path)
    assert (
        len(list(_write(tmp_path, [_mesh(2, 2, 1, START)]).snapshots())) == 1
    )  # the unfinished recording is overwritten
    with pytest.raises(BadRecording, match="got a complete recording"):
        RecordingWriter(tmp_path, 15)


def _write_for_ever(folder: Path, progress: Connection) -> None:
    with RecordingWriter(folder, 15) as writer:
        for i in range(1_000_000):
            writer.write(_mesh(i, 300, 600, START + timedelta(seconds=15 * i)))
            progress.send(i)


def test_a_killed_writer_leaves_no_recording_that_looks_complete(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    writer = context.Process(target=_write_for_ever, args=(tmp_path, theirs))
    writer.start()
    try:
        theirs.close()
        while ours.recv() < 150:  # more rows than one row group
            pass
        assert writer.pid is not None
        os.kill(writer.pid, signal.SIGKILL)
    finally:
        writer.kill()
        writer.join()
        ours.close()
    assert (tmp_path / "edges.parquet").stat().st_size > 0
    with pytest.raises(BadRecording, match="its writer did not finish"):
        RecordingReader(tmp_path)


def test_memory_does_not_grow_with_the_length(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording_reader, "BATCH_ROWS", 2_000)
    monkeypatch.setattr(recording_writer, "BATCH_ROWS", 2_000)

    def peak_bytes(snapshots: int) -> int:
        meshes = (_mesh(i, 50, 200, START + timedelta(seconds=15 * i)) for i in range(snapshots))
        reader = _write(tmp_path / str(snapshots), meshes)
        before = pa.total_allocated_bytes()
        return max(pa.total_allocated_bytes() - before for _ in reader.snapshots())

    assert peak_bytes(600) < 1.5 * peak_bytes(60)


@pytest.mark.parametrize(
    ("name", "snapshots", "services", "calls", "incidents"),
    [
        ("petshop/low_traffic-normal", 589, 41, 43, 0),
        ("petshop/low_traffic-issues-train", 40, 42, 44, 8),
        ("petshop/low_traffic-issues-test", 90, 42, 44, 18),
        ("petshop/high_traffic-issues-train", 40, 44, 47, 8),
        ("petshop/temporal_traffic1-issues-train", 10, 41, 43, 2),
        ("petshop/temporal_traffic1-issues-test", 30, 41, 43, 6),
        ("petshop/temporal_traffic2-issues-train", 10, 41, 43, 2),
        ("nezha-onlineboutique/2022-08-22", 1209, 10, 13, 24),
    ],
)
def test_shared_recordings_are_read_whole(name: str, snapshots: int, services: int, calls: int, incidents: int) -> None:
    if not SHARED.is_dir():
        pytest.skip(f"the shared recordings are not at {SHARED}")
    reader = RecordingReader(SHARED / name)
    read = list(reader.snapshots())
    assert len(read) == snapshots
    assert {s.num_nodes for s in read} == {services}
    assert max(s.num_edges for s in read) == calls
    assert sum(s.num_edges for s in read) == reader.meta["counts"]["edge_rows"]
    assert (reader.dropped_calls, reader.unmeasured_calls) == (0, 0)
    assert len(reader.incidents()) == incidents
    missing = 1 - np.mean([s.node_observed[:, NodeMetric.P99_LATENCY].mean() for s in read])
    assert missing == pytest.approx(reader.meta["missing_share"]["p99_latency"], abs=1e-4)
    assert json.dumps(reader.meta)
