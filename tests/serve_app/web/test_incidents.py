"""Incidents in the archive: they open as they were, whatever became of the mesh since."""

import asyncio
import json
import re
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from lab.simulator.events.faults import Fault
from lab.simulator.mesh.topology import MeshSpec
from lab.simulator.simulator import Simulator
from model.snapshot import MeshSnapshot, Owner
from model.state.serialization import pack_state
from serve_app.actions.feedback import add_feedback
from serve_app.api.schemas.actions import ActionDocument, ActionKind, FeedbackDocument, KeptActionDocument
from serve_app.api.schemas.incidents import ArchivedIncidentDocument, IncidentsDocument
from serve_app.deployments.session.reader import Reports
from serve_app.errors import InvalidDocument, UnknownIncident, UnknownMesh
from serve_app.stores.archive import BEFORE, MAX_MOMENTS, archive, pack_document, unpack_document
from serve_app.stores.records import IncidentFilter
from serve_app.stores.scored_snapshot import ScoredSnapshot, StoredVerdict, gauges, match_verdicts
from serve_app.web import incidents
from serve_app.web.history import instant
from tests.serve_app.running import failing
from tests.serve_app.web.watching import Watched

SPEC = MeshSpec(services=40, seed=3, latent=0.1)
MESH = "shop"
CULPRIT = failing(SPEC)
BEGIN, END = 30, 50  # of the fault
SHORT = 40  # a window that an incident outlives


def recording(snapshots: int, *faults: tuple[int, int]) -> list[MeshSnapshot]:
    """A mesh in which the same service fails in these spans."""
    events = [Fault("error_burst", CULPRIT, begin, end, 0.9) for begin, end in faults]
    return list(Simulator(SPEC, events, snapshots=snapshots).snapshots())


def later(snapshots: Sequence[MeshSnapshot], days: float) -> list[MeshSnapshot]:
    return [replace(snapshot, observed_at=snapshot.observed_at + timedelta(days=days)) for snapshot in snapshots]


@pytest.fixture(scope="module")
def snapshots() -> list[MeshSnapshot]:
    return recording(70, (BEGIN, END))


def all_of(watched_mesh: Watched, **wanted: Any) -> IncidentsDocument:
    return IncidentsDocument.model_validate_json(watched_mesh.incidents.overview(MESH, IncidentFilter(**wanted), True))


def open_now(watched_mesh: Watched, **wanted: Any) -> IncidentsDocument:
    return IncidentsDocument.model_validate_json(watched_mesh.incidents.overview(MESH, IncidentFilter(**wanted), False))


def detail(watched_mesh: Watched, incident: str) -> ArchivedIncidentDocument:
    return ArchivedIncidentDocument.model_validate_json(watched_mesh.incidents.detail(MESH, incident))


def times_of(watched_mesh: Watched, incident: str, *, is_open: bool = False) -> list[str]:
    """The times of the archived moments of an incident, or of those when it was open."""
    moments = watched_mesh.incidents.archived_moments(MESH, incident)
    return [instant(moment.verdict.observed_at) for moment in moments if moment.verdict.incidents or not is_open]


def report(watched_mesh: Watched, incident: str) -> str:
    """The report without the time at which it was made."""
    reports = Reports(watched_mesh.viewing, watched_mesh.incidents)
    return re.sub(r"<dt>made</dt><dd>[^<]*", "", reports.report(MESH, incident))


def everything(watched_mesh: Watched, incident: str) -> tuple[object, ...]:
    """All that the archive says of an incident."""
    return (
        json.loads(watched_mesh.incidents.detail(MESH, incident)),
        report(watched_mesh, incident),
    )


