"""What commands print: the summary of `tagae score`, and what is waited for."""

import io
from dataclasses import replace

import pytest
from rich.console import Console

from lab.demo.lines import describe
from serve_app.api.schemas.verdict import WatchedDocument
from serve_app.cli.console import Tally, spinner, stderr_console
from serve_app.cli.serve import Terminal
from serve_app.runtime.supervisor import News
from tests.lab.demo.shows import START, incident, scored_snapshot, verdict


def summary(tally: Tally, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Return the lines of the summary, with single spaces."""
    stderr_console.cache_clear()  # the console keeps its first width
    tally.show()
    return [" ".join(line.split()) for line in capsys.readouterr().err.splitlines()]


def test_notices_are_counted_and_listed_after_alerts(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    tally = Tally()
    tally.add(verdict(0, "normal", 1.0, incident("n", 8.0, "a/db", severity="notice")))
    tally.add(verdict(1, "anomalous", 9.0, incident("x", 9.0, "a/web"), incident("n", 8.0, "a/db", severity="notice")))
    lines = summary(tally, capsys)
    assert lines[1] == "incidents: 1, notices: 1"
    (alert, *_, its_suspects, notice, _, notice_line) = lines[2:]
    assert [alert.split()[4:], its_suspects] == [["major", "score", "9.0"], "suspects: a/web"]
    assert [notice.split()[4:], notice_line] == [["notice", "score", "8.0"], "suspects: a/db"]


def test_ids_and_suspects_are_whole_on_a_narrow_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    tally, suspects = Tally(), ("a-long-namespace/orders-database-1", "a-long-namespace/payments-gateway-2")
    tally.add(verdict(0, "anomalous", 9.0, incident("20260301T031200Z-1f3870be", 9.0, *suspects)))
    lines = summary(tally, capsys)
    assert lines[2].startswith("20260301T031200Z-1f3870be ")
    assert lines[-1] == f"suspects: {', '.join(suspects)}"


def test_an_incident_that_recovers_in_the_last_snapshot_is_marked(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def title() -> str:
        return next(line for line in summary(tally, capsys) if line.startswith("x "))

    monkeypatch.setenv("COLUMNS", "200")
    tally, strongest = Tally(), incident("x", 9.0, "a/web")
    recovering = strongest.model_copy(update={"score": 2.0, "recovering": True})
    tally.add(verdict(0, "anomalous", 9.0, strongest))
    tally.add(verdict(1, "anomalous", 2.0, recovering))
    assert title().endswith("major, recovering score 9.0")
    tally.add(verdict(2, "anomalous", 2.0, recovering.model_copy(update={"kind": "telemetry_missing"})))
    assert title().endswith("major score 9.0"), "without telemetry its state is unknown"
    tally.add(verdict(3))
    assert title().endswith("major score 9.0")


@pytest.mark.parametrize(
    ("statuses", "words"),
    [
        ([], "the recording has no snapshots"),
        (["warming_up", "warming_up"], "all snapshots were needed to learn what is normal; score a longer recording"),
        (["warming_up", "normal"], "highest score 2.0, threshold 4.0, at 2026-01-01 00:00:15 UTC"),
    ],
)
def test_no_incident_is_explained(statuses: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    tally = Tally()
    for index, status in enumerate(statuses):
        tally.add(verdict(index, status, 1.0 + index))
    assert words in summary(tally, capsys)[-1]


def test_without_an_incident_the_watched_services_of_the_last_snapshot_are_listed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    reasons = incident("x", 9.0, "a/db").suspects[0].reasons
    watched = WatchedDocument(
        service="a/db", score=4.9, level=5.8, since=START, seen=1, needed=3, reasons=reasons, text="alerts after 2 more"
    )
    tally = Tally()
    tally.add(verdict(0, "normal", 1.0).model_copy(update={"watching": [watched]}))
    assert summary(tally, capsys)[-1] == (
        "watching a/db: error rate 31%, expected 0.3%, since 00:00 UTC; alerts after 2 more"
    )
    tally.add(verdict(1, "normal", 1.0))
    assert "watching" not in " ".join(summary(tally, capsys))
    snapshot = replace(scored_snapshot(2), verdict=verdict(2, "normal", 1.0).model_copy(update={"watching": [watched]}))
    assert describe(snapshot).endswith("verdict in 3 ms, watching a/db")


@pytest.mark.parametrize(("terminal", "shown"), [(True, ("starting", "0:00:0")), (False, ())])
def test_a_wait_shows_its_reason_and_the_time_elapsed_on_a_terminal(terminal: bool, shown: tuple[str, ...]) -> None:
    file = io.StringIO()
    with spinner("starting", Console(file=file, force_terminal=terminal, width=80)):
        pass
    assert [text for text in shown if text not in file.getvalue()] == []
    assert bool(file.getvalue()) is terminal


def test_the_past_of_a_mesh_has_a_line_for_each_quarter_where_there_is_no_bar(
    capsys: pytest.CaptureFixture[str],
) -> None:
    stderr_console.cache_clear()
    terminal = Terminal()
    for share in (0.0, 0.1, 0.3, 0.31, 0.8):
        terminal.tell(News(replays=(("shop", share),)))
    terminal.tell(News())
    terminal.close()
    assert capsys.readouterr().err.splitlines() == [
        "reading: the past of shop, 0%",
        "reading: the past of shop, 30%",
        "reading: the past of shop, 80%",
        "reading: the past of shop has been read",
    ]


def test_a_receiver_that_fails_has_one_line_and_another_when_it_takes_notifications(
    capsys: pytest.CaptureFixture[str],
) -> None:
    stderr_console.cache_clear()
    terminal = Terminal()
    for problems in ((), ("slack takes none",), ("slack takes none",), ()):
        terminal.tell(News(receivers=problems))
    assert capsys.readouterr().err.splitlines() == [
        "notifications: slack takes none",
        "notifications: all receivers accept them again",
    ]
