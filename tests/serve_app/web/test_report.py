"""The report of an incident in a simulated mesh, by the command and by its function."""

import re
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt

from model.snapshot import PlannedChange
from model.verdict import Severity
from serve_app import web
from serve_app.alerts.links import LEAD, Links
from serve_app.alerts.raster import render_png
from serve_app.api.schemas.actions import KeptFeedbackDocument
from serve_app.api.schemas.incidents import ArchivedIncidentDocument, SeenBeforeDocument
from serve_app.api.schemas.verdict import IncidentDocument
from serve_app.cli.reading import score_snapshots
from serve_app.errors import InvalidParameter, UnknownIncident
from serve_app.recordings.reader import RecordingReader
from serve_app.settings import Settings
from serve_app.stores.scored_snapshot import ScoredSnapshot
from serve_app.web.formats import ReportFormat, read_zone
from serve_app.web.report import report, windows
from serve_app.web.report.case import ReportedIncident, find
from serve_app.web.report.event_log import event_log
from serve_app.web.report.graph import columns, graph
from serve_app.web.report.picture import TEMPLATES, incident_picture
from serve_app.web.report.sentences import duration, end_text, span, suspects_heading
from serve_app.web.report.windows import worst_window
from tests.serve_app.cli.command import tagae

VOID = {"meta"}
markdown_report = partial(report, form=ReportFormat.MARKDOWN)
MADE = datetime(2026, 3, 2, tzinfo=UTC)


def record_fault(folder: Path, fault: str) -> Path:
    """Record a mesh with this fault after forty snapshots."""
    options = ("--services", 30, "--snapshots", 70, "--first-fault", 40, "--seed", 3, "--severity", "critical")
    result = tagae("simulate", folder / fault, *options, "--fault", fault)
    assert result.exit_code == 0, result.stderr
    return folder / fault


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record_fault(tmp_path_factory.mktemp("report"), "latency_injection")


@pytest.fixture(scope="module")
def moments(recording: Path) -> list[ScoredSnapshot]:
    return list(score_snapshots(Settings(), "", [], RecordingReader(recording)))


@pytest.fixture(scope="module")
def vanished_recording(tmp_path_factory: pytest.TempPathFactory) -> list[ScoredSnapshot]:
    folder = record_fault(tmp_path_factory.mktemp("vanished"), "disappearance")
    return list(score_snapshots(Settings(), "", [], RecordingReader(folder)))


def judge(moment: ScoredSnapshot, *incidents: IncidentDocument, **fields: Any) -> ScoredSnapshot:
    """Return a moment with these incidents in its verdict; ``fields``: other fields."""
    verdict = moment.verdict.model_copy(update={"incidents": [*incidents], **fields})
    return ScoredSnapshot.of(moment.snapshot, moment.deviations, verdict)


