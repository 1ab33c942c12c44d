"""A service's details with the answers of the mesh's logs and traces, as JSON."""

from dataclasses import asdict, replace
from datetime import datetime, timedelta
from typing import Any

import msgspec

from model.names import original_name
from serve_app.alerts.links import LEAD, Links, LinkSubject
from serve_app.collect.tools.lookup import ToolAnswers
from serve_app.collect.tools.request import ToolAnswer, ToolQuestion
from serve_app.web.details import link_subject

MAX_RANGE = timedelta(hours=1)  # that a tool searches


class _Details(msgspec.Struct):
    service: str
    observed_at: datetime
    incidents: list[dict[str, Any]]


def subject_of(details: bytes, mesh: str) -> LinkSubject:
    """Return the service of a ``DetailsDocument`` in its open incident."""
    document = msgspec.json.decode(details, type=_Details)
    return link_subject(mesh, document.service, document.observed_at, document.incidents)


def question_of(subject: LinkSubject, *, is_live: bool) -> ToolQuestion:
    """Return the question about a service: the last hour of its incident. Live logs are newer than the snapshot."""
    assert subject.start is not None
    assert subject.end is not None
    end = subject.end + LEAD if is_live else subject.end
    namespace, _, service = subject.service.partition("/")
    start = max(subject.start, subject.end - MAX_RANGE)
    return ToolQuestion(original_name(namespace), original_name(service), start, end)


def add_answers(details: bytes, answers: ToolAnswers, subject: LinkSubject, links: Links) -> bytes:
    """Return JSON of the ``DetailsDocument`` with the answers of the tools."""
    document: dict[str, Any] = msgspec.json.decode(details, type=dict[str, msgspec.Raw])
    document["logs"] = answers.logs and {**_outcome(answers.logs), "lines": answers.logs.lines}
    document["trace"] = answers.trace and {
        **_outcome(answers.trace),
        "failing": _failing(answers.trace, subject, links),
    }
    return msgspec.json.encode(document)


def _outcome(answer: ToolAnswer) -> dict[str, Any]:
    return {"tool": answer.tool, "failed": answer.failed}


def _failing(answer: ToolAnswer, subject: LinkSubject, links: Links) -> dict[str, Any] | None:
    if answer.trace is None:
        return None
    url = links.tools(replace(subject, trace=answer.trace.id)).get("trace")
    return {**asdict(answer.trace), "url": url}