def test_an_incident_of_eight_days_ago_opens_as_it_was(watched_mesh: Watched, snapshots: list[MeshSnapshot]) -> None:
    verdicts = watched_mesh.see(MESH, snapshots)
    (incident,) = all_of(watched_mesh).incidents
    strongest = max(
        (incident for verdict in verdicts for incident in verdict["incidents"]),
        key=lambda row: (row["score"], row["severity"]),
    )
    document = detail(watched_mesh, incident.id)
    seen = [verdict["observed_at"] for verdict in verdicts if verdict["incidents"]]
    assert (document.headline, document.score, document.kind) == (strongest["headline"], strongest["score"], "failing")
    assert [suspect.service for suspect in document.suspects] == [
        suspect["service"] for suspect in strongest["suspects"]
    ]
    assert document.suspects[0].service == CULPRIT
    assert instant(document.opened_at) == seen[0]  # type: ignore[arg-type]
    assert document.until is not None
    assert instant(document.until) > seen[-1]
    archived = [moment.snapshot for moment in watched_mesh.incidents.archived_moments(MESH, incident.id)]
    around, whole = (
        next(one for one in of if one.observed_at == document.strongest_at) for of in (archived, snapshots)
    )
    assert 5 < around.num_nodes < whole.num_nodes
    assert {suspect.service for suspect in document.suspects} <= set(around.node_ids)
    rows = [whole.node_ids.index(name) for name in around.node_ids]
    np.testing.assert_array_equal(around.node_features, whole.node_features[rows])  # exactly as measured

    before = everything(watched_mesh, incident.id)
    watched_mesh.see(MESH, later(recording(130), 8))
    assert instant(watched_mesh.meshes.load_state(MESH).window[0].observed_at) > instant(document.until)
    assert everything(watched_mesh, incident.id) == before
    with pytest.raises(UnknownIncident):
        report(watched_mesh, "20200101T000000Z-00000000")
    watched_mesh.store.close()
    again = Watched(watched_mesh.path)
    with closing(again.store):  # another process
        assert everything(again, incident.id) == before


def test_series_are_those_of_the_time_of_the_incident(watched_mesh: Watched, snapshots: list[MeshSnapshot]) -> None:
    watched_mesh.see(MESH, snapshots)
    (incident,) = all_of(watched_mesh).incidents
    kept = [moment.snapshot for moment in watched_mesh.incidents.archived_moments(MESH, incident.id)]
    times = [snapshot.observed_at for snapshot in snapshots]
    rows = [times.index(snapshot.observed_at) for snapshot in kept]
    assert rows == list(range(rows[0], rows[-1] + 1))  # nothing is left out of a short incident
    assert rows[0] <= BEGIN - 20
    assert rows[-1] >= END
    for row, snapshot in zip(rows, kept, strict=True):
        place, whole = snapshot.node_ids.index(CULPRIT), snapshots[row].node_ids.index(CULPRIT)
        np.testing.assert_allclose(snapshot.node_features[place], snapshots[row].node_features[whole], rtol=1e-3)


def test_open_incidents_are_listed_as_they_are_now(watched_mesh: Watched, snapshots: list[MeshSnapshot]) -> None:
    verdicts = watched_mesh.see(MESH, snapshots[: END - 5])
    newest = verdicts[-1]["incidents"]
    assert newest
    shown = json.loads(open_now(watched_mesh).model_dump_json())["incidents"]
    assert [{key: row[key] for key in newest[0]} for row in shown] == newest
    assert all(row["opened_at"] and row["until"] is None and row["feedback"] is None for row in shown)
    assert [incident.id for incident in all_of(watched_mesh).incidents] == [row["id"] for row in newest]
    document = detail(watched_mesh, newest[0]["id"])
    highest = max(incident["score"] for verdict in verdicts for incident in verdict["incidents"])
    assert (document.score, document.until) == (highest, None)
    assert times_of(watched_mesh, newest[0]["id"])[-1] == verdicts[-1]["observed_at"]
    for unlike in ({"kind": "gone"}, {"severity": 0}, {"services": ("shop/nobody",)}):
        assert (open_now(watched_mesh, **unlike).incidents, all_of(watched_mesh, **unlike).incidents) == ([], [])
    for like in ({"kind": newest[0]["kind"]}, {"services": (CULPRIT,)}):
        assert len(open_now(watched_mesh, **like).incidents) == len(all_of(watched_mesh, **like).incidents) == 1


def test_an_incident_that_outlives_the_window_is_kept_whole(watched_mesh: Watched) -> None:
    verdicts = watched_mesh.see(MESH, recording(30 + 4 * SHORT, (30, 20 + 3 * SHORT)), window=SHORT)
    (incident,) = [incident for incident in all_of(watched_mesh).incidents if incident.suspects[0].service == CULPRIT]
    seen = [(v["observed_at"], one["score"]) for v in verdicts for one in v["incidents"] if one["id"] == incident.id]
    assert len(seen) > 2 * SHORT
    document = detail(watched_mesh, incident.id)
    assert len(times_of(watched_mesh, incident.id)) <= MAX_MOMENTS + 1
    assert (instant(document.opened_at), document.score) == (seen[0][0], max(score for _, score in seen))  # type: ignore[arg-type]
    open_at = times_of(watched_mesh, incident.id, is_open=True)
    gaps = [datetime.fromisoformat(b) - datetime.fromisoformat(a) for a, b in pairwise(open_at)]
    assert datetime.fromisoformat(open_at[0]) <= incident.since + timedelta(seconds=60)
    assert max(gaps) <= timedelta(seconds=90)  # thinned out evenly
    assert incident.until is not None
    assert times_of(watched_mesh, incident.id)[-1] == instant(incident.until)


