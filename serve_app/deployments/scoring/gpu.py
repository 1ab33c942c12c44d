"""The tasks of a scorer on a GPU besides scoring: it measures its memory, and watches its temperature and clock.

A GPU that becomes too hot lowers its clock by itself, and every verdict then takes longer. Before it does, the scorer
reports less headroom, and the gates admit fewer requests (:mod:`serve_app.deployments.gate.admission`).
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from serve_app.metrics import (
    GPU_CLOCK,
    GPU_HEADROOM,
    GPU_MEMORY_FRAGMENTED,
    GPU_MEMORY_PEAK,
    GPU_MEMORY_RESERVED,
    GPU_TEMPERATURE,
    GPU_THROTTLED,
    Instruments,
)

log = logging.getLogger(__name__)
COOL_MARGIN = 10.0  # degrees below the temperature of the slowdown, from which on the headroom is less than 1
MIN_HEADROOM = 0.25


@dataclass(frozen=True, slots=True)
class GpuReading:
    """State of a GPU.

    Attributes:
        temperature: of the chip, °C.
        slowdown_temperature: from which on the GPU lowers its clock, °C; None: the driver does not report it.
        clock_ratio: clock of the multiprocessors, relative to the highest.
        is_hot: whether heat slows the GPU down.
        is_short_of_power: whether its limit of power does.
    """

    temperature: float
    slowdown_temperature: float | None
    clock_ratio: float
    is_hot: bool
    is_short_of_power: bool

    @property
    def headroom(self) -> float:
        """Share of the usual requests to admit, ``MIN_HEADROOM`` to 1. It falls in proportion over the last
        ``COOL_MARGIN`` degrees. The power limit is not a reason: GPUs work at it all the time."""
        if self.is_hot:
            return MIN_HEADROOM
        if self.slowdown_temperature is None:
            return 1.0
        margin = (self.slowdown_temperature - self.temperature) / COOL_MARGIN
        return MIN_HEADROOM + (1 - MIN_HEADROOM) * min(1.0, max(0.0, margin))


ReadGpu = Callable[[], GpuReading | None]


@dataclass(slots=True)
class GpuWatch:
    """Watches the GPU of a scorer.

    Attributes:
        device: label of the metrics.
        read: reads its state; None from it: the state is not known.
        instruments: export it.
        headroom: of the newest reading; 1 if there is none.
    """

    device: str
    read: ReadGpu
    instruments: Instruments
    headroom: float = field(default=1.0, init=False)

    def observe(self) -> None:
        """Read the GPU and export its state."""
        reading = self.read()
        self.headroom = reading.headroom if reading else 1.0
        if reading is None:
            return
        self.instruments.set(GPU_TEMPERATURE, reading.temperature, device=self.device)
        self.instruments.set(GPU_CLOCK, reading.clock_ratio, device=self.device)
        self.instruments.set(GPU_THROTTLED, float(reading.is_hot), device=self.device, reason="heat")
        self.instruments.set(GPU_THROTTLED, float(reading.is_short_of_power), device=self.device, reason="power")
        self.instruments.set(GPU_HEADROOM, reading.headroom, device=self.device)


def watch_gpu(device: torch.device, instruments: Instruments) -> GpuWatch:
    """The watch of a scorer's device. On a CPU, without the package nvidia-ml-py, or without a driver that answers, it
    knows nothing, and the headroom is 1."""
    return GpuWatch(str(device), _nvml_reader(device) if device.type == "cuda" else _read_nothing, instruments)


def _read_nothing() -> None:
    return None


def _nvml_reader(device: torch.device) -> ReadGpu:
    """Reads the GPU that torch uses through NVML, by its UUID: torch numbers only the GPUs that it sees."""
    try:
        import pynvml
    except ImportError:
        log.warning("temperature and clock of the GPU are not watched; install nvidia-ml-py: pip install 'tagae[gpu]'")
        return _read_nothing
    try:
        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{torch.cuda.get_device_properties(device).uuid}")
    except pynvml.NVMLError as error:
        log.warning("temperature and clock of the GPU are not watched, since NVML does not know it: %s", error)
        return _read_nothing
    try:
        slowdown = float(pynvml.nvmlDeviceGetTemperatureThreshold(handle, pynvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN))
    except pynvml.NVMLError:  # not supported by some models
        slowdown = None
    heat = pynvml.nvmlClocksEventReasonSwThermalSlowdown | pynvml.nvmlClocksEventReasonHwThermalSlowdown
    power = pynvml.nvmlClocksEventReasonSwPowerCap | pynvml.nvmlClocksEventReasonHwPowerBrakeSlowdown

    def read() -> GpuReading | None:
        try:
            reasons = pynvml.nvmlDeviceGetCurrentClocksEventReasons(handle)
            return GpuReading(
                float(pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU)),
                slowdown,
                pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM)
                / pynvml.nvmlDeviceGetMaxClockInfo(handle, pynvml.NVML_CLOCK_SM),
                bool(reasons & heat),
                bool(reasons & power),
            )
        except pynvml.NVMLError as error:
            log.warning("the state of the GPU could not be read: %s", error)
            return None

    return read


def measure_memory(device: torch.device, instruments: Instruments) -> None:
    """Export the memory that torch holds on a GPU; does nothing for a CPU."""
    if device.type != "cuda":
        return
    stats = torch.cuda.memory_stats(device)
    reserved = stats.get("reserved_bytes.all.current", 0)
    unused = stats.get("inactive_split_bytes.all.current", 0)
    instruments.set(GPU_MEMORY_PEAK, stats.get("allocated_bytes.all.peak", 0), device=str(device))
    instruments.set(GPU_MEMORY_RESERVED, reserved, device=str(device))
    instruments.set(GPU_MEMORY_FRAGMENTED, unused / reserved if reserved else 0.0, device=str(device))
