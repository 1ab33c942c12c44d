"""The suspects that a report lists."""

from serve_app.api.schemas.verdict import SuspectDocument
from serve_app.web.report.case import ReportedIncident

MAX = 5  # suspects with a card
MIN = 0.01  # score of a suspect with a card, except the first one


def listed_suspects(case: ReportedIncident) -> list[tuple[int, SuspectDocument]]:
    """Return the likely suspects, with their ranks; the first one always."""
    ranked = enumerate(case.incident.suspects, 1)
    return [(place, one) for place, one in ranked if place == 1 or one.score >= MIN][:MAX]


def other_suspects(case: ReportedIncident) -> list[str]:
    """Return the services of the unlikely suspects."""
    listed = {one.service for _, one in listed_suspects(case)}
    return [one.service for one in case.incident.suspects if one.service not in listed]


def arrows(text: str) -> str:
    """Write the calls in a text with arrows, without a line break before the arrow."""
    return text.replace(" -> ", "\u00a0→ ")
