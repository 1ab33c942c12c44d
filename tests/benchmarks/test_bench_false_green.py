"""The cases of the benchmark of calm while users suffer: what happens in them, and how they are judged."""

import json
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from benchmarks.bench_false_green import spread, update_groups
from benchmarks.false_green import score
from benchmarks.false_green.cases import (
    BEGINS,
    DEPLOYS,
    GROUPS,
    HARMLESS,
    MIN_DELAY,
    PEAK,
    WAYS,
    Case,
    Expectation,
    Form,
    Size,
    cases,
    draw_peaks,
    mesh_of,
)
from benchmarks.false_green.judge import Entry, Mark, Outcome, judge, shorten, summarize
from lab.simulator.events.faults import Fault
from lab.simulator.events.operations import BenignChange
from lab.simulator.events.traffic import TrafficShift
from lab.simulator.mesh.topology import MeshSpec

SIZE = Size(seeds=(32,), services=40, days=2)
SPEC = MeshSpec(services=40)
T0 = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize("group", GROUPS)
def test_cases_are_the_same_each_time_and_their_meshes_can_be_simulated(group: str) -> None:
    group_cases = cases(group, SIZE)
    assert list(group_cases) == list(cases(group, SIZE))
    assert len({case.name for case in group_cases}) == len(group_cases)
    for case in spread(group_cases, 4):
        assert next(score.simulator(case).snapshots()).num_nodes
        assert all(_first(event) >= case.prelude for event in case.events)


def _first(event: object) -> int:
    return event.at if isinstance(event, BenignChange) else event.start  # type: ignore[attr-defined]


def test_every_way_of_a_bad_deploy_is_both_slow_and_failing() -> None:
    deploy_cases = cases("deploys", SIZE)
    assert len(deploy_cases) == DEPLOYS
    counts = Counter(
        (way.words, " fail " in case.name) for case in deploy_cases for way in WAYS if case.name.endswith(way.words)
    )
    assert len(counts) == 2 * len(WAYS)
    assert sum(isinstance(event, Fault) for case in deploy_cases for event in case.events) < DEPLOYS


@pytest.mark.parametrize("group", ["deploys", "gaps"])
def test_a_slow_service_delays_requests_by_an_amount_that_users_notice(group: str) -> None:
    pairs = [(case, event) for case in cases(group, Size()) for event in case.events]
    delays = [delay for case, event in pairs if (delay := _delay(case.spec, event))]
    assert len(delays) >= DEPLOYS / 2
    assert min(delays) >= MIN_DELAY


def _delay(spec: MeshSpec, event: object) -> float:
    """Seconds that an event adds to a request of its service; 0: it is not about latency."""
    mesh = mesh_of(spec)
    if isinstance(event, Fault) and event.kind == "latency_injection":
        return event.size * float(mesh.usual_p50[mesh.topology.node_ids.index(event.service)])
    if isinstance(event, BenignChange):
        own_time = mesh.services.cpu_time + mesh.services.delay
        return (event.size - 1.0) * float(own_time[mesh.topology.node_ids.index(event.service)])
    return 0.0


def test_harmless_changes_are_about_as_many_as_promised() -> None:
    changes = [event for case in cases("harmless", SIZE) for event in case.events]
    assert 0.8 * HARMLESS < len(changes) < 1.2 * HARMLESS


