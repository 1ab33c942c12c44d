"""What every store does: compare-and-set, a bounded ring, and no loss of acknowledged writes."""

import multiprocessing
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from serve_app.errors import BadMeshName, StoreConflict
from serve_app.settings import StoreSettings
from serve_app.settings.base import check_mesh_name
from serve_app.stores.base import StateStore, StoredMesh, StoredState, StoredVerdict, WholeMesh, WindowRow
from serve_app.stores.opening import open_store
from tests.serve_app.stores.store_cases import START, append, at, found, incident, is_step, snapshots, states


@pytest.fixture
def store(place: StoreSettings) -> Iterator[StateStore]:
    with closing(open_store(place)) as opened:
        yield opened


def test_an_appended_snapshot_is_loaded(store: StateStore) -> None:
    assert store.load("prod") is None
    revision = append(store, 1)
    assert store.load("prod") == StoredMesh("prod", revision, 1, at(1), "digest 1", b"verdict 1")
    assert store.load_state("prod") == StoredState(revision, 1, b"state 1", revision, ())


def test_a_reopened_store_has_the_data(store: StateStore, place: StoreSettings) -> None:
    append(store, 1)
    with closing(open_store(place)) as other:
        assert other.load("prod") == store.load("prod")


def test_the_ring_is_bounded_and_in_order(store: StateStore) -> None:
    for sequence in range(1, 8):
        append(store, sequence)
    assert snapshots(store, "prod") == [b"snapshot 5", b"snapshot 6", b"snapshot 7"]
    assert snapshots(store, "other") == []
    assert store.verdict_at("prod", at(5)) == StoredVerdict("digest 5", b"verdict 5")
    assert store.verdict_at("prod", at(4)) is None
    append(store, 8, keep=1)
    assert snapshots(store, "prod") == [b"snapshot 8"]


def test_verdicts_are_read_from_a_time_on_in_pages(store: StateStore) -> None:
    for sequence in range(1, 6):
        append(store, sequence, keep=4)
    assert store.verdicts("prod", None, 2) == [b"verdict 2", b"verdict 3"]
    assert store.verdicts("prod", at(3), 10) == [b"verdict 4", b"verdict 5"]
    assert store.verdicts("prod", datetime(1, 1, 1, tzinfo=UTC), 1) == [b"verdict 2"]
    assert store.verdicts("prod", at(5), 10) == []
    assert store.verdicts("other", None, 10) == []


def test_a_window_is_consistent_even_if_read_slowly(store: StateStore) -> None:
    for sequence in (1, 2, 3):
        append(store, sequence)
    window = store.window("prod")
    read = [next(window)]
    for sequence in (4, 5, 6):
        append(store, sequence)
    assert [*read, *window] == [(1, b"snapshot 1"), (2, b"snapshot 2"), (3, b"snapshot 3")]


@pytest.mark.parametrize("sequence", [0, 1, 2, 4])
def test_a_sequence_that_does_not_follow_is_refused(store: StateStore, sequence: int) -> None:
    append(store, 1)
    append(store, 2)
    before = store.load("prod")
    with pytest.raises(StoreConflict, match="stored sequence 2") as caught:
        append(store, sequence)
    assert caught.value.details["sequence"] == 2
    assert store.load("prod") == before
    assert snapshots(store, "prod") == [b"snapshot 1", b"snapshot 2"]


def test_a_baseline_comes_first_or_in_between_and_is_not_lost(store: StateStore) -> None:
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


def test_steps_are_kept_until_the_next_full_state(store: StateStore) -> None:
    for sequence in range(1, 7):
        revision = append(store, sequence, is_step=is_step(sequence), keep=4)
        full = 1 + 3 * ((sequence - 1) // 3)
        assert states(store) == {number: b"state %d" % number for number in range(full, sequence + 1)}
    store.replace("prod", b"changed", revision=revision)
    assert states(store) == {6: b"changed"}


def test_a_full_state_takes_the_place_of_the_steps_up_to_it(store: StateStore, place: StoreSettings) -> None:
    base, second, third = (append(store, sequence, is_step=sequence > 1) for sequence in (1, 2, 3))
    before = store.load("prod")
    assert store.compact("prod", b"full", sequence=2, revision=second, state_revision=base)
    assert store.load_state("prod") == StoredState(third, 3, b"full", second, (b"state 3",))
    assert store.load("prod") == before
    append(store, 4, revision=third, is_step=True)
    with closing(open_store(place)) as other:
        assert states(other) == {2: b"full", 3: b"state 3", 4: b"state 4"}


def test_a_full_state_whose_predecessor_was_replaced_is_not_stored(store: StateStore) -> None:
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


def test_a_step_can_follow_a_baseline(store: StateStore) -> None:
    revision = store.replace("prod", b"baseline", revision=0)
    append(store, 1, revision=revision, is_step=True)
    assert states(store) == {0: b"baseline", 1: b"state 1"}


def test_a_step_without_a_full_state_before_it_is_refused(store: StateStore) -> None:
    with pytest.raises(ValueError, match="in full, came a step"):
        append(store, 1, is_step=True)
    assert store.load("prod") is None
    append(store, 1)
    append(store, 2, is_step=True)
    store.delete("prod")
    append(store, 1)
    assert states(store) == {1: b"state 1"}


def test_a_mesh_deleted_and_created_again_is_another_mesh(store: StateStore) -> None:
    revision = append(store, 1)
    assert store.delete("prod")
    assert not store.delete("prod")
    assert (store.load("prod"), snapshots(store, "prod"), store.meshes()) == (None, [], [])
    assert append(store, 1) != revision
    with pytest.raises(StoreConflict):
        append(store, 2, revision=revision)


def test_meshes_are_listed_by_name_and_stored_separately(store: StateStore) -> None:
    append(store, 1, mesh="b")
    store.replace("a", b"baseline", revision=0)
    listed = [(m.mesh, m.sequence, m.observed_at, m.verdict) for m in store.meshes()]
    assert listed == [("a", 0, None, b""), ("b", 1, at(1), b"verdict 1")]


@pytest.mark.parametrize("name", ["a", "prod-eu.1_x", "0", "a" * 63])
def test_good_names(name: str) -> None:
    assert check_mesh_name(name) == name


@pytest.mark.parametrize("name", ["", "A", "-a", "a-", "a/b", "..", "a b", "é", "a" * 64, "a\n"])
def test_bad_names_are_refused_everywhere(store: StateStore, name: str) -> None:
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


def test_a_ring_of_size_zero_is_an_error(store: StateStore) -> None:
    with pytest.raises(ValueError, match="keep: expected at least 1"):
        append(store, 1, keep=0)


def test_threads_share_one_store(store: StateStore) -> None:
    def fill(mesh: str) -> int:
        for sequence in range(1, 21):
            append(store, sequence, mesh=mesh)
        return len(list(store.window(mesh)))

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(fill, ["a", "b", "c", "d"])) == [3] * 4


