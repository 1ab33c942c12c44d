"""Waits before a retry."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from serve_app.net.backoff import parse_retry_after


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("7", 7.0),
        ("", 0.0),
        ("soon", 0.0),
        ("-1", 0.0),
        ("²", 0.0),
        ("Mon, 01 Jan 2024 00:00:00 GMT", 0.0),
        ("Mon, 01 Jan 99999 00:00:00 GMT", 0.0),
        ("Mon, 01 Jan 999999999999999999999 00:00:00 GMT", 0.0),
    ],
)
def test_a_server_asks_for_a_wait_in_seconds_or_until_a_date(header: str, seconds: float) -> None:
    assert parse_retry_after(header) == seconds


def test_a_date_in_the_future_is_a_wait() -> None:
    header = format_datetime(datetime.now(UTC) + timedelta(minutes=1), usegmt=True)
    assert parse_retry_after(header) == pytest.approx(60, abs=5)
