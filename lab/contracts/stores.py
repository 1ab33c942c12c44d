"""The stores' contract: ordered rows, transactions, no loss of acknowledged writes.

A package with a store of its own subclasses :class:`StoreContract` in a test module, with the settings of an empty
store::

    class TestFilesStore(StoreContract):
        @pytest.fixture
        def place(self, tmp_path: Path) -> StoreSettings:
            return StoreSettings(kind="files", options={"folder": tmp_path / "one"})

The store is opened as the service opens it: by the name of its kind. The service uses a store only through these
methods.
"""

import multiprocessing
import os
import random
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from multiprocessing.connection import Connection
from typing import Any

import pytest

from serve_app.settings import StoreSettings
from serve_app.stores.opening import open_store
from serve_app.stores.row_store import HEAD, SERVICE, Change, NoRoom, Range, Row, RowStore, only, under

NUMBERED = [(f"a/{number:04}", b"%d" % number) for number in range(8)]


class StoreContract:
    """The tests that every store passes. A subclass, or its module, has the fixture ``place``: the settings of an empty
    store."""

    @pytest.fixture
    def rows(self, place: StoreSettings) -> Iterator[RowStore]:
        with closing(open_store(place)) as store:
            yield store.database

    def test_ranges_are_read_in_order_of_the_bytes_of_keys(self, rows: RowStore) -> None:
        extra_rows = [("a", b""), ("b/\u00e9", bytes(range(256))), ("b/z", b"z")]
        put(rows, "prod", *reversed(NUMBERED), *extra_rows)
        assert rows.read("prod", under("a/"), under("b/"), only("a"), only("missing")) == [
            NUMBERED,
            [extra_rows[2], extra_rows[1]],  # z is a byte, and an accented letter is two larger ones
            [extra_rows[0]],
            [],
        ]
        assert rows.read("prod", Range("a/0002", "a/0005")) == [NUMBERED[2:5]]
        assert rows.read("prod", under("a/", since="0006")) == [NUMBERED[6:]]
        assert rows.read("prod", under("a/", limit=2), under("a/", limit=2, is_reverse=True)) == [
            NUMBERED[:2],
            NUMBERED[:-3:-1],
        ]
        assert rows.read("prod", under("")) == [[extra_rows[0], *NUMBERED, extra_rows[2], extra_rows[1]]]
        assert rows.read("other", under("")) == [[]]

    def test_a_scan_is_of_one_moment_even_if_read_slowly(self, rows: RowStore) -> None:
        put(rows, "prod", *NUMBERED)
        scan = rows.scan("prod", under("a/", limit=4), under("a/", since="0006"))
        rows_read = [next(scan)]
        rows.write("prod", Change(drops=["a/"], puts=[("a/0001", b"new")]))
        assert [*rows_read, *scan] == [*NUMBERED[:4], *NUMBERED[6:]]

    def test_a_change_drops_puts_and_trims_in_this_order(self, rows: RowStore) -> None:
        put(rows, "prod", *NUMBERED, ("b/1", b"1"), ("c", b"c"))
        change = Change(drops=["b/", "c", "a/0007"], puts=[("a/0008", b"8"), ("b/2", b"2")], trims=[("a/", 2)])
        assert rows.write("prod", change)
        assert everything(rows) == [NUMBERED[6], ("a/0008", b"8"), ("b/2", b"2")]
        assert rows.write("prod", Change(drops=[""], puts=[("a/0009", b"9")]))
        assert everything(rows) == [("a/0009", b"9")]

    def test_a_change_whose_rows_are_not_as_expected_changes_nothing(self, rows: RowStore) -> None:
        put(rows, "prod", ("a", b"12 and more"), ("b", b""))
        for expects in ({"a": b"13"}, {"a": None}, {"c": b""}, {"a": b"12", "b": None}, {"a": b"12 and more, longer"}):
            assert not rows.write("prod", Change(expects=expects, drops=["a"], puts=[("d", b"d")]))
        assert everything(rows) == [("a", b"12 and more"), ("b", b"")]
        assert rows.write("prod", Change(expects={"a": b"12", "b": b"", "c": None}, drops=["a"], puts=[("c", b"c")]))
        assert everything(rows) == [("b", b""), ("c", b"c")]

    def test_a_space_with_a_head_is_a_mesh(self, rows: RowStore) -> None:
        assert rows.write("b", begins(b"of b", ("a/1", b"1"), ("a/2", b"2")))
        assert rows.write("a", begins(b"of a"))
        put(rows, "c", ("a/1", b"no mesh"))
        put(rows, SERVICE, ("a/1", b"of all"))
        assert rows.survey() == [("a", b"of a", []), ("b", b"of b", [])]
        assert rows.survey(under("a/", limit=1)) == [("a", b"of a", []), ("b", b"of b", [("a/1", b"1")])]
        assert rows.write("b", Change(drops=[""]))
        assert rows.survey() == [("a", b"of a", [])]
        assert everything(rows, "b") == []

    def test_a_mesh_beyond_the_limit_is_refused_and_changes_nothing(self, rows: RowStore) -> None:
        assert rows.write("a", begins(b"1", ("a", b"a")), max_meshes=1)
        with pytest.raises(NoRoom):
            rows.write("b", begins(b"2", ("a", b"a")), max_meshes=1)
        assert everything(rows, "b") == []
        assert not rows.write("a", begins(b"3"), max_meshes=1), "it exists already"
        assert rows.write("a", Change(expects={HEAD: b"1"}, puts=[(HEAD, b"4")]), max_meshes=1)
        assert rows.write(SERVICE, Change(puts=[("a", b"a")]), max_meshes=1)
        assert rows.write("a", Change(drops=[""]), max_meshes=1)
        assert rows.write("b", begins(b"5"), max_meshes=1)

    def test_a_reopened_store_has_all_rows(self, rows: RowStore, place: StoreSettings) -> None:
        large = random.Random(0).randbytes(2**22)
        assert rows.write("prod", begins(b"head", *NUMBERED, ("large", large)))
        rows.tidy()
        with closing(open_store(place)) as reopened:
            assert everything(reopened.database) == everything(rows)
            assert reopened.database.read("prod", only("large")) == [[("large", large)]]
            assert reopened.database.survey() == rows.survey()

    def test_threads_share_a_store(self, rows: RowStore) -> None:
        def fill(space: str) -> int:
            for number in range(20):
                put(rows, space, (f"a/{number:02}", b"a"))
            return len(everything(rows, space))

        with ThreadPoolExecutor(4) as threads:
            assert list(threads.map(fill, ["a", "b", "c", "d"])) == [20] * 4

    def test_processes_that_race_never_overwrite_each_other(self, rows: RowStore, place: StoreSettings) -> None:
        target = 200
        context = multiprocessing.get_context("spawn")
        start, pipes = context.Barrier(2), [context.Pipe(duplex=False) for _ in range(2)]
        racers = [
            context.Process(target=_race, args=(place, name, target, start, theirs))
            for name, (_, theirs) in zip((b"a", b"b"), pipes, strict=True)
        ]
        for racer, (_, theirs) in zip(racers, pipes, strict=True):
            racer.start()
            theirs.close()  # a racer that dies is an EOFError here
        wins = [ours.recv() for ours, _ in pipes]
        for racer, (ours, _) in zip(racers, pipes, strict=True):
            racer.join()
            ours.close()
        assert sorted(wins[0] + wins[1]) == list(range(1, target + 1))
        assert [key for key, _ in everything(rows)] == [f"a/{number:04}" for number in range(1, target + 1)] + ["count"]

    @pytest.mark.parametrize("seed", range(3))
    def test_nothing_is_lost_or_half_written_when_the_writer_is_killed(self, place: StoreSettings, seed: int) -> None:
        last = kill_writer(_write_for_ever, place, seed)
        with closing(open_store(place)) as store:
            ((_, count),), pairs = store.database.read("prod", only("count"), under("a/"))
        assert int(count) in (last, last + 1)  # at most one was written and not yet acknowledged
        assert [key for key, _ in pairs] == [
            f"a/{number:04}/{half}" for number in range(1, int(count) + 1) for half in "ab"
        ]


