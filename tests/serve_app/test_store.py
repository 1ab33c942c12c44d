"""The local store: compare-and-set, a bounded ring, and no loss of acknowledged writes."""

import multiprocessing
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from serve_app.errors import BadMeshName, Overloaded, StoreConflict
from serve_app.settings.base import check_mesh_name
from serve_app.stores.base import StoredMesh, StoredState, StoredVerdict
from serve_app.stores.sqlite import FILE_NAME, LocalStore
from tests.serve_app.store_cases import START, append, at, is_step, snapshots, states


@pytest.fixture
def store(tmp_path: Path) -> Any:
    with closing(LocalStore(tmp_path / "stores")) as opened:
        yield opened


def test_an_appended_snapshot_is_loaded(store: LocalStore) -> None:
    assert store.load("prod") is None
    revision = append(store, 1)
    assert store.load("prod") == StoredMesh("prod", revision, 1, at(1), "digest 1", b"verdict 1")
    assert store.load_state("prod") == StoredState(revision, 1, b"state 1", revision, ())


def test_a_reopened_store_has_the_data(store: LocalStore, tmp_path: Path) -> None:
    append(store, 1)
    with closing(LocalStore(tmp_path / "stores")) as other:
        assert other.load("prod") == store.load("prod")


def test_the_ring_is_bounded_and_in_order(store: LocalStore) -> None:
    for sequence in range(1, 8):
        append(store, sequence)
    assert snapshots(store, "prod") == [b"snapshot 5", b"snapshot 6", b"snapshot 7"]
    assert snapshots(store, "other") == []
    assert store.verdict_at("prod", at(5)) == StoredVerdict("digest 5", b"verdict 5")
    assert store.verdict_at("prod", at(4)) is None
    append(store, 8, keep=1)
    assert snapshots(store, "prod") == [b"snapshot 8"]


def test_verdicts_are_read_from_a_time_on_in_pages(store: LocalStore) -> None:
    for sequence in range(1, 6):
        append(store, sequence, keep=4)
    assert store.verdicts("prod", None, 2) == [b"verdict 2", b"verdict 3"]
    assert store.verdicts("prod", at(3), 10) == [b"verdict 4", b"verdict 5"]
    assert store.verdicts("prod", datetime(1, 1, 1, tzinfo=UTC), 1) == [b"verdict 2"]
    assert store.verdicts("prod", at(5), 10) == []
    assert store.verdicts("other", None, 10) == []


def test_a_window_is_consistent_even_if_read_slowly(store: LocalStore) -> None:
    for sequence in (1, 2, 3):
        append(store, sequence)
    window = store.window("prod")
    read = [next(window)]
    for sequence in (4, 5, 6):
        append(store, sequence)
    assert [*read, *window] == [(1, b"snapshot 1"), (2, b"snapshot 2"), (3, b"snapshot 3")]


@pytest.mark.parametrize("sequence", [0, 1, 2, 4])
def test_a_sequence_that_does_not_follow_is_refused(store: LocalStore, sequence: int) -> None:
    append(store, 1)
    append(store, 2)
    before = store.load("prod")
    with pytest.raises(StoreConflict, match="stored sequence 2") as caught:
        append(store, sequence)
    assert caught.value.details["sequence"] == 2
    assert store.load("prod") == before
    assert snapshots(store, "prod") == [b"snapshot 1", b"snapshot 2"]


def test_a_baseline_comes_first_or_in_between_and_is_not_lost(store: LocalStore) -> None:
    revision = store.replace("prod", b"baseline", revision=0)
    assert store.load("prod") == StoredMesh("prod", revision, 0, None, "", b"")
    assert store.load_state("prod") == StoredState(revision, 0, b"baseline", revision, ())
    with pytest.raises(StoreConflict, match="revision 0"):
        store.replace("prod", b"another", revision=0)
    with pytest.raises(StoreConflict, match="revision 0"):
        append(store, 1, revision=0)  # computed before the baseline was set
    counted = append(store, 1, revision=revision)
    store.replace("prod", b"second baseline", revision=counted)
    loaded = store.load("prod")
    assert loaded is not None
    assert (loaded.sequence, states(store), loaded.verdict) == (1, {1: b"second baseline"}, b"verdict 1")


