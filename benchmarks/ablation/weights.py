"""Weights of the variants, cached until something that determines them changes."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from benchmarks.ablation.variants import VARIANTS, Variant
from lab.comparison.digest import ROOT
from lab.comparison.lines import Tagae
from lab.comparison.lines import code_digest as digest_of_detector
from lab.comparison.plan import OURS, SHARED
from lab.training.dataset import TrainingRun
from lab.training.meshes import TrainingMeshes, simulated_runs
from lab.training.provenance import provenance
from lab.training.recordings import recorded_runs
from lab.training.train import TrainingOptions, train_network, train_verdicts
from model.checkpoint import SHIPPED, Checkpoint, load, save
from model.network.autoencoder import Autoencoder, AutoencoderConfig
from model.scoring.meta_model import MetaModel
from serve_app.pipeline import options
from serve_app.settings import Settings

WEIGHTS = Path("out/ablations/weights")
CODE = ("model", "kernels", "lab/simulator", "lab/training")
OWN = ("benchmarks/ablation/variants.py", "benchmarks/ablation/weights.py")
RUN, SIMPLE = 20, 1  # progress of reading or scoring a run, and of a training step

Tick = Callable[[int], Any]


@dataclass(frozen=True, slots=True)
class Plan:
    """How to train variants: by default like the shipped weights.

    Attributes:
        meshes, options: as in `tagae train`.
        recordings: normal traffic in addition to the simulated meshes.
        full: checkpoint of the full detector.
    """

    meshes: TrainingMeshes = field(default_factory=TrainingMeshes)
    options: TrainingOptions = field(default_factory=TrainingOptions)
    recordings: tuple[Path, ...] = ()
    full: Path = SHIPPED

    def runs(self) -> list[TrainingRun]:
        """Return the training data."""
        return [*simulated_runs(self.meshes), *recorded_runs(self.recordings)]

    def steps(self, variant: Variant) -> int:
        """Return the length of the progress bar for a variant."""
        runs = RUN * (self.meshes.count + len(self.recordings))
        network = runs + SIMPLE * self.options.steps if variant.silence else 0
        return network + runs + SIMPLE * self.options.meta_steps

    def differences(self) -> list[str]:
        """Return what differs from the training of the full detector and makes the comparison unfair."""
        ours, theirs = provenance(self.meshes, self.options, self.recordings), load(self.full).provenance
        return [
            f"{name}: {theirs.get(name)!r}, not {value!r}" for name, value in ours.items() if theirs.get(name) != value
        ]


def shipped_plan() -> Plan:
    """Return the plan of `make train`, with those recordings named in the shipped weights that exist."""
    named = [name for name in load().provenance.get("recorded", "").split(", ") if name]
    found = {path.parent.name: path.parent for path in SHARED.glob("*/*/meta.json")}
    return Plan(recordings=tuple(found[name] for name in named if name in found))


def needs_training(variant: Variant, plan: Plan, folder: Path = WEIGHTS) -> bool:
    """Whether the weights are missing or out of date."""
    if variant.shipped:
        return False
    path = weights_path(variant.name, plan, folder)
    return not path.exists() or stored_key(path) != weights_key(variant, plan)


def train_variant(variant: Variant, plan: Plan, folder: Path = WEIGHTS, tick: Tick = lambda steps: None) -> Path:
    """Train a variant and save its weights.

    Returns:
        Path of the weights.
    """
    torch.set_num_threads(1)
    runs = plan.runs()

    def progress(what: str, done: int, total: int) -> None:
        tick(RUN if what.endswith("runs") else SIMPLE)

    torch.manual_seed(plan.options.seed)
    begun = _network(variant, runs, plan, progress)
    made, _ = train_verdicts(variant.reduce(begun), runs, plan.options, progress)
    path = weights_path(variant.name, plan, folder)
    path.parent.mkdir(parents=True, exist_ok=True)
    save(made, path)
    path.with_suffix(".key").write_text(weights_key(variant, plan))
    return path


def detector(name: str, plan: Plan, folder: Path = WEIGHTS) -> Tagae:
    """Return the detector of a trained variant."""
    return Tagae(VARIANTS[name].of(load(weights_path(name, plan, folder))), options(Settings()))


def code_digest(name: str, plan: Plan, folder: Path = WEIGHTS) -> str:
    """Return a digest of everything that determines a variant's verdicts."""
    digest = hashlib.sha256(digest_of_detector(OURS).encode())
    for path in (weights_path(name, plan, folder), ROOT / OWN[0]):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def weights_path(name: str, plan: Plan, folder: Path) -> Path:
    """Path of a variant's weights."""
    return plan.full if VARIANTS[name].shipped else folder / f"{name}.safetensors"


def weights_key(variant: Variant, plan: Plan) -> str:
    """Return a digest of everything that determines the weights."""
    digest = hashlib.sha256(f"{variant.name} {plan.meshes} {plan.options} {plan.recordings}".encode())
    sources = [one for path in CODE for one in _sources(ROOT / path)] + [ROOT / path for path in OWN]
    for path in sorted(sources) + ([] if variant.silence else [plan.full]):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def stored_key(weights: Path) -> str | None:
    """Return the stored digest of the weights, or None."""
    path = weights.with_suffix(".key")
    return path.read_text() if path.exists() else None


def _network(
    variant: Variant, runs: list[TrainingRun], plan: Plan, progress: Callable[[str, int, int], None]
) -> Checkpoint:
    """Return a checkpoint with the variant's autoencoder and tails and an untrained meta-model."""
    about = provenance(plan.meshes, plan.options, plan.recordings) | {"ablation": variant.name}
    if variant.silence is None:
        return replace(load(plan.full), meta=MetaModel().eval(), page_offset=0.0, provenance=about)
    network = Autoencoder(AutoencoderConfig())
    variant.silence(network)
    return train_network(network, runs, plan.options, about, progress)[0]


def _sources(path: Path) -> list[Path]:
    return [path] if path.is_file() else list(path.rglob("*.py"))
