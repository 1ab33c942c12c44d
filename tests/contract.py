"""The contract of every scorer, as plain functions that take a scorer and snapshots.

A scorer works in steps: ``advance(state, snapshot) -> (verdict, state)``. Baselines must meet the same contract.
"""

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, Generic, TypeVar

import numpy as np

from model.snapshot import MeshSnapshot
from model.verdict import Severity, Status, Suspect, Verdict

S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class Scorer(Generic[S]):
    """``warm_up``: snapshots before the first real verdict. ``saved`` saves a state and loads it again."""

    start: Callable[[], S]
    advance: Callable[[S, MeshSnapshot], tuple[Verdict, S]]
    saved: Callable[[S], S]
    warm_up: int = 10

    def run(self, snapshots: Sequence[MeshSnapshot], state: S | None = None) -> tuple[list[Verdict], S]:
        """Return a verdict for each snapshot, and the state after them."""
        now = self.start() if state is None else state
        verdicts = []
        for snapshot in snapshots:
            verdict, now = self.advance(now, snapshot)
            verdicts.append(verdict)
        return verdicts, now


def check_all(scorer: Scorer[S], snapshots: Sequence[MeshSnapshot]) -> None:
    """Check the whole contract on at least 30 snapshots of one mesh."""
    assert len(snapshots) >= 30
    verdicts, _ = scorer.run(snapshots)
    check_one_for_each(verdicts, snapshots)
    for verdict, snapshot in zip(verdicts, snapshots, strict=True):
        check_finite(verdict)
        check_suspects(verdict, snapshot.node_ids)
    check_warming_up_first(verdicts, scorer.warm_up)
    check_same(scorer.run(snapshots)[0], verdicts)
    check_inputs_unchanged(scorer, snapshots)
    check_saved_midway(scorer, snapshots)
    check_unseen_and_vanished(scorer, snapshots)


def check_one_for_each(verdicts: Sequence[Verdict], snapshots: Sequence[MeshSnapshot]) -> None:
    """Check for one verdict per snapshot, in order, with sequence numbers from one."""
    assert [v.observed_at for v in verdicts] == [s.observed_at for s in snapshots]
    assert [v.sequence for v in verdicts] == list(range(1, len(snapshots) + 1))


def check_finite(verdict: Verdict) -> None:
    """Check that no number of a verdict is missing or infinite, and that shares are between 0 and 1."""
    for number in (verdict.mesh_score, verdict.threshold, verdict.probability, verdict.coverage):
        assert np.isfinite(number)
    assert verdict.mesh_score >= 0
    assert 0 <= verdict.probability <= 1
    assert 0 <= verdict.coverage <= 1
    for suspect in (*verdict.suspects, *(s for i in verdict.incidents for s in i.suspects)):
        assert all(np.isfinite((r.observed, r.expected)).all() for r in suspect.reasons)
    assert all(np.isfinite(i.score) for i in verdict.incidents)
    alerts = [one for one in verdict.incidents if one.severity is not Severity.NOTICE]
    assert (verdict.status is Status.ANOMALOUS) == bool(alerts)


def check_suspects(verdict: Verdict, services: Sequence[str]) -> None:
    """Check that there are suspects of this mesh, each once, best first. Their scores add up to at most one.

    An incident whose services are all quiet again may have none.
    """
    assert verdict.suspects
    lists: list[tuple[Suspect, ...]] = [verdict.suspects, *(i.suspects for i in verdict.incidents)]
    for suspects in lists:
        names, scores = [s.service for s in suspects], [s.score for s in suspects]
        assert len(set(names)) == len(names)
        assert set(names) <= set(services)
        assert scores == sorted(scores, reverse=True)
        assert all(0 <= s <= 1 for s in scores)
        assert sum(scores) <= 1 + 1e-5


def check_warming_up_first(verdicts: Sequence[Verdict], warm_up: int) -> None:
    """Check that every status is ``warming_up`` before the end of the warm-up, and none after it."""
    assert {v.status for v in verdicts[: warm_up - 1]} == {Status.WARMING_UP}
    assert all(v.status is not Status.WARMING_UP for v in verdicts[warm_up - 1 :])


def check_inputs_unchanged(scorer: Scorer[S], snapshots: Sequence[MeshSnapshot]) -> None:
    """Check that a step changes neither its snapshot nor its state."""
    verdicts, state = scorer.run(snapshots[:-1])
    before, snapshot = deepcopy(state), snapshots[-1]
    digest = snapshot.digest
    first, _ = scorer.advance(state, snapshot)
    again, _ = scorer.advance(before, snapshot)
    assert not different(state, before)
    assert replace(snapshot).digest == digest  # a copy, because a digest is computed once
    check_same([again], [first])
    assert len(verdicts) == len(snapshots) - 1