def test_an_incident_that_was_seen_before_says_so(watched_mesh: Watched, snapshots: list[MeshSnapshot]) -> None:
    watched_mesh.see(MESH, snapshots)
    (first,) = all_of(watched_mesh).incidents
    assert (detail(watched_mesh, first.id).seen_before, "Seen before" in report(watched_mesh, first.id)) == (
        None,
        False,
    )
    steps = watched_mesh.steps
    given = [ActionDocument(kind=kind, text="drained <it>") for kind in (ActionKind.NOTE, ActionKind.DONE)]
    _, helped = [asyncio.run(steps.add_action(MESH, first.id, action, "alice")) for action in given]
    days = (2, 5)
    for day in days:
        watched_mesh.see(MESH, later(snapshots if day != days[-1] else snapshots[: END - 5], day))
    (now,) = open_now(watched_mesh).incidents
    before = now.seen_before
    assert before is not None
    assert (before.times, len(before.incidents), before.incidents[-1]) == (2, 2, first.id)
    assert before.last == first.since + timedelta(days=2)
    assert before.text == f"Seen before: 2 times, last on {before.last:%a} {before.last.day} {before.last:%b %H:%M} UTC"
    assert before.helped == [helped], "a note did not help"
    text = report(watched_mesh, now.id)
    assert before.text in text
    assert "<p>What helped, by alice: drained &lt;it&gt;</p>" in text
    assert detail(watched_mesh, before.incidents[0]).seen_before.text.startswith("Seen before: once, on ")  # type: ignore[union-attr]


@pytest.mark.parametrize(("severity", "ends", "times"), [(1, -1, 1), (1, 5, 0), (1, None, 0), (0, -1, 0)])
def test_only_incidents_that_ended_before_were_seen_before(
    watched_mesh: Watched, snapshots: list[MeshSnapshot], severity: int, ends: int | None, times: int
) -> None:
    """An incident often begins with a notice at the same service, which is no earlier incident."""
    watched_mesh.see(MESH, snapshots[: END - 5])
    (now,) = open_now(watched_mesh).incidents
    archived = watched_mesh.store.incident(MESH, now.id)
    assert archived is not None
    until = None if ends is None else now.since + timedelta(minutes=ends)
    before = replace(archived, id="before", since=now.since - timedelta(minutes=30), until=until, severity=severity)
    state, revision = pack_state(watched_mesh.meshes.load_state(MESH)), watched_mesh.store.revision(MESH)
    watched_mesh.store.replace(MESH, state, revision=revision, incidents=(before,))
    seen = detail(watched_mesh, now.id).seen_before
    assert (seen.times if seen else 0) == times


def test_a_false_alarm_ends_in_the_archive_too(watched_mesh: Watched, snapshots: list[MeshSnapshot]) -> None:
    watched_mesh.see(MESH, snapshots[: BEGIN + 6])
    (incident,) = open_now(watched_mesh).incidents
    said = FeedbackDocument(incident=incident.id, was_incident=False)
    feedback = asyncio.run(watched_mesh.steps.change(MESH, lambda state: add_feedback(state, said, 10)))
    watched_mesh.see(MESH, snapshots[BEGIN + 6 : BEGIN + 7])
    (ended,) = [one for one in all_of(watched_mesh).incidents if one.id == incident.id]
    assert ended.until == snapshots[BEGIN + 6].observed_at
    assert ended.feedback is not None
    assert (ended.feedback.was_incident, ended.feedback.given_at) == (False, feedback.given_at)