def test_steps_are_kept_until_the_next_full_state(store: LocalStore) -> None:
    for sequence in range(1, 7):
        revision = append(store, sequence, is_step=is_step(sequence), keep=4)
        full = 1 + 3 * ((sequence - 1) // 3)
        assert states(store) == {number: b"state %d" % number for number in range(full, sequence + 1)}
    store.replace("prod", b"changed", revision=revision)
    assert states(store) == {6: b"changed"}


def test_a_full_state_takes_the_place_of_the_steps_up_to_it(store: LocalStore, tmp_path: Path) -> None:
    base, second, third = (append(store, sequence, is_step=sequence > 1) for sequence in (1, 2, 3))
    before = store.load("prod")
    assert store.compact("prod", b"full", sequence=2, revision=second, state_revision=base)
    assert store.load_state("prod") == StoredState(third, 3, b"full", second, (b"state 3",))
    assert store.load("prod") == before
    append(store, 4, revision=third, is_step=True)
    with closing(LocalStore(tmp_path / "stores")) as other:
        assert states(other) == {2: b"full", 3: b"state 3", 4: b"state 4"}


def test_a_full_state_whose_predecessor_was_replaced_is_not_stored(store: LocalStore) -> None:
    base, second = (append(store, sequence, is_step=sequence > 1) for sequence in (1, 2))
    late = {"sequence": 2, "revision": second, "state_revision": base}
    store.replace("prod", b"changed", revision=second)
    assert not store.compact("prod", b"late", **late)
    assert states(store) == {2: b"changed"}
    store.delete("prod")
    assert not store.compact("prod", b"late", **late)
    append(store, 1)
    append(store, 2, is_step=True)
    assert not store.compact("prod", b"late", **late)
    assert states(store) == {1: b"state 1", 2: b"state 2"}


def test_the_log_is_moved_into_the_file_between_writes(store: LocalStore, tmp_path: Path) -> None:
    log = tmp_path / "stores" / f"{FILE_NAME}-wal"
    for sequence in range(1, 21):
        append(store, sequence, snapshot=bytes(2**20))
    assert log.stat().st_size > 2**24
    store.tidy()
    append(store, 21, snapshot=bytes(2**20))  # begins the log again, and truncates it
    assert log.stat().st_size <= 2**24
    store.tidy()
    assert states(store) == {21: b"state 21"}


def test_a_short_log_is_left_alone(store: LocalStore, tmp_path: Path) -> None:
    """A log that was once long keeps the size to which it was truncated."""
    file = tmp_path / "stores" / FILE_NAME
    for sequence in range(1, 21):
        append(store, sequence, snapshot=bytes(2**20))
    store.tidy()
    append(store, 21, snapshot=bytes(2**20))
    before = file.read_bytes()
    for sequence in range(22, 25):
        append(store, sequence)
        store.tidy()
    assert file.read_bytes() == before, "nothing was moved"
    with closing(sqlite3.connect(file)) as db:
        db.execute("PRAGMA wal_checkpoint(PASSIVE)")
    assert file.read_bytes() != before, "though there was something to move"


def test_a_store_without_its_files_is_not_tidied(store: LocalStore, tmp_path: Path) -> None:
    append(store, 1)
    for path in (tmp_path / "stores").glob(f"{FILE_NAME}*"):
        path.rename(tmp_path / path.name)
    store.tidy()
    assert not list((tmp_path / "stores").glob(f"{FILE_NAME}*"))


def test_a_step_can_follow_a_baseline(store: LocalStore) -> None:
    revision = store.replace("prod", b"baseline", revision=0)
    append(store, 1, revision=revision, is_step=True)
    assert states(store) == {0: b"baseline", 1: b"state 1"}


def test_a_step_without_a_full_state_before_it_is_refused(store: LocalStore) -> None:
    with pytest.raises(ValueError, match="in full, came a step"):
        append(store, 1, is_step=True)
    assert store.load("prod") is None
    append(store, 1)
    append(store, 2, is_step=True)
    store.delete("prod")
    append(store, 1)
    assert states(store) == {1: b"state 1"}


def test_a_mesh_deleted_and_created_again_is_another_mesh(store: LocalStore) -> None:
    revision = append(store, 1)
    assert store.delete("prod")
    assert not store.delete("prod")
    assert (store.load("prod"), snapshots(store, "prod"), store.meshes()) == (None, [], [])
    assert append(store, 1) != revision
    with pytest.raises(StoreConflict):
        append(store, 2, revision=revision)


def test_meshes_are_listed_by_name_and_stored_separately(store: LocalStore) -> None:
    append(store, 1, mesh="b")
    store.replace("a", b"baseline", revision=0)
    listed = [(m.mesh, m.sequence, m.observed_at, m.verdict) for m in store.meshes()]
    assert listed == [("a", 0, None, b""), ("b", 1, at(1), b"verdict 1")]


@pytest.mark.parametrize("name", ["a", "prod-eu.1_x", "0", "a" * 63])
def test_good_names(name: str) -> None:
    assert check_mesh_name(name) == name


@pytest.mark.parametrize("name", ["", "A", "-a", "a-", "a/b", "..", "a b", "é", "a" * 64, "a\n"])
def test_bad_names_are_refused_everywhere(store: LocalStore, name: str) -> None:
    calls = [
        lambda: store.load(name),
        lambda: append(store, 1, mesh=name),
        lambda: store.replace(name, b"", revision=0),
        lambda: store.verdict_at(name, START),
        lambda: store.window(name),
        lambda: store.delete(name),
    ]
    for call in calls:
        with pytest.raises(BadMeshName, match="1 to 63 of a-z"):
            call()


def test_a_ring_of_size_zero_is_an_error(store: LocalStore) -> None:
    with pytest.raises(ValueError, match="keep: expected at least 1"):
        append(store, 1, keep=0)


def test_threads_share_one_store(store: LocalStore) -> None:
    def fill(mesh: str) -> int:
        for sequence in range(1, 21):
            append(store, sequence, mesh=mesh)
        return len(list(store.window(mesh)))

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(fill, ["a", "b", "c", "d"])) == [3] * 4


