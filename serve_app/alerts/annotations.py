"""Labels and annotations of alerts. Labels stay the same; annotations follow each verdict."""

from datetime import datetime

from model.names import list_first, readable
from model.verdict import IncidentKind, Severity
from serve_app.alerts.links import Links, incident_subject
from serve_app.api.number_text import score_text, share_text
from serve_app.api.schemas.verdict import IncidentDocument, VerdictDocument

ALERT_NAME = "TagaeIncident"
LABEL_LENGTH = 512  # characters; Kubernetes names have at most 253
# Characters in a description and in any other text: an alert's texts stay below 64 KiB in total, even with four bytes
# per character.
DESCRIPTION_LENGTH, TEXT_LENGTH = 4096, 1024
RECOVERING = "Recovering: its services are back to normal."
UNSEEN = "Its first suspect sends no telemetry, so its state is unknown."
MAX_SUSPECTS, MAX_REASONS, MAX_AFFECTED, MAX_CHANGES, MAX_EVENTS = 5, 3, 20, 5, 5  # the page shows the rest


def labels(links: Links, mesh: str, incident: IncidentDocument) -> dict[str, str]:
    """Return the labels of an incident's first notification; only ``severity`` may change later. Empty values are
    omitted, since Alertmanager treats an empty label as a missing one."""
    namespace, _, service = readable(first_service(incident)).partition("/")
    values = {
        "alertname": ALERT_NAME,
        "cluster": links.cluster,
        "mesh": mesh,
        "incident": incident.id,
        "namespace": namespace,
        "service": service,
        "severity": incident.severity,
        "team": incident.team,
    }
    return {name: text for name, value in values.items() if (text := truncate(value, LABEL_LENGTH))}


def services_of(incident: IncidentDocument) -> tuple[str, ...]:
    """Return suspects, best first, and affected services, each once."""
    return tuple(dict.fromkeys((*(suspect.service for suspect in incident.suspects), *incident.affected)))


def first_service(incident: IncidentDocument) -> str:
    """Return the first suspect, or the first affected service if there is no suspect; empty if there is neither."""
    return next(iter(services_of(incident)), "")


def annotations(
    links: Links,
    mesh: str,
    incident: IncidentDocument,
    severity: Severity,
    at: datetime,
    continues: str = "",
) -> dict[str, str]:
    """Return the current facts about an incident, the incident that it continues, and links."""
    urls = links.urls(incident_subject(mesh, incident.id, first_service(incident), incident.kind, incident.since, at))
    urls.pop("verdict_url", None)  # it is the alert's own URL
    facts = {
        "summary": readable(incident.headline),
        "title": readable(incident.title),
        "next_step": readable(incident.next_step),
        "description": description(mesh, incident, severity),
        "kind": incident.kind,  # not a label: it may change while the alert fires
    }
    if incident.contact:
        facts["contact"] = incident.contact
    lengths = {"description": DESCRIPTION_LENGTH}
    texts = {name: truncate(text, lengths.get(name, TEXT_LENGTH)) for name, text in facts.items()}
    return texts | urls | ({"continues": continues} if continues else {})


def description(mesh: str, incident: IncidentDocument, severity: Severity) -> str:
    """Return one line each: next step, ranked suspects with score and reasons, affected services, planned changes and
    Kubernetes events."""
    since = f"in mesh {mesh} since {format_time(incident.since)}."
    if severity is Severity.NOTICE:
        lines = [f"Notice {since} A resource is running out; users are not affected yet."]
    else:
        lines = [f"{severity.value.capitalize()} incident {since}"]
    if incident.recovering:
        lines.append(UNSEEN if incident.kind == IncidentKind.TELEMETRY_MISSING else RECOVERING)
    lines.append(f"What to do: {incident.next_step}")
    for rank, suspect in enumerate(incident.suspects[:MAX_SUSPECTS], 1):
        reasons = "; ".join(reason.text for reason in suspect.reasons[:MAX_REASONS])
        lines.append(f"{rank}. {suspect.service} ({score_text(suspect.score)}){': ' + reasons if reasons else ''}")
    if incident.affected:
        lines.append(f"Affected: {list_first(incident.affected, MAX_AFFECTED)}.")
    lines += [f"Planned: {change.text}." for change in incident.changes[:MAX_CHANGES]]
    lines += [f"Kubernetes: {event.text}." for event in incident.events[:MAX_EVENTS]]
    return readable("\n".join(lines))


def mark_unseen(description: str, verdict: VerdictDocument) -> str:
    """Add a line to an incident's description if this verdict could neither confirm nor end it."""
    before = description.split("\nNot seen")[0]
    is_partial = verdict.coverage < 1 or verdict.missing_parts
    reason = (
        f"{share_text(verdict.coverage)} of the services were scored."
        if is_partial
        else "the detector is learning this mesh again."
    )
    return f"{before}\nNot seen at {format_time(verdict.observed_at)}: {reason}"[-DESCRIPTION_LENGTH:]


def format_time(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M} UTC"


def truncate(text: str, length: int) -> str:
    """Shorten a text to ``length`` characters. Characters that UTF-8 cannot encode are replaced."""
    text = text.encode("utf-8", "replace").decode("utf-8")
    return text if len(text) <= length else f"{text[: length - 3]}..."
