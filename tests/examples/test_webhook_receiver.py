"""examples/webhook_receiver.py gets events of TAGAE's own notifier."""

import hashlib
import hmac
import json
import re
import time
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from examples.webhook_receiver import LARGEST_BODY, LONGEST_SECONDS, Events, is_signed, make_server
from serve_app.alerts.delivery import receivers
from serve_app.alerts.receivers.webhook import signature
from serve_app.settings import load
from tests.http_server import serve_in_thread
from tests.serve_app.alerts.alerting import NOW, PATIENT, accept, eventually, incident, start_notifier, verdict

SECRET = "a secret of the team"
EVENT = {"id": "1", "event": "opened", "at": "2026-03-01T03:14:00Z", "mesh": "shop", "summary": "shop/cart is slow"}


def lines(path: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.exists() else []


async def test_it_keeps_the_events_that_tagae_sends(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text(f"{SECRET}\n")
    kept = tmp_path / "events.jsonl"
    with serve_in_thread(make_server("127.0.0.1", 0, SECRET, Events(kept))) as url:
        webhook = {"kind": "webhook", "options": {"url": f"{url}/", "secret_file": str(key)}}
        to = replace(receivers(load(overrides={"notify": {"receivers": [webhook]}})), deadline_seconds=PATIENT)
        async with start_notifier(to, tmp_path) as (notifier, _):
            accept(notifier, "shop", verdict(incident("a")), NOW)
            await eventually(lambda: len(lines(kept)) == 1)
    (event,) = lines(kept)
    assert (event["event"], event["mesh"]) == ("opened", "shop")
    assert "shop/cart" in event["summary"]


def post(url: str, body: bytes, signed: str) -> int:
    return httpx.post(url, content=body, headers={"Tagae-Signature": signed}).status_code


def test_an_event_that_is_sent_again_is_kept_once_also_after_a_restart(tmp_path: Path) -> None:
    kept, body = tmp_path / "events.jsonl", json.dumps(EVENT).encode()
    for _ in range(2):
        with serve_in_thread(make_server("127.0.0.1", 0, SECRET, Events(kept))) as url:
            signed = signature(SECRET, body, int(time.time()))
            assert [post(url, body, signed), post(url, body, signed)] == [200, 200]
    assert lines(kept) == [EVENT]


@pytest.mark.parametrize(
    ("body", "signed", "status"),
    [
        (json.dumps(EVENT).encode(), "", 401),
        (json.dumps(EVENT).encode(), "other key", 401),
        (b"{}", "right key", 400),
        (b"not JSON", "right key", 400),
        (b"[]", "right key", 400),
        (b"", "right key", 413),
        (b"x" * (LARGEST_BODY + 1), "right key", 413),
    ],
)
def test_other_requests_are_refused(tmp_path: Path, body: bytes, signed: str, status: int) -> None:
    kept = tmp_path / "events.jsonl"
    keys = {"other key": "another secret", "right key": SECRET}
    header = signature(keys[signed], body, int(time.time())) if signed else ""
    with serve_in_thread(make_server("127.0.0.1", 0, SECRET, Events(kept))) as url:
        assert post(url, body, header) == status
    assert lines(kept) == []


def test_a_recorded_request_is_refused_later() -> None:
    signed = signature(SECRET, b"body", 1000)
    assert is_signed(signed, b"body", SECRET, 1000 + LONGEST_SECONDS)
    assert not is_signed(signed, b"body", SECRET, 1001 + LONGEST_SECONDS)
    assert not is_signed(signed, b"other body", SECRET, 1000)


def test_the_signature_is_the_documented_one() -> None:
    digest = hmac.new(SECRET.encode(), b"1000.body", hashlib.sha256).hexdigest()
    assert is_signed(f"t=1000,v1={digest}", b"body", SECRET, 1000)
    assert re.fullmatch(r"t=1000,v1=[0-9a-f]{64}", signature(SECRET, b"body", 1000))
