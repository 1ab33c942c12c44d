"""Verdicts of ``tagae score``, or of another detector in the same form, read from lines of JSON."""

import json
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from model.verdict import Incident, IncidentKind, Severity, Status, Suspect, Verdict, Watched


def decode_verdict_line(line: str) -> Verdict:
    """Decode a line of ``tagae score --output``.

    Only the time is required: a missing status is normal, a missing number NaN. Reasons, changes and events are not
    decoded.

    Raises:
        ValueError, TypeError, KeyError, AttributeError: the line has another form.
    """
    fields = json.loads(line)
    observed_at = datetime.fromisoformat(fields["observed_at"])
    return Verdict(
        observed_at=observed_at if observed_at.tzinfo else observed_at.replace(tzinfo=UTC),
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


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)
