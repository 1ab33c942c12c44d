"""The device that scores: a GPU that works, or the CPU and the reason why."""

from pathlib import Path

import pytest
import torch

import kernels.gpu
import kernels.gpu_files
from model.checkpoint import load
from model.network.contract import MeshNetwork
from serve_app import app
from serve_app.errors import NoCapacity
from serve_app.exporter import PrometheusInstruments
from serve_app.runtime import devices, local
from serve_app.runtime.devices import (
    CONTEXT_BYTES,
    MIN_SHARE_BYTES,
    Device,
    choose_device,
    place_weights,
    score_on_cpu,
)
from serve_app.settings import Settings
from tests.serve_app.fake_gpu import NO_DRIVER, NO_GPU, NO_MEMORY, OLD_DRIVER, FakeGpu, gpu

__all__ = ["gpu"]  # the fixture

WRONG_OP = "the check of the ops on the GPU failed: attend: expected at most 0.0001 from the reference, got 0.5"
OBSTACLES = {  # set by a function: kind, words
    "CPU build of torch": ("torch", "is built without CUDA; install a build with CUDA"),
    "no driver": ("driver", "no NVIDIA driver was found; install NVIDIA driver 580 or newer"),
    "old driver": ("driver", "the NVIDIA driver is too old: it has CUDA 11.4, and this torch needs CUDA 13.0"),
    "no GPU": ("no_gpu", "the driver shows no GPU to this process; give this process a GPU"),
    "mismatched driver": ("driver", "CUDA does not start: Error 804: forward compatibility was attempted"),
    "op that fails": ("check", "attend: expected at most 0.0001 from the reference, got 0.5"),
    "no memory for the check": ("memory", "the GPU has too little free memory: the check of the ops"),
    "small share": ("memory", "scorer.num_gpus: expected at least 1,024 MiB for each process, got 0.5 of 1,500 MiB"),
}


def break_gpu(gpu: FakeGpu, obstacle: str) -> None:
    if obstacle == "CPU build of torch":
        gpu.build_without_cuda()
    elif obstacle == "op that fails":
        gpu.check = WRONG_OP
    elif obstacle == "no memory for the check":
        gpu.check = "the check of the ops on the GPU failed: CUDA out of memory. Tried to allocate 20.00 MiB."
    elif obstacle == "small share":
        gpu.total_bytes = 1500 * 2**20
    else:
        gpu.failure = {
            "no driver": NO_DRIVER,
            "old driver": OLD_DRIVER,
            "no GPU": NO_GPU,
            "mismatched driver": "Error 804: forward compatibility was attempted on non supported HW",
        }[obstacle]


@pytest.mark.parametrize("wanted", ["auto", "cuda"])
def test_a_gpu_that_works_is_used_and_has_its_share_of_the_memory(gpu: FakeGpu, wanted: str) -> None:
    found = choose_device(wanted, 0.5, is_promised=True)
    assert found == Device(torch.device("cuda"))
    assert gpu.checks == 1
    (fraction,) = gpu.fractions
    assert fraction * gpu.total_bytes == pytest.approx(0.5 * gpu.total_bytes - CONTEXT_BYTES)
    choose_device(wanted, 0.0, is_promised=True)
    assert len(gpu.fractions) == 1, "without a share there is no limit"


def test_two_processes_on_a_gpu_leave_room_for_each_other(gpu: FakeGpu) -> None:
    for _ in range(2):
        choose_device("auto", 0.5, is_promised=True)
    assert sum(gpu.fractions) * gpu.total_bytes + 2 * CONTEXT_BYTES == pytest.approx(gpu.total_bytes)
    gpu.total_bytes = 2 * (CONTEXT_BYTES + MIN_SHARE_BYTES)
    assert choose_device("auto", 0.5, is_promised=True).is_gpu, "the smallest GPU for two"


@pytest.mark.parametrize("obstacle", OBSTACLES)
def test_a_gpu_that_does_not_work_is_left_alone_or_stops_the_start_if_it_is_required(
    gpu: FakeGpu, obstacle: str, caplog: pytest.LogCaptureFixture
) -> None:
    break_gpu(gpu, obstacle)
    kind, words = OBSTACLES[obstacle]
    found, instruments = choose_device("auto", 0.5, is_promised=True), PrometheusInstruments()
    assert found.torch == torch.device("cpu")
    assert found.obstacle is not None
    assert found.obstacle.kind == kind
    (record,) = caplog.records
    assert (record.levelname, "\n" in record.getMessage()) == ("WARNING", False), "one line"
    assert record.getMessage().startswith("the GPU is not used, and the CPU scores: ")
    assert words in record.getMessage()
    devices.report(found, instruments)
    assert f'tagae_gpu_unused{{reason="{kind}"}} 1.0'.encode() in instruments.text()
    with pytest.raises(NoCapacity, match=r"^scorer\.device: no working GPU: ") as caught:
        choose_device("cuda", 0.5, is_promised=False)
    assert words in str(caught.value)
    assert str(caught.value).endswith(", or set it to cpu or auto")


