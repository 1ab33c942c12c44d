"""Deadlines that travel between processes."""

import time

import pytest

from serve_app.runtime.deadline import Deadline


def shift_clocks(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Shift both clocks of this process, as if it ran on another machine from here on."""
    monotonic, wall = time.monotonic, time.time
    monkeypatch.setattr(time, "monotonic", lambda: monotonic() + seconds)
    monkeypatch.setattr(time, "time", lambda: wall() + seconds)


@pytest.mark.parametrize("ahead", [-86_400.0, -3000.0, 3000.0, 86_400.0])
def test_a_deadline_ignores_how_far_the_clock_of_the_receiver_is_ahead(
    monkeypatch: pytest.MonkeyPatch, ahead: float
) -> None:
    rebuild, sent = Deadline.after(1000.0).__reduce__()  # what Ray sends to another process
    shift_clocks(monkeypatch, ahead)
    assert 0.0 < rebuild(*sent).remaining_seconds <= 1000.0


def test_a_deadline_that_has_passed_arrives_as_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    late = Deadline.after(5.0)
    shift_clocks(monkeypatch, 6.0)  # work that takes 6 s
    assert late.remaining_seconds == 0.0
    rebuild, sent = late.__reduce__()
    assert rebuild(*sent).remaining_seconds == 0.0


def test_a_share_of_a_deadline_and_a_later_one() -> None:
    whole = Deadline.after(1e6)
    assert whole.take_share(0.8).remaining_seconds == pytest.approx(0.8e6, rel=1e-3)
    assert whole.extend(10.0).at == whole.at + 10.0
