"""The history of a mesh: its format, what is written with which snapshot, its limits, and what a kill leaves."""

import json
from collections.abc import Collection, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from lab.simulator.mesh.topology import MeshSpec
from lab.simulator.simulator import Simulator
from model.snapshot import MeshSnapshot, NodeMetric
from serve_app.errors import UnknownMesh
from serve_app.stores.copying import export_history
from serve_app.stores.history import unix
from serve_app.stores.history_files import (
    METRICS,
    MINUTE,
    ROUNDING,
    ROWS,
    TEN_MINUTES,
    MeshRow,
    mesh_rows,
    read_files,
    round_metrics,
    seconds,
)
from serve_app.stores.history_reader import HistoryReader, HistorySpan
from serve_app.stores.history_writer import FileUpdater, block_seconds
from serve_app.stores.records import ChunkKey, HistoryLimit
from serve_app.stores.scored_snapshot import ScoredSnapshot, StoredVerdict
from serve_app.web.period import Subject, TimeRange
from tests.serve_app.web.watching import Watched

START = datetime(2026, 3, 1, tzinfo=UTC)
BLOCK, DAY = 600, 86_400
ROUNDED = 2.0 ** (ROUNDING - 24)  # share of a value
FOREVER = HistoryLimit(timedelta(days=366), timedelta(days=366), 2**30)
ENDLESS = timedelta(days=366)


def snapshot(second: int, rate: float, errors: float = 0.0, services: int = 2) -> MeshSnapshot:
    """Return services of which the first calls the second."""
    nodes = np.full((services, 7), np.nan)
    nodes[:, NodeMetric.REQUEST_RATE], nodes[:, NodeMetric.ERROR_RATE] = rate, errors
    return MeshSnapshot.create(
        node_ids=[f"shop/s{i}" for i in range(services)],
        edge_index=[[0], [1]],
        node_features=nodes,
        edge_features=[[rate, errors, np.nan, np.nan]],
        observed_at=START + timedelta(seconds=second),
    )


def row_of(snapshot: MeshSnapshot, score: float = 1.0, deviation: int = 16) -> ScoredSnapshot:
    deviations = np.full(snapshot.num_nodes + snapshot.num_edges, deviation, np.uint8).tobytes()
    head = {"observed_at": snapshot.observed_at.isoformat(), "status": "normal", "mesh_score": score, "threshold": 3.0}
    return ScoredSnapshot(snapshot, StoredVerdict(snapshot.num_nodes, json.dumps(head).encode(), deviations))


@dataclass
class Chunks:
    """The stored chunks of a mesh whose blocks are written one after the other."""

    limit: HistoryLimit = FOREVER
    files: dict[ChunkKey, bytes] = field(default_factory=dict)

    def write(self, rows: Iterable[ScoredSnapshot], block: int = BLOCK) -> None:
        """Write each block with the first row after it."""
        waiting: list[ScoredSnapshot] = []
        for row in rows:
            if waiting and unix(row.snapshot.observed_at) // block > unix(waiting[-1].snapshot.observed_at) // block:
                updater = FileUpdater(self.limit, {key: len(content) for key, content in self.files.items()}, self.read)
                update = updater.update(waiting, row.snapshot.observed_at, block)
                assert {key for key, content in update.items() if content is None} <= self.files.keys()
                whole = {**self.files, **update}
                self.files = {key: content for key, content in whole.items() if content is not None}
                waiting = []
            waiting.append(row)

    def read(self, keys: Collection[ChunkKey]) -> dict[ChunkKey, pa.Table]:
        return read_files("shop", {key: self.files[key] for key in keys if key in self.files})

    def starts(self, step: int) -> list[int]:
        """Return the beginnings of the chunks, s after the start of the test."""
        return sorted(key.start - unix(START) for key in self.files if key.step == step and not key.part)

    def rates(self, step: int, service: str = "shop/s1") -> dict[int, float]:
        """Return the rate of a service at each row, by the time after the start, s."""
        rates: dict[int, float] = {}
        keys = [key for key in self.files if key.step == step and key.part]
        for table in self.read(keys).values():
            of_service = table.filter(pc.and_(pc.equal(table["service"], service), pc.is_null(table["source"])))
            for at, value in zip(seconds(of_service).tolist(), of_service["request_rate"].to_pylist(), strict=True):
                assert at - unix(START) not in rates, "a row is stored once"
                rates[at - unix(START)] = value
        return dict(sorted(rates.items()))


