"""Blind trials of the page: pictures of twelve incidents for a reader who must name the service and what to do.

``python -m tests.page.blind_trials FOLDER SEED`` scores simulated meshes of 60 to 3,000 services with the real service,
each with a fault (two meshes have two) and harmless deploys, and takes pictures of the page and of the first suspect's
panel. The pictures go to ``FOLDER/shown``, and the answers to ``FOLDER/truth.json``, which the reader must not see.
"""

import json
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from lab.simulator.events.faults import CATALOGUE, Fault, FaultKind, candidates, possible_culprits
from lab.simulator.events.operations import BenignChange
from lab.simulator.mesh.topology import MeshSpec
from lab.simulator.simulator import Simulator
from model.snapshot import NodeMetric
from tests.page.browsing import Tab, chromium, describe_missing, tab
from tests.page.serving import push_all, serve

FAULT_FROM, LASTS, LEAKS = 200, 12, 60  # snapshots before a fault, of a fault, and of one that grows slowly
WIDE = {"width": 1440, "height": 900}
SETTLED_MS = 1500
# What these faults do first, or what they need, shows only there. So they happen to services that report it.
OF_RESOURCES: tuple[FaultKind, ...] = ("slow_leak", "cpu_saturation")
ACTIONS: dict[FaultKind, str] = {
    "latency_injection": "look at the service itself: it became slow by itself; roll its deploy back if it has one",
    "error_burst": "look at the service itself: its requests fail; roll its deploy back if it has one",
    "retry_storm": "stop or limit the retries of the service, which overload its callees",
    "partial_partition": "look at the network or the policies between the service and some of its callers",
    "slow_leak": "restart the service before its memory is full, then look for a leak",
    "cpu_saturation": "find what else uses the CPU of its host, or move or scale the service",
    "disappearance": "bring the service back: it no longer runs, without a planned change",
    "misroute": "correct the routing: calls of the two callers go to each other's callees",
    "hub_degradation": "give the shared service capacity, or reduce its load",
    "grey_edge": "look at the network between the two services: both are healthy",
}


@dataclass(frozen=True, slots=True)
class Trial:
    """A mesh and the kinds of its faults. If ``is_deployed``, the first culprit was deployed a minute before."""

    services: int
    faults: tuple[FaultKind, ...]
    is_deployed: bool = False


TRIALS = (
    Trial(60, ("latency_injection",), is_deployed=True),
    Trial(300, ("error_burst",)),
    Trial(300, ("retry_storm",)),
    Trial(60, ("disappearance",)),
    Trial(150, ("slow_leak",)),
    Trial(60, ("cpu_saturation",)),
    Trial(150, ("misroute",)),
    Trial(1000, ("hub_degradation",)),
    Trial(150, ("grey_edge",)),
    Trial(1000, ("partial_partition",)),
    Trial(300, ("error_burst", "latency_injection")),
    Trial(3000, ("disappearance", "cpu_saturation")),
)


def main(folder: Path, seed: int) -> None:
    """Write the pictures of all trials, in a random order, and the answers."""
    random_order = random.Random(seed)
    order = random_order.sample(TRIALS, len(TRIALS))
    (folder / "shown").mkdir(parents=True, exist_ok=True)
    answers = []
    with TemporaryDirectory() as store, serve(Path(store)) as base, chromium() as browser:
        for number, trial in enumerate(order, 1):
            answer = run(trial, f"mesh-{number}", 1000 * seed + number, base)
            answers.append(answer)
            with tab(browser, base, viewport=WIDE) as one:
                take_pictures(one, f"mesh-{number}", answer, folder / "shown")
            print(f"{number} of {len(order)}: {answer['headlines']}", flush=True)
            (folder / "truth.json").write_text(json.dumps(answers, indent=1))


def run(trial: Trial, mesh: str, seed: int, base: str) -> dict[str, Any]:
    """Push the snapshots of a trial, and return its answer, with what the service says."""
    chance = random.Random(seed)
    length = FAULT_FROM + (LEAKS if "slow_leak" in trial.faults else LASTS)
    simulator = Simulator(MeshSpec(services=trial.services, seed=seed), snapshots=length)
    names = simulator.node_ids
    reporting = reporting_resources(simulator.spec)
    able = {
        kind: [at for at in candidates(simulator.mesh, kind) if kind not in OF_RESOURCES or names[at] in reporting]
        for kind in trial.faults
    }
    faults = [Fault(kind, names[chance.choice(able[kind])], FAULT_FROM, length + LASTS) for kind in trial.faults]
    for fault in faults:
        simulator.schedule(fault)
    deployed = [(faults[0].service, FAULT_FROM - 4)] if trial.is_deployed else []
    deployed += [(chance.choice(names), FAULT_FROM - chance.randrange(2, 20)) for _ in range(2)]
    for service, at in deployed:
        simulator.schedule(BenignChange("deploy", service, at, reason=f"v1.{chance.randrange(2, 30)}.0"))
    verdict = push_all(base, mesh, simulator.snapshots())
    position = {name: i for i, name in enumerate(names)}
    return {
        "mesh": mesh,
        "seed": seed,
        "services": trial.services,
        "at": verdict["observed_at"],
        "headlines": [one["headline"] for one in verdict["incidents"]],
        "faults": [describe(fault, simulator, position, names) for fault in faults],
        "deployed": deployed,
    }


def reporting_resources(spec: MeshSpec) -> set[str]:
    """Return the services of a mesh that report CPU and memory."""
    first = next(iter(Simulator(spec, snapshots=1).snapshots()))
    resources = [NodeMetric.CPU_UTILIZATION, NodeMetric.MEMORY_UTILIZATION]
    return {
        name for name, observed in zip(first.node_ids, first.node_observed[:, resources], strict=True) if all(observed)
    }


def describe(fault: Fault, simulator: Simulator, position: dict[str, int], names: Sequence[str]) -> dict[str, Any]:
    """Return the kind of a fault, the services that are a correct answer, and the correct action."""
    correct = [names[at] for at in possible_culprits(simulator.mesh, position, fault)]
    return {
        "kind": fault.kind,
        "effect": CATALOGUE[fault.kind].words,
        "correct": correct,
        "action": ACTIONS[fault.kind],
    }


def take_pictures(one: Tab, mesh: str, answer: dict[str, Any], folder: Path) -> None:
    """Take a picture of the page, and one with the panel of the first suspect."""
    one.open(f"/#mesh={mesh}&at={answer['at']}")
    one.until(lambda: one.page.locator("#cards > *").count(), "the suspects")
    one.page.wait_for_timeout(SETTLED_MS)
    one.page.screenshot(path=folder / f"{mesh}.png", full_page=True)
    one.page.keyboard.press("1")
    one.page.wait_for_timeout(2 * SETTLED_MS)
    one.page.screenshot(path=folder / f"{mesh}-suspect.png", full_page=True)


if __name__ == "__main__":
    if absent := describe_missing():
        sys.exit(absent)
    main(Path(sys.argv[1]), int(sys.argv[2]))
