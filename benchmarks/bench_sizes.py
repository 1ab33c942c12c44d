"""How well and how fast networks of other sizes are: their losses on meshes that they never saw.

    python -m benchmarks.bench_sizes [--meshes 96] [--unseen 16] [--seeds 0 1] [--json FILE]

Every size is trained like the shipped network, on the same examples from simulated meshes, with each seed. Its losses,
and how often it gives the largest root-cause logit to the true root cause, are measured on meshes of another seed.
``relative`` is the loss divided by the mean of the present size, whose own spread over the seeds tells what is noise.
``network_ms`` is its pass over 2,000 services and 20,000 calls, one thread; sizes take turns. Half an hour or more.

A size with the same losses may still give other verdicts, so that is judged by ``make generalize`` afterwards.
"""

import argparse
import json
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import mean, median
from typing import Any

import torch

from lab.simulator.mesh.topology import MeshSpec
from lab.simulator.simulator import Simulator
from lab.training.dataset import Example
from lab.training.meshes import TrainingMeshes, simulated_runs
from lab.training.processes import processes
from lab.training.train import TrainingOptions, fit_network, losses_of, read_run
from model.checkpoint import load
from model.network.autoencoder import Autoencoder, AutoencoderConfig
from model.scoring.score import batch_tasks
from serve_app.cli.console import stderr_console
from serve_app.pipeline import Mesh, Options, prepare

PRESENT = AutoencoderConfig()
SIZES = {
    "128/64/4/16": PRESENT,
    "96/48/4/16": AutoencoderConfig(hidden=96, embedding=48),
    "64/64/4/16": AutoencoderConfig(hidden=64),
    "64/32/4/16": AutoencoderConfig(hidden=64, embedding=32),
    "64/32/2/8": AutoencoderConfig(hidden=64, embedding=32, heads=2, trajectory=8),
    "32/32/4/8": AutoencoderConfig(hidden=32, embedding=32, trajectory=8),
}  # hidden, embedding, heads, trajectory
UNSEEN_SEED = 1000
BATCH, REPEAT = 12, 21


def read(meshes: TrainingMeshes, every: int) -> list[Example]:
    """Read the examples of simulated meshes, those with faults too."""
    found: list[Example] = []
    runs = simulated_runs(meshes)
    with processes(2) as each:
        for done, (examples, _) in enumerate(each(partial(read_run, config=PRESENT, every=every), runs), 1):
            found += examples
            stderr_console().print(f"{done} of {len(runs)} meshes read")
    return found


def judge(network: Autoencoder, unseen: Sequence[Example]) -> dict[str, float]:
    """Return the losses, and the share of root causes with the largest logit."""
    torch.manual_seed(0)  # the same non-calls for all
    found: dict[str, list[float]] = {"expectation": [], "structure": [], "root_cause": []}
    first: list[bool] = []
    with torch.inference_mode():
        for begin in range(0, len(unseen), BATCH):
            batch = list(unseen[begin : begin + BATCH])
            graph = batch_tasks([one.task for one in batch], torch.device("cpu"))
            for name, loss in losses_of(network, graph, batch).items():
                found[name].append(float(loss))
            logits = torch.split(network(graph).root_cause_logit, [len(one.task.nodes) for one in batch])
            first += [
                int(logit.argmax()) == one.culprit for logit, one in zip(logits, batch, strict=True) if one.culprit >= 0
            ]
    return {name: mean(values) for name, values in found.items()} | {"first": mean(first)}


def network_times(networks: dict[str, Autoencoder]) -> dict[str, float]:
    """Return the median duration of a pass of each network, ms. They take turns."""
    [snapshot] = Simulator(MeshSpec(services=2000, calls_per_service=10, seed=1), snapshots=1).snapshots()
    graph = batch_tasks([prepare(load(), Mesh(), snapshot, Options()).whole], torch.device("cpu"))
    taken: dict[str, list[float]] = {name: [] for name in networks}
    with torch.inference_mode():
        for _ in range(REPEAT):
            for name, network in networks.items():
                began = time.perf_counter()
                network(graph)
                taken[name].append(1000 * (time.perf_counter() - began))
    return {name: round(median(times), 2) for name, times in taken.items()}


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--meshes", type=int, default=96)
    parser.add_argument("--unseen", type=int, default=16)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    every = TrainingOptions().every
    seen = read(TrainingMeshes(count=chosen.meshes), every)
    unseen = read(TrainingMeshes(count=chosen.unseen, seed=UNSEEN_SEED), every)
    networks, lines = {}, []
    for seed in chosen.seeds:
        for name, config in SIZES.items():
            torch.manual_seed(seed)
            network = Autoencoder(config)
            fit_network(network, seen, TrainingOptions(seed=seed), lambda what, done, total: None)
            networks[name] = network.eval()
            lines.append({"benchmark": "sizes", "size": name, "seed": seed, **judge(network, unseen)})
            print(json.dumps(lines[-1]), flush=True)
    times = network_times(networks)
    present = [line for line in lines if SIZES[str(line["size"])] == PRESENT]
    for line in lines:
        line["network_ms"] = times[str(line["size"])]
        line["relative"] = {
            n: round(_of(line, n) / mean(_of(p, n) for p in present), 4)
            for n in ("expectation", "structure", "root_cause")
        }
        print(json.dumps(line), flush=True)
    if chosen.json:
        chosen.json.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


def _of(line: dict[str, Any], name: str) -> float:
    return float(line[name])


if __name__ == "__main__":
    main()
