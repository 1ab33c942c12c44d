"""The summary that `tagae score` prints."""

import pytest

from serve_app.cli.console import Tally
from tests.serve_app.shows import incident, verdict


def summary(tally: Tally, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """The lines of the summary, without the spaces between columns."""
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
    assert [line.split()[2:5] for line in lines[3:]] == [["major", "9.0", "a/web"], ["notice", "8.0", "a/db"]]


def test_an_incident_that_recovers_in_the_last_snapshot_is_marked(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    tally, strongest = Tally(), incident("x", 9.0, "a/web")
    recovering = strongest.model_copy(update={"score": 2.0, "recovering": True})
    tally.add(verdict(0, "anomalous", 9.0, strongest))
    tally.add(verdict(1, "anomalous", 2.0, recovering))
    assert "major, recovering 9.0 a/web" in summary(tally, capsys)[-1]
    tally.add(verdict(2))
    assert "major 9.0 a/web" in summary(tally, capsys)[-1]
