"""The compiled libraries: found and checked, or the reason why not.

``setup.py`` builds them where a C++ compiler is present. The ops use torch's stable ABI and no Python, so one file
serves every supported version of both. The passes and the reader of JSON need neither.
"""

import ctypes
import hashlib
import logging
import os
import signal
import struct
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from kernels.errors import UnavailableBackend

FILE = Path(__file__).with_name("libtagae.so")
PASSES_FILE = Path(__file__).with_name("libpasses.so")
JSON_FILE = Path(__file__).with_name("libjson.so")
SCHEMAS = Path(__file__).with_name("schemas.py")
CUDA_FILE = Path(__file__).with_name("libtagae_cuda.so")
REFERENCE = "reference"
COMPILED = ("cpu-avx512", "cpu-avx2", "cpu-neon")
CHECK_SECONDS = 180.0  # torch's import takes most of it on a slow disk
LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Backend:
    """The code that runs on one kind of device.

    Attributes:
        name: ``cpu-avx512``, ``cpu-avx2``, ``cpu-neon``, ``cuda`` or ``reference``.
        reason: why it is the reference; None if compiled code runs.
        library: the compiled library; None: the reference runs.
        works: whether the ops may be used on this device; False: even the reference failed its check there.
    """

    name: str
    reason: str | None = None
    library: ctypes.CDLL | None = field(default=None, compare=False)
    works: bool = True


class _Unusable(Exception):
    """Says why the library cannot be used."""


@dataclass(frozen=True, slots=True)
class _Library:
    """A file and its conditions.

    Attributes:
        file: the library.
        function: of the library; it takes one of ``names``, or an empty text for the best, and returns what it chose.
        names: what ``TAGAE_KERNELS`` may choose from.
        compiler: builds it.
        missing: why the function chooses nothing, with the name that it was asked for.
        check: raises :class:`_Unusable` before the file is loaded.
        schemas: the file that defines how the library is called.
    """

    file: Path
    function: str
    names: tuple[str, ...]
    compiler: str
    missing: str
    check: Callable[[Path], None] | None = None
    schemas: Path = SCHEMAS


_NO_INSTRUCTIONS = "this processor does not have the instructions of {}"


def read_setting() -> str | None:
    """``TAGAE_KERNELS`` of the environment; None: not set."""
    return os.environ.get("TAGAE_KERNELS")


def choose_backend(setting: str | None, file: Path = FILE) -> Backend:
    """Register the compiled bodies of the ops that ``TAGAE_KERNELS=setting`` permits (None or empty: not set), and say
    which. Import torch first.

    A library that cannot be used is logged, and the reference runs.

    Raises:
        UnavailableBackend: the setting requires compiled code that cannot run here, or it is unknown.
    """
    return _choose(_Library(file, "tagae_register", COMPILED, "g++ or clang++", _NO_INSTRUCTIONS), setting)


def choose_passes(setting: str | None, file: Path = PASSES_FILE) -> Backend:
    """Choose the compiled passes; otherwise as :func:`choose_backend`."""
    return _choose(_Library(file, "tagae_choose", COMPILED, "g++ or clang++", _NO_INSTRUCTIONS), setting)


def choose_json(setting: str | None, file: Path = JSON_FILE) -> Backend:
    """Choose the compiled reader of JSON. It has one body for all processors, which settings that choose an instruction
    set permit; otherwise as :func:`choose_backend`."""
    schemas = Path(__file__).with_name("json_rows.py")
    return _choose(_Library(file, "tagae_choose", (), "g++ or clang++", _NO_INSTRUCTIONS, schemas=schemas), setting)


def choose_cuda(setting: str | None, file: Path = CUDA_FILE, device: str = "cuda") -> Backend:
    """Register the compiled bodies for a GPU, if a process that tries them finds no error; otherwise as
    :func:`choose_backend`.

    An out-of-bounds access makes CUDA unusable for its whole process. So bodies are checked in another process first.
    Settings that choose an instruction set of the CPU permit these bodies too.

    Args:
        device: that the check uses.
    """

    def check(library: Path) -> None:
        failure = check_apart(device, library)
        if failure:
            raise _Unusable(f"the check of {library} {failure}")

    return _choose(_Library(file, "tagae_register", (), "nvcc", "this torch has no CUDA", check), setting)


