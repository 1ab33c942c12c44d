"""The compiled libraries: found and checked, or the reason why not.

``setup.py`` builds them where a C++ compiler is present. The ops use torch's stable ABI and no Python, so one file
serves every supported version of both. The passes need neither.
"""

import ctypes
import hashlib
import logging
import os
import struct
from dataclasses import dataclass, field
from pathlib import Path

from kernels.errors import UnavailableBackend

FILE = Path(__file__).with_name("libtagae.so")
PASSES_FILE = Path(__file__).with_name("libpasses.so")
REFERENCE = "reference"
COMPILED = ("cpu-avx512", "cpu-avx2")
LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Backend:
    """What runs on a CPU.

    Attributes:
        name: ``cpu-avx512``, ``cpu-avx2`` or ``reference``.
        reason: why it is the reference; None if compiled code runs.
        library: the compiled library; None: the reference runs.
    """

    name: str
    reason: str | None = None
    library: ctypes.CDLL | None = field(default=None, compare=False)


class _Unusable(Exception):
    """Says why the library cannot be used."""


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
    return _choose("tagae_register", setting, file)


def choose_passes(setting: str | None, file: Path = PASSES_FILE) -> Backend:
    """Choose the compiled passes; otherwise as :func:`choose_backend`."""
    return _choose("tagae_choose", setting, file)


def _choose(function: str, setting: str | None, file: Path) -> Backend:
    if setting == REFERENCE:
        return Backend(REFERENCE, "TAGAE_KERNELS=reference")
    if setting and setting != "require" and setting not in COMPILED:
        raise UnavailableBackend(
            f"TAGAE_KERNELS: expected reference, require, {', '.join(COMPILED)}, or not set, came {setting!r}; "
            "unset it to let tagae choose"
        )
    try:
        name, library = _load(file, function, setting if setting in COMPILED else "")
        return Backend(name, library=library)
    except _Unusable as reason:
        if setting:
            raise UnavailableBackend(
                f"TAGAE_KERNELS={setting}: expected a compiled library, came none: {reason}; or unset TAGAE_KERNELS, "
                "so that the PyTorch or numpy form runs"
            ) from reason
        if file.exists():
            LOG.warning("the PyTorch or numpy form runs, several times slower than compiled code: %s", reason)
        return Backend(REFERENCE, str(reason))


def schemas_digest() -> str:
    """Identify the schemas; ``setup.py`` compiles the same digest into the libraries."""
    return hashlib.sha256(Path(__file__).with_name("schemas.py").read_bytes()).hexdigest()


def _load(file: Path, function: str, wanted: str) -> tuple[str, ctypes.CDLL]:
    """Load a library, and have it choose an instruction set; ``wanted`` is the name of one, or empty for the best."""
    if not file.exists():
        raise _Unusable(f"there is no {file}; install tagae where g++ or clang++ is on PATH")
    if not _is_whole(file.read_bytes()):
        raise _Unusable(f"{file} cannot be loaded (it is cut off, or no library); install tagae again")
    try:
        library = ctypes.CDLL(str(file))
        schemas, choose = library.tagae_schemas, getattr(library, function)
    except (OSError, AttributeError) as error:
        raise _Unusable(f"{file} cannot be loaded ({error}); install tagae again") from error
    schemas.restype = choose.restype = ctypes.c_char_p
    if schemas().decode() != schemas_digest():
        raise _Unusable(f"{file} was built for other schemas of the ops; install tagae again")
    name: bytes | None = choose(wanted.encode())
    if name is None:
        raise _Unusable(f"this processor does not have the instructions of {wanted or 'AVX2'}")
    return name.decode(), library


def _is_whole(content: bytes) -> bool:
    """Whether an ELF file has its last part, the table of sections. Loading one that is cut off ends the process."""
    if len(content) < 64 or not content.startswith(b"\x7fELF"):
        return False
    (start,), (size, count) = struct.unpack_from("<Q", content, 40), struct.unpack_from("<HH", content, 58)
    return bool(start + size * count <= len(content))
