"""Which bodies run: with the compiled library, without it, and with one that cannot be used."""

import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import kernels
from kernels import _registry, library, reference, selfcheck
from kernels.library import COMPILED, CUDA_FILE, Backend, check_apart, choose_backend, choose_cuda, choose_json
from kernels.schemas import SCHEMAS


def run(setting: str | None, code: str) -> subprocess.CompletedProcess[str]:
    """Run ``code`` in a fresh process, because ops are registered once."""
    environment = {name: value for name, value in os.environ.items() if name != "TAGAE_KERNELS"}
    return subprocess.run(
        [sys.executable, "-c", code],
        env=environment if setting is None else environment | {"TAGAE_KERNELS": setting},
        capture_output=True,
        text=True,
        check=False,
    )


PRINT_BACKEND = "import kernels; from kernels import passes; print(kernels.backend(), passes.are_compiled())"


@pytest.fixture(scope="module")
def usable() -> None:
    """Skip where the library is not built, or is broken."""
    done = run("require", "import kernels.ops")
    if done.returncode:
        pytest.skip(done.stderr.strip().splitlines()[-1])


def test_a_backend_runs_and_the_reference_has_a_reason() -> None:
    assert kernels.backend() in ("reference", *COMPILED)
    assert (kernels.backend() == "reference") == bool(kernels.backend_reason())


def test_the_reference_can_be_required() -> None:
    assert choose_backend("reference") == Backend("reference", "TAGAE_KERNELS=reference")


@pytest.mark.parametrize("setting", [None, ""])
def test_without_a_library_the_reference_runs(setting: str | None, tmp_path: Path) -> None:
    backend = choose_backend(setting, tmp_path / "libtagae.so")
    assert backend.name == "reference"
    assert backend.reason is not None
    assert "install tagae where g++ or clang++ is on PATH" in backend.reason


BROKEN = {
    "no library": (b"this is no library", "cannot be loaded"),
    "empty": (b"", "cannot be loaded"),
    "cut off": (None, "cannot be loaded"),
}


