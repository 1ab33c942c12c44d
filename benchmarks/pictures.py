"""The pictures of speed in docs/pictures, from benchmarks/results: ``python -m benchmarks.figures`` draws them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

Row = Mapping[str, Any]
LAYERS = {
    "layer_ms": "tagae",
    "aot_ms": "PyG, AOTInductor",
    "compiled_ms": "PyG, torch.compile",
    "pyg_ms": "PyG, eager",
    "onnx_ms": "PyG, ONNX Runtime",
}
BUDGET_MS = 50


def draw_speed(kernels: Sequence[Row], pipeline: Sequence[Row], serve: Sequence[Row], path: Path) -> None:
    """Draw the time of a layer, and of a snapshot, over the number of services; both axes are logarithmic.

    Args:
        kernels, pipeline: rows of these results; of ``kernels`` the rows of inference.
        serve: rows of ``serve`` with the default place.
        path: of the picture.
    """
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4), dpi=90)
    for name, label in LAYERS.items():
        _line(left, {r["nodes"]: r[name] for r in kernels if name in r}, label, bold=name == "layer_ms")
    left.set(title="one layer of attention, one thread", xlabel="services", ylabel="ms")
    wires = {("default", "json"): "HTTP, JSON", ("throughput", "arrow"): "HTTP, Arrow, throughput mode"}
    for (mode, wire), label in wires.items():
        pushed = [r for r in serve if (r["mode"], r["format"]) == (mode, wire)]
        _line(right, {r["services"]: r["push_p50_ms"] for r in pushed}, label)
        _line(right, {r["services"]: r["noop_p50_ms"] for r in pushed}, f"an empty application, {label}", dashed=True)
    densest = {r["services"]: r["total_p50_ms"] for r in pipeline}  # the last of each size
    _line(right, densest, "in process", bold=True)
    right.axhline(BUDGET_MS, color="0.8", linewidth=1)
    right.annotate("budget", (1, BUDGET_MS), xycoords=("axes fraction", "data"), ha="right", va="bottom", color="0.5")
    right.set(title="from snapshot to verdict, median", xlabel="services", ylabel="ms")
    for axes in (left, right):
        axes.set(xscale="log", yscale="log")
    _save(figure, path)


def draw_throughput(overload: Sequence[Row], path: Path) -> None:
    """Draw the median and the 99th percentile of latency over the verdicts per second, for each number of clients, with
    JSON."""
    figure, axes = plt.subplots(figsize=(7, 3.5), dpi=90)
    for services in sorted({r["services"] for r in overload}):
        levels = [
            r for r in overload if (r["services"], r["format"]) == (services, "json") and r["accepted_p50_seconds"]
        ]
        at = [r["goodput_per_second"] for r in levels]
        p50, p99 = ([1000 * r[f"accepted_p{q}_seconds"] for r in levels] for q in (50, 99))
        [line] = axes.plot(at, p50, marker="o", label=f"{services} services, p50")
        axes.plot(at, p99, marker="o", linestyle="--", color=line.get_color(), label=f"{services} services, p99")
        for row, x, y in zip(levels, at, p99, strict=True):
            axes.annotate(str(row["clients"]), (x, y), textcoords="offset points", xytext=(4, 4), fontsize=8)
    axes.set(xscale="log", yscale="log", xlabel="verdicts per second; the numbers are clients", ylabel="ms")
    _save(figure, path)


def _line(axes: Axes, points: Mapping[float, float], label: str, *, bold: bool = False, dashed: bool = False) -> None:
    at = sorted(points)
    width, style, marker = 2.5 if bold else 1.2, "--" if dashed else "-", "" if dashed else "o"
    axes.plot(at, [points[x] for x in at], label=label, markersize=4, linewidth=width, linestyle=style, marker=marker)


def _save(figure: Figure, path: Path) -> None:
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
            axis.set_minor_formatter(NullFormatter())
        axes.legend(frameon=False, fontsize=8)
        axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path)
    plt.close(figure)
