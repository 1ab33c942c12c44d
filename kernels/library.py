"""The compiled library of the ops: found, checked and registered for CPU tensors, or the reason why not.

``setup.py`` builds it where a C++ compiler is present. It uses torch's stable ABI and no Python, so one file serves
every supported version of both.
"""

import ctypes
import hashlib
import logging
import struct
from dataclasses import dataclass, field
from pathlib import Path

from kernels.errors import UnavailableBackend

FILE = Path(__file__).with_name("libtagae.so")
REFERENCE = "reference"
COMPILED = ("cpu-avx512", "cpu-avx2")
LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Backend:
    """Which bodies of the ops run on a CPU.

    Attributes:
        name: ``cpu-avx512``, ``cpu-avx2`` or ``reference``.
        reason: why it is the reference; None if compiled bodies run.
        library: the compiled library; None: the reference runs.
    """

    name: str
    reason: str | None = None
    library: ctypes.CDLL | None = field(default=None, compare=False)


class _Unusable(Exception):
    """Says why the library cannot be used."""


def choose_backend(setting: str | None, file: Path = FILE) -> Backend:
    """Register the compiled bodies that ``TAGAE_KERNELS=setting`` permits (None or empty: not set), and say which.

    A library that cannot be used is logged, and the reference runs.

    Raises:
        UnavailableBackend: the setting requires compiled bodies that cannot run here, or it is unknown.
    """
    if setting == REFERENCE:
        return Backend(REFERENCE, "TAGAE_KERNELS=reference")
    if setting and setting != "require" and setting not in COMPILED:
        raise UnavailableBackend(
            f"TAGAE_KERNELS: expected reference, require, {', '.join(COMPILED)}, or not set, came {setting!r}; "
            "unset it to let tagae choose"
        )
    try:
        name, library = _register(file, setting if setting in COMPILED else "")
        return Backend(name, library=library)
    except _Unusable as reason:
        if setting:
            raise UnavailableBackend(
                f"TAGAE_KERNELS={setting}: expected a compiled library of the tagae ops, came none: {reason}; "
                "or unset TAGAE_KERNELS, so that their PyTorch form runs"
            ) from reason
        if file.exists():
            LOG.warning("the ops run in their PyTorch form, several times slower: %s", reason)
        return Backend(REFERENCE, str(reason))


def schemas_digest() -> str:
    """Identify the schemas; ``setup.py`` compiles the same digest into the library."""
    return hashlib.sha256(Path(__file__).with_name("schemas.py").read_bytes()).hexdigest()


def _register(file: Path, wanted: str) -> tuple[str, ctypes.CDLL]:
    """Load the library and register its bodies; ``wanted`` is the name of one backend, or empty for the best one."""
    if not file.exists():
        raise _Unusable(f"there is no {file}; install tagae where g++ or clang++ is on PATH")
    if not _is_whole(file.read_bytes()):
        raise _Unusable(f"{file} cannot be loaded (it is cut off, or no library); install tagae again")
    try:
        library = ctypes.CDLL(str(file))
        schemas, register = library.tagae_schemas, library.tagae_register
    except (OSError, AttributeError) as error:
        raise _Unusable(f"{file} cannot be loaded ({error}); install tagae again") from error
    schemas.restype = register.restype = ctypes.c_char_p
    if schemas().decode() != schemas_digest():
        raise _Unusable(f"{file} was built for other schemas of the ops; install tagae again")
    name: bytes | None = register(wanted.encode())
    if name is None:
        raise _Unusable(f"this processor does not have the instructions of {wanted or 'AVX2'}")
    return name.decode(), library


def _is_whole(content: bytes) -> bool:
    """Whether an ELF file has its last part, the table of sections. Loading one that is cut off ends the process."""
    if len(content) < 64 or not content.startswith(b"\x7fELF"):
        return False
    (start,), (size, count) = struct.unpack_from("<Q", content, 40), struct.unpack_from("<HH", content, 58)
    return bool(start + size * count <= len(content))
