"""An incident as whoever is paged reads it: labels that stay, annotations that follow the verdicts."""

from dataclasses import dataclass
from datetime import datetime
from urllib.parse import quote

from model.verdict import Incident, Severity, Suspect, Verdict
from serve_app.api.reason_text import change_text, event_text, reads_as_expected, reason_text

ALERT_NAME = "TagaeIncident"
LABEL_LENGTH = 512  # characters; Kubernetes' names have 253 at most
TEXT_LENGTH = 4096
SUSPECTS, REASONS, AFFECTED, CHANGES, EVENTS = 5, 3, 20, 5, 5  # told of each at most; the rest is on the page


@dataclass(frozen=True, slots=True)
class AlertLinks:
    """Where alerts come from and lead to.

    Attributes:
        cluster: label of every alert.
        external_url: base of this service as people reach it; empty: no links to it.
        runbook_url, dashboard_url: of an incident; ``{cluster}``, ``{mesh}`` and ``{incident}`` are filled in. Empty:
            no runbook; the page of this service, at the incident.
    """

    cluster: str = "default"
    external_url: str = ""
    runbook_url: str = ""
    dashboard_url: str = ""

    def links(self, mesh: str, incident: str) -> dict[str, str]:
        """``runbook_url``, ``dashboard_url``, ``verdict_url``, those that there are."""
        root = self.external_url.rstrip("/")
        page = root and f"{root}/#mesh={quote(mesh, safe='')}&incident={quote(incident, safe='')}"
        found = {
            "runbook_url": self._filled(self.runbook_url, mesh, incident),
            "dashboard_url": self._filled(self.dashboard_url, mesh, incident) or page,
            "verdict_url": root and f"{root}/v1/meshes/{quote(mesh, safe='')}/verdict",
        }
        return {name: url for name, url in found.items() if url}

    def _filled(self, url: str, mesh: str, incident: str) -> str:
        for name, value in (("cluster", self.cluster), ("mesh", mesh), ("incident", incident)):
            url = url.replace(f"{{{name}}}", quote(value, safe=""))
        return url


def labels(place: AlertLinks, mesh: str, incident: Incident) -> dict[str, str]:
    """At the first page; only ``severity`` may change afterwards. What has no value is left out: Alertmanager takes an
    empty label for an absent one."""
    namespace, _, service = first_service(incident).partition("/")
    found = {
        "alertname": ALERT_NAME,
        "cluster": place.cluster,
        "mesh": mesh,
        "incident": incident.id,
        "namespace": namespace,
        "service": service,
        "severity": incident.severity.value,
    }
    return {name: shown for name, value in found.items() if (shown := cut(value, LABEL_LENGTH))}


def first_service(incident: Incident) -> str:
    """The first suspect, or whoever is affected where nobody is suspected; empty: nobody is."""
    named = [*(suspect.service for suspect in incident.suspects), *incident.affected]
    return named[0] if named else ""


def annotations(
    place: AlertLinks, mesh: str, incident: Incident, severity: Severity, verdict: Verdict
) -> dict[str, str]:
    """What is known of an incident now, and where to go from here."""
    links = place.links(mesh, incident.id)
    links.pop("verdict_url", None)  # it is the alert's own URL
    found = {"summary": summary(incident, verdict), "description": description(mesh, incident, severity, verdict)}
    return {name: cut(text, TEXT_LENGTH) for name, text in (found | links).items()}


def summary(incident: Incident, verdict: Verdict) -> str:
    """``shop/cart: p99 latency 1.2 s, expected 0.08 s, since 03:12 UTC; 4 services affected``."""
    service = first_service(incident) or incident.id
    why = _reasons(incident.suspects[0], verdict.observed_at)[:1] if incident.suspects else []
    count = len(incident.affected)
    affected = [f"{count} service{'' if count == 1 else 's'} affected"] if count else []
    return "; ".join([": ".join([service, *why]), *affected])


def description(mesh: str, incident: Incident, severity: Severity, verdict: Verdict) -> str:
    """Ranked suspects with their share and reasons, whom it affects, what was planned near it and what Kubernetes told
    of its services: one line each."""
    lines = [f"{severity.value.capitalize()} incident in mesh {mesh} since {moment(incident.since)}."]
    for rank, suspect in enumerate(incident.suspects[:SUSPECTS], 1):
        why = "; ".join(_reasons(suspect, verdict.observed_at)[:REASONS])
        lines.append(f"{rank}. {suspect.service} ({suspect.score:.0%}){': ' + why if why else ''}")
    if incident.affected:
        more = len(incident.affected) - AFFECTED
        named = ", ".join(incident.affected[:AFFECTED])
        lines.append(f"Affected: {named}{f' and {more} more' if more > 0 else ''}.")
    lines += [f"Planned: {change_text(near, incident.since)}." for near in incident.changes[:CHANGES]]
    lines += [f"Kubernetes: {event_text(event, incident.since)}." for event in incident.events[:EVENTS]]
    return "\n".join(lines)


def unseen(description: str, verdict: Verdict) -> str:
    """The description of an incident that this verdict could not have seen."""
    told = description.split("\nNot seen")[0]
    return f"{told}\nNot seen at {moment(verdict.observed_at)}: {_blindness(verdict)}"[-TEXT_LENGTH:]


def moment(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M} UTC"


def cut(text: str, length: int) -> str:
    """At most ``length`` characters, and none that UTF-8 cannot carry."""
    text = text.encode("utf-8", "replace").decode("utf-8")
    return text if len(text) <= length else f"{text[: length - 3]}..."


def _blindness(verdict: Verdict) -> str:
    if verdict.coverage < 1 or verdict.missing_parts:
        return f"{verdict.coverage:.0%} of the services were scored."
    return "the mesh is learned anew."


def _reasons(suspect: Suspect, observed_at: datetime) -> list[str]:
    return [reason_text(r, suspect.service, observed_at) for r in suspect.reasons if not reads_as_expected(r)]
