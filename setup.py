"""Everything about the distribution stands in pyproject.toml; here the compiled ops are built.

    pip install --no-build-isolation .

compiles ``kernels/csrc`` if a C++ compiler is on PATH, or named by CXX, and torch can be imported. The library of the
ops fits all supported versions of torch, and the library of the passes needs none. Otherwise tagae installs without
them, and ops and passes run in their PyTorch and numpy form.
"""

import hashlib
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

CSRC = Path("kernels/csrc")
SCHEMAS = Path("kernels/schemas.py")
OLDEST_TORCH = "0x020b000000000000ULL"  # 2.11, as in pyproject.toml
FLAGS = ["-std=c++17", "-O3", "-fPIC", "-fvisibility=hidden", "-fno-math-errno", "-ffp-contract=fast", "-g0"]
# For passes over series: products and sums round as in numpy, so both compute the same filters.
EXACT = ["-ffp-contract=off"]
# Per instruction set: flags, bytes of a vector, and the tile whose sums fill the registers: rows times vectors.
BODIES = {
    "AVX512": (["-mavx512f", "-mavx512dq", "-mavx512vl", "-mavx512bw", "-mfma", "-mprefer-vector-width=512"], 64, 6, 4),
    "AVX2": (["-mavx2", "-mfma"], 32, 6, 2),
}


def find_compiler() -> str | None:
    """The C++ compiler: CXX, else g++ or clang++ of PATH."""
    return next(filter(None, map(shutil.which, [os.environ.get("CXX", ""), "g++", "clang++"])), None)


def reason_against() -> str | None:
    """Why the library cannot be built here; None if it can."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return f"it is for Linux on x86-64, this is {sys.platform} on {platform.machine()}"
    if importlib.util.find_spec("torch") is None:
        return "torch cannot be imported; install torch, then tagae with pip install --no-build-isolation"
    if find_compiler() is None:
        return "no C++ compiler was found; put g++ or clang++ on PATH"
    return None


def say(text: str) -> None:
    print(f"tagae: the compiled ops: {text}", file=sys.stderr)


class BuildLibrary(build_ext):
    """Build a library of ``kernels``. It has no Python in it, so its name has no tag of a Python version."""

    def get_ext_filename(self, fullname: str) -> str:
        return f"{fullname.replace('.', os.sep)}.so"

    def build_extension(self, ext: Extension) -> None:
        target = Path(self.get_ext_fullpath(ext.name))
        try:
            LIBRARIES[ext.name](Path(self.build_temp), target)
        except (OSError, subprocess.CalledProcessError) as error:
            target.unlink(missing_ok=True)
            detail = getattr(error, "stderr", "") or error
            say(f"not built, so the ops will run in their PyTorch form, several times slower: {detail}")


class Wheel(bdist_wheel):
    """One wheel for all versions of Python."""

    def get_tag(self) -> tuple[str, str, str]:
        _, _, system = super().get_tag()
        return "py3", "none", system


def build_ops(folder: Path, target: Path) -> None:
    """Build the library of the ops."""
    import torch

    home = Path(torch.__file__).parent
    of_torch = [f"-DTORCH_TARGET_VERSION={OLDEST_TORCH}", f"-isystem{home}/include"]
    parts = {folder / "library.o": [*schemas(), *of_torch, "-c", str(CSRC / "library.cpp")]}
    for name, (flags, size, rows, vectors) in BODIES.items():
        macros = [f"-DTAGAE_ISA={name}", f"-DTAGAE_VECTOR_BYTES={size}"]
        tile = [f"-DTAGAE_TILE_ROWS={rows}", f"-DTAGAE_TILE_VECTORS={vectors}"]
        parts[folder / f"{name}.o"] = [*flags, *macros, *tile, "-c", str(CSRC / "bodies.cpp")]
    build(parts, target, f"-L{home}/lib", "-ltorch_cpu", "-lc10")


def build_passes(folder: Path, target: Path) -> None:
    """Build the library of the passes."""
    parts = {folder / "passes_library.o": [*schemas(), "-c", str(CSRC / "passes_library.cpp")]}
    for name, (flags, size, _, _) in BODIES.items():
        macros = [f"-DTAGAE_ISA={name}", f"-DTAGAE_VECTOR_BYTES={size}", f"-DTAGAE_PASSES={name}_PASSES"]
        parts[folder / f"{name}_passes.o"] = [*flags, *macros, *EXACT, "-c", str(CSRC / "passes.cpp")]
    build(parts, target)


LIBRARIES = {"kernels.libtagae": build_ops, "kernels.libpasses": build_passes}


def schemas() -> list[str]:
    """The macro by which a library identifies what it was built for."""
    return [f'-DTAGAE_SCHEMAS="{hashlib.sha256(SCHEMAS.read_bytes()).hexdigest()}"']


def build(parts: dict[Path, list[str]], target: Path, *libraries: str) -> None:
    """Compile the parts at the same time, and link them."""
    for folder in {target.parent, *(part.parent for part in parts)}:
        folder.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor() as threads:
        list(threads.map(lambda part: compile_with(*FLAGS, *part[1], "-o", str(part[0])), parts.items()))
    linked = target.with_suffix(".new")  # a running process keeps the old file
    compile_with("-shared", *map(str, parts), *libraries, "-o", str(linked))
    linked.replace(target)


def compile_with(*arguments: str) -> None:
    subprocess.run([str(find_compiler()), *arguments], check=True, capture_output=True, text=True)


reason = reason_against()
if reason:
    say(f"left out: {reason}")
sources, headers = (sorted(map(str, CSRC.glob(pattern))) for pattern in ("*.cpp", "*.h"))
libraries = [Extension(name, sources, depends=headers, optional=True) for name in LIBRARIES]
setup(
    ext_modules=[] if reason else libraries,
    cmdclass={"build_ext": BuildLibrary, "bdist_wheel": Wheel},
)