def test_peaks_come_at_most_once_a_day_and_stay_within_their_size() -> None:
    peaks = draw_peaks(mesh_of(MeshSpec(services=40, seed=31)), np.random.default_rng(1), 30)
    assert 5 < len(peaks) < 25
    assert len({peak.start // 1440 for peak in peaks}) == len(peaks)
    assert all(PEAK[0] <= peak.factor <= PEAK[1] for peak in peaks)


def test_services_of_a_mesh_with_little_traffic_get_a_tenth_of_a_request_a_second() -> None:
    mesh = mesh_of(cases("saturation", SIZE)[0].spec)
    assert mesh.usual_rate[~mesh.topology.latent].mean() == pytest.approx(0.1, rel=1e-3)


def test_a_case_is_scored_from_the_settled_state(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(score, "report_steps", lambda steps: None)
    shift = TrafficShift(0.0, 32, 40)
    case = Case("traffic", "", SPEC, Expectation(Form.ALERT), (shift,), begins=30, length=6, gap=(33, 2))
    marks = list(score.marks(case))
    assert [item is None for item in marks] == [False, False, False, True, True, False]
    assert case.snapshots == 14  # ten that settle the mesh further, and four that are not missing


def _marks(letters: str, ids: str = "") -> list[Mark | None]:
    """A mark for each letter, with an incident of the id in the same place; by default always the same."""
    starts = {name: T0 + timedelta(minutes=ord(name)) for name in "abc"}
    return [
        None
        if letter == "_"
        else Mark(letter, (Entry(name, starts[name], letter == "n", letter == "R"),) if letter in "AnR" else ())
        for letter, name in zip(letters, ids or "a" * len(letters), strict=True)
    ]


def _why(form: Form, letters: str, ids: str = "", gap: tuple[int, int] = (0, 0), **options: int) -> str:
    case = Case("gaps", "", SPEC, Expectation(form, **options), gap=gap)  # type: ignore[arg-type]
    return judge(case, _marks(letters, ids)).problem


@pytest.mark.parametrize(
    ("form", "letters", "why"),
    [
        (Form.ALERT, "..nAAAA", ""),
        (Form.ALERT, ".......", "no alert"),
        (Form.ALERT, "....AAA", "alert after 5 snapshots"),
        (Form.ALERT, "..AARAA", "the alert does not stay"),
        (Form.FOUND, "..n....", ""),
        (Form.NOTICE, "..n..AA", ""),
        (Form.NOTICE, ".An....", "an alert without harm"),
        (Form.ENDED, "AAARR..", ""),
        (Form.ENDED, "AAA.RRR", "an alert is still open at the end"),
        (Form.COUNT, "..nn...", "expected at most 0 incidents, got 1"),
        (Form.FREE, "AAAAAAA", ""),
    ],
)
def test_letters_are_why(form: Form, letters: str, why: str) -> None:
    assert _why(form, letters, within=4) == why


@pytest.mark.parametrize(
    ("form", "letters", "ids", "why"),
    [
        (Form.SAME, "AA__AAA", "aa__aaa", ""),
        (Form.SAME, "AA__.AA", "aa__aaa", "no alert at once after the gap"),
        (Form.SAME, "AA__AAA", "aa__bbb", "another incident, or another beginning, after the gap"),
        (Form.SAME, "AA__AAR", "aa__aaa", "the alert does not stay after the gap"),
        (Form.SAME, "....AAA", "....aaa", "no alert before the gap"),
    ],
)
def test_gaps_are_why(form: Form, letters: str, ids: str, why: str) -> None:
    assert _why(form, letters, ids, gap=(BEGINS + 2, 2)) == why


def test_a_line_shows_the_worst_letter_of_each_part() -> None:
    assert shorten("..n.A.R...", 5) == ".nAR."
    assert shorten("..A", 5) == "..A"


def _outcomes(group: str, alerts: list[int], is_good: list[bool]) -> list[Outcome]:
    case = replace(cases(group, SIZE)[0], group=group)
    return [Outcome(case, "", good, count, 0) for count, good in zip(alerts, is_good, strict=True)]


@pytest.mark.parametrize(
    ("group", "alerts", "is_good", "expected"),
    [
        ("saturation", [1] * 10, [True] * 9 + [False], True),
        ("saturation", [1] * 10, [True] * 8 + [False] * 2, False),
        ("harmless", [1, 1], [True, True], True),
        ("harmless", [2, 1], [True, True], False),
        ("quiet", [2], [True], True),
        ("quiet", [9], [True], False),
    ],
)
def test_a_group_is_bounded(group: str, alerts: list[int], is_good: list[bool], expected: bool) -> None:
    assert summarize(group, _outcomes(group, alerts, is_good)).is_good is expected


def test_rows_of_other_groups_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    update_groups(path, [{"group": "gaps", "cases": 1}, {"group": "quiet", "cases": 2}])
    update_groups(path, [{"group": "traffic", "cases": 3}, {"group": "gaps", "cases": 4}])
    rows = [(row["group"], row["cases"]) for row in map(json.loads, path.read_text().splitlines())]
    assert rows == [("traffic", 3), ("gaps", 4), ("quiet", 2)]


def test_few_cases_of_many_are_spread_evenly() -> None:
    canary_cases = cases("canaries", SIZE)
    assert spread(canary_cases, 4) == [canary_cases[0], canary_cases[10], canary_cases[20], canary_cases[30]]
    assert spread(canary_cases, None) is canary_cases