class Checked(HTMLParser):
    """Parser of a page that collects unclosed elements, and content that would be fetched or run."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.wrong: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)
        if tag in {"script", "link", "img", "iframe", "object", "base"}:
            self.wrong.append(tag)
        self.wrong += [f"{name}={value}" for name, value in attrs if name in {"href", "src"} or name.startswith("on")]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.open.remove(tag)

    def handle_endtag(self, tag: str) -> None:
        if self.open.pop() != tag:
            self.wrong.append(f"/{tag}")

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def read_markup(html: str) -> str:
    """Return the text of HTML."""
    checked = Checked()
    checked.feed(html)
    return "".join(checked.text)


def read(page: str) -> str:
    """Return the text of a page, and check that it is well-formed and self-contained."""
    checked = Checked()
    checked.feed(page)
    assert checked.wrong == []
    assert checked.open == []
    assert not re.search(r"https?://|@import|url\((?!#)", page)
    return " ".join(checked.text)


def test_a_report_has_cause_start_and_source(moments: list[ScoredSnapshot]) -> None:
    text = read(report("shop", moments, made_at=MADE))
    case = find("shop", moments)
    assert case.incident.first_suspect
    assert case.hops
    for words in (
        case.incident.first_suspect,
        case.incident.suspects[0].reasons[0].text.replace(" -> ", "\u00a0→ "),
        f"{case.incident.since:%H:%M:%S}",
        f"{case.worst.verdict.probability:.0%}",
        case.worst.verdict.model,
        case.incident.id,
        f"{len(moments)} snapshots",
        "2026-03-02 00:00:00 UTC",
        *(hop.far for hop in case.hops if hop.distance == 1),
    ):
        assert words in text
    for change in case.incident.changes:
        assert change.text in text
    assert report("shop", moments, made_at=MADE) == report("shop", moments, case.incident.id, made_at=MADE)


def feedback_on(case: ReportedIncident, note: str) -> KeptFeedbackDocument:
    """Return feedback that confirms an incident."""
    incident = case.incident
    return KeptFeedbackDocument(
        incident=incident.id,
        was_incident=True,
        missed=False,
        services=incident.affected,
        since=incident.since,
        until=case.last,
        given_at=case.last,
        culprit=case.incident.first_suspect,
        note=note,
        page_levels={},
    )


def test_markdown_has_all_sections_of_a_post_mortem(moments: list[ScoredSnapshot]) -> None:
    case = find("shop", moments)
    note = "fixed by *us* <b>now</b>"
    text = markdown_report(
        "shop",
        moments,
        archived={
            case.incident.id: ArchivedIncidentDocument.from_object(case.incident, feedback=feedback_on(case, note)),
            "other": ArchivedIncidentDocument.from_object(case.incident, feedback=feedback_on(case, "another")),
        },
        links=Links(external_url="https://host", templates={"traces": "https://traces/{namespace}/{service}?q={kind}"}),
        made_at=MADE,
    )
    html = MarkdownIt("commonmark").enable("table").render(text)
    read_text = " ".join(read_markup(html).split())
    heads = [
        "Timeline (UTC)",
        "Likely causes",
        "Affected services",
        "Changes and events nearby",
        "Feedback",
        "Links",
    ]
    assert re.findall(r"<h2>(.*?)</h2>", html) == [*heads, "About this report"]
    for words in (
        case.incident.headline,
        case.incident.kind.replace("_", " "),
        f"{case.incident.since:%Y-%m-%d %H:%M:%S}",
        case.incident.impact.text if case.incident.impact else "affected",
        *case.incident.affected,
        *(reason.text.replace(" -> ", " → ") for reason in case.incident.suspects[0].reasons),
        *(change.text for change in case.incident.changes),
        f"Confirmed: {case.incident.first_suspect}. Note: {note}",
        "2026-03-02 00:00:00 UTC",
    ):
        assert words in read_text
    assert f'<a href="https://host/#mesh=shop&amp;incident={case.incident.id}">' in html
    assert case.incident.first_suspect is not None
    assert f'<a href="https://traces/{case.incident.first_suspect}?q={case.incident.kind}">' in html
    page = report("shop", moments, links=Links(templates={"logs": "https://logs/?a=1&from={start_ms}"}), made_at=MADE)
    start = round(1000 * (case.incident.since - LEAD).timestamp())
    assert f'<a href="https://logs/?a=1&amp;from={start}" rel="noopener noreferrer">Logs</a>' in page
    own = Links(templates={"logs": "https://logs"}, templates_by_mesh={"shop": {"logs": "https://shop-logs/"}})
    assert '<a href="https://shop-logs/"' in report("shop", moments, links=own, made_at=MADE)
    assert "https://shop-logs/" in markdown_report("shop", moments, links=own, made_at=MADE)
    without = markdown_report("shop", moments, made_at=MADE)
    assert "None was given." in without
    assert "## Links" not in without


def test_the_timeline_of_an_incident_is_in_order_and_has_its_changes(moments: list[ScoredSnapshot]) -> None:
    case = find("shop", moments)
    steps = event_log(case)
    assert [step.at for step in steps] == sorted(step.at for step in steps)
    texts = [step.text for step in steps]
    assert "The deviation begins." in texts
    assert any(text.startswith("TAGAE reports it: ") for text in texts)
    assert any(step.at == case.worst.verdict.observed_at and "score is highest" in step.text for step in steps)
    severities = [i.severity for m in moments for i in m.verdict.incidents if i.id == case.incident.id]
    assert sum("severity rises" in text for text in texts) == len(set(severities)) - 1
    cut = [m for m in moments if m.verdict.observed_at <= case.last]
    ended = find("shop", [*cut, judge(moments[-1])], case.incident.id)
    assert event_log(ended)[-1].text == "The incident is over."
    unseen = find("shop", [*cut, judge(moments[-1], lost=[case.incident.id])], case.incident.id)
    assert event_log(unseen)[-1].text == "No data was received for too long, so it was closed; its outcome is unknown."
    assert end_text(unseen) == f"closed, outcome unknown; last seen at {case.last:%H:%M:%S}"
    assert duration(unseen) == f"at least {span(case.last - case.incident.since)}"


def test_names_in_markdown_are_text(moments: list[ScoredSnapshot]) -> None:
    case = find("shop", moments)
    evil = "[x](javascript:alert(1)) <script>alert(1)</script> | `y` ![z](https://host/)\n# Head"
    incident = case.incident.model_copy(update={"headline": evil, "affected": [evil]})
    html = MarkdownIt("commonmark").enable("table").render(markdown_report(evil, [judge(case.worst, incident)]))
    assert not re.search(r"<(a|img|script|code)\b", html)
    assert html.count("<h1>") == 1
    assert "&lt;script&gt;" in html


def test_suspects_are_from_the_worst_moment_and_the_end_is_known(moments: list[ScoredSnapshot]) -> None:
    case = find("shop", moments)
    scores = [i.score for m in moments for i in m.verdict.incidents if i.id == case.incident.id]
    assert case.incident.score == max(scores)
    cut = [m for m in moments if m.verdict.observed_at <= case.last]
    assert find("shop", cut).ended is None
    assert "recovering in the last snapshot" in read(report("shop", cut, made_at=MADE))
    (newest,) = [incident for incident in cut[-1].verdict.incidents if incident.id == case.incident.id]
    unseen = newest.model_copy(update={"kind": "telemetry_missing"})
    silent = [*cut[:-1], judge(cut[-1], unseen)]
    assert "state unknown: no telemetry in the last snapshot" in read(report("shop", silent, made_at=MADE))
    steps = [step.text for step in event_log(find("shop", silent))]
    assert steps[-1] == "The first suspect sends no telemetry any more, so its state is unknown."
    deviating = [m for m in cut if m.verdict.observed_at <= case.worst.verdict.observed_at]
    assert "still open" in read(report("shop", deviating, made_at=MADE))
    assert find("shop", [*cut, judge(moments[-1])]).ended == moments[-1].verdict.observed_at


def test_a_notice_is_called_a_notice(moments: list[ScoredSnapshot]) -> None:
    case = find("shop", moments)
    notice = case.incident.model_copy(update={"severity": "notice"})
    page = report("shop", [judge(case.worst, notice)], made_at=MADE)
    assert '<header class="notice">' in page
    assert "notice in mesh shop" in " ".join(read(page).split())


def test_names_are_text_and_never_markup(moments: list[ScoredSnapshot]) -> None:
    verdict = moments[-1].verdict
    case = find("shop", moments)
    evil = "<script>alert(1)</script>"
    change = {"kind": evil, "service": f"shop/{evil}", "reason": "", "at": case.incident.since, "text": evil}
    incident = case.incident.model_copy(update={"id": evil}).model_dump() | {"changes": [change]}
    changed_verdict = type(verdict).model_validate(verdict.model_dump() | {"incidents": [incident]})
    elsewhere = replace(moments[-1].snapshot, changes=(PlannedChange(evil, f"shop/{evil}", evil),))
    page = report(evil, [*moments[:-1], ScoredSnapshot.of(elsewhere, moments[-1].deviations, changed_verdict)], evil)
    assert "&lt;script&gt;" in page
    read(page)


def test_a_vanished_service_is_drawn_dashed_with_its_callers(vanished_recording: list[ScoredSnapshot]) -> None:
    case = find("shop", vanished_recording)
    assert case.incident.first_suspect not in case.worst.snapshot.node_ids
    assert columns(case)[1], "its last known callers"
    page = report("shop", vanished_recording, made_at=MADE)
    assert "service culprit gone" in page
    assert "disappeared: no requests" in read(page)


def test_the_graph_has_the_services_of_the_incident_by_distance(moments: list[ScoredSnapshot]) -> None:
    case = find("shop", moments)
    found = columns(case)
    assert found[0] == [case.incident.first_suspect]
    for distance, names in enumerate(found[1:], 1):
        reached = [hop.far for hop in case.hops if hop.distance == distance]
        assert names == (reached or found[-1])
    drawn = {name for names in found for name in names}
    assert set(case.incident.affected) <= drawn
    assert len(re.findall('class="hop"', graph(case))) == len(case.hops)
    assert graph(case, 1).count("<circle") == len(found), "one of each column"


def test_the_picture_for_messages_needs_nothing_else(moments: list[ScoredSnapshot]) -> None:
    """Programs that turn SVG into pixels know no variables, and a message has no style of a page."""
    case = find("shop", moments)
    picture = incident_picture("shop", moments, case.incident.id)
    assert "var(" not in picture
    assert "http" not in picture.replace("http://www.w3.org/2000/svg", "")
    drawn = " ".join(re.findall(r">([^<>]+)<", picture))
    for text in (case.incident.id, case.incident.severity, "Score of the mesh over time", "How it spread"):
        assert text in drawn
    assert case.incident.first_suspect is not None
    assert case.incident.first_suspect.split("/")[1] in drawn
    png = render_png(picture, 1200)
    assert png is not None
    assert 20_000 < len(png) < 1_000_000


def test_suspects_of_the_whole_mesh_are_called_entry_points(moments: list[ScoredSnapshot]) -> None:
    case = find("shop", moments)
    whole = replace(case, incident=case.incident.model_copy(update={"scope": "*"}))
    assert [suspects_heading(one) for one in (case, whole)] == ["Likely causes", "Entry points"]


def test_a_mesh_without_an_incident_is_an_error_with_a_reason(moments: list[ScoredSnapshot]) -> None:
    quiet = [moment for moment in moments if not moment.verdict.incidents]
    with pytest.raises(UnknownIncident, match="got none"):
        report("shop", quiet)
    with pytest.raises(UnknownIncident, match="got 'other'"):
        report("shop", moments, "other")


def test_windows_are_short_and_include_the_strongest_moment(
    moments: list[ScoredSnapshot], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(windows, "BEFORE", 30)  # the strongest snapshot comes 23 after its first evidence
    monkeypatch.setattr(windows, "AFTER", 3)
    monkeypatch.setattr(windows, "LONGEST", 45)
    whole = find("shop", moments)
    window = worst_window(iter(moments))
    assert window is not None
    assert window.incident == whole.incident
    assert len(window.moments) <= 45
    assert any(moment is whole.worst for moment in window.moments)
    times = [moment.verdict.observed_at for moment in window.moments]
    assert times == sorted(set(times))
    assert sum(time < whole.incident.since for time in times) >= 3
    assert worst_window(iter(moments), lambda _: False) is None


def test_the_command_writes_the_page(recording: Path, moments: list[ScoredSnapshot], tmp_path: Path) -> None:
    case = find("shop", moments)
    result = tagae("report", recording, "--warmup", recording, "-o", tmp_path / "new" / "page.html")
    assert result.exit_code == 0, result.stderr
    read((tmp_path / "new" / "page.html").read_text(encoding="utf-8"))
    result = tagae("report", recording, "--at", case.last.isoformat(), "-o", tmp_path / "at.html")
    assert result.exit_code == 0, result.stderr
    assert case.incident.id in result.stderr
    assert case.incident.id in read((tmp_path / "at.html").read_text(encoding="utf-8"))


def test_the_command_writes_markdown(
    recording: Path, moments: list[ScoredSnapshot], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = tagae("report", recording, "--format", "markdown")
    assert result.exit_code == 0, result.stderr
    case = find("shop", moments)
    assert result.stdout.startswith("# ")
    assert case.incident.id in result.stdout
    assert list(tmp_path.iterdir()) == [], "it goes to stdout, so that it can be piped"
    assert f"wrote incident {case.incident.id} to stdout" in result.stderr
    assert tagae("report", recording, "--format", "markdown", "-o", "report.md").exit_code == 0
    assert case.incident.id in (tmp_path / "report.md").read_text(encoding="utf-8")
    assert tagae("report", recording, "--format", "pdf").exit_code == 2


def test_without_an_incident_the_command_reports_the_snapshots(recording: Path, moments: list[ScoredSnapshot]) -> None:
    result = tagae("report", recording, "--incident", "absent")
    assert result.exit_code == 1
    assert "with the id absent" in result.stderr
    assert find("shop", moments).incident.id in result.stderr.replace("\n", "")


def with_second_incident(moments: list[ScoredSnapshot]) -> list[ScoredSnapshot]:
    """The moments with one more incident, less severe, beside each."""

    def add(moment: ScoredSnapshot) -> ScoredSnapshot:
        first = moment.verdict.incidents[:1]
        second = [
            row.model_copy(update={"id": "second", "severity": "minor", "headline": "the second"}) for row in first
        ]
        return judge(moment, *first, *second)

    return [add(moment) for moment in moments]


def test_incidents_that_are_open_at_once_are_chapters_of_one_report(moments: list[ScoredSnapshot]) -> None:
    both = with_second_incident(moments)
    (first,) = {incident.id for moment in moments for incident in moment.verdict.incidents}
    before = SeenBeforeDocument(times=1, last=MADE, incidents=["i"], text="Seen before: once")
    second = ArchivedIncidentDocument.from_object(both[-1].verdict.incidents[-1], seen_before=before)
    html = report("shop", both, archived={"second": second}, made_at=MADE)
    assert re.findall(r'<article id="(.*?)">', html) == [first, "second"]
    assert f'<a href="#{first}">' in html
    assert '<a href="#second">the second</a>' in html
    assert html.count("Seen before: once.") == 1
    ids = re.findall(r'\bid="(.*?)"', html)
    assert len(ids) == len(set(ids)), "pictures refer to their own texts and arrows"
    assert "Also open then" not in html
    text = markdown_report("shop", both, made_at=MADE)
    assert [line for line in text.splitlines() if line.startswith("# ")][1:] == ["# the second"]
    assert "\n---\n" in text

    alone = report("shop", both, first, made_at=MADE)
    assert re.findall(r'<article id="(.*?)">', alone) == [first]
    assert "Also open then:" in alone
    assert "the second" in read(alone)
    assert "Also open then" not in report("shop", moments, made_at=MADE)


def test_a_report_says_what_happened_when(moments: list[ScoredSnapshot]) -> None:
    case = find("shop", moments)
    html = report("shop", moments, made_at=MADE)
    for step in event_log(case):
        assert f"<td>{step.at:%Y-%m-%d %H:%M:%S}</td>" in html
        assert step.text in read_markup(html)


def test_a_report_on_an_open_incident_says_how_it_develops(moments: list[ScoredSnapshot]) -> None:
    case = replace(find("shop", moments), ended=None)

    def newest(trend: str | None) -> IncidentDocument:
        return case.newest.model_copy(update={"trend": trend, "recovering": False})

    assert end_text(replace(case, newest=newest("worsening"))) == "still open in the last snapshot, worsening"
    assert end_text(replace(case, newest=newest(None))) == "still open in the last snapshot"


def words_of(text: str) -> str:
    """Return the text of a report, a page or Markdown."""
    return read_markup(text if text.startswith("<") else MarkdownIt("commonmark").enable("table").render(text))


def test_times_are_written_in_the_zone_of_the_report(moments: list[ScoredSnapshot]) -> None:
    zone, case = read_zone("Asia/Kolkata"), find("shop", moments)  # five and a half hours ahead
    since, ended = (at.astimezone(zone) for at in (case.incident.since, case.last))
    for write in (report, markdown_report):
        text = words_of(write("shop", moments, made_at=MADE, zone=zone))
        assert f"{since:%H:%M:%S}" in text
        assert f"({ended:%Z})" in text
        assert f"{MADE.astimezone(zone):%Y-%m-%d %H:%M:%S} IST by tagae" in text
        assert f"{case.incident.since:%H:%M:%S}" not in text
        assert write("shop", moments, made_at=MADE) == write("shop", moments, made_at=MADE, zone=read_zone("UTC"))


@pytest.mark.parametrize("name", ["Europe/Berln", "Europe", "../etc/passwd", "/etc/localtime", "", "a\0b"])
def test_an_unknown_zone_is_refused(name: str) -> None:
    with pytest.raises(InvalidParameter, match="expected a name of the IANA time zone database, got"):
        read_zone(name)


def test_a_report_says_what_to_do(moments: list[ScoredSnapshot]) -> None:
    step = find("shop", moments).incident.next_step
    assert step
    assert step in words_of(report("shop", moments, made_at=MADE))
    assert step in words_of(markdown_report("shop", moments, made_at=MADE))


def test_the_team_of_an_incident_is_at_the_top(moments: list[ScoredSnapshot]) -> None:
    def own(moment: ScoredSnapshot) -> ScoredSnapshot:
        owned = [
            incident.model_copy(update={"team": "<store>", "contact": "#store"})
            for incident in moment.verdict.incidents
        ]
        return judge(moment, *owned)

    owned = [own(moment) for moment in moments]
    assert "<dt>team</dt><dd>&lt;store&gt;, #store</dd>" in report("shop", owned, made_at=MADE)
    assert "| team | \\<store\\>, \\#store |" in markdown_report("shop", owned, made_at=MADE)
    assert "<dt>team</dt>" not in report("shop", moments, made_at=MADE)


def test_the_colours_are_those_of_the_page() -> None:
    style = (Path(web.__file__).parent / "static" / "style.css").read_text(encoding="utf-8")
    blocks = re.findall(r":root {(.*?)}", (TEMPLATES / "report.css").read_text(encoding="utf-8"), re.DOTALL)
    for own, selector in zip(blocks, (":root", r':root\[data-theme="dark"\]'), strict=True):
        (block,) = re.findall(rf"^{selector} {{(.*?)^}}", style, re.DOTALL | re.MULTILINE)
        page = dict(re.findall(r"--([\w-]+): (.*?);", block))
        colours = dict(re.findall(r"--([\w-]+): (.*?)(?:;|\s*$)", own))
        assert len(colours) == 19
        assert colours == {name: page[name] for name in colours}


def test_the_shapes_of_severities_are_those_of_the_page(moments: list[ScoredSnapshot]) -> None:
    case = find("shop", moments)
    icons = (Path(web.__file__).parent / "static" / "icons.js").read_text(encoding="utf-8")
    (octagon,) = re.findall(r'const OCTAGON = "(.*?)"', icons)
    for severity in Severity:
        incident = case.incident.model_copy(update={"severity": severity.value})
        html = report("shop", [judge(case.worst, incident)], made_at=MADE)
        (shape,) = re.findall(r'<svg class="icon".*?</svg>', html, re.DOTALL)
        (page,) = re.findall(rf"^  {severity}: [`'](.*?)[`'],$", icons.replace("${OCTAGON}", octagon), re.MULTILINE)
        outline = re.search(r' d="(.*?)"| r="(.*?)"', page)
        assert outline is not None
        assert outline[0] in shape
        assert set(re.findall(r"#[0-9a-f]{6}", shape)) == set(re.findall(r"#[0-9a-f]{6}", page))
