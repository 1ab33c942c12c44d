"""Everything about the distribution stands in pyproject.toml; here the compiled ops are built.

    pip install --no-build-isolation .

compiles ``kernels/csrc`` if a C++ compiler is on PATH, or named by CXX, and torch can be imported. The library of the
ops fits all supported versions of torch; the libraries of the passes and of the reader of JSON need none. Otherwise
tagae installs without them, and slower forms run in PyTorch, numpy and Python.

An editable installation compiles only what changed: it takes a library of the checkout, or of a wheel in ``dist``, that
is newer than its sources.

The library for GPUs is built too if nvcc is on PATH, or named by NVCC, and torch is a build with CUDA. With
TAGAE_BUILD_CUDA=1 it is also built beside a torch without CUDA, for use with another one.
"""

import hashlib
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

CSRC = Path("kernels/csrc")
SCHEMAS = Path("kernels/schemas.py")
JSON_SCHEMAS = Path("kernels/json_rows.py")  # the struct that its library takes
OLDEST_TORCH = "0x020b000000000000ULL"  # 2.11, as in pyproject.toml
FLAGS = ["-std=c++17", "-O3", "-fPIC", "-fvisibility=hidden", "-fno-math-errno", "-ffp-contract=fast", "-g0"]
# For passes over series: products and sums round as in numpy, so both compute the same filters.
EXACT = ["-ffp-contract=off"]
AVX512 = ["-mavx512f", "-mavx512dq", "-mavx512vl", "-mavx512bw", "-mfma", "-mprefer-vector-width=512"]
# Per kind of processor and instruction set: flags, bytes of a vector, and the tile whose sums fill the registers: rows
# times vectors.
BODIES = {
    "x86_64": {"AVX512": (AVX512, 64, 6, 4), "AVX2": (["-mavx2", "-mfma"], 32, 6, 2)},
    "aarch64": {"NEON": (["-march=armv8-a"], 16, 6, 4)},
}.get(platform.machine(), {})
# Machine code for A100 and H100, and PTX that the driver compiles for newer GPUs.
GPUS = ["-gencode=arch=compute_80,code=sm_80", "-gencode=arch=compute_90,code=[sm_90,compute_90]"]
CUDA_FLAGS = ["-std=c++17", "-O3", "--cudart=static", "-Xcompiler=-fPIC,-fvisibility=hidden", *GPUS]


def find_compiler() -> str | None:
    """The C++ compiler: CXX, else g++ or clang++ of PATH."""
    return next(filter(None, map(shutil.which, [os.environ.get("CXX", ""), "g++", "clang++"])), None)


def find_cuda_compiler() -> str | None:
    """NVCC, else nvcc of PATH."""
    return next(filter(None, map(shutil.which, [os.environ.get("NVCC", ""), "nvcc"])), None)


def reason_against() -> str | None:
    """Why the library cannot be built here, or shall not; None if it can."""
    if os.environ.get("TAGAE_BUILD_OPS") == "0":
        return "TAGAE_BUILD_OPS is 0; the wheel then fits every platform"
    if sys.platform != "linux" or not BODIES:
        return f"it is for Linux on x86-64 and arm64, this is {sys.platform} on {platform.machine()}"
    if importlib.util.find_spec("torch") is None:
        return "torch cannot be imported; install torch, then tagae with pip install --no-build-isolation"
    if find_compiler() is None:
        return "no C++ compiler was found; put g++ or clang++ on PATH"
    return None


def reason_against_cuda() -> str | None:
    """Why the library for GPUs cannot be built here, or has no use; None if it can."""
    import torch

    if not torch.version.cuda and os.environ.get("TAGAE_BUILD_CUDA") != "1":
        return "this torch has no CUDA; set TAGAE_BUILD_CUDA=1 to build the library nevertheless"
    return None if find_cuda_compiler() else "nvcc was not found; put it on PATH"


def say(text: str) -> None:
    print(f"tagae: the compiled ops: {text}", file=sys.stderr)


class BuildLibrary(build_ext):
    """Build a library of ``kernels``. It has no Python in it, so its name has no tag of a Python version."""

    def get_ext_filename(self, fullname: str) -> str:
        return f"{fullname.replace('.', os.sep)}.so"

    def build_extension(self, ext: Extension) -> None:
        target = Path(self.get_ext_fullpath(ext.name))
        built = find_built(self.get_ext_filename(ext.name), ext) if self.editable_mode else None
        if built:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(built)
            return
        try:
            LIBRARIES[ext.name](Path(self.build_temp), target)
        except (OSError, subprocess.CalledProcessError) as error:
            target.unlink(missing_ok=True)
            detail = getattr(error, "stderr", "") or error
            say(f"{ext.name} is not built, so a form that is several times slower will run: {detail}")


class Wheel(bdist_wheel):
    """One wheel for all versions of Python."""

    def get_tag(self) -> tuple[str, str, str]:
        _, _, system = super().get_tag()
        return "py3", "none", system


