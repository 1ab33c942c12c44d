"""Times the first minutes of a person with TAGAE: every state that the page shows, until it is understood.

    python -m tests.page.first_run

Two ways: `tagae serve`, the page, and README's curl every second until the first verdict; and `tagae demo` until its
first alert. Prints one line for each state with the seconds since the command, and fails if a state is blank, raw, or
red without a fault.
"""

import contextlib
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx

from tests.live.programs import free_ports
from tests.page.browsing import Tab, chromium, describe_missing, show, start_demo, tab
from tests.serve_app.running import start_command
from tests.timing import PATIENCE_SECONDS

SNAPSHOT = {
    "services": [
        {
            "namespace": "shop",
            "name": "web",
            "metrics": {"request_rate": 120, "error_rate": 0.001, "p99_latency": 0.21},
        },
        {"namespace": "shop", "name": "cart", "metrics": {"request_rate": 40, "p99_latency": 0.08}},
    ],
    "calls": [{"source": "shop/web", "destination": "shop/cart", "requests_per_second": 40, "p99_latency": 0.09}],
}
LOOK = """() => {
  const head = document.getElementById("headline"), state = document.getElementById("verdict");
  return [state?.className ?? "", head?.innerText ?? "", document.body?.innerText.slice(0, 200) ?? ""];
}"""
RED = ("incident", "last_incident")
POLL_SECONDS = 0.1


class Course:
    """The states that a page showed, with the seconds since the beginning, and what was wrong with them."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.states: list[str] = []
        self.wrong: list[str] = []

    def look(self, one: Tab, *, may_be_red: bool = False) -> str:
        """Note the state of the page if it is a new one, and return its headline."""
        try:
            state, head, body = one.page.evaluate(LOOK)
        except Exception:  # between two pages
            return ""
        text = re.sub(r"\d+ (s|min)\b", "… s", f"{state or '-'}: {head}")
        if text not in self.states[-1:]:
            self.states.append(text)
            print(f"{time.monotonic() - self.began:6.1f} s  {state or '-'}: {head}")
            if not head or body.lstrip().startswith("{"):
                self.wrong.append(f"blank or raw: {body!r}")
            if not may_be_red and set(RED) & set(state.split()):
                self.wrong.append(f"red: {head}")
        return str(head)

    def watch(self, one: Tab, until: Callable[[str], Any], *, may_be_red: bool = False) -> None:
        """Note the states until the headline is as wanted."""
        ends = time.monotonic() + 4 * PATIENCE_SECONDS
        while time.monotonic() < ends:
            if until(self.look(one, may_be_red=may_be_red)):
                return
            one.page.wait_for_timeout(1000 * POLL_SECONDS)
        raise AssertionError(f"the page still shows {self.states[-1:]}")


def open_early(one: Tab, url: str) -> None:
    """Open the page as soon as anything answers."""
    ends = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < ends:
        with contextlib.suppress(Exception):  # refused
            one.page.goto(url)
            return
        time.sleep(POLL_SECONDS)


def push_until_judged(base: str) -> Iterator[None]:
    """Push a snapshot, as README's curl does, until one is judged."""
    at = datetime(2026, 3, 1, 3, 12, tzinfo=UTC)
    while True:
        document = {"observed_at": at.isoformat(), **SNAPSHOT}
        verdict = httpx.post(f"{base}/v1/meshes/shop/snapshots", json=document).raise_for_status().json()
        yield
        if verdict["status"] != "warming_up":
            return
        at += timedelta(seconds=15)


def serve_and_push(browser: Any) -> Course:
    """`tagae serve`, the page, README's curl."""
    course, (port,) = Course(), free_ports(1)
    with tempfile.TemporaryDirectory() as store:
        command = ["serve", "--port", str(port), "--set", f"store.path={store}"]
        base = f"http://127.0.0.1:{port}"
        with start_command(command, r"starting the replicas"), tab(browser, base) as one:
            open_early(one, base)
            course.watch(one, lambda head: head == "No mesh yet")
            for _ in push_until_judged(base):
                course.look(one)
                one.page.wait_for_timeout(1000)
            course.watch(one, lambda head: head.startswith("No incident"))
    return course


def watch_the_demo(browser: Any) -> Course:
    """`tagae demo` until its first alert."""
    course = Course()
    with start_demo() as base, tab(browser, base) as one:
        open_early(one, f"{base}/demo/#mesh=demo")
        course.watch(one, lambda _: not show_if_any(base).get("warming_up", True))
        course.watch(one, lambda head: "incident" in course.states[-1].split(":")[0], may_be_red=True)
    return course


def show_if_any(base: str) -> dict[str, Any]:
    """The data of the panel; empty before the first."""
    with contextlib.suppress(httpx.HTTPError):
        return show(base)
    return {}


def main() -> None:
    if absent := describe_missing():
        sys.exit(absent)
    wrong: list[str] = []
    with chromium() as browser:
        for name, run in (("tagae serve, and README's curl", serve_and_push), ("tagae demo", watch_the_demo)):
            print(name)
            wrong += run(browser).wrong
    sys.exit("\n".join(wrong) or None)


if __name__ == "__main__":
    main()