def test_an_accepted_level_is_normal_also_after_a_restart(
    watched_mesh: Watched, snapshots: list[MeshSnapshot], tmp_path: Path
) -> None:
    watched_mesh.see(MESH, snapshots[: BEGIN + 6])
    (incident,) = open_now(watched_mesh).incidents
    steps = watched_mesh.steps
    why = ActionDocument(kind=ActionKind.ACCEPT, text="the new release")
    kept = asyncio.run(steps.add_action(MESH, incident.id, why, "alice"))
    assert (kept.text, kept.by, kept.at) == (why.text, "alice", snapshots[BEGIN + 5].observed_at)
    revision = watched_mesh.store.revision(MESH)
    assert asyncio.run(steps.add_action(MESH, incident.id, why, "bob")) == kept
    assert watched_mesh.store.revision(MESH) == revision, "a repeated request writes nothing"
    state = watched_mesh.meshes.load_state(MESH)
    restarted = Watched(tmp_path)  # another process reads what is stored
    with closing(restarted.store):
        after = restarted.meshes.load_state(MESH)
        assert np.array_equal(after.node_filters, state.node_filters)
        assert np.array_equal(after.edge_filters, state.edge_filters)
        verdicts = restarted.see(MESH, snapshots[BEGIN + 6 : BEGIN + 14])
        assert [verdict["incidents"] for verdict in verdicts] == [[]] * 8, "the same level raises no further alert"
        ended = detail(restarted, incident.id)
        assert (ended.actions, ended.until, ended.ended_unseen) == ([kept], snapshots[BEGIN + 6].observed_at, False)
    with pytest.raises(UnknownIncident, match="expected an open incident"):
        asyncio.run(steps.add_action(MESH, "nothing", why, ""))


def test_a_mesh_without_an_archive_accepts_too(
    watched_mesh: Watched, snapshots: list[MeshSnapshot], monkeypatch: pytest.MonkeyPatch
) -> None:
    watched_mesh.see(MESH, snapshots[: BEGIN + 6])
    (incident,) = open_now(watched_mesh).incidents
    steps = watched_mesh.steps
    monkeypatch.setattr(watched_mesh.store, "incident", lambda mesh, incident: None)
    accept = ActionDocument(kind=ActionKind.ACCEPT)
    assert asyncio.run(steps.add_action(MESH, incident.id, accept, "")).incident == incident.id
    with pytest.raises(UnknownIncident, match="there is none"):
        asyncio.run(steps.add_action(MESH, incident.id, accept, ""))


@pytest.mark.parametrize("is_accepted", [False, True])
def test_an_incident_has_the_actions_on_those_that_merge_into_it(
    watched_mesh: Watched, snapshots: list[MeshSnapshot], monkeypatch: pytest.MonkeyPatch, is_accepted: bool
) -> None:
    """The acceptance of a level ends its incident, which then merges into no other."""
    watched_mesh.see(MESH, snapshots[: BEGIN + 6])
    (incident,) = open_now(watched_mesh).incidents
    steps = watched_mesh.steps
    mine = asyncio.run(steps.add_action(MESH, incident.id, ActionDocument(kind=ActionKind.ACKNOWLEDGE), "alice"))
    archived = watched_mesh.store.incident(MESH, incident.id)
    assert archived is not None
    kind = ActionKind.ACCEPT if is_accepted else ActionKind.NOTE
    theirs = KeptActionDocument(incident="younger", kind=kind, text="look", by="bob", at=incident.since)
    document = unpack_document(archived.document).model_copy(update={"id": "younger", "actions": [theirs]})
    younger = replace(archived, id="younger", document=pack_document(document))
    state, revision = pack_state(watched_mesh.meshes.load_state(MESH)), watched_mesh.store.revision(MESH)
    watched_mesh.store.replace(MESH, state, revision=revision, incidents=(younger,))
    watched_mesh.meshes.cached.drop(MESH)
    since = instant(incident.since + timedelta(seconds=15))

    def with_younger(window: Iterable[MeshSnapshot], verdicts: Iterable[StoredVerdict]) -> list[ScoredSnapshot]:
        """As if all verdicts but the newest had another incident at the same services."""
        *before, newest = match_verdicts(window, verdicts)
        known = [(moment, moment.find(incident.id)) for moment in before]
        more = [[{**mine, "id": "younger", "since": since}] if mine else [] for _, mine in known]
        twins = [
            moment.fields | {"incidents": [*moment.fields["incidents"], *two]}
            for moment, two in zip(before, more, strict=True)
        ]
        return [
            *(with_verdict(moment, fields) for moment, fields in zip(before, twins, strict=True)),
            newest,
        ]

    with monkeypatch.context() as patch:
        patch.setattr("serve_app.stores.archive.match_verdicts", with_younger)
        watched_mesh.see(MESH, snapshots[BEGIN + 6 : BEGIN + 7])
    assert detail(watched_mesh, incident.id).actions == ([mine] if is_accepted else [theirs, mine])
    ended = watched_mesh.store.incident(MESH, "younger")
    assert ended is not None
    assert ended.until == snapshots[BEGIN + 6].observed_at
    assert unpack_document(ended.document).actions == [theirs]


