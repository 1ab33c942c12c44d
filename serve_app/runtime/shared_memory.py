"""Large arrays of a call between processes of one machine, in shared memory instead of in the message.

gRPC copies a message several times, in pieces: 2 MB take 7 ms of both processes, and 2 ms through shared memory. The
memory is an anonymous file of the caller (memfd_create(2)), which the callee opens below ``/proc``. It needs no name,
takes nothing of ``/dev/shm``, and goes when the last process that uses it ends, however it ends.

Only processes that :mod:`serve_app.runtime.fork_server` forked share: all others of their service are on this machine
too.
"""

import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass, replace
from operator import is_not
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T")
SHARES = "TAGAE_SHARES_MEMORY"  # in the environment of processes that do
LEAST_BYTES = 2**14  # of an array; a smaller one stays in the message


def can_share() -> bool:
    """Whether a child of this process can open a file of it. A sandbox may forbid that."""
    try:
        file = os.memfd_create("tagae")
    except (AttributeError, OSError):
        return False
    try:
        path = _path(file)
        if not (child := os.fork()):
            try:
                os.open(path, os.O_RDONLY)
            except OSError:
                os._exit(1)
            os._exit(0)
        return os.waitpid(child, 0)[1] == 0
    finally:
        os.close(file)


@contextmanager
def share(value: T) -> Iterator[T]:
    """Prepare an argument for calls until the block ends: a copy whose large arrays are references to shared memory.

    The callee gets an equal value. It can write to its arrays without effect on others. Where this process does not
    share, the result is the value itself.

    Args:
        value: an array, or a tuple or a dataclass of such values and of others.
    """
    if SHARES not in os.environ:
        yield value
        return
    file = os.memfd_create("tagae")
    try:
        yield cast(T, _write(value, file))
    finally:
        os.close(file)  # a callee that has opened it keeps it


class _Reference:
    """An array in a file, which is pickled as its place there and unpickled as the array."""

    def __init__(self, array: NDArray[Any], file: int) -> None:
        start = -(-os.fstat(file).st_size // mmap.ALLOCATIONGRANULARITY) * mmap.ALLOCATIONGRANULARITY
        self._place = _path(file), _identity(file), start, array.shape, array.dtype
        rest = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
        while rest:
            written = os.pwrite(file, rest, start)
            rest, start = rest[written:], start + written

    def __reduce__(self) -> tuple[Any, ...]:
        return _read, self._place


def _write(value: Any, file: int) -> Any:
    """A copy of the value, with its large arrays in the file."""
    if isinstance(value, np.ndarray):
        return _Reference(value, file) if value.nbytes >= LEAST_BYTES and not value.dtype.hasobject else value
    if type(value) is tuple:
        items = tuple(_write(item, file) for item in value)
        return items if any(map(is_not, items, value)) else value
    if is_dataclass(value) and not isinstance(value, type):
        before = {field.name: getattr(value, field.name) for field in fields(value)}
        after = {name: _write(item, file) for name, item in before.items()}
        changed = {name: item for name, item in after.items() if item is not before[name]}
        return replace(value, **changed) if changed else value
    return value


def _read(
    path: str, identity: tuple[int, int], start: int, shape: tuple[int, ...], dtype: np.dtype[Any]
) -> NDArray[Any]:
    """The array at this place. Its memory is copied only where it is written to.

    Raises:
        OSError: the caller no longer waits, and has closed the file.
    """
    with open(path, "rb") as file:
        if _identity(file.fileno()) != identity:  # its number is of another file now, which may be shorter
            raise FileNotFoundError(f"{path}: expected the arrays of a call, got another file; the call has ended")
        size = dtype.itemsize * int(np.prod(shape))
        access = mmap.PROT_READ | mmap.PROT_WRITE
        memory = mmap.mmap(file.fileno(), size, flags=mmap.MAP_PRIVATE, prot=access, offset=start)
    return np.frombuffer(memory, dtype).reshape(shape)


def _identity(file: int) -> tuple[int, int]:
    """What tells a file from all others: its device and inode."""
    found = os.fstat(file)
    return found.st_dev, found.st_ino


def _path(file: int) -> str:
    return f"/proc/{os.getpid()}/fd/{file}"
