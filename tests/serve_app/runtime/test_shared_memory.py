"""Large arrays of a call go through shared memory, and the callee gets equal ones that are its own."""

import os
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from copy import deepcopy
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from serve_app.runtime import shared_memory
from serve_app.runtime.shared_memory import LEAST_BYTES, can_share, share
from tests.timing import PATIENCE_SECONDS

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory is shared on Linux")
FILE = "memfd:tagae"


@dataclass(frozen=True, slots=True)
class Argument:
    name: str
    table: NDArray[Any]
    more: "tuple[Argument, ...]" = ()


def example() -> Argument:
    """An argument with small and large arrays of several kinds."""
    drawn = np.random.default_rng(0)
    large = drawn.random((501, 45), dtype=np.float32)
    nested = (
        Argument("a column", large[:, ::2]),
        Argument("flags", large.reshape(-1) > 0.5),
        Argument("small", large[:3]),
        Argument("objects", np.array(["x", None] * LEAST_BYTES, dtype=object)),
        Argument("empty", np.zeros((0, 45), np.float32)),
    )
    return Argument("whole", large, nested)


def arrays(argument: Argument) -> list[NDArray[Any]]:
    return [argument.table, *(array for one in argument.more for array in arrays(one))]


def double(argument: Argument) -> tuple[Argument, int]:
    """Double the numbers of an argument in place. Returns it, and how many files of shared memory are mapped here."""
    for array in arrays(argument)[:2]:
        array *= 2
    with open("/proc/self/maps", encoding="ascii") as maps:
        return argument, sum(FILE in line for line in maps)


@pytest.fixture
def other() -> Iterator[ProcessPoolExecutor]:
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        yield pool


@pytest.fixture
def sharing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(shared_memory.SHARES, "1")


@pytest.mark.usefixtures("sharing")
def test_the_callee_gets_equal_arrays_and_changes_only_its_own(other: ProcessPoolExecutor) -> None:
    sent = example()
    with share(sent) as shared:
        for _ in range(2):  # as when a call is repeated
            doubled, mapped = other.submit(double, shared).result(PATIENCE_SECONDS)
            assert mapped == 3, "the large ones: a table, a column and flags"
            factors = [2, 2, 1, 1, 1, 1]
            for before, after, factor in zip(arrays(example()), arrays(doubled), factors, strict=True):
                wanted = before * factor if factor > 1 else before
                np.testing.assert_array_equal(after, wanted)
                assert after.dtype == before.dtype
    assert [one.name for one in doubled.more] == [one.name for one in sent.more]
    for before, after in zip(arrays(example()), arrays(sent), strict=True):
        np.testing.assert_array_equal(before, after)


@pytest.mark.usefixtures("sharing")
def test_no_file_stays_open() -> None:
    def fail() -> None:
        with share(example()):
            assert open_files() == 1
            raise RuntimeError("the call failed")

    with pytest.raises(RuntimeError, match="call failed"):
        fail()
    assert open_files() == 0
    assert can_share()
    assert open_files() == 0


@pytest.mark.usefixtures("sharing")
def test_a_late_callee_reads_no_other_file() -> None:
    """Its caller has left, and the number of the file is of another one."""
    with share(example()) as shared:
        np.testing.assert_array_equal(deepcopy(shared).table, example().table)  # as a callee gets it
    with pytest.raises(FileNotFoundError):
        deepcopy(shared)
    with share(example()), pytest.raises(FileNotFoundError, match="got another file; the call has ended"):
        deepcopy(shared)


@pytest.mark.usefixtures("sharing")
def test_an_argument_without_large_arrays_is_sent_as_it_was() -> None:
    small = Argument("small", np.zeros(3), (Argument("smaller", np.zeros(2)),))
    with share(small) as shared:
        assert shared is small


def test_a_process_that_does_not_share_sends_the_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(shared_memory.SHARES, raising=False)
    sent = example()
    with share(sent) as shared:
        assert shared is sent
        assert open_files() == 0


def test_a_sandbox_that_forbids_it_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_memory, "_path", lambda file: f"/proc/{os.getpid()}/not-there/{file}")
    assert not can_share()


def open_files() -> int:
    """Return the number of files of shared memory that this process has open."""
    return sum(FILE in os.readlink(f"/proc/self/fd/{file}") for file in os.listdir("/proc/self/fd") if exists(file))


def exists(file: str) -> bool:
    """Return whether a descriptor is still open. The one that lists the folder is not."""
    return os.path.lexists(f"/proc/self/fd/{file}")
