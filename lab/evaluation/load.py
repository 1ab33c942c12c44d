"""Reads labelled recordings and verdict files for ``lab.evaluation.measures``."""

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

from lab.evaluation.measures.located import GRACE, LocatedFault
from lab.evaluation.measures.series import MISSING, VerdictSeries, align_verdicts
from lab.evaluation.measures.truth import GUARD, TICK, Form, GroundTruth, Span, ground_truth
from model.verdict import Incident, IncidentKind, Severity, Status, Suspect, Verdict, Watched
from serve_app.errors import BadRecording, BadVerdicts
from serve_app.recordings.format import LabelledIncident
from serve_app.recordings.reader import RecordingReader

LOCATED = frozenset({"recovered", "affected", "candidates"})  # columns of labels that name the affected services
UNMATCHED = 0.5  # share of snapshots without a verdict above which a file belongs to another recording


def read_truth(
    path: Path, *, guard: timedelta | None = None, begin_after: timedelta = timedelta(0), name: str = ""
) -> GroundTruth:
    """Read a recording's labels.

    Args:
        guard: time after each incident in which alarms do not count; None: two minutes for streams, else none.
        begin_after: time at the recording's start that does not count.
        name: default: the path's last two parts.

    Raises:
        BadRecording: it cannot be read, or it has no labels.
    """
    reader = RecordingReader(path)
    if not (path / "incidents.parquet").exists():
        raise BadRecording(
            f"recording {path}: expected incidents.parquet with the labels (a file without rows means no "
            "incident), got none; label the recording"
        )
    times: list[datetime] = []
    namespaces: dict[str, str] = {}
    services: set[str] = set()
    for snapshot in reader.snapshots():
        times.append(snapshot.observed_at)
        for service, is_measured in zip(
            snapshot.node_ids, np.any(snapshot.node_observed, axis=1).tolist(), strict=True
        ):
            if is_measured:  # a gateway may only be the source of calls
                services.add(service)
            namespaces.setdefault(service.split("/", 1)[1], service.split("/", 1)[0])
    if not times:
        raise BadRecording(f"recording {path}: expected snapshots, got none; record it again")
    incidents = reader.incidents()
    form = form_of(incidents)
    if guard is None:
        guard = GUARD if form is Form.STREAM else timedelta(0)
    try:
        return ground_truth(
            name or "/".join(path.resolve().parts[-2:]),
            form,
            times,
            timedelta(seconds=reader.interval_seconds),
            services,
            [_span(incident, form, namespaces) for incident in incidents],
            guard=guard,
            unscored=[(_instant(a), _instant(b)) for a, b in reader.meta.get("unscored", ())],
            faults=[_located_fault(incident) for incident in incidents] if form is Form.LOCATED else (),
            silences=[(_instant(gap["start"]), _instant(gap["end"])) for gap in reader.meta.get("silences", ())],
            begin=times[0] + begin_after,
        )
    except (ValueError, TypeError, KeyError) as error:
        raise BadRecording(f"recording {path}: {error}; correct incidents.parquet or meta.json") from error


def form_of(incidents: Sequence[LabelledIncident]) -> Form:
    if not incidents:
        return Form.NORMAL
    columns = incidents[0].details.keys()
    if "segment_start" in columns:
        return Form.SEGMENTS
    return Form.LOCATED if columns >= LOCATED else Form.STREAM


def read_verdicts(path: Path) -> Iterator[Verdict]:
    """Yield a file's verdicts, in its order.

    Raises:
        BadVerdicts: the file cannot be read, or a line is not a verdict.
    """
    try:
        with path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    yield _verdict(path, number, line)
    except (OSError, UnicodeDecodeError) as error:
        raise BadVerdicts(
            f"verdicts {path}: expected a readable file of verdict lines, got {error}; name another"
        ) from error


def read_series(path: Path, truth: GroundTruth) -> VerdictSeries:
    """Read a file of verdicts, and match them with a recording's snapshots.

    Raises:
        BadVerdicts: the file cannot be read, a line is not a verdict, or most snapshots have no verdict: the file is
            incomplete or belongs to another recording.
    """
    series = align_verdicts(read_verdicts(path), truth)
    missing = series.status.count(MISSING)
    if missing > UNMATCHED * len(truth.times):
        raise BadVerdicts(
            f"verdicts {path}: expected one for each of the {len(truth.times)} snapshots of {truth.name} "
            f"({truth.instant(0).isoformat()} to {truth.instant(-1).isoformat()}), got none for {missing} of them and "
            f"{series.unplaced} about other times; name the file made from this recording, or score it again"
        )
    return series


