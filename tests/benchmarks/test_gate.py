"""The gate: what fails, what passes, what is skipped and said, and what its digest covers."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from benchmarks.gate import __main__ as gate
from benchmarks.gate import pieces as module
from benchmarks.gate.figures import (
    RESULTS,
    MeasuredFigure,
    RecordedFigure,
    Result,
    compare,
    has_fallen,
    join,
    noise_of,
    read,
    record,
    record_noise,
    table,
    write,
)
from benchmarks.gate.pieces import SIMULATED, TITLES, missing, pieces
from benchmarks.gate.recordings import harmed_times
from lab.comparison.digest import DECISIVE, ROOT, compute_digest, decisive_files, detector_digest, statements
from serve_app.settings import AlertSettings

RECALL = RecordedFigure("boutique: recall", 0.5, 0.04, True, "aa")
ALERTS = RecordedFigure("boutique: false alerts", 3.0, 1.0, False, "aa")
BEFORE = {figure.name: figure for figure in (RECALL, ALERTS)}


def found(recall: float, alerts: float) -> list[MeasuredFigure]:
    return [MeasuredFigure(RECALL.name, recall, True, 0.04), MeasuredFigure(ALERTS.name, alerts, False, 1.0)]


def results(recall: float, alerts: float) -> list[Result]:
    return [comparison.result for comparison in compare(BEFORE, found(recall, alerts))]


def test_a_figure_that_is_worse_by_more_than_its_noise_fails() -> None:
    assert results(0.45, 3.0) == [Result.FELL, Result.OK]
    assert results(0.5, 5.0) == [Result.OK, Result.FELL], "fewer false alerts are better"
    assert has_fallen(compare(BEFORE, found(0.45, 0.0))), "another figure that is better does not make up for it"


def test_a_figure_within_its_noise_passes_and_a_better_one_is_named() -> None:
    assert results(0.46, 4.0) == [Result.OK, Result.OK]
    assert results(0.6, 1.0) == [Result.ROSE, Result.ROSE]
    assert not has_fallen(compare(BEFORE, found(0.6, 4.0)))


def test_figures_that_are_not_recorded_or_not_measured_are_shown_and_fail_nothing() -> None:
    comparisons = compare(BEFORE, [MeasuredFigure("quiet: alerts", 2.0)])
    assert [comparison.result for comparison in comparisons] == [Result.SKIPPED, Result.SKIPPED, Result.NEW]
    assert not has_fallen(comparisons)
    rows = table(comparisons).splitlines()
    assert len(rows) == 4
    assert rows[1].split() == ["boutique:", "recall", "0.5", "-", "0.04", "not", "measured"]


def test_values_of_several_pieces_become_one_figure() -> None:
    first = [
        MeasuredFigure("a", 1.0, join="sum"),
        MeasuredFigure("b", 1.0, join="max"),
        MeasuredFigure("c", 1.0, join="mean"),
    ]
    more = [
        MeasuredFigure("a", 3.0, join="sum"),
        MeasuredFigure("b", 3.0, join="max"),
        MeasuredFigure("c", 3.0, join="mean"),
    ]
    assert [(figure.name, figure.value) for figure in join([*first, *more])] == [("a", 4.0), ("b", 3.0), ("c", 2.0)]


def test_noise_of_a_simulated_figure_is_its_spread_over_seeds_and_stays_when_figures_are_recorded(
    tmp_path: Path,
) -> None:
    draws = [[MeasuredFigure("quiet: alerts", value)] for value in (1.0, 2.0, 3.0)]
    noisy = record_noise(BEFORE, draws)
    assert noisy["quiet: alerts"] == RecordedFigure("quiet: alerts", None, 1.0, False, "", (1.0, 2.0, 3.0))
    after = record(noisy, [MeasuredFigure("quiet: alerts", 2.0), MeasuredFigure(RECALL.name, 0.6, True, 0.05)], "bb")
    assert after["quiet: alerts"] == RecordedFigure("quiet: alerts", 2.0, 1.0, False, "bb", (1.0, 2.0, 3.0))
    assert after[RECALL.name] == RecordedFigure(RECALL.name, 0.6, 0.05, True, "bb")
    assert after[ALERTS.name] == ALERTS, "figures of other parts stay"
    write(after, tmp_path / "gate.json")
    assert read(tmp_path / "gate.json") == after
    assert noise_of([]) == noise_of([1.0]) == 0.0


def test_the_exit_code_says_whether_a_figure_fell_and_recording_accepts_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(module.TITLES, "boutique", "boutique")
    path = tmp_path / "gate.json"
    write(BEFORE, path)
    worse = found(0.1, 3.0)
    assert gate.conclude(found(0.5, 3.0), ["boutique"], is_record=False, path=path) == 0
    assert gate.conclude(worse, ["boutique"], is_record=False, path=path) == 1
    assert "FELL" in capsys.readouterr().out
    assert gate.conclude(worse, ["boutique"], is_record=True, path=path) == 0
    assert gate.conclude(worse, ["boutique"], is_record=False, path=path) == 0
    assert json.loads(path.read_text())[RECALL.name]["detector"] == detector_digest()


def test_missing_recordings_are_named_and_the_simulated_parts_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "NEEDED", {part: tmp_path / part for part in module.NEEDED})
    assert gate.available(list(TITLES)) == ["quiet", "calm-again", "false-green"]
    note = capsys.readouterr().err
    assert all(f"skipped: {TITLES[part]}: no {tmp_path / part}" in note for part in module.NEEDED)
    assert missing("quiet") is None


def test_every_simulated_part_has_other_seeds_for_its_noise() -> None:
    first, second = (pieces(SIMULATED, draw) for draw in (0, 1))
    assert [(piece.part, piece.steps) for piece in first if piece.part != "false-green"] == [
        (piece.part, piece.steps) for piece in second if piece.part != "false-green"
    ]
    assert {piece.part for piece in first} == set(SIMULATED)
    assert not {str(piece.measure) for piece in first} & {str(piece.measure) for piece in second}
    assert [piece.steps for piece in first] == sorted((piece.steps for piece in first), reverse=True), (
        "the longest first"
    )


def test_the_recorded_figures_are_of_the_parts_and_have_noise() -> None:
    figures = read(ROOT / RESULTS)
    assert {name.split(":")[0] for name in figures} == set(TITLES.values())
    assert all(figure.value is not None and figure.noise >= 0 for figure in figures.values())
    titles = {TITLES[part] for part in SIMULATED}
    assert all(bool(figure.seeds) is (name.split(":")[0] in titles) for name, figure in figures.items())


def test_harm_lasts_three_minutes_after_the_front_end_was_slow() -> None:
    minutes = np.arange(10) * 60_000_000
    assert harmed_times(minutes, minutes[[2]]).tolist() == [False] * 2 + [True] * 4 + [False] * 4
    assert not harmed_times(minutes, minutes[:0]).any()


def copy_decisive_files(folder: Path) -> None:
    for path in decisive_files(ROOT):
        target = folder / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)


def test_the_digest_changes_with_code_weights_and_default_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy_decisive_files(tmp_path)
    digests = [compute_digest(tmp_path)]
    assert digests == [detector_digest()], "it does not depend on the place"
    for name in ("model/incidents/policy.py", "kernels/reference.py", "partitioning/plan.py", "serve_app/pipeline.py"):
        with (tmp_path / name).open("a") as file:
            file.write("CHANGED = True\n")
        digests.append(compute_digest(tmp_path))
    (tmp_path / "model/weights/tagae.safetensors").write_bytes(b"other")
    digests.append(compute_digest(tmp_path))
    (tmp_path / "model/incidents/policy.py").rename(tmp_path / "model/incidents/rules.py")
    digests.append(compute_digest(tmp_path))
    monkeypatch.setattr("lab.comparison.digest.AlertSettings", lambda: AlertSettings(latency_floor_ms=15))
    digests.append(compute_digest(tmp_path))
    assert len(set(digests)) == len(digests)


def test_words_about_the_code_are_no_part_of_the_digest(tmp_path: Path) -> None:
    copy_decisive_files(tmp_path)
    path = tmp_path / "model/incidents/policy.py"
    path.write_text(f'"""Other words."""\n\n# A comment.\n{path.read_text()}')
    assert compute_digest(tmp_path) == detector_digest()


def test_the_statements_keep_strings_that_are_values() -> None:
    source = 'def f() -> str:\n    """Words."""\n    # More.\n\n    return """#1"""  # last\n'
    assert statements(source) == 'def f() -> str:\n    return """#1"""'


def test_the_digest_covers_every_pattern() -> None:
    files: Sequence[Path] = decisive_files(ROOT)
    assert all(any(path in files for path in ROOT.glob(pattern)) for pattern in DECISIVE)
    assert files == sorted(files)
