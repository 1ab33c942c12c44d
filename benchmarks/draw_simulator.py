"""Pictures of the simulator for its README: a mesh, and each kind of fault compared with the same run without it.

python benchmarks/draw_simulator.py [--folder lab/simulator/pictures]
"""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from lab.simulator.events.faults import CATALOGUE, KINDS, Fault, candidates, possible_culprits
from lab.simulator.mesh.parameters import build_mesh
from lab.simulator.mesh.topology import MeshSpec
from lab.simulator.physics.propagation import MeshPhysics
from lab.simulator.simulator import Simulator
from model.snapshot import EDGE_METRICS, NODE_METRICS, MeshSnapshot

ROOT = Path(__file__).parents[1]
SPEC = MeshSpec(services=60, seed=3, hiccups_per_hour=0.0, dropout=0.0)
START, END, LENGTH = 40, 80, 120
UNITS = {"request_rate": "1/s", "requests_per_second": "1/s", "p50_latency": "ms", "p99_latency": "ms"}


def draw_mesh(mesh: MeshPhysics, path: Path) -> None:
    """Draw layers from left to right, namespaces by colour, and calls by traffic."""
    topology = mesh.topology
    ordinary = np.flatnonzero(~topology.latent)
    x, y = topology.layer.astype(float), np.zeros(len(topology.layer))
    for layer in range(int(topology.layer.max()) + 1):
        rows = ordinary[topology.layer[ordinary] == layer]
        rows = rows[np.argsort(topology.namespace[rows], kind="stable")]
        y[rows] = np.linspace(1, 0, len(rows) + 2)[1:-1]
    figure, axes = plt.subplots(figsize=(9, 4.5))
    flow = mesh.usual_rate[topology.source] * topology.calls_per_request
    for e in np.flatnonzero(~topology.latent_calls):
        a, b = topology.source[e], topology.destination[e]
        width = 0.3 + 0.5 * np.log1p(flow[e]) / 3
        axes.plot([x[a], x[b]], [y[a], y[b]], color="0.7", linewidth=width, zorder=1)
    size = 20 + 25 * np.log1p(mesh.usual_rate[ordinary])
    axes.scatter(x[ordinary], y[ordinary], s=size, c=topology.namespace[ordinary], cmap="tab20", zorder=2)
    axes.set_xticks(range(int(x.max()) + 1), ["gateways", *[""] * (int(x.max()) - 1), "stores"])
    axes.set_yticks([])
    axes.set_title(f"{len(ordinary)} services: colour is the namespace, size the traffic")
    for side in axes.spines.values():
        side.set_visible(False)
    figure.tight_layout()
    figure.savefig(path, dpi=70)
    plt.close(figure)


def draw_faults(mesh: MeshPhysics, path: Path) -> None:
    """Draw one panel for each kind: the series that shows the fault most, with and without it."""
    names = mesh.topology.node_ids
    position = {name: i for i, name in enumerate(names)}
    without = list(Simulator(SPEC, snapshots=LENGTH).snapshots())
    rows = -(-len(KINDS) // 2)
    figure, panels = plt.subplots(rows, 2, figsize=(10, 2.2 * rows), sharex=True)
    for kind, axes in zip(KINDS, panels.T.ravel(), strict=False):
        able = candidates(mesh, kind)
        culprit = names[int(able[np.argmax(mesh.usual_rate[able])])] if kind != "retry_storm" else names[int(able[0])]
        fault = Fault(kind, culprit, START, END, CATALOGUE[kind].sizes[1])
        run = list(Simulator(SPEC, [fault], snapshots=LENGTH).snapshots())
        services = [names[i] for i in possible_culprits(mesh, position, fault)]
        label, ours, theirs = most_visible(run, without, services)
        axes.axvspan(START, END, color="tab:red", alpha=0.08)
        axes.plot(theirs, color="0.6", linewidth=1, label="without")
        axes.plot(ours, color="tab:red", linewidth=1.2, label="with")
        axes.set_title(f"{kind}: {label}", fontsize=9, loc="left")
        axes.tick_params(labelsize=7)
    panels[0, 0].legend(fontsize=7, loc="upper left")
    for axes in panels[-1]:
        axes.set_xlabel("snapshots of 15 s; the fault acts in the shaded ones", fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=80)
    plt.close(figure)


def most_visible(
    run: Sequence[MeshSnapshot], without: Sequence[MeshSnapshot], services: Sequence[str]
) -> tuple[str, Any, Any]:
    """Return the series of the services and of the calls into them that the fault changes most, with and without it."""
    best: tuple[float, str, Any, Any] = (-1.0, "", None, None)
    ours, theirs = ({**_of_services(r, services), **_of_calls(r, services)} for r in (run, without))
    for key in ours:
        one, other = ours[key], theirs.get(key, np.full(LENGTH, np.nan))
        if np.isnan(one[START:END]).all() or np.isnan(other).mean() > 0.5:
            continue
        away = np.abs(np.nanmedian(one[START:END]) - np.nanmedian(other[START:END]))
        spread = np.nanstd(other) + 0.02 * np.nanmean(np.abs(other)) + 1e-3
        if away / spread > best[0]:
            best = (away / spread, key, one, other)
    return best[1:]


def _of_services(run: Sequence[MeshSnapshot], services: Sequence[str]) -> dict[str, Any]:
    series = {}
    for name in services:
        rows = [s.node_ids.index(name) if name in s.node_ids else None for s in run]
        for at, metric in enumerate(NODE_METRICS):
            scale = 1e3 if UNITS.get(metric) == "ms" else 1.0
            values = [
                s.node_features[r, at] * scale if r is not None and s.node_observed[r, at] else np.nan
                for s, r in zip(run, rows, strict=True)
            ]
            series[_label(metric, name.split("/")[1])] = np.array(values)
    return series


def _of_calls(run: Sequence[MeshSnapshot], services: Sequence[str]) -> dict[str, Any]:
    series: dict[str, Any] = {}
    for t, snapshot in enumerate(run):
        for e, (a, b) in enumerate(snapshot.edge_index.T):
            source, destination = snapshot.node_ids[a], snapshot.node_ids[b]
            if destination not in services and source not in services:
                continue
            for at, metric in enumerate(EDGE_METRICS):
                key = _label(metric, f"{source.split('/')[1]} to {destination.split('/')[1]}")
                scale = 1e3 if UNITS.get(metric) == "ms" else 1.0
                empty = 0.0 if metric == "requests_per_second" else np.nan
                row = series.setdefault(key, np.full(LENGTH, empty))
                row[t] = snapshot.edge_features[e, at] * scale if snapshot.edge_observed[e, at] else np.nan
    return series


def _label(metric: str, where: str) -> str:
    unit = UNITS.get(metric)
    return f"{metric.replace('_', ' ')}{f' ({unit})' if unit else ''}, {where}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=ROOT / "lab" / "simulator" / "pictures")
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    mesh = build_mesh(SPEC)
    draw_mesh(build_mesh(replace(SPEC, namespaces=6)), folder / "mesh.png")
    draw_faults(mesh, folder / "faults.png")


if __name__ == "__main__":
    main()
