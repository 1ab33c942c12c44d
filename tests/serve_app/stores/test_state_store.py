"""What the service asks of a store, composed of the rows of each database: compare-and-set, a bounded ring, an archive
with limits, no loss of acknowledged writes."""

import multiprocessing
import random
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

import pytest

from lab.contracts.stores import kill_writer
from serve_app.errors import BadMeshName, CorruptState, StoreConflict, TooManyMeshes
from serve_app.settings import StoreSettings
from serve_app.stores.copying import copy_meshes
from serve_app.stores.opening import open_store
from serve_app.stores.records import (
    IncidentFilter,
    StoredDocument,
    StoredMesh,
    StoredState,
)
from serve_app.stores.row_store import SERVICE, Change
from serve_app.stores.rows import LAYOUT, incident_rows, read_index
from serve_app.stores.sqlite.file import FILE_NAME
from serve_app.stores.state_store import StateStore
from tests.serve_app.stores.content import (
    LIMIT,
    START,
    append,
    append_for_ever,
    at,
    check_appended,
    chunk_key,
    chunks,
    contents,
    incident,
    incident_ids,
    is_step,
    random_bytes,
    snapshots,
    states,
    write_history,
)

ARCHIVED = 10_000  # incidents with which the archive is filled again and again


class TestStateStore:
    @pytest.fixture
    def archive(self, place: StoreSettings) -> Iterator[StateStore]:
        """The store at ``place``, whose archives have limits."""
        with closing(open_store(place, archive=LIMIT)) as opened:
            yield opened

    def test_a_store_of_another_layout_is_refused_and_does_not_change(
        self, store: StateStore, place: StoreSettings
    ) -> None:
        append(store, 1)
        store.database.write(SERVICE, Change(puts=[("layout", b"99")]))
        with closing(open_store(place)) as other:
            for use in (lambda: append(other, 2), other.meshes, lambda: other.read_document("rollout")):
                with pytest.raises(CorruptState, match=f"expected layout {LAYOUT}, got 99; another version"):
                    use()
        assert [mesh.sequence for mesh in store.meshes()] == [1]

    def test_a_damaged_layout_counts_as_ours(self, store: StateStore, place: StoreSettings) -> None:
        append(store, 1)
        store.database.write(SERVICE, Change(puts=[("layout", b"\xff")]))
        for _ in range(2):
            with closing(open_store(place)) as other:
                assert [mesh.sequence for mesh in other.meshes()] == [1]

    def test_an_appended_snapshot_is_loaded(self, store: StateStore) -> None:
        assert store.load("prod") is None
        revision = append(store, 1)
        assert store.load("prod") == StoredMesh("prod", revision, 1, at(1), "digest 1", b"verdict 1")
        assert store.load_state("prod") == StoredState(revision, 1, b"state 1", revision, ())

    def test_the_ring_is_bounded_and_in_order(self, store: StateStore) -> None:
        for sequence in range(1, 8):
            append(store, sequence)
        assert snapshots(store, "prod") == [b"snapshot 5", b"snapshot 6", b"snapshot 7"]
        assert snapshots(store, "other") == []
        assert store.verdict_at("prod", at(5)) == ("digest 5", b"verdict 5")
        assert store.verdict_at("prod", at(4)) is None
        append(store, 8, keep=1)
        assert snapshots(store, "prod") == [b"snapshot 8"]

    def test_verdicts_are_read_from_a_time_on_in_pages(self, store: StateStore) -> None:
        for sequence in range(1, 6):
            append(store, sequence, keep=4)
        assert store.verdicts("prod", None, 2) == [b"verdict 2", b"verdict 3"]
        assert store.verdicts("prod", at(3), 10) == [b"verdict 4", b"verdict 5"]
        assert store.verdicts("prod", datetime(1, 1, 1, tzinfo=UTC), 1) == [b"verdict 2"]
        assert store.verdicts("prod", at(5), 10) == []
        assert store.verdicts("other", None, 10) == []

    def test_a_snapshot_of_another_revision_is_refused(self, store: StateStore) -> None:
        first = append(store, 1)
        append(store, 2)
        before = store.load("prod")
        assert before is not None
        for revision in (0, first, before.revision + 1):
            with pytest.raises(StoreConflict, match="stored sequence 2") as caught:
                append(store, 3, revision=revision)
            assert caught.value.details == {"sequence": 2, "revision": before.revision}
        assert store.load("prod") == before
        assert snapshots(store, "prod") == [b"snapshot 1", b"snapshot 2"]

    @pytest.mark.parametrize("sequence", [0, 1, 2, 4])
    def test_a_sequence_that_does_not_follow_is_refused(self, store: StateStore, sequence: int) -> None:
        append(store, 1)
        append(store, 2)
        before = store.load("prod")
        with pytest.raises(StoreConflict, match="stored sequence 2") as caught:
            append(store, sequence)
        assert caught.value.details["sequence"] == 2
        assert store.load("prod") == before
        assert snapshots(store, "prod") == [b"snapshot 1", b"snapshot 2"]
        with pytest.raises(StoreConflict, match="stored sequence 0"):
            append(store, 2, mesh="new")

    def test_a_baseline_comes_first_or_in_between_and_is_not_lost(self, store: StateStore) -> None:
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

    def test_steps_are_kept_until_the_next_full_state(self, store: StateStore) -> None:
        for sequence in range(1, 7):
            revision = append(store, sequence, is_step=is_step(sequence), keep=4)
            full = 1 + 3 * ((sequence - 1) // 3)
            assert states(store) == {number: b"state %d" % number for number in range(full, sequence + 1)}
        store.replace("prod", b"changed", revision=revision)
        assert states(store) == {6: b"changed"}

    def test_a_full_state_takes_the_place_of_the_steps_up_to_it(self, store: StateStore, place: StoreSettings) -> None:
        base, second, third = (append(store, sequence, is_step=sequence > 1) for sequence in (1, 2, 3))
        before = store.load("prod")
        assert store.compact("prod", b"full", sequence=2, revision=second, full=(1, base))
        assert store.load_state("prod") == StoredState(third, 3, b"full", second, (b"state 3",))
        assert store.load("prod") == before
        append(store, 4, revision=third, is_step=True)
        with closing(open_store(place)) as other:
            assert states(other) == {2: b"full", 3: b"state 3", 4: b"state 4"}

    def test_a_full_state_whose_predecessor_was_replaced_is_not_stored(self, store: StateStore) -> None:
        base, second = (append(store, sequence, is_step=sequence > 1) for sequence in (1, 2))
        late = partial(store.compact, "prod", b"late", sequence=2, revision=second, full=(1, base))
        store.replace("prod", b"changed", revision=second)
        assert not late()
        assert states(store) == {2: b"changed"}
        store.delete("prod")
        assert not late()
        append(store, 1)
        append(store, 2, is_step=True)
        assert not late()
        assert states(store) == {1: b"state 1", 2: b"state 2"}

    def test_a_step_can_follow_a_baseline(self, store: StateStore) -> None:
        revision = store.replace("prod", b"baseline", revision=0)
        append(store, 1, revision=revision, is_step=True)
        assert states(store) == {0: b"baseline", 1: b"state 1"}

    def test_a_step_without_a_full_state_before_it_is_refused(self, store: StateStore) -> None:
        with pytest.raises(ValueError, match="in full, got a step"):
            append(store, 1, is_step=True)
        assert store.load("prod") is None
        append(store, 1)
        append(store, 2, is_step=True)
        store.delete("prod")
        append(store, 1)
        assert states(store) == {1: b"state 1"}

    def test_a_mesh_deleted_and_created_again_is_another_mesh(self, store: StateStore) -> None:
        revision = append(store, 1)
        assert store.delete("prod")
        assert not store.delete("prod")
        assert (store.load("prod"), snapshots(store, "prod"), store.meshes()) == (None, [], [])
        assert append(store, 1) != revision
        with pytest.raises(StoreConflict):
            append(store, 2, revision=revision)

    def test_meshes_are_listed_by_name_and_stored_separately(self, store: StateStore) -> None:
        append(store, 1, mesh="b")
        store.replace("a", b"baseline", revision=0)
        listed = [(m.mesh, m.sequence, m.observed_at, m.verdict) for m in store.meshes()]
        assert listed == [("a", 0, None, b""), ("b", 1, at(1), b"verdict 1")]

    @pytest.mark.parametrize("name", ["", "A", "-a", "a-", "a/b", "..", "a b", "é", "a" * 64, "a\n"])
    def test_bad_names_are_refused_everywhere(self, store: StateStore, name: str) -> None:
        calls: list[Callable[[], object]] = [
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

    def test_a_ring_of_size_zero_is_an_error(self, store: StateStore) -> None:
        with pytest.raises(ValueError, match="keep: expected at least 1"):
            append(store, 1, keep=0)

    @pytest.mark.parametrize("steps", [0, 2])
    def test_a_copied_mesh_is_the_same_and_continues(
        self, store: StateStore, elsewhere: StoreSettings, steps: int
    ) -> None:
        fill(store)
        if not steps:
            append(store, 6)
            append(store, 7)
        whole = contents(store)
        with closing(open_store(elsewhere)) as other:
            (copied,) = copy_meshes(store, other, ["prod"], overwrite=False)
            assert copied.sequence == (5 if steps else 7)
            assert contents(other) == whole
            assert [mesh.mesh for mesh in other.meshes()] == ["prod"]
            for read in (store, other):
                again = incident(9)
                revision = append(read, copied.sequence + 1, revision=copied.revision, incidents=(again,))
                assert revision > copied.revision
            assert (snapshots(other), incident_ids(other)) == (snapshots(store), incident_ids(store))
            assert other.open_incidents("prod") == store.open_incidents("prod")

    def test_a_mesh_beyond_the_limit_is_refused_and_changes_nothing(self, place: StoreSettings) -> None:
        with closing(open_store(place, max_meshes=2)) as store:
            append(store, 1, mesh="a")
            store.replace("b", b"baseline", revision=0)
            creations: list[Callable[[], Any]] = [
                lambda: append(store, 1, mesh="c"),
                lambda: store.replace("c", b"baseline", revision=0),
                lambda: store.check_room("c"),
            ]
            for create in creations:
                with pytest.raises(TooManyMeshes, match=r"'c'.*at most 2 .*DELETE .*limits\.max_meshes"):
                    create()
            assert [mesh.mesh for mesh in store.meshes()] == ["a", "b"]
            append(store, 2, mesh="a")  # existing meshes still accept snapshots
            append(store, 1, mesh="b")
            store.check_room("a")
            store.delete("a")
            store.check_room("c")
            append(store, 1, mesh="c")

    def test_a_limit_below_the_number_of_stored_meshes_refuses_new_meshes_only(self, place: StoreSettings) -> None:
        with closing(open_store(place)) as store:
            for mesh in ("a", "b", "c"):
                append(store, 1, mesh=mesh)
        with closing(open_store(place, max_meshes=1)) as store:
            append(store, 2, mesh="c")
            with pytest.raises(TooManyMeshes):
                append(store, 1, mesh="d")

    def test_two_sessions_that_create_meshes_at_once_stay_within_the_limit(self, place: StoreSettings) -> None:
        context = multiprocessing.get_context("spawn")
        start, pipes = context.Barrier(2), [context.Pipe(duplex=False) for _ in range(2)]
        processes = [
            context.Process(target=_create_meshes, args=(place, prefix, start, theirs))
            for prefix, (_, theirs) in zip("ab", pipes, strict=True)
        ]
        for process, (_, theirs) in zip(processes, pipes, strict=True):
            process.start()
            theirs.close()
        created = [ours.recv() for ours, _ in pipes]
        for process, (ours, _) in zip(processes, pipes, strict=True):
            process.join()
            ours.close()
        with closing(open_store(place)) as store:
            assert len(store.meshes()) == sum(created)
            assert sum(created) == 25 if place.kind == "local" else 25 <= sum(created) <= 26

    def test_an_incident_is_written_with_its_snapshot_or_not_at_all(self, archive: StateStore) -> None:
        append(archive, 1, incidents=(incident(1),))
        with pytest.raises(StoreConflict):
            append(archive, 1, incidents=(incident(2),))
        assert archive.open_incidents("prod") == {"incident-1": 1}
        assert archive.incident("prod", "incident-1") == incident(1)
        assert archive.incidents("prod", IncidentFilter()) == [incident(1, details=b"")]
        append(archive, 2, incidents=(incident(1, until=at(2), sequence=2, document=b"ended"),))
        assert archive.open_incidents("prod") == {}
        assert archive.incident("prod", "incident-1") == incident(1, until=at(2), sequence=2, document=b"ended")
        assert (archive.incident("prod", "incident-2"), archive.incident("other", "incident-1")) == (None, None)

    def test_incidents_are_found_by_time_service_kind_and_severity(self, archive: StateStore) -> None:
        append(archive, 1, incidents=(incident(1, until=at(4)), incident(3, kind="gone", severity=3)))
        append(archive, 2, incidents=(incident(5, until=at(9), services=("shop/cart-2",), suspects=("shop/cart-2",)),))
        append(archive, 1, mesh="other", incidents=(incident(7),))
        assert incident_ids(archive) == ["incident-5", "incident-3", "incident-1"]
        assert incident_ids(archive, mesh="other") == ["incident-7"]
        assert incident_ids(archive, since=at(4)) == [
            "incident-5",
            "incident-3",
        ]  # the first was over, the second is open
        assert incident_ids(archive, until=at(3)) == ["incident-1"]
        assert incident_ids(archive, since=at(2), until=at(3)) == ["incident-1"]
        assert incident_ids(archive, services=("shop/web",)) == ["incident-3", "incident-1"]
        assert incident_ids(archive, services=("shop/cart",)) == ["incident-3", "incident-1"]  # a whole name
        assert incident_ids(archive, services=("cart",)) == []
        assert incident_ids(archive, services=("shop/web", "shop/cart")) == ["incident-3", "incident-1"]
        assert incident_ids(archive, services=("shop/web", "shop/cart-2")) == []  # all of them
        assert incident_ids(archive, suspects=("shop/cart-2", "shop/unknown")) == ["incident-5"]
        assert incident_ids(archive, suspects=()) == []
        assert incident_ids(archive, kind="gone") == incident_ids(archive, severity=3) == ["incident-3"]

    def test_pages_have_each_incident_once(self, archive: StateStore) -> None:
        same = [incident(number, since=at(1), until=at(9)) for number in range(5)]
        append(archive, 1, incidents=(*same, *(incident(number, until=at(9)) for number in range(5, 12))))
        pages, before = [], None
        while page := archive.incidents("prod", IncidentFilter(before=before, limit=5)):
            pages += [incident.id for incident in page]
            before = page[-1].since, page[-1].id
        assert pages == incident_ids(archive)
        assert len(set(pages)) == 12

    def test_a_deleted_mesh_has_no_archive_and_history_and_one_set_aside_keeps_them(self, archive: StateStore) -> None:
        revision = append(archive, 1, incidents=(incident(1),))
        assert write_history(archive, chunks(0))
        assert archive.set_aside("prod", "of another schema", revision=revision)
        append(archive, 1)
        assert (incident_ids(archive), archive.history_sizes("prod").keys()) == (["incident-1"], {chunk_key(0)})
        assert archive.delete("prod")
        append(archive, 1)
        assert (incident_ids(archive), archive.history_sizes("prod")) == ([], {})

    def test_deleting_a_mesh_that_was_set_aside_says_that_it_was_there(self, archive: StateStore) -> None:
        revision = append(archive, 1, incidents=(incident(1),))
        assert archive.set_aside("prod", "of another schema", revision=revision)
        assert archive.delete("prod")
        assert incident_ids(archive) == []
        assert not archive.delete("prod")

    def test_incidents_are_kept_for_a_time_by_the_clock_of_the_mesh(self, archive: StateStore) -> None:
        def come(sequence: int, days: float) -> None:
            append(archive, sequence, observed_at=START + timedelta(days=days))

        append(archive, 1, incidents=(incident(1, until=at(10)), incident(2)))
        come(2, 89.9)
        assert incident_ids(archive) == ["incident-2", "incident-1"]
        come(3, 91)
        assert incident_ids(archive) == ["incident-2"]  # it is open

    @pytest.mark.slow
    def test_the_archive_stays_within_its_bytes_over_thousands_of_incidents(
        self, archive: StateStore, place: StoreSettings
    ) -> None:
        choose = random.Random(0)

        def count_bytes() -> int:
            incidents = (archive.incident("prod", incident) for incident in incident_ids(archive))
            return sum(
                read_index(incident_rows("prod", incident)[2:3])[incident.id].size
                for incident in incidents
                if incident is not None
            )

        largest = 0
        for number in range(1, ARCHIVED + 1):
            details = choose.randbytes(choose.randint(1_000, 9_000))
            ended = incident(number, until=at(number + 1), severity=choose.randint(0, 3), details=details)
            append(archive, number, incidents=(ended,))
            if number % 500 == 0:
                largest = max(largest, count_bytes())
        assert LIMIT.max_bytes * 0.98 < largest <= LIMIT.max_bytes
        incidents = archive.incidents("prod", IncidentFilter())
        severe = [incident.sequence for incident in incidents if incident.severity == 3]
        # What is not severe has just come. It made room for the rest, and so did the oldest of the severe ones.
        assert all(incident.sequence > ARCHIVED - 10 for incident in incidents if incident.severity < 3)
        assert min(severe) > ARCHIVED - 1_000
        assert len(severe) > 150
        if place.kind == "local":
            assert (place.path / FILE_NAME).stat().st_size < 4 * LIMIT.max_bytes

    def test_an_open_incident_stays_when_others_make_room(self, archive: StateStore) -> None:
        choose = random.Random(0)  # what is random is not compressed
        append(archive, 1, incidents=(incident(1, severity=0, details=choose.randbytes(2**19)),))
        for number in range(2, 10):
            ended = incident(number, until=at(10), severity=3, details=choose.randbytes(2**18))
            append(archive, number, incidents=(ended,))
        assert incident_ids(archive) == ["incident-9", "incident-1"]

    @pytest.mark.parametrize("seed", range(3))
    def test_nothing_is_lost_or_doubled_when_the_writer_is_killed(self, place: StoreSettings, seed: int) -> None:
        check_appended(place, kill_writer(append_for_ever, place, seed))

    def test_history_is_written_for_the_mesh_it_was_computed_from_or_not_at_all(
        self, store: StateStore, place: StoreSettings
    ) -> None:
        first, second, third, unknown = map(chunk_key, (0, 1, 2, 9))
        append(store, 1)
        assert write_history(store, chunks(0, 2))
        before = store.revision("prod")
        assert write_history(store, {**chunks(1), third: b"again", unknown: None})
        assert store.revision("prod") == before
        assert not store.write_history("prod", {**chunks(3), first: None}, full=(1, before - 1))
        assert not store.write_history("other", chunks(3), full=(1, before))
        stored = {**chunks(0, 1), third: b"again"}
        with closing(open_store(place)) as other:
            for each_store in (store, other):
                assert each_store.history_sizes("prod").keys() == stored.keys()
                assert each_store.history("prod", [*stored, chunk_key(3)]) == stored
                assert each_store.history("prod", [second]) == chunks(1)
        assert (store.history("prod", []), store.history("other", [first])) == ({}, {})
        assert store.history_sizes("other") == {}
        append(store, 2, is_step=True)
        assert write_history(store, {first: None, third: None})
        assert store.history("prod", list(stored)) == chunks(1)

    def test_the_size_of_a_chunk_is_at_least_what_cannot_be_compressed(self, store: StateStore) -> None:
        content = {chunk_key(0): random_bytes(1, 100_000)}
        append(store, 1)
        assert write_history(store, content)
        assert 100_000 <= store.history_sizes("prod")[chunk_key(0)] < 101_000
        assert store.history("prod", [*content]) == content

    def test_history_is_copied_beside_the_mesh(self, store: StateStore, elsewhere: StoreSettings) -> None:
        history = chunks(*range(300))
        append(store, 1)
        assert write_history(store, history)
        with closing(open_store(elsewhere)) as other:
            append(other, 1)
            assert write_history(other, chunks(999))
            assert [mesh.mesh for mesh in copy_meshes(store, other, ["prod"], overwrite=True)] == ["prod"]
            assert other.history("prod", [*history, chunk_key(999)]) == history

    def test_a_document_is_changed_with_compare_and_set(self, store: StateStore, place: StoreSettings) -> None:
        assert store.read_document("rollout") == StoredDocument()
        first = store.write_document("rollout", b"one", revision=0)
        second = store.write_document("rollout", b"two", revision=first)
        assert second > first > 0
        for revision in (0, first, second + 1):
            with pytest.raises(StoreConflict) as refused:
                store.write_document("rollout", b"three", revision=revision)
            assert refused.value.details["revision"] == second
        with closing(open_store(place)) as other:
            assert other.read_document("rollout") == store.read_document("rollout") == StoredDocument(second, b"two")
        assert store.read_document("trial/prod") == StoredDocument()

    def test_a_deleted_document_begins_with_a_later_revision(self, store: StateStore) -> None:
        first = store.write_document("trial/prod", b"one", revision=0)
        deleted = store.write_document("trial/prod", b"", revision=first)
        assert store.read_document("trial/prod") == StoredDocument()
        again = store.write_document("trial/prod", random_bytes(1, 100_000), revision=0)
        assert again > deleted > first
        assert store.read_document("trial/prod") == StoredDocument(again, random_bytes(1, 100_000))

    def test_documents_are_no_meshes(self, store: StateStore) -> None:
        store.write_document("trial/prod", b"one", revision=0)
        assert store.meshes() == []
        append(store, 1)
        store.delete("prod")
        assert store.read_document("trial/prod").content == b"one"


def fill(store: StateStore) -> None:
    """Write a mesh with a full state, steps, a window and an archive."""
    for sequence in range(1, 6):
        ended = incident(sequence, until=at(sequence + 1) if sequence % 2 else None)
        append(store, sequence, is_step=is_step(sequence), incidents=(ended,))


def _create_meshes(place: StoreSettings, prefix: str, start: Any, results: Connection) -> None:
    created = 0
    with closing(open_store(place, max_meshes=25)) as store:
        start.wait()
        for number in range(25):
            try:
                append(store, 1, mesh=f"{prefix}-{number}")
                created += 1
            except TooManyMeshes:
                break
    results.send(created)
