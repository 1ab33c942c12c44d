"""The curves of a training run as a picture."""

from pathlib import Path

import numpy as np

from lab.training.train import TrainingReport


def draw_report(report: TrainingReport, path: Path) -> None:
    """Draw loss curves as PNG: raw, and smoothed over 2% of the steps."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    curves = report.losses | report.meta_losses
    figure, axes = plt.subplots(1, len(curves), figsize=(3.2 * len(curves), 3), constrained_layout=True)
    for axis, (name, losses) in zip(axes, curves.items(), strict=True):
        width = max(len(losses) // 50, 1)
        axis.plot(losses, color="tab:blue", alpha=0.25, linewidth=0.6)
        smooth = np.convolve(losses, np.ones(width) / width, "valid")
        axis.plot(np.arange(len(smooth)) + width - 1, smooth, color="tab:blue")
        axis.set(title=name, xlabel="step", ylim=(0, np.percentile(losses, 99) * 1.1))
        axis.grid(alpha=0.3)
    figure.suptitle(
        f"false alerts per day on normal training traffic: budget {report.pages_promised_per_day:.1f}, observed "
        f"{report.pages_observed_per_day:.1f}; culprit first in {report.culprit_first:.0%} of training faults",
        fontsize=9,
    )
    figure.savefig(path, dpi=110)
    plt.close(figure)