def test_a_locked_store_reports_when_to_retry(store: LocalStore, tmp_path: Path) -> None:
    with (
        closing(sqlite3.connect(tmp_path / "stores" / FILE_NAME, isolation_level=None)) as other,
        closing(LocalStore(tmp_path / "stores", busy_timeout_seconds=0.01)) as impatient,
    ):
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(Overloaded, match="try again") as caught:
            append(impatient, 1)
        assert caught.value.details["retry_after_seconds"] > 0
        other.execute("ROLLBACK")
        append(impatient, 1)


def _race(directory: Path, name: bytes, until: int, start: Any, won: Connection) -> None:
    """Advance one mesh while others do too. Every success must build on the loaded state."""
    wins = []
    start.wait()
    with closing(LocalStore(directory, busy_timeout_seconds=30)) as store:
        while True:
            mesh = store.load_state("prod")
            sequence = mesh.sequence if mesh else 0
            if sequence >= until:
                break
            try:
                state = (mesh.state if mesh else b"") + name
                append(store, sequence + 1, state=state, revision=mesh.revision if mesh else 0)
                wins.append(sequence + 1)
            except StoreConflict:
                continue
    won.send(wins)


def test_racing_processes_never_both_advance_a_mesh(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    start, pipes, until = context.Barrier(2), [context.Pipe(duplex=False) for _ in range(2)], 200
    racers = [
        context.Process(target=_race, args=(tmp_path, name, until, start, theirs))
        for name, (_, theirs) in zip((b"a", b"b"), pipes, strict=True)
    ]
    for racer, (_, theirs) in zip(racers, pipes, strict=True):
        racer.start()
        theirs.close()  # a racer that dies is an EOFError here
    wins = [ours.recv() for ours, _ in pipes]
    for racer, (ours, _) in zip(racers, pipes, strict=True):
        racer.join()
        ours.close()
    assert sorted(wins[0] + wins[1]) == list(range(1, until + 1))
    with closing(LocalStore(tmp_path)) as store:
        mesh = store.load_state("prod")
    assert mesh is not None
    assert [i for i, name in enumerate(mesh.state.decode(), 1) if name == "a"] == wins[0]