def check_saved_midway(scorer: Scorer[S], snapshots: Sequence[MeshSnapshot]) -> None:
    """Check that a state that was saved and loaded gives the same verdicts."""
    half = len(snapshots) // 2
    _, state = scorer.run(snapshots[:half])
    straight, _ = scorer.run(snapshots[half:], state)
    resumed, _ = scorer.run(snapshots[half:], scorer.saved(state))
    check_same(resumed, straight)


def check_unseen_and_vanished(scorer: Scorer[S], snapshots: Sequence[MeshSnapshot]) -> None:
    """Check meshes that change: a third of the services is missing at first and later again, a new service comes."""
    first = snapshots[0]
    gone = np.arange(first.num_nodes) % 3 == 2
    parts = [
        *(_without(s, gone) for s in snapshots[:12]),
        *(with_unknown_service(s) for s in snapshots[12:20]),
        *(_without(s, gone) for s in snapshots[20:25]),
        *snapshots[25:],
    ]
    verdicts, _ = scorer.run(parts)
    check_one_for_each(verdicts, parts)
    known = {*first.node_ids, UNKNOWN_SERVICE}
    for verdict in verdicts:
        check_finite(verdict)
        check_suspects(verdict, sorted(known))


UNKNOWN_SERVICE = "elsewhere/unknown"


def with_unknown_service(snapshot: MeshSnapshot) -> MeshSnapshot:
    """Append a service that calls the first service and is called by it."""
    here = snapshot.num_nodes
    return MeshSnapshot.create(
        node_ids=(*snapshot.node_ids, UNKNOWN_SERVICE),
        edge_index=np.concatenate([snapshot.edge_index, [[0, here], [here, 0]]], axis=1),
        node_features=np.concatenate([_measured(snapshot)[0], [[5.0, 0.0, 0.01, np.nan, 0.1, np.nan, 3.0]]]),
        edge_features=np.concatenate([_measured(snapshot)[1], [[2.0, 0.0, 0.01, np.nan]] * 2]),
        observed_at=snapshot.observed_at,
        changes=snapshot.changes,
    )


def _measured(snapshot: MeshSnapshot) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    return (
        np.where(snapshot.node_observed, snapshot.node_features, np.nan),
        np.where(snapshot.edge_observed, snapshot.edge_features, np.nan),
    )


def _without(snapshot: MeshSnapshot, gone: np.ndarray[Any, Any]) -> MeshSnapshot:
    return snapshot.take(np.flatnonzero(~gone), np.flatnonzero(~gone[snapshot.edge_index].any(axis=0)))


def check_same(verdicts: Sequence[Verdict], others: Sequence[Verdict], tolerance: float = 0.0) -> None:
    """Check that verdicts are equal. Numbers may differ by ``tolerance``, absolute and relative."""
    assert len(verdicts) == len(others)
    for verdict, other in zip(verdicts, others, strict=True):
        where = different(verdict, other, tolerance)
        assert not where, f"{verdict.observed_at}: {where}"


def different(one: Any, other: Any, tolerance: float = 0.0, place: str = "") -> str:
    """Return where two values differ first, including inside dataclasses and containers; empty if they are equal.
    Fields that are derived from others are left out."""
    if isinstance(one, np.ndarray):
        same = np.array_equal(one, other, equal_nan=one.dtype.kind == "f")
        return "" if same else f"{place}: arrays differ"
    if isinstance(one, float):
        close = abs(one - other) <= tolerance * max(1.0, abs(other))
        return "" if close else f"{place}: {one} and {other}"
    if is_dataclass(one) and type(one) is type(other):
        keys = [field.name for field in fields(one) if not field.metadata.get("derived")]
        pairs = [(k, getattr(one, k), getattr(other, k)) for k in keys]
    elif isinstance(one, dict) and isinstance(other, dict):
        if one.keys() != other.keys():
            return f"{place}: keys {sorted(one.keys() ^ other.keys())}"
        pairs = [(k, one[k], other[k]) for k in one]
    elif isinstance(one, list | tuple) and isinstance(other, list | tuple):
        if len(one) != len(other):
            return f"{place}: lengths {len(one)} and {len(other)}"
        pairs = [(str(i), a, b) for i, (a, b) in enumerate(zip(one, other, strict=True))]
    else:
        return "" if one == other else f"{place}: {one!r} and {other!r}"
    return next((found for key, a, b in pairs if (found := different(a, b, tolerance, f"{place}.{key}"))), "")
