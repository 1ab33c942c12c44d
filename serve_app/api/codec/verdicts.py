"""Verdicts as documents."""

import math
from collections.abc import Sequence
from datetime import datetime

from model.snapshot import Owner
from model.verdict import ErrorBudget, Incident, LimitForecast, Reason, Suspect, Verdict
from serve_app.api.headline import budget_text, headline, impact_text
from serve_app.api.next_step import next_step
from serve_app.api.reason_text import (
    change_text,
    event_text,
    reads_as_expected,
    reason_text,
    reconstruction_text,
    watched_text,
)
from serve_app.api.schemas.verdict import (
    ClusterEventDocument,
    ErrorBudgetDocument,
    ForecastDocument,
    ImpactDocument,
    IncidentDocument,
    MuteInForceDocument,
    NearbyChangeDocument,
    ReasonDocument,
    ReconstructionDocument,
    SilenceDocument,
    SuspectDocument,
    VerdictDocument,
    WatchedDocument,
)
from serve_app.api.subject import caller, likely_suspects, origins, title


def encode_verdict(verdict: Verdict) -> VerdictDocument:
    """The document of a verdict, without reasons whose text would show no difference. NaN and infinity become null
    where the schema allows it."""
    at = verdict.observed_at
    return VerdictDocument.from_object(
        verdict,
        status=verdict.status.value,
        threshold=_finite(verdict.threshold),
        suspects=_suspects(verdict.suspects, at),
        incidents=[encode_incident(incident, at, verdict.alerts) for incident in verdict.incidents],
        model=verdict.model_digest,
        muted=[
            MuteInForceDocument.from_object(mute, id=mute.id or None, origin=mute.origin.value)
            for mute in verdict.muted
        ],
        silence=verdict.silence and SilenceDocument.from_object(verdict.silence),
        watching=[
            WatchedDocument.from_object(
                service, reasons=_reasons(service.reasons, service.service, at), text=watched_text(service)
            )
            for service in verdict.watching
        ],
        reconstruction=verdict.reconstruction
        and ReconstructionDocument.from_object(
            verdict.reconstruction,
            drift=verdict.reconstruction.displacement,
            drift_threshold=verdict.reconstruction.displacement_threshold,
            text=reconstruction_text(verdict.reconstruction),
        ),
    )


def verdict_line(verdict: Verdict) -> str:
    """The verdict as JSON on one line, as ``tagae score --output`` writes it."""
    return encode_verdict(verdict).model_dump_json()


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _suspects(suspects: Sequence[Suspect], observed_at: datetime) -> list[SuspectDocument]:
    return [
        SuspectDocument.from_object(
            suspect,
            **_owner(suspect.owner),
            reasons=_reasons(suspect.reasons, suspect.service, observed_at),
            context=_reasons(suspect.context, suspect.service, observed_at),
        )
        for suspect in suspects
    ]


def _owner(owner: Owner | None) -> dict[str, str]:
    return {} if owner is None else {"team": owner.team, "contact": owner.contact}


def _reasons(reasons: Sequence[Reason], service: str, observed_at: datetime) -> list[ReasonDocument]:
    return [_reason(reason, service, observed_at) for reason in reasons if not reads_as_expected(reason)]


def _reason(reason: Reason, service: str, observed_at: datetime) -> ReasonDocument:
    return ReasonDocument.from_object(
        reason,
        source=reason.source or None,
        destination=reason.destination or None,
        observed=_finite(reason.observed),
        expected=_finite(reason.expected),
        forecast=_forecast(reason.forecast),
        text=reason_text(reason, service, observed_at),
    )


def _forecast(forecast: LimitForecast | None) -> ForecastDocument | None:
    if forecast is None:
        return None
    return ForecastDocument(
        seconds=forecast.seconds, soonest_seconds=forecast.soonest, latest_seconds=_finite(forecast.latest)
    )


def encode_incident(incident: Incident, observed_at: datetime, alerts: Sequence[Incident] = ()) -> IncidentDocument:
    """The document of an incident in a verdict at this time with these alerts."""
    since, suspects = incident.since, likely_suspects(incident.suspects)
    seconds = math.inf if incident.recovering else (observed_at - since).total_seconds()
    return IncidentDocument.from_object(
        incident,
        severity=incident.severity.value,
        **_owner(incident.owner),
        suspects=_suspects(incident.suspects, observed_at),
        changes=[
            NearbyChangeDocument.from_object(
                near.change,
                at=near.at,
                text=change_text(
                    near,
                    since,
                    of_suspect=near.change.service in suspects,
                    is_affected=near.change.service in incident.affected,
                ),
            )
            for near in incident.changes
        ],
        events=[ClusterEventDocument.from_object(event, text=event_text(event, since)) for event in incident.events],
        kind=incident.kind.value,
        title=title(incident),
        headline=headline(incident, alerts),
        next_step=next_step(incident, alerts),
        caller=caller(incident) or None,
        origins=origins(incident),
        trend=incident.trend and incident.trend.value,
        impact=incident.impact and ImpactDocument.from_object(incident.impact, text=impact_text(incident.impact)),
        error_budgets=[_error_budget(budget, seconds) for budget in incident.error_budgets],
    )


def _error_budget(budget: ErrorBudget, seconds: float) -> ErrorBudgetDocument:
    objective = budget.objective
    return ErrorBudgetDocument(
        service=objective.service,
        objective=objective.kind,
        target=objective.target,
        latency_ms=None if objective.latency_seconds is None else 1000 * objective.latency_seconds,
        days=objective.days,
        used=budget.used,
        bad_requests=budget.bad_requests,
        text=budget_text(budget, seconds),
    )
