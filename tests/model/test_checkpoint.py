import json
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from lab.training.reference import join_meshes
from model.checkpoint import DOCUMENT, SHIPPED, Checkpoint, load, load_or_shipped, save
from model.decision.meta_model import MetaModel
from model.drift.populations import BINS, POPULATIONS
from model.errors import IncompatibleWeights
from model.features import EDGE_CHANNELS, NODE_CHANNELS
from model.scoring.calibration import Tail
from model.scoring.score import score
from tests.contract import different
from tests.model.model_cases import network, simulated_task


def checkpoint() -> Checkpoint:
    net = network()
    rng = np.random.default_rng(0)

    def tail(channels: int) -> Tail:
        return Tail(*(rng.random(channels).astype(np.float32) for _ in range(3)))

    provenance = {"seed": "7", "data": "made up"}
    return Checkpoint(
        network=net,
        meta=MetaModel(),
        node_tail=tail(len(NODE_CHANNELS)),
        edge_tail=tail(len(EDGE_CHANNELS)),
        page_offset=0.1 + 0.2,
        provenance=provenance,
    )


def test_a_checkpoint_comes_back_exactly(tmp_path: Path) -> None:
    ours = checkpoint()
    save(ours, tmp_path / "w.safetensors")
    back = load(tmp_path / "w.safetensors")
    for module in ("network", "meta"):
        theirs = getattr(back, module).state_dict()
        assert all(torch.equal(v, theirs[k]) for k, v in getattr(ours, module).state_dict().items())
    for tail in ("node_tail", "edge_tail"):
        for name in ("rate", "mean_excess", "shape"):
            np.testing.assert_array_equal(getattr(getattr(back, tail), name), getattr(getattr(ours, tail), name))
    assert (back.page_offset, back.provenance) == (ours.page_offset, ours.provenance)
    assert back.network.config == ours.network.config
    task = simulated_task()
    np.testing.assert_array_equal(
        score(back.network, [task])[0].node_expected, score(ours.network, [task])[0].node_expected
    )


def test_the_digest_names_the_content(tmp_path: Path) -> None:
    ours = checkpoint()
    save(ours, tmp_path / "a")
    save(replace(ours, page_offset=1.0), tmp_path / "b")
    a, again, b = (load(tmp_path / name).digest for name in "aab")
    assert a == again != b
    assert len(a) == 16


def document(path: Path) -> dict[str, Any]:
    with safe_open(path, "pt") as file:
        return json.loads(file.metadata()[DOCUMENT])


def rewrite(source: Path, target: Path, changes: dict[str, Any]) -> Path:
    """Return the same file with another document. None removes a field."""
    with safe_open(source, "pt") as file:
        tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 - not a mapping
    fields = {k: v for k, v in (document(source) | changes).items() if v is not None}
    save_file(tensors, target, {DOCUMENT: json.dumps(fields)})
    return target


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    save(checkpoint(), tmp_path / "w.safetensors")
    return tmp_path / "w.safetensors"


def test_another_schema_is_refused_naming_what_is_expected_and_what_came(saved: Path, tmp_path: Path) -> None:
    theirs = document(saved)["schema"].replace("cpu_per_request", "cpu_per_call")
    other = rewrite(saved, tmp_path / "other", {"schema": theirs})
    with pytest.raises(IncompatibleWeights, match=r"node channel 8: expected .*cpu_per_request.* got .*cpu_per_call"):
        load(other)


@pytest.mark.parametrize(
    "changes",
    [
        {"schema": None},
        {"schema": "{"},
        {"config": []},
        {"config": {"width": 3}},
        {"config": {"hidden": 64}},
        {"page_offset": "much"},
        {"provenance": "{"},
    ],
    ids=repr,
)
def test_metadata_that_does_not_fit_is_refused_by_the_files_name(
    saved: Path, tmp_path: Path, changes: dict[str, Any]
) -> None:
    with pytest.raises(IncompatibleWeights, match=r"weights .*other: expected a checkpoint"):
        load(rewrite(saved, tmp_path / "other", changes))


def test_equal_checkpoints_are_equal_files(tmp_path: Path) -> None:
    made = checkpoint()
    for name in ("a", "b"):
        save(made, tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert {path.name for path in tmp_path.iterdir()} == {"a", "b"}, "no half-written file is left"


def test_a_truncated_file_and_random_bytes_are_refused_by_name(saved: Path) -> None:
    whole = saved.read_bytes()
    noise = [np.random.default_rng(seed).bytes(1 << 12) for seed in range(5)]
    for content in (*(whole[:size] for size in (0, 5, 1000, -1)), *noise):
        saved.write_bytes(content)
        with pytest.raises(IncompatibleWeights, match=r"w\.safetensors: expected a checkpoint"):
            load(saved)


class Trap:
    """Writes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


def test_a_pickle_is_refused_and_not_run(tmp_path: Path) -> None:
    torch.save({"network": Trap(tmp_path / "sprung")}, tmp_path / "weights.pt")
    (tmp_path / "plain.pkl").write_bytes(pickle.dumps(Trap(tmp_path / "sprung")))
    for name in ("weights.pt", "plain.pkl"):
        with pytest.raises(IncompatibleWeights, match=f"{name}: expected a checkpoint"):
            load(tmp_path / name)
    assert not (tmp_path / "sprung").exists()


def test_a_missing_file_is_refused_with_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(IncompatibleWeights, match="found none; run `tagae train`"):
        load(tmp_path / "nowhere")


def test_the_shipped_weights_are_whole() -> None:
    shipped = load()
    assert SHIPPED.is_file()
    assert shipped.provenance
    assert not shipped.network.training
    assert all(torch.isfinite(p).all() for p in (*shipped.network.parameters(), *shipped.meta.parameters()))
    for tail in (shipped.node_tail, shipped.edge_tail):
        assert ((tail.rate > 0) & (tail.rate < 0.5)).all()
        assert (tail.mean_excess > 0).all()
        assert ((tail.shape >= 0) & (tail.shape <= 0.4)).all()


def test_weights_that_are_refused_give_way_to_the_shipped_ones_and_say_so(tmp_path: Path) -> None:
    broken = tmp_path / "mine.safetensors"
    broken.write_bytes(SHIPPED.read_bytes()[:-1000])
    found = load_or_shipped(broken)
    assert found.digest == load(SHIPPED).digest
    assert str(broken) in found.refused
    assert broken.is_file()  # the test must not move it
    assert load_or_shipped(None).refused == ""
    assert load_or_shipped(SHIPPED).refused == ""


def test_a_training_reference_comes_back_and_changes_no_weights(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    shares = [rng.dirichlet(np.ones(BINS), len(POPULATIONS)).astype(np.float32) for _ in range(4)]
    reference = join_meshes(shares)
    save(replace(checkpoint(), reference=reference), tmp_path / "with.safetensors")
    save(checkpoint(), tmp_path / "without.safetensors")
    back, without = load(tmp_path / "with.safetensors"), load(tmp_path / "without.safetensors")
    assert without.reference is None
    assert back.reference is not None
    assert not different(back.reference, reference)
    ours = without.network.state_dict()
    assert all(torch.equal(value, ours[name]) for name, value in back.network.state_dict().items())


def test_a_reference_with_other_bins_is_refused(tmp_path: Path) -> None:
    path, reference = tmp_path / "weights.safetensors", load().reference
    assert reference is not None
    save(replace(checkpoint(), reference=replace(reference, shares=np.zeros((2, 3), np.float32))), path)
    with pytest.raises(IncompatibleWeights, match=r"training reference of shape .* got \(2, 3\)"):
        load(path)