def find_built(name: str, ext: Extension) -> bytes | None:
    """The library of this checkout, or of a wheel in ``dist``, if it is newer than all files that it is built from.

    Only for a checkout that runs here: a wheel for other machines is compiled where it is built.
    """
    inputs = ["setup.py", str(SCHEMAS), str(JSON_SCHEMAS), *ext.sources, *ext.depends]
    changed = max(Path(path).stat().st_mtime for path in inputs)
    library = Path(name)
    if library.is_file() and library.stat().st_mtime > changed:
        return library.read_bytes()
    for wheel in Path("dist").glob(f"tagae-*_{platform.machine()}.whl"):
        with zipfile.ZipFile(wheel) as archive:
            if wheel.stat().st_mtime > changed and name in archive.namelist():
                say(f"{name} is taken from {wheel}")
                return archive.read(name)
    return None


def build_ops(folder: Path, target: Path) -> None:
    """Build the library of the ops."""
    parts = {folder / "library.o": compile_host(*schemas(), *headers_of_torch(), CSRC / "library.cpp")}
    for name, (flags, size, rows, vectors) in BODIES.items():
        macros = [f"-DTAGAE_ISA={name}", f"-DTAGAE_VECTOR_BYTES={size}"]
        tile = [f"-DTAGAE_TILE_ROWS={rows}", f"-DTAGAE_TILE_VECTORS={vectors}"]
        parts[folder / f"{name}.o"] = compile_host(*flags, *macros, *tile, CSRC / "bodies.cpp")
    build(parts, link_host(*libraries_of_torch()), target)


def build_passes(folder: Path, target: Path) -> None:
    """Build the library of the passes."""
    parts = {folder / "passes_library.o": compile_host(*schemas(), CSRC / "passes_library.cpp")}
    for name, (flags, size, _, _) in BODIES.items():
        macros = [f"-DTAGAE_ISA={name}", f"-DTAGAE_VECTOR_BYTES={size}", f"-DTAGAE_PASSES={name}_PASSES"]
        parts[folder / f"{name}_passes.o"] = compile_host(*flags, *macros, *EXACT, CSRC / "passes.cpp")
    build(parts, link_host(), target)


def build_json(folder: Path, target: Path) -> None:
    """Build the library that reads JSON."""
    parts = {folder / "json_rows.o": compile_host(*schemas(JSON_SCHEMAS), CSRC / "json_rows.cpp")}
    build(parts, link_host(), target)


def build_cuda(folder: Path, target: Path) -> None:
    """Build the library of the ops for GPUs."""
    host = f"-ccbin={find_compiler()}"
    parts = {
        folder / "cuda_library.o": compile_host(*schemas(), *headers_of_torch(), CSRC / "cuda/library.cpp"),
        folder / "cuda_device.o": compile_host(*headers_of_torch(), CSRC / "cuda/device.cpp"),
        folder / "cuda_bodies.o": [str(find_cuda_compiler()), host, *CUDA_FLAGS, "-c", str(CSRC / "cuda/bodies.cu")],
    }
    link = [str(find_cuda_compiler()), host, *CUDA_FLAGS, "-shared", "-ldl", *libraries_of_torch()]
    build(parts, link, target)


LIBRARIES = {
    "kernels.libtagae": build_ops,
    "kernels.libpasses": build_passes,
    "kernels.libjson": build_json,
    "kernels.libtagae_cuda": build_cuda,
}


def schemas(file: Path = SCHEMAS) -> list[str]:
    """The macro by which a library identifies what it was built for."""
    return [f'-DTAGAE_SCHEMAS="{hashlib.sha256(file.read_bytes()).hexdigest()}"']


def headers_of_torch() -> list[str]:
    import torch

    return [f"-DTORCH_TARGET_VERSION={OLDEST_TORCH}", f"-isystem{Path(torch.__file__).parent}/include"]


def libraries_of_torch() -> list[str]:
    import torch

    return [f"-L{Path(torch.__file__).parent}/lib", "-ltorch_cpu", "-lc10"]


def compile_host(*arguments: object) -> list[str]:
    """The command that compiles one file of C++."""
    return [str(find_compiler()), *FLAGS, "-c", *map(str, arguments)]


def link_host(*libraries: str) -> list[str]:
    return [str(find_compiler()), "-shared", *libraries]


def build(parts: dict[Path, list[str]], link: list[str], target: Path) -> None:
    """Compile the parts at the same time, and link them."""
    for folder in {target.parent, *(part.parent for part in parts)}:
        folder.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor() as threads:
        list(threads.map(lambda part: run([*part[1], "-o", str(part[0])]), parts.items()))
    linked = target.with_suffix(".new")  # a running process keeps the old file
    compiler, *rest = link
    run([compiler, *map(str, parts), *rest, "-o", str(linked)])
    linked.replace(target)


def run(command: list[str]) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)


def choose_libraries() -> list[str]:
    """The names of the libraries that can be built here."""
    reason = reason_against()
    if reason:
        say(f"left out: {reason}")
        return []
    reason = reason_against_cuda()
    if reason:
        say(f"those for GPUs are left out: {reason}")
    return [name for name in LIBRARIES if name != "kernels.libtagae_cuda" or not reason]


sources, headers = (
    sorted(str(path) for path in CSRC.rglob("*") if path.suffix in of) for of in ({".cpp", ".cu"}, {".h"})
)
libraries = [Extension(name, sources, depends=headers, optional=True) for name in choose_libraries()]
setup(ext_modules=libraries, cmdclass={"build_ext": BuildLibrary, "bdist_wheel": Wheel})