def decode_verdict_line(line: str) -> Verdict:
    """Decode a line of ``tagae score --output``.

    Only the time is required: a missing status is normal, a missing number NaN. Reasons, changes and events are left
    out.

    Raises:
        ValueError, TypeError, KeyError, AttributeError: the line has another form.
    """
    fields = json.loads(line)
    observed_at = _instant(fields["observed_at"])
    return Verdict(
        observed_at=observed_at,
        sequence=0,
        status=Status(fields.get("status", "normal")),
        mesh_score=_number(fields.get("mesh_score")),
        threshold=_number(fields.get("threshold")),
        probability=_number(fields.get("probability")),
        suspects=_decode_suspects(fields),
        incidents=tuple(
            Incident(
                id=str(document["id"]),
                since=observed_at,
                severity=Severity(document.get("severity", "minor")),
                score=_number(document.get("score", 0.0)),
                suspects=_decode_suspects(document),
                affected=tuple(document.get("affected") or ()),
                recovering=bool(document.get("recovering", False)),
                kind=IncidentKind(document.get("kind", "unclear")),
                scope=str(document.get("scope") or ""),
            )
            for document in fields.get("incidents") or ()
        ),
        watching=tuple(_decode_watched(document, observed_at) for document in fields.get("watching") or ()),
        lost=tuple(map(str, fields.get("lost") or ())),
    )


def _decode_watched(fields: Mapping[str, Any], observed_at: datetime) -> Watched:
    return Watched(
        str(fields["service"]),
        _number(fields.get("score")),
        _number(fields.get("level")),
        datetime.fromisoformat(fields["since"]) if "since" in fields else observed_at,
        int(fields.get("seen", 0)),
        int(fields.get("needed", 1)),
    )


def _decode_suspects(fields: Mapping[str, Any]) -> tuple[Suspect, ...]:
    return tuple(Suspect(s["service"], _number(s.get("score"))) for s in fields.get("suspects") or ())


def _verdict(path: Path, number: int, line: str) -> Verdict:
    try:
        return decode_verdict_line(line)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise BadVerdicts(
            f"verdicts {path}, line {number}: expected a JSON object with observed_at, status, mesh_score and "
            f"suspects, got {line.strip()[:80]!r} ({error!r}); write it as `tagae score` does"
        ) from error


def _span(incident: LabelledIncident, form: Form, namespaces: Mapping[str, str]) -> Span:
    details = incident.details
    service = incident.root_cause_service
    namespace = details.get("root_cause_namespace") or namespaces.get(service or "", "?")
    is_located = form is Form.LOCATED
    return Span(
        start=incident.start,
        end=incident.end - TICK if is_located else incident.end,  # the label is the first instant without the fault
        kind=incident.kind,
        culprit=f"{namespace}/{service}" if service else None,
        symptom=str(details.get("symptom_metric") or ""),
        segment=(details["segment_start"], details["segment_end"]) if form is Form.SEGMENTS else None,
        guarded_until=(details["recovered"] or incident.end) + GRACE if is_located else None,
    )


def _located_fault(incident: LabelledIncident) -> LocatedFault:
    """Return the fault of an incident that names the affected services; raise ``KeyError`` if a column is missing."""
    details = incident.details
    return LocatedFault(
        start=incident.start,
        end=incident.end,
        recovered=details["recovered"] or incident.end,
        culprit=f"{details['root_cause_namespace']}/{incident.root_cause_service}",
        candidates=frozenset(details["candidates"] or ()),
        affected=frozenset(details["affected"] or ()),
        kind=incident.kind,
        severity=str(details.get("severity", "")),
        effect=_number(details.get("effect_sigmas")),
        user_effect=_number(details.get("user_sigmas")),
    )


def _number(value: Any) -> float:
    """Return a label's or a verdict's number; NaN if it has none."""
    return float("nan") if value is None else float(value)


def _instant(text: str) -> datetime:
    time = datetime.fromisoformat(text)
    return time if time.tzinfo else time.replace(tzinfo=UTC)