def register_unchecked(file: Path) -> None:
    """Register the bodies of a library for a GPU in this process, without the check in another one.

    Raises:
        UnavailableBackend: the library cannot be loaded.
    """
    try:
        _load(_Library(file, "tagae_register", (), "nvcc", "this torch has no CUDA"), "")
    except _Unusable as reason:
        raise UnavailableBackend(f"{reason}") from reason


def _choose(library: _Library, setting: str | None) -> Backend:
    if setting == REFERENCE:
        return Backend(REFERENCE, "TAGAE_KERNELS=reference")
    if setting and setting != "require" and setting not in COMPILED:
        raise UnavailableBackend(
            f"TAGAE_KERNELS: expected reference, require, {', '.join(COMPILED)}, or not set, got {setting!r}; "
            "unset it to let tagae choose"
        )
    is_named = setting in library.names
    try:
        name, binary = _load(library, setting if setting and is_named else "")
        return Backend(name, library=binary)
    except _Unusable as reason:
        if setting == "require" or is_named:
            raise UnavailableBackend(
                f"TAGAE_KERNELS={setting}: expected a compiled library, got none: {reason}; or unset TAGAE_KERNELS, "
                "so that a slower form runs"
            ) from reason
        if library.file.exists():
            LOG.warning("a slower form runs instead of compiled code: %s", reason)
        return Backend(REFERENCE, str(reason))


def schemas_digest(file: Path = SCHEMAS) -> str:
    """Identify the schemas; ``setup.py`` compiles the same digest into the libraries."""
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _load(library: _Library, choice: str) -> tuple[str, ctypes.CDLL]:
    """Load a library, and have it choose what runs; ``choice`` is the name of that, or empty for the best."""
    file = library.file
    if not file.exists():
        raise _Unusable(f"there is no {file}; install tagae where {library.compiler} is on PATH")
    if not _is_whole(file.read_bytes()):
        raise _Unusable(f"{file} cannot be loaded (it is truncated, or not a library); install tagae again")
    if library.check:
        library.check(file)
    try:
        binary = ctypes.CDLL(str(file))
        schemas, choose = binary.tagae_schemas, getattr(binary, library.function)
    except (OSError, AttributeError) as error:
        raise _Unusable(f"{file} cannot be loaded ({error}); install tagae again") from error
    schemas.restype = choose.restype = ctypes.c_char_p
    if schemas().decode() != schemas_digest(library.schemas):
        raise _Unusable(f"{file} was built for other schemas of the ops; install tagae again")
    name: bytes | None = choose(choice.encode())
    if name is None:
        raise _Unusable(library.missing.format(choice or "AVX2 or NEON"))
    return name.decode(), binary


def check_apart(device: str, library: Path | None = None) -> str | None:
    """Try the ops on a device in another process: the bodies of a library, or their PyTorch form without one.

    That process imports from where this one does. See :mod:`kernels.selfcheck`.

    Returns:
        The end of a sentence about the check that failed; None: every op is near its reference.
    """
    path = os.pathsep.join(folder or os.getcwd() for folder in sys.path)
    environment = os.environ | {"PYTHONPATH": path, "TAGAE_KERNELS": REFERENCE}
    command = [sys.executable, "-P", "-m", "kernels.selfcheck", device, *([str(library)] if library else [])]
    try:
        process = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False, timeout=CHECK_SECONDS
        )
    except subprocess.TimeoutExpired:
        return f"took longer than {CHECK_SECONDS:.0f} s"
    if process.returncode < 0:
        return f"ended with {signal.Signals(-process.returncode).name}"
    if process.returncode:
        errors = process.stderr.strip().splitlines() or [f"status {process.returncode}"]
        return f"failed: {errors[-1]}"
    return None


def _is_whole(content: bytes) -> bool:
    """Return whether an ELF file has its last part, the table of sections. Loading a truncated one kills the
    process."""
    if len(content) < 64 or not content.startswith(b"\x7fELF"):
        return False
    (start,), (size, count) = struct.unpack_from("<Q", content, 40), struct.unpack_from("<HH", content, 58)
    return bool(start + size * count <= len(content))