def _race(place: StoreSettings, name: bytes, until: int, start: Any, won: Connection) -> None:
    """Advance one mesh while others do too. Every success must build on the loaded state."""
    wins = []
    start.wait()
    with closing(open_store(place)) as store:
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


def test_racing_processes_never_both_advance_a_mesh(place: StoreSettings) -> None:
    context = multiprocessing.get_context("spawn")
    start, pipes, until = context.Barrier(2), [context.Pipe(duplex=False) for _ in range(2)], 200
    racers = [
        context.Process(target=_race, args=(place, name, until, start, theirs))
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
    with closing(open_store(place)) as store:
        mesh = store.load_state("prod")
    assert mesh is not None
    assert [i for i, name in enumerate(mesh.state.decode(), 1) if name == "a"] == wins[0]


def fill(store: StateStore) -> WholeMesh:
    """Return a mesh with a full state, steps, a window and an archive."""
    for sequence in range(1, 6):
        ended = incident(sequence, until=at(sequence + 1) if sequence % 2 else None)
        append(store, sequence, is_step=is_step(sequence), incidents=(ended,))
    whole = store.read_whole("prod")
    assert whole is not None
    return whole


def test_a_mesh_is_read_as_a_whole(store: StateStore) -> None:
    assert store.read_whole("prod") is None
    whole = fill(store)
    assert whole.state == store.load_state("prod")
    assert [(one.sequence, one.digest) for one in whole.window] == [
        (number, f"digest {number}") for number in (3, 4, 5)
    ]
    assert whole.window[-1] == WindowRow(5, at(5), "digest 5", b"verdict 5", b"snapshot 5")
    assert [one.id for one in whole.incidents] == [f"incident-{number}" for number in range(1, 6)]
    assert whole.incidents[0] == store.incident("prod", "incident-1")


@pytest.mark.parametrize("steps", [0, 2])
def test_a_copied_mesh_is_the_same_and_continues(
    store: StateStore, place: StoreSettings, tmp_path: Path, steps: int
) -> None:
    whole = fill(store)
    if not steps:
        append(store, 6)
        append(store, 7)
    whole = store.read_whole("prod") or whole
    elsewhere = place.model_copy(update={"path": tmp_path / "copy", "key_prefix": f"{place.key_prefix}-copy"})
    with closing(open_store(elsewhere)) as other:
        other.write_whole("prod", whole)
        assert other.read_whole("prod") == whole
        assert [one.mesh for one in other.meshes()] == ["prod"]
        for read in (store, other):
            revision = append(read, whole.state.sequence + 1, revision=whole.state.revision, incidents=(incident(9),))
            assert revision > whole.state.revision
        assert (snapshots(other), found(other)) == (snapshots(store), found(store))
        assert other.open_incidents("prod") == store.open_incidents("prod")


def test_a_copy_replaces_a_stored_mesh_only_on_request(store: StateStore) -> None:
    whole = fill(store)
    append(store, 6, incidents=(incident(6),))
    with pytest.raises(StoreConflict, match="a copy"):
        store.write_whole("prod", whole)
    assert snapshots(store)[-1] == b"snapshot 6"
    store.write_whole("prod", whole, replace=True)
    assert store.read_whole("prod") == whole
    assert append(store, 6, revision=whole.state.revision) > whole.state.revision


def test_a_mesh_without_a_snapshot_is_copied(store: StateStore) -> None:
    store.replace("prod", b"baseline", revision=0)
    whole = store.read_whole("prod")
    assert whole is not None
    assert (whole.state.state, whole.window, whole.incidents) == (b"baseline", (), ())
    store.write_whole("other", whole)
    assert store.read_whole("other") == whole
