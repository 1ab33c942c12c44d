"""A receiver of your own: takes the events of incidents from a webhook of TAGAE, and keeps a list of them.

    python examples/webhook_receiver.py --port 9200 --secret-file secrets/webhook --output events.jsonl

It needs only Python's standard library. Replace :meth:`Events.handle` with what your team uses: a ticket, a message.
The settings of TAGAE that go with it::

    [[notify.receivers]]
    kind = "webhook"
    options = { url = "http://127.0.0.1:9200/", secret_file = "secrets/webhook" }
"""

import argparse
import hashlib
import hmac
import json
import re
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock
from typing import Any

LARGEST_BODY = 4 * 1024 * 1024
LONGEST_SECONDS = 300.0  # between the signature and now: an older request may be a replayed one


class Events:
    """A file with one line of JSON for each event. An event that is sent again is not written again.

    Args:
        path: of the file. Events that are in it already count as handled.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = Lock()
        lines = path.read_text("utf-8").splitlines() if path.exists() else []
        self._ids = {json.loads(line)["id"] for line in lines}

    def handle(self, event: dict[str, Any]) -> bool:
        """Write an event, and return whether it is new. TAGAE sends each one at least once."""
        with self._lock:
            if event["id"] in self._ids:
                return False
            line = {key: event[key] for key in ("id", "event", "at", "mesh", "summary")}
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
            self._ids.add(event["id"])
            return True


def is_signed(signature: str, body: bytes, secret: str, now: float) -> bool:
    """Whether ``Tagae-Signature`` is a recent signature of this body with this secret.

    Args:
        signature: ``t=UNIX_SECONDS,v1=HEX``; the digest is the HMAC-SHA256 of ``UNIX_SECONDS.BODY``.
        body: of the request.
        secret: shared with TAGAE.
        now: Unix time, s.
    """
    parts = re.fullmatch(r"t=(\d+),v1=([0-9a-f]{64})", signature)
    if parts is None or abs(now - int(parts[1])) > LONGEST_SECONDS:
        return False
    expected = hmac.new(secret.encode(), f"{parts[1]}.".encode() + body, hashlib.sha256).hexdigest()
    return hmac.compare_digest(expected, parts[2])


def make_server(host: str, port: int, secret: str, events: Events) -> ThreadingHTTPServer:
    """A server that takes events by POST. 200: handled; 400: unreadable; 401: not signed; 413: too large."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            length = int(self.headers.get("Content-Length", 0))
            if not 0 < length <= LARGEST_BODY:
                return self._answer(413)
            body = self.rfile.read(length)
            if not is_signed(self.headers.get("Tagae-Signature", ""), body, secret, time.time()):
                return self._answer(401)
            try:
                event = json.loads(body)
                is_new = events.handle(event)
            except (ValueError, KeyError, TypeError):
                return self._answer(400)
            if is_new:
                print(event["event"], event["mesh"], event["summary"], flush=True)
            return self._answer(200)

        def _answer(self, status: int) -> None:
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            """One line for each event is enough."""

    return ThreadingHTTPServer((host, port), Handler)


def main() -> None:
    """Run until Ctrl-C."""
    parser = argparse.ArgumentParser(description="Take events of incidents from TAGAE.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=9200)
    parser.add_argument("--secret-file", type=Path, required=True)
    parser.add_argument("--output", type=Path, default=Path("events.jsonl"))
    args = parser.parse_args()
    server = make_server(args.host, args.port, args.secret_file.read_text().strip(), Events(args.output))
    print(f"ready at http://{args.host}:{server.server_address[1]}/", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