def test_an_incident_that_was_closed_unseen_ended_unknown_how(
    watched_mesh: Watched, snapshots: list[MeshSnapshot]
) -> None:
    watched_mesh.see(MESH, snapshots[: BEGIN + 6])
    (incident,) = open_now(watched_mesh).incidents
    state = watched_mesh.meshes.load_state(MESH)
    scored = watched_mesh.meshes.load_window(MESH, state)
    before = watched_mesh.store.incident(MESH, incident.id)
    seen, back = scored[-1], scored[-1].snapshot.observed_at + timedelta(minutes=20)
    verdict = {**seen.fields, "observed_at": instant(back), "incidents": [], "lost": [incident.id]}
    after = replace(with_verdict(seen, verdict), snapshot=replace(seen.snapshot, observed_at=back))
    for window, until in (([*scored, after], seen.snapshot.observed_at), ([after], back)):
        ended = archive(incident.id, window, state.sequence + 1, before)
        assert ended is not None
        document = unpack_document(ended.document)
        assert (document.ended_unseen, document.until, document.recovering) == (True, until, False)
    ended = archive(incident.id, [*scored, after], state.sequence + 1, before)
    assert ended is not None
    watched_mesh.store.replace(MESH, pack_state(state), revision=watched_mesh.store.revision(MESH), incidents=(ended,))
    assert detail(watched_mesh, incident.id).ended_unseen
    text = report(watched_mesh, incident.id)
    assert f"closed, outcome unknown; last seen at {seen.snapshot.observed_at:%H:%M:%S}" in text
    assert "at least " in text


def with_verdict(scored: ScoredSnapshot, fields: dict[str, Any]) -> ScoredSnapshot:
    """A scored snapshot with another verdict."""
    return replace(scored, stored=msgspec.structs.replace(scored.stored, document=json.dumps(fields).encode()))


def forget_past(watched_mesh: Watched) -> None:
    """Let the state forget its incidents, as after fifty others. The archive keeps them."""
    entry = watched_mesh.meshes.get(MESH)
    state = replace(entry.mesh.state, memory=replace(entry.mesh.state.memory, past=()))
    changed = replace(entry, mesh=replace(entry.mesh, state=state))
    watched_mesh.meshes.cached.put(MESH, watched_mesh.meshes.replace(MESH, changed))


def test_feedback_on_a_forgotten_incident_is_recorded_in_the_archive(
    watched_mesh: Watched, snapshots: list[MeshSnapshot]
) -> None:
    watched_mesh.see(MESH, snapshots)
    (incident,) = all_of(watched_mesh).incidents
    forget_past(watched_mesh)
    steps = watched_mesh.steps
    before = watched_mesh.meshes.load_state(MESH).memory
    said = FeedbackDocument(incident=incident.id, was_incident=False, note="nightly batch")
    kept = asyncio.run(steps.add_feedback(MESH, said, "alice"))
    assert (kept.effect, kept.given_by, kept.note, kept.page_levels) == ("recorded", "alice", "nightly batch", {})
    assert watched_mesh.meshes.load_state(MESH).memory == before, "no level, threshold or ranking changes"
    assert detail(watched_mesh, incident.id).feedback == kept
    assert [incident.feedback for incident in all_of(watched_mesh).incidents] == [kept]
    revision = watched_mesh.store.revision(MESH)
    assert asyncio.run(steps.add_feedback(MESH, said, "bob")) == kept
    assert watched_mesh.store.revision(MESH) == revision, "repeated feedback writes nothing"
    named = FeedbackDocument(incident=incident.id, was_incident=True, culprit="shop/nobody")
    with pytest.raises(InvalidDocument, match="shop/nobody"):
        asyncio.run(steps.add_feedback(MESH, named, ""))
    confirmed = FeedbackDocument(incident=incident.id, was_incident=True, culprit=CULPRIT)
    assert asyncio.run(steps.add_feedback(MESH, confirmed, "")).culprit == CULPRIT
    asyncio.run(steps.withdraw_feedback(MESH, incident.id))
    assert detail(watched_mesh, incident.id).feedback is None
    with pytest.raises(UnknownIncident):
        asyncio.run(steps.withdraw_feedback(MESH, incident.id))
    with pytest.raises(UnknownIncident) as excinfo:
        asyncio.run(steps.add_feedback(MESH, said.model_copy(update={"incident": "nothing"}), ""))
    assert excinfo.value.details["pointer"] == "/incident"


