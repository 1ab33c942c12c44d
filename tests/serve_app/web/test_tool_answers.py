"""Answers of tools in the details of a service: the question, its period, and the document."""

import json
from datetime import timedelta

from serve_app.alerts.links import LEAD, Links
from serve_app.collect.tools.lookup import ToolAnswers
from serve_app.collect.tools.request import FailingTrace, LogLine, ToolAnswer
from serve_app.web.documents import DetailsDocument
from serve_app.web.period import Subject
from serve_app.web.tools import MAX_RANGE, add_answers, question_of, subject_of
from tests.serve_app.web.slow_service import MESH, SLOW, SNAPSHOTS
from tests.serve_app.web.watching import Watched

DURING = SNAPSHOTS[50].observed_at
LINKS = Links(
    templates={"trace": "https://traces.example/{trace}?at={start_ms}", "logs": "https://logs.example/{service}"}
)


def details(seen_mesh: Watched) -> bytes:
    return seen_mesh.viewing.details(MESH, Subject(SLOW, None), DURING, LINKS)


def test_the_question_is_about_the_incident(seen_mesh: Watched) -> None:
    found = details(seen_mesh)
    (incident,) = (incident for incident in DetailsDocument.model_validate_json(found).incidents if incident.open)
    subject = subject_of(found, MESH)
    assert (subject.mesh, subject.service, subject.incident) == (MESH, SLOW, incident.id)
    past, live = (question_of(subject, is_live=is_live) for is_live in (False, True))
    assert f"{past.namespace}/{past.service}" == SLOW
    assert (past.start, past.end) == (max(incident.since - LEAD, DURING - MAX_RANGE), DURING)
    assert (live.start, live.end) == (past.start, DURING + LEAD)


def test_the_range_of_a_long_incident_has_a_limit(seen_mesh: Watched) -> None:
    found = json.loads(details(seen_mesh))
    for incident in found["incidents"]:
        incident["since"] = (DURING - timedelta(days=3)).isoformat()
    question = question_of(subject_of(json.dumps(found).encode(), MESH), is_live=False)
    assert question.end - question.start == MAX_RANGE


def test_other_tools_are_asked_for_the_original_name(seen_mesh: Watched) -> None:
    found = json.loads(details(seen_mesh)) | {"service": "eu~2F~shop/bank~20~gateway", "incidents": []}
    question = question_of(subject_of(json.dumps(found).encode(), MESH), is_live=True)
    assert (question.namespace, question.service) == ("eu/shop", "bank gateway")
    assert question.start == DURING - LEAD


def test_the_document_has_the_answers(seen_mesh: Watched) -> None:
    found = details(seen_mesh)
    lines = (LogLine(DURING, "no", 2),)
    trace = FailingTrace("aa", DURING, 2.31, "GET /checkout", "cart", "503")
    answers = ToolAnswers(ToolAnswer("Loki at loki", lines=lines), ToolAnswer("Tempo at tempo", trace=trace))
    document = DetailsDocument.model_validate_json(add_answers(found, answers, subject_of(found, MESH), LINKS))
    assert document.logs is not None
    assert document.logs.model_dump() == {
        "tool": "Loki at loki",
        "failed": "",
        "lines": [{"at": DURING, "text": "no", "count": 2}],
    }
    assert document.trace is not None
    assert document.trace.failing is not None
    assert document.trace.failing.url is not None
    assert document.trace.failing.url.startswith("https://traces.example/aa?at=")
    assert (document.trace.failing.service, document.trace.failing.reason) == ("cart", "503")
    assert document.links == {"logs": f"https://logs.example/{SLOW.partition('/')[2]}"}
    before = DetailsDocument.model_validate_json(found)
    assert document.model_copy(update={"logs": None, "trace": None}) == before


def test_a_failure_and_a_missing_tool_are_in_the_document(seen_mesh: Watched) -> None:
    found = details(seen_mesh)
    answers = ToolAnswers(None, ToolAnswer("Tempo at tempo", failed="cannot be reached", detail="secret"))
    text = add_answers(found, answers, subject_of(found, MESH), Links())
    document = DetailsDocument.model_validate_json(text)
    assert document.logs is None
    assert document.trace is not None
    assert (document.trace.failed, document.trace.failing) == ("cannot be reached", None)
    assert b"secret" not in text
