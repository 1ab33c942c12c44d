"""The compiled bodies for a GPU. Their kernels run on a CPU here, see ``cuda_on_cpu.h``."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import kernels
from kernels.library import choose_cuda, schemas_digest

ROOT = Path(__file__).parent.parent.parent
HERE = Path(__file__).parent
SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not shutil.which("g++"), reason="needs g++"),
]


def build_for_cpu(folder: Path, *flags: str, change: Callable[[str], str] = str) -> Path:
    """Build the library so that it runs on a CPU, with a change of ``kernels.h``."""
    csrc = folder / "kernels/csrc"
    shutil.copytree(ROOT / "kernels/csrc", csrc)
    kernels_file = csrc / "cuda/kernels.h"
    before = kernels_file.read_text(encoding="utf-8")
    kernels_file.write_text(change(before), encoding="utf-8")
    assert change is str or kernels_file.read_text(encoding="utf-8") != before
    torch_home = Path(torch.__file__).parent
    common = ["g++", "-std=c++17", "-O1", "-g", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra", "-Werror", *flags]
    common += ["-DTAGAE_KERNELS_ON_CPU", f'-DTAGAE_SCHEMAS="{schemas_digest()}"', f"-I{folder}"]
    common += ["-DTORCH_TARGET_VERSION=0x020b000000000000ULL", f"-isystem{torch_home}/include"]
    parts = {
        "bodies.o": ["-include", str(HERE / "cuda_on_cpu.h"), "-x", "c++", str(csrc / "cuda/bodies.cu")],
        "library.o": [str(csrc / "cuda/library.cpp")],
        "on_cpu.o": [str(HERE / "cuda_on_cpu.cpp")],
    }
    for name, part in parts.items():
        compile_with([*common, "-c", *part, "-o", str(folder / name)])
    library = folder / "libtagae_cuda.so"
    objects = [str(folder / name) for name in parts]
    compile_with(
        ["g++", "-shared", *flags, *objects, f"-L{torch_home}/lib", "-ltorch_cpu", "-lc10", "-o", str(library)]
    )
    return library


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


def test_they_compute_what_the_reference_does_and_touch_nothing_else(tmp_path: Path) -> None:
    """All sizes, a hub, empty neighbourhoods, wrong indices: under the sanitizers for addresses and arithmetic."""
    library = build_for_cpu(tmp_path, *SANITIZERS)
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


def test_bodies_that_pass_the_check_are_registered(tmp_path: Path) -> None:
    library = build_for_cpu(tmp_path)
    code = f"import kernels.ops, kernels.library as k; print(k.choose_cuda(None, k.Path({str(library)!r}), 'cpu'))"
    done = run_python("-c", code, TAGAE_KERNELS="reference")
    assert "Backend(name='cuda', reason=None, " in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (lambda text: text.replace("T(0.5) * x", "T(0.51) * x"), "failed: join_sides: expected at most 0.0001"),
        (
            lambda text: text.replace("if (lane == 0) out[e] = total;", "out[e + (int64_t(1) << 50)] = total;"),
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
    wrong: Callable[[str], str], text: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    library = build_for_cpu(tmp_path, change=wrong)
    backend = choose_cuda(None, library, "cpu")
    assert backend.name == "reference"
    assert backend.library is None
    assert backend.reason is not None
    assert text in backend.reason
    assert backend.reason in caplog.text
    with pytest.raises(kernels.UnavailableBackend, match="TAGAE_KERNELS=require"):
        choose_cuda("require", library, "cpu")