def test_without_a_gpu_no_one_is_warned(gpu: FakeGpu, caplog: pytest.LogCaptureFixture) -> None:
    gpu.failure = NO_DRIVER
    found, instruments = choose_device("auto", 0.5, is_promised=False), PrometheusInstruments()
    devices.report(found, instruments)
    assert found == Device(torch.device("cpu"))
    assert not caplog.records
    assert b"tagae_gpu_unused{" not in instruments.text()
    assert gpu.checks == 0


def test_the_cpu_is_chosen_without_a_look_at_the_gpu(gpu: FakeGpu) -> None:
    assert choose_device("cpu", 0.5, is_promised=True) == Device(torch.device("cpu"))
    assert (gpu.checks, gpu.fractions) == (0, [])


class Failing:
    """Places weights; fails on the GPU."""

    def __init__(self, error: Exception) -> None:
        self.error, self.tried = error, list[str]()

    def __call__(self, device: torch.device) -> str:
        self.tried.append(device.type)
        if device.type == "cuda":
            raise self.error
        return "weights"


@pytest.mark.parametrize(
    ("error", "kind"),
    [(torch.OutOfMemoryError(NO_MEMORY), "memory"), (RuntimeError("CUDA error: no kernel image"), "check")],
)
def test_weights_that_a_gpu_cannot_take_go_to_the_cpu(
    error: Exception, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    place, on_gpu = Failing(error), Device(torch.device("cuda"))
    weights, found = place_weights("auto", on_gpu, place)
    assert (weights, place.tried, found.is_gpu) == ("weights", ["cuda", "cpu"], False)
    assert found.obstacle is not None
    assert found.obstacle.kind == kind
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    with pytest.raises(NoCapacity, match=r"no working GPU: .*CUDA"):
        place_weights("cuda", on_gpu, Failing(error))


def test_an_error_on_the_cpu_is_not_blamed_on_a_gpu() -> None:
    def fail(device: torch.device) -> None:
        raise RuntimeError("of another kind")

    with pytest.raises(RuntimeError, match="of another kind"):
        place_weights("cuda", Device(torch.device("cpu")), fail)


@pytest.mark.parametrize(
    ("error", "reason"), [(torch.OutOfMemoryError(NO_MEMORY), "memory"), (RuntimeError("CUDA error"), "error")]
)
def test_a_pass_that_fails_on_a_gpu_is_repeated_on_the_cpu(
    weights: Path, error: Exception, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    network, instruments, used = load(weights).network, PrometheusInstruments(), list[MeshNetwork]()

    def run(copy: MeshNetwork) -> str:
        used.append(copy)
        return "scores"

    assert score_on_cpu(run, network, error, instruments) == "scores"
    (copy,) = used
    assert copy is not network
    assert not copy.training
    ours, theirs = copy.state_dict(), network.state_dict()
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    assert f'tagae_gpu_fallbacks_total{{reason="{reason}"}} 1.0'.encode() in instruments.text()
    (record,) = caplog.records
    assert "since it failed on the GPU: CUDA" in record.getMessage()
    assert "\n" not in record.getMessage()


def test_a_pass_that_fails_on_the_cpu_too_is_not_counted(weights: Path) -> None:
    def run(copy: MeshNetwork) -> str:
        raise ValueError("a call of a service that does not exist")

    instruments = PrometheusInstruments()
    found = score_on_cpu(run, load(weights).network, RuntimeError("device-side assert"), instruments)
    assert isinstance(found, ValueError)
    assert b"tagae_gpu_fallbacks_total{" not in instruments.text()


# --- the process that builds the application ---


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """What Ray says of its cluster."""
    found = {"gpus": 1.0, "nodes": 1}
    monkeypatch.setattr(app, "_gpus", lambda: found["gpus"])
    monkeypatch.setattr(app, "_nodes", lambda: found["nodes"])
    return found


def place(settings: Settings) -> tuple[str, str]:
    device, _ = app._device(settings)
    return device, "replicas" if app._has_replicas(settings, device) else "session"


def gpu_unused() -> str:
    return app._device(Settings())[1]


def test_with_a_gpu_scorers_decide_on_their_own(gpu: FakeGpu, cluster: dict[str, float]) -> None:
    assert place(Settings()) == ("auto", "replicas")
    cluster["nodes"] = 3
    assert place(Settings()) == ("auto", "replicas")
    gpu.build_without_cuda()  # of the node that builds; scorers are on others
    assert place(Settings()) == ("auto", "replicas")
    assert gpu.checks == 0, "the builder does not wait for a check"
    assert gpu_unused() == ""


def test_a_gpu_that_torch_cannot_use_leaves_scoring_to_the_sessions(
    gpu: FakeGpu, cluster: dict[str, float], caplog: pytest.LogCaptureFixture
) -> None:
    gpu.build_without_cuda()
    assert place(Settings()) == ("cpu", "session")
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "is built without CUDA" in caplog.text
    assert gpu_unused() == "torch"


def test_a_driver_that_ray_cannot_ask_is_named(
    gpu: FakeGpu, cluster: dict[str, float], caplog: pytest.LogCaptureFixture
) -> None:
    """After an update of the driver, its library and its module differ until the next boot."""
    cluster["gpus"], gpu.failure = 0.0, "Unexpected error from cudaGetDeviceCount()"
    assert place(Settings()) == ("cpu", "session")
    assert "CUDA does not start: Unexpected error" in caplog.text
    gpu.failure = None
    assert place(Settings()) == ("cpu", "session")
    assert "Ray finds no GPU here" in caplog.text


def test_without_a_gpu_the_builder_asks_no_driver(
    gpu: FakeGpu, cluster: dict[str, float], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    cluster["gpus"], gpu.failure = 0.0, NO_DRIVER
    monkeypatch.setattr(kernels.gpu_files, "is_here", lambda: False)
    monkeypatch.setattr(kernels.gpu, "find_obstacle", pytest.fail)
    assert place(Settings()) == ("cpu", "session")
    cluster["nodes"] = 2
    assert place(Settings()) == ("cpu", "replicas")
    assert not caplog.records


def test_replicas_that_are_configured_decide_on_their_own_even_before_a_gpu_joins(cluster: dict[str, float]) -> None:
    cluster["gpus"] = 0.0
    assert place(Settings(scorer={"place": "replicas"})) == ("auto", "replicas")
    assert place(Settings(scorer={"device": "cuda"})) == ("cuda", "replicas")
    assert place(Settings(scorer={"device": "cpu"})) == ("cpu", "session")


@pytest.mark.parametrize(("device", "gpus", "share"), [("auto", 1.0, 0.25), ("auto", 0.0, 0), ("cpu", 1.0, 0)])
def test_scorers_reserve_a_gpu_where_there_is_one(
    cluster: dict[str, float], device: str, gpus: float, share: float
) -> None:
    cluster["gpus"] = gpus
    settings = Settings(scorer={"num_gpus": 0.25})
    assert app._scorer(settings, device).ray_actor_options["num_gpus"] == share


def test_a_service_that_requires_a_gpu_says_at_once_what_is_missing(gpu: FakeGpu) -> None:
    gpu.failure = NO_DRIVER
    with pytest.raises(NoCapacity, match="no NVIDIA driver was found"):
        app.start(Settings(scorer={"device": "cuda"}, serve={"port": 0}))


def test_serve_run_with_a_ray_of_its_own_says_at_once_what_a_required_gpu_lacks(
    gpu: FakeGpu, cluster: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "connect", lambda _: True)
    arguments = app.Arguments(**{"scorer.device": "cuda"})
    gpu.failure = NO_DRIVER
    with pytest.raises(NoCapacity, match="no NVIDIA driver was found"):
        app.build(arguments)
    gpu.failure, cluster["gpus"] = None, 0.0
    with pytest.raises(NoCapacity, match="Ray finds no GPU here"):
        app.build(arguments)


def test_a_cluster_with_a_head_alone_gets_the_application_before_a_gpu_joins(
    gpu: FakeGpu, cluster: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "connect", lambda _: False)
    monkeypatch.setattr(app, "application", lambda settings: settings.scorer.device)
    gpu.failure, cluster["gpus"] = NO_DRIVER, 0.0
    assert app.build(app.Arguments(**{"scorer.device": "cuda"})) == "cuda"