@pytest.mark.parametrize(("content", "text"), BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_library_is_logged_and_the_reference_runs(
    content: bytes | None, text: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "libtagae.so"
    file.write_bytes(
        Path(torch.__file__).with_name("lib").joinpath("libc10.so").read_bytes()[:100_000]
        if content is None
        else content
    )
    with caplog.at_level(logging.WARNING, logger="kernels"):
        backend = choose_backend(None, file)
    assert backend.name == "reference"
    assert backend.library is None
    assert backend.reason is not None
    assert text in backend.reason
    assert backend.reason in caplog.text
    with pytest.raises(kernels.UnavailableBackend, match=f"TAGAE_KERNELS=require: expected a compiled .*{text}"):
        choose_backend("require", file)


def test_another_library_is_not_used(tmp_path: Path) -> None:
    """A shared library that is intact, without our functions."""
    import _ctypes

    file = tmp_path / "libtagae.so"
    file.write_bytes(Path(_ctypes.__file__).read_bytes())
    backend = choose_backend(None, file)
    assert backend.reason is not None
    assert "cannot be loaded" in backend.reason


@pytest.mark.usefixtures("usable")
def test_a_library_of_other_schemas_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "schemas_digest", lambda *_: "another")
    backend = choose_backend(None)
    assert backend.name == "reference"
    assert backend.reason is not None
    assert "other schemas" in backend.reason


@pytest.mark.usefixtures("usable")
@pytest.mark.parametrize("setting", [None, "require", *COMPILED])
def test_compiled_bodies_run_where_the_processor_permits(setting: str | None) -> None:
    done = run(setting, PRINT_BACKEND)
    if done.returncode:
        assert setting in COMPILED
        assert f"UnavailableBackend: TAGAE_KERNELS={setting}" in done.stderr
        assert "this processor does not have the instructions" in done.stderr
    else:
        backend, are_compiled = done.stdout.split()
        assert backend == setting if setting in COMPILED else backend in COMPILED
        assert are_compiled == "True"


def test_without_compiled_bodies_the_passes_are_not_compiled_either() -> None:
    """Whether the library is built or not."""
    assert run("reference", PRINT_BACKEND).stdout.split() == ["reference", "False"]


def test_an_unknown_setting_stops_the_import() -> None:
    known = "expected reference, require, cpu-avx512, cpu-avx2, cpu-neon, or not set, got"
    with pytest.raises(kernels.UnavailableBackend, match=f"{known} 'cuda'"):
        choose_backend("cuda")
    done = run("yes", "import kernels.ops")
    assert done.returncode == 1
    assert f"{known} 'yes'" in done.stderr


def test_the_reader_of_json_follows_the_setting(tmp_path: Path) -> None:
    assert choose_json("reference").name == "reference"
    for setting in (None, "cpu-avx2"):
        assert choose_json(setting).name in ("cpu", "reference")
        assert "g++ or clang++ is on PATH" in str(choose_json(setting, tmp_path / "libjson.so").reason)
    with pytest.raises(kernels.UnavailableBackend):
        choose_json("require", tmp_path / "libjson.so")


def test_without_a_library_for_gpus_the_reference_runs(tmp_path: Path) -> None:
    for setting in (None, "", "cpu-avx2"):
        backend = choose_cuda(setting, tmp_path / "libtagae_cuda.so")
        assert backend.name == "reference"
        assert backend.reason is not None
        assert "install tagae where nvcc is on PATH" in backend.reason
    with pytest.raises(kernels.UnavailableBackend, match="nvcc is on PATH"):
        choose_cuda("require", tmp_path / "libtagae_cuda.so")


def test_the_reference_can_be_required_on_a_gpu() -> None:
    assert choose_cuda("reference") == Backend("reference", "TAGAE_KERNELS=reference")


def test_a_broken_library_for_gpus_is_not_tried(tmp_path: Path) -> None:
    file = tmp_path / "libtagae_cuda.so"
    file.write_bytes(b"this is no library")
    assert "truncated, or not a library" in str(choose_cuda(None, file).reason)


@pytest.mark.skipif(not CUDA_FILE.exists(), reason="the library is not built here")
@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_without_a_gpu_the_check_says_so() -> None:
    """The other process is a real one."""
    assert str(choose_cuda(None).reason).endswith("failed: torch sees no GPU")


@pytest.mark.skipif(not CUDA_FILE.exists(), reason="the library is not built here")
@pytest.mark.skipif(torch.version.cuda is not None, reason="this torch has CUDA")
def test_beside_a_torch_without_cuda_the_library_says_so() -> None:
    code = "import kernels.ops; import kernels.library as k; k.register_unchecked(k.CUDA_FILE)"
    assert "this torch has no CUDA" in run(None, code).stderr


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_process_without_a_gpu_uses_the_reference() -> None:
    code = (
        "import kernels\n"
        "print(kernels.backend('cuda'), kernels.backend_reason('cuda'))\n"
        "kernels.load_cuda()\n"
        "print(kernels.backend('cuda'), kernels.backend_reason('cuda'))"
    )
    assert run(None, code).stdout.splitlines() == [
        "reference load_cuda() was not called",
        "reference torch sees no GPU",
    ]


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A GPU whose library cannot be used, and whose ops were not tried yet. Returns the devices that are tried."""
    tried: list[str] = []

    def check_apart(device: str) -> None:
        tried.append(device)

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(_registry, "choose_cuda", lambda setting: Backend("reference", "there is no library"))
    monkeypatch.setattr(_registry, "check_apart", check_apart)
    monkeypatch.setitem(_registry._BACKENDS, "cuda", _registry._NOT_LOADED)
    return tried


def test_without_compiled_bodies_the_pytorch_form_is_tried_on_a_gpu_once(gpu: list[str]) -> None:
    for _ in range(2):
        kernels.load_cuda()
    assert gpu == ["cuda"]
    assert (kernels.backend("cuda"), kernels.backend_reason("cuda")) == ("reference", "there is no library")


def test_compiled_bodies_that_passed_need_no_other_check(gpu: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_registry, "choose_cuda", lambda setting: Backend("cuda"))
    kernels.load_cuda()
    assert (gpu, kernels.backend("cuda")) == ([], "cuda")


def test_a_gpu_on_which_no_form_passes_is_refused_each_time(gpu: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(device: str) -> str:
        gpu.append(device)
        return "failed: edge_dot: got nan"

    monkeypatch.setattr(_registry, "check_apart", fail)
    for _ in range(2):
        with pytest.raises(kernels.UnavailableBackend, match="the check of the ops on the GPU failed: edge_dot: got"):
            kernels.load_cuda()
    assert gpu == ["cuda"], "tried once"


def test_the_check_is_a_process_that_compares_every_op() -> None:
    assert check_apart("cpu") is None


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_the_check_says_that_there_is_no_gpu() -> None:
    assert check_apart("cuda") == "failed: torch sees no GPU"


@pytest.mark.parametrize("op", SCHEMAS)
def test_the_check_finds_an_op_that_differs(op: str, monkeypatch: pytest.MonkeyPatch) -> None:
    right = getattr(reference, op)
    assert selfcheck.find_difference(torch.device("cpu")) is None

    def wrong(*arguments: Any) -> Any:
        result = right(*arguments)
        return (result[0], result[1] + 0.01) if isinstance(result, tuple) else result + 0.01

    monkeypatch.setattr(reference, op, wrong)
    assert str(selfcheck.find_difference(torch.device("cpu"))).startswith(f"{op}: expected at most 0.0001")


def test_an_error_of_a_gpu_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(device: torch.device) -> None:
        raise RuntimeError(
            "CUDA error: no kernel image is available for execution on the device\nFor debugging consider"
        )

    monkeypatch.setattr(selfcheck, "find_difference", fail)
    with pytest.raises(SystemExit, match=r"for execution on the device$"):
        selfcheck.main(torch.device("cpu"))