def test_values_are_rounded_and_extremes_stay() -> None:
    values = np.array([0, 1e-8, 1e-3, 0.5, 1, 99.7, 1e6, 1e12, np.nan], np.float32)
    read = round_metrics(values, ROUNDING)
    assert np.isnan(read[-1])
    assert read[0] == 0
    assert read[1:-1] == pytest.approx(values[1:-1], rel=ROUNDED)


def test_a_minute_has_means_weighted_by_requests_and_the_highest_score() -> None:
    chunks = Chunks()
    minute = [row_of(snapshot(0, 30, 0.4), 1, 16), row_of(snapshot(15, 10, 0.0), 9, 160)]
    chunks.write([*minute, row_of(snapshot(BLOCK, 1))])
    mesh, series = chunks.read(chunks.files).values()
    first, second, call = series.to_pylist()
    at = {"time": START, "source": None, "score": 10}
    nothing = dict.fromkeys(METRICS) | {"requests_per_second": None}
    for name, row in (("shop/s0", first), ("shop/s1", second)):
        rounded = {"request_rate": pytest.approx(20, rel=ROUNDED), "error_rate": pytest.approx(0.3, rel=ROUNDED)}
        assert row == nothing | at | {"service": name} | rounded
    assert (call["source"], call["service"], call["requests_per_second"]) == ("shop/s0", "shop/s1", 20)
    (row,) = mesh_rows(mesh)
    assert row == MeshRow(unix(START), 2, 5, 9, 3, "normal")


def test_calls_of_short_blocks_have_their_mean_over_ten_minutes() -> None:
    chunks = Chunks()
    minutes = [row_of(snapshot(60 * minute, rate)) for minute, rate in enumerate((10, 20, 60))]
    other = snapshot(75, 7)
    calls_back = MeshSnapshot.create(
        node_ids=other.node_ids,
        edge_index=[[1], [0]],
        node_features=other.node_features,
        edge_features=other.edge_features,
        observed_at=other.observed_at,
    )
    chunks.write([*minutes[:2], row_of(calls_back), minutes[2], row_of(snapshot(4 * 3600, 1))], block=60)
    rates: dict[tuple[int, str], list[float]] = {}
    for key, table in chunks.read([key for key in chunks.files if key.part]).items():
        for row in table.to_pylist():
            if row["source"] is not None:
                rates.setdefault((key.step, row["source"]), []).append(row["requests_per_second"])
    mean = pytest.approx(30, rel=ROUNDED)
    assert rates == {(60, "shop/s0"): [mean], (600, "shop/s0"): [mean], (60, "shop/s1"): [7], (600, "shop/s1"): [7]}
    assert chunks.rates(60) == {0: 10, 60: pytest.approx(13.5, rel=ROUNDED), 120: 60}


def test_a_piece_of_another_version_is_left_out_and_deleted_in_the_end(caplog: pytest.LogCaptureFixture) -> None:
    rows = [row_of(snapshot(second, 7)) for second in range(0, 11_000, 60)]
    chunks = Chunks()
    chunks.write(rows[:12])
    old = dict.fromkeys(chunks.files, b"[1,10,[],[]]")
    chunks.files = dict(old)
    chunks.write(rows[10:])
    assert list(chunks.rates(MINUTE)) == [*range(600, 10_800, 60)]
    assert "2 files are of another version" in caplog.text
    assert not {*old.values()} & {*chunks.files.values()}


