"""The compiled bodies for a GPU. Their kernels run on a CPU here, see ``cuda_on_cpu.h``."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

import kernels
from kernels.library import choose_cuda, schemas_digest

ROOT = Path(__file__).parent.parent.parent
HERE = Path(__file__).parent
CUDA = ROOT / "kernels/csrc/cuda"
TORCH = Path(torch.__file__).parent
SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not shutil.which("g++"), reason="needs g++"),
]


def build_for_cpu(folder: Path, unchanged: Sequence[Path], *flags: str, change: Callable[[str], str] = str) -> Path:
    """Build the library so that it runs on a CPU, with a change of ``kernels.h`` and the objects without that file."""
    csrc = folder / "kernels/csrc"
    shutil.copytree(ROOT / "kernels/csrc", csrc)
    kernels_file = csrc / "cuda/kernels.h"
    before = kernels_file.read_text(encoding="utf-8")
    kernels_file.write_text(change(before), encoding="utf-8")
    assert change is str or kernels_file.read_text(encoding="utf-8") != before
    bodies, library = folder / "bodies.o", folder / "libtagae_cuda.so"
    source = [str(csrc / "cuda/bodies.cu"), "-o", str(bodies)]
    compile_with([*compiler(*flags), "-c", "-include", str(HERE / "cuda_on_cpu.h"), "-x", "c++", *source])
    objects = map(str, (bodies, *unchanged))
    compile_with(["g++", "-shared", *flags, *objects, f"-L{TORCH}/lib", "-ltorch_cpu", "-lc10", "-o", str(library)])
    return library


def compile_unchanged(folder: Path, *flags: str) -> list[Path]:
    """Compile what does not include ``kernels.h``, all files at the same time."""
    sources = {folder / "library.o": CUDA / "library.cpp", folder / "on_cpu.o": HERE / "cuda_on_cpu.cpp"}
    with ThreadPoolExecutor() as threads:
        commands = ([*compiler(*flags), "-c", str(source), "-o", str(made)] for made, source in sources.items())
        list(threads.map(compile_with, commands))
    return list(sources)


def compiler(*flags: str) -> list[str]:
    common = ["g++", "-std=c++17", "-O1", "-g", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra", "-Werror", *flags]
    common += ["-DTAGAE_KERNELS_ON_CPU", f'-DTAGAE_SCHEMAS="{schemas_digest()}"', f"-I{ROOT}"]
    return [*common, "-DTORCH_TARGET_VERSION=0x020b000000000000ULL", f"-isystem{TORCH}/include"]


def compile_with(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def run_python(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", *arguments],
        env=os.environ | {"PYTHONPATH": str(ROOT)} | environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def unchanged(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The objects without ``kernels.h`` and without sanitizers, which most tests need."""
    return compile_unchanged(tmp_path_factory.mktemp("objects"))


def test_they_compute_what_the_reference_does_and_touch_nothing_else(tmp_path: Path) -> None:
    """All sizes, a hub, empty neighbourhoods, wrong indices: under the sanitizers for addresses and arithmetic."""
    library = build_for_cpu(tmp_path, compile_unchanged(tmp_path, *SANITIZERS), *SANITIZERS)
    runtimes = [
        subprocess.run(["g++", f"-print-file-name={name}"], capture_output=True, text=True, check=True).stdout.strip()
        for name in ("libasan.so", "libubsan.so")
    ]
    if not all(Path(runtime).is_absolute() for runtime in runtimes):
        pytest.skip("this g++ has no sanitizers")
    done = run_python(
        "-m",
        "tests.kernels.compare_on_cpu",
        str(library),
        LD_PRELOAD=":".join(runtimes),
        ASAN_OPTIONS="detect_leaks=0",  # Python and torch keep what they need to the end
        TAGAE_KERNELS="reference",
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "compared\n"


def test_bodies_that_pass_the_check_are_registered(unchanged: list[Path], tmp_path: Path) -> None:
    library = build_for_cpu(tmp_path, unchanged)
    code = f"import kernels.ops, kernels.library as k; print(k.choose_cuda(None, k.Path({str(library)!r}), 'cpu'))"
    done = run_python("-c", code, TAGAE_KERNELS="reference")
    assert "Backend(name='cuda', reason=None, " in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (lambda text: text.replace("T(0.5) * x", "T(0.51) * x"), "failed: join_sides: expected at most 0.0001"),
        (
            lambda text: text.replace("if (lane == 0) out[e] = T(total);", "out[e + (int64_t(1) << 50)] = T(total);"),
            "ended with SIGSEGV",
        ),
        (
            lambda text: text.replace("totals[warp] = total;\n        __syncthreads();", "totals[warp] = total;"),
            "got nan",
        ),
    ],
    ids=["wrong result", "illegal access", "no barrier"],
)
def test_bodies_that_fail_the_check_do_not_run(
    wrong: Callable[[str], str], text: str, unchanged: list[Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    library = build_for_cpu(tmp_path, unchanged, change=wrong)
    backend = choose_cuda(None, library, "cpu")
    assert backend.name == "reference"
    assert backend.library is None
    assert backend.reason is not None
    assert text in backend.reason
    assert backend.reason in caplog.text
    with pytest.raises(kernels.UnavailableBackend, match="TAGAE_KERNELS=require"):
        choose_cuda("require", library, "cpu")