def put(rows: RowStore, space: str, *pairs: Row) -> None:
    assert rows.write(space, Change(puts=pairs))


def begins(head: bytes, *extra_rows: Row) -> Change:
    """Return a change that makes a space a mesh."""
    return Change(expects={HEAD: None}, puts=[(HEAD, head), *extra_rows])


def everything(rows: RowStore, space: str = "prod") -> list[Row]:
    (pairs,) = rows.read(space, under(""))
    return pairs


def _race(place: StoreSettings, name: bytes, target: int, start: Any, results: Connection) -> None:
    """Count while another process does too, and send the numbers that this one wrote."""
    wins = []
    start.wait()
    with closing(open_store(place)) as store:
        rows = store.database
        while True:
            (pairs,) = rows.read("prod", only("count"))
            count = int(pairs[0][1].rstrip(b" ")) if pairs else 0
            if count >= target:
                break
            expects = {"count": b"%d " % count if pairs else None}
            puts = [(f"a/{count + 1:04}", name), ("count", b"%d " % (count + 1))]  # no two begin with the same row
            if rows.write("prod", Change(expects=expects, puts=puts)):
                wins.append(count + 1)
    results.send(wins)


def kill_writer(write: Callable[[StoreSettings, Connection], None], place: StoreSettings, seed: int) -> int:
    """Kill a process while it writes.

    Args:
        write: writes until it is killed, and sends the number of each acknowledged write; imported by name.
        seed: determines the number of writes before the kill.

    Returns:
        The last number that it sent.
    """
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    writer = context.Process(target=write, args=(place, theirs))
    writer.start()
    theirs.close()
    stop, last = random.Random(seed).randint(5, 60), 0
    try:
        while last < stop:
            last = ours.recv()
        assert writer.pid is not None
        os.kill(writer.pid, signal.SIGKILL)
        while True:  # what it acknowledged before it died
            last = ours.recv()
    except EOFError:
        return last
    finally:
        writer.kill()
        writer.join()
        ours.close()


def _write_for_ever(place: StoreSettings, pipe: Connection) -> None:
    with closing(open_store(place)) as store:
        for number in range(1, 1_000_000):
            halves = [(f"a/{number:04}/{half}", b"%d" % number * 5_000) for half in "ab"]
            assert store.database.write("prod", Change(puts=[*halves, ("count", b"%d" % number)]))
            pipe.send(number)