def test_pieces_become_a_file_when_their_time_is_over() -> None:
    chunks, hour = Chunks(), 3600
    rows = [row_of(snapshot(second, 1 + second // 60)) for second in range(0, 31 * hour + 15, 60)]
    chunks.write(rows[: 50 + 1])
    assert chunks.starts(MINUTE) == [0, 600, 1200, 1800, 2400]
    chunks = Chunks()
    chunks.write(rows)
    assert chunks.starts(MINUTE) == [*range(0, 30 * hour, 3 * hour), *range(30 * hour, 31 * hour, 600)]
    assert chunks.starts(TEN_MINUTES) == [0, 24 * hour, 27 * hour], "a day, and six hours of the next"
    minutes, tens = chunks.rates(MINUTE), chunks.rates(TEN_MINUTES)
    assert list(minutes) == [*range(0, 31 * hour, 60)]
    assert list(minutes.values()) == pytest.approx([1 + minute for minute in range(31 * 60)], rel=ROUNDED)
    assert list(tens.values()) == pytest.approx([10 * i + 5.5 for i in range(30 * 6)], rel=2 * ROUNDED)


def test_a_gap_over_hours_leaves_no_pieces_behind() -> None:
    chunks = Chunks()
    seconds = [*range(0, 1500, 60), *range(20_000, 24_000, 60)]
    chunks.write(row_of(snapshot(second, 5)) for second in seconds)
    assert chunks.starts(MINUTE) == [0, 10_800, 21_600, 22_200, 22_800, 23_400][: len(chunks.starts(MINUTE))]
    assert list(chunks.rates(MINUTE)) == [
        second // 60 * 60 for second in seconds if second // BLOCK < seconds[-1] // BLOCK
    ]


def test_services_are_divided_among_parts_and_come_and_go() -> None:
    chunks = Chunks()
    rows = [row_of(snapshot(second, 7, services=200 if second < 2000 else 40)) for second in range(0, 11_000, 60)]
    chunks.write(rows)
    parts = {key.part for key in chunks.files if key.step == MINUTE}
    assert len(parts) > 3
    assert max(chunks.rates(MINUTE, "shop/s99")) < 2000 <= 10_740 == max(chunks.rates(MINUTE, "shop/s39"))


@pytest.mark.parametrize("most", [60_000, 90_000])
def test_the_oldest_is_deleted_beyond_the_limit_of_bytes(most: int) -> None:
    chunks = Chunks(HistoryLimit(ENDLESS, ENDLESS, most))
    largest, random = 0, np.random.default_rng(0)
    rows = [row_of(snapshot(60 * minute, float(random.exponential(100)))) for minute in range(36 * 60)]
    for begin in range(0, len(rows) - 10, 10):
        chunks.write(rows[begin : begin + 11])
        largest = max(largest, sum(map(len, chunks.files.values())))
    assert 0.5 * most < largest <= most
    newest = max(chunks.rates(MINUTE))
    assert newest == 60 * (len(rows) - 1) // BLOCK * BLOCK - 60
    times = [*chunks.rates(MINUTE)]
    assert times == [*range(times[0], newest + 60, 60)], "without a hole"


def test_minutes_are_deleted_sooner_than_ten_minutes() -> None:
    chunks = Chunks(HistoryLimit(timedelta(hours=5), timedelta(hours=40), 2**30))
    chunks.write(row_of(snapshot(60 * minute, 3)) for minute in range(60 * 60))
    now = 60 * 60 * 60 - 60
    for step, hours in ((MINUTE, 5), (TEN_MINUTES, 40)):
        assert now - hours * 3600 - ROWS[step] * step < min(chunks.rates(step)) <= now - hours * 3600


def test_a_block_is_as_long_as_the_window_surely_holds() -> None:
    assert [block_seconds(120, 15.0), block_seconds(80, 15.0), block_seconds(79, 15.0)] == [600, 600, 60]


# A mesh in a store


@pytest.fixture(scope="module")
def recording() -> list[MeshSnapshot]:
    return list(Simulator(MeshSpec(services=12, calls_per_service=1.5, seed=2), snapshots=130).snapshots())


@pytest.fixture
def whole(tmp_path: Path, recording: list[MeshSnapshot]) -> Iterator[Watched]:
    watched_mesh = Watched(tmp_path / "whole")
    with closing(watched_mesh.store):
        watched_mesh.see("shop", recording)
        yield watched_mesh


def test_a_session_that_ends_within_a_block_loses_and_doubles_nothing(
    whole: Watched, tmp_path: Path, recording: list[MeshSnapshot]
) -> None:
    for begin, end in ((0, 17), (17, 55), (55, 81), (81, 130)):  # each time by another process
        session = Watched(tmp_path / "killed")
        with closing(session.store):
            session.see("shop", recording[begin:end])
            stored = session.store.history("shop", list(session.store.history_sizes("shop")))
    assert stored == whole.store.history("shop", list(whole.store.history_sizes("shop")))
    assert len([key for key in stored if not key.part]) == 3  # blocks that are over


def test_blocks_that_a_killed_session_did_not_write_are_written_by_the_next_one(
    whole: Watched, tmp_path: Path, recording: list[MeshSnapshot]
) -> None:
    def minutes(session: Watched) -> tuple[list[MeshRow], bytes]:
        reader, every = HistoryReader(session.store, "shop"), [HistorySpan(MINUTE, 0, 2**40)]
        return reader.mesh_rows(every), reader.series(every, recording[0].node_ids[3]).values.tobytes()

    counts = []
    for begin, end, tidies in ((0, 45, True), (45, 85, False), (85, 120, True), (120, 130, True)):
        session = Watched(tmp_path / "killed")
        with closing(session.store):
            session.see("shop", recording[begin:end], tidies=tidies)
            counts.append(len(minutes(session)[0]))
            written = minutes(session)
    assert counts == [10, 10, 10, 30]
    assert written == minutes(whole)


def test_the_unfinished_block_is_read_from_the_window(whole: Watched, recording: list[MeshSnapshot]) -> None:
    begin, end = recording[0].observed_at, recording[-1].observed_at
    subject = Subject(recording[0].node_ids[3])
    read = whole.past.range("shop", TimeRange(begin - timedelta(hours=1), end, 2000), subject)
    times = [snapshot.observed_at.replace(second=0) for snapshot in recording]
    assert all(f'"{at.isoformat().replace("+00:00", "Z")}"'.encode() in read for at in times)


def test_a_deleted_mesh_starts_without_history(whole: Watched, recording: list[MeshSnapshot]) -> None:
    whole.meshes.delete("shop")
    assert whole.store.history_sizes("shop") == {}
    whole.see("shop", recording[:50])
    assert {key.start for key in whole.store.history_sizes("shop")} == {unix(recording[0].observed_at)}


def test_the_files_are_exported_as_they_are(whole: Watched, recording: list[MeshSnapshot], tmp_path: Path) -> None:
    count = export_history(whole.store, "shop", tmp_path / "out")
    files = sorted((tmp_path / "out" / "minutes").glob("series-*.parquet"))
    assert count == len(files) + len([*(tmp_path / "out" / "minutes").glob("mesh-*.parquet")]) == 6
    rows = [row for one in files for row in pq.read_table(one).to_pylist()]
    name = recording[0].node_ids[3]
    minutes = [row["time"] for row in rows if row["service"] == name and row["source"] is None]
    assert minutes == sorted({one.observed_at.replace(second=0) for one in recording[:120]})
    with pytest.raises(UnknownMesh):
        export_history(whole.store, "unknown", tmp_path)