def test_applied_feedback_outlives_the_evidence_until_it_is_contradicted(
    watched_mesh: Watched, snapshots: list[MeshSnapshot]
) -> None:
    watched_mesh.see(MESH, snapshots)
    (incident,) = all_of(watched_mesh).incidents
    steps = watched_mesh.steps
    denied = FeedbackDocument(incident=incident.id, was_incident=False)
    first = asyncio.run(steps.add_feedback(MESH, denied, "alice"))
    assert (first.effect, bool(first.page_levels)) == ("applied", True)
    forget_past(watched_mesh)
    noted = asyncio.run(steps.add_feedback(MESH, denied.model_copy(update={"note": "batch"}), "alice"))
    assert (noted.effect, noted.note, noted.page_levels) == ("applied", "batch", first.page_levels)
    confirmed = denied.model_copy(update={"was_incident": True})
    assert asyncio.run(steps.add_feedback(MESH, confirmed, "bob")).effect == "recorded"
    assert watched_mesh.meshes.load_state(MESH).memory.feedback == (), "the raised levels are withdrawn"
    found = detail(watched_mesh, incident.id).feedback
    assert found is not None
    assert (found.was_incident, found.given_by) == (True, "bob")


def test_a_mesh_that_starts_again_ends_its_open_incidents(watched_mesh: Watched, snapshots: list[MeshSnapshot]) -> None:
    watched_mesh.see(MESH, snapshots[: BEGIN + 6])
    (incident,) = open_now(watched_mesh).incidents
    stored = watched_mesh.store.load(MESH)
    assert stored is not None
    watched_mesh.store.set_aside(MESH, "of another version", revision=stored.revision)
    watched_mesh.meshes.cached.drop(MESH)
    with pytest.raises(UnknownMesh):
        all_of(watched_mesh)
    watched_mesh.see(MESH, later(snapshots[:2], 1))
    (ended,) = all_of(watched_mesh).incidents
    assert (ended.id, ended.until) == (incident.id, later(snapshots[:1], 1)[0].observed_at)
    assert len(times_of(watched_mesh, incident.id)) > BEFORE / 2


def test_incidents_are_found_by_the_team_of_their_first_suspect(
    watched_mesh: Watched, snapshots: list[MeshSnapshot], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(incidents, "BLOCK", 1)
    watched_mesh.owners = (("*/*", Owner("platform", "#platform")), (CULPRIT, Owner("checkout", "#checkout")))
    watched_mesh.see(MESH, snapshots[: BEGIN + 6])
    (open_one,) = of_team(watched_mesh, "checkout", False)
    assert (open_one.team, open_one.contact) == ("checkout", "#checkout")
    assert (open_one.suspects[0].team, open_one.suspects[0].contact) == ("checkout", "#checkout")
    assert "platform" in open_one.teams, "it spread to services of others"
    assert of_team(watched_mesh, "platform", False) == []
    (mesh,) = map(gauges, watched_mesh.store.meshes())
    assert mesh.teams == ("checkout",)

    watched_mesh.see(MESH, snapshots[BEGIN + 6 :])
    watched_mesh.owners = (("*/*", Owner("platform")),)
    watched_mesh.see(MESH, later(snapshots, 1))
    ids = [incident.id for incident in all_of(watched_mesh).incidents]
    by_team = {
        team: [incident.id for incident in of_team(watched_mesh, team, True)] for team in ("checkout", "platform", "x")
    }
    assert len(ids) == 2
    assert by_team == {"platform": ids[:1], "checkout": ids[1:], "x": []}  # as of its time
    (mesh,) = map(gauges, watched_mesh.store.meshes())
    assert mesh.teams == ()


def of_team(watched_mesh: Watched, team: str, of_period: bool) -> list[ArchivedIncidentDocument]:
    document = watched_mesh.incidents.overview(MESH, IncidentFilter(limit=1), of_period, team)
    return IncidentsDocument.model_validate_json(document).incidents
