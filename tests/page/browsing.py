"""A real Chromium, the demo and the service as processes, and helpers to read the page."""

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

import httpx
import pytest

from tests.serve_app.running import start_command
from tests.timing import PATIENCE_SECONDS

# Without a GPU, so that every machine draws the same. No request leaves the machine.
CHROMIUM = ("--no-sandbox", "--disable-background-networking", "--disable-gpu")
JUDGED = "#verdict:is(.calm, .incident, .recovering, .learning, .unknown)"
REFUSED = "Failed to load resource"  # message of a browser about each error answer, which cannot be switched off


def describe_missing() -> str:
    """Return what these tests need but is missing, and how to install it; empty: nothing is missing."""
    if shutil.which("chromium") is None:
        return "no chromium here; make test-page installs it, or apt-get install chromium"
    if find_spec("playwright") is None or find_spec("axe_playwright_python") is None:
        return "no playwright here; pip install 'tagae[page]'"
    return ""


IN_BROWSER = [
    pytest.mark.page,
    pytest.mark.timeout(300),
    pytest.mark.skipif(bool(describe_missing()), reason=describe_missing()),
]
"""Marks of a file with tests in a browser."""


@contextmanager
def chromium(*arguments: str) -> Iterator[Any]:
    """Run a browser."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright, launch_browser(playwright.chromium, *arguments) as browser:
        yield browser


@contextmanager
def launch_browser(kind: Any, *arguments: str) -> Iterator[Any]:
    """Run another browser while one is open: Playwright can only start once per thread."""
    browser = kind.launch(executable_path=shutil.which("chromium"), args=[*CHROMIUM, *arguments])
    try:
        yield browser
    finally:
        browser.close()


@dataclass(slots=True)
class Tab:
    """An open page.

    Attributes:
        page: of Playwright.
        base: URL of the service.
        complaints: errors and warnings of the console, exceptions.
        foreign_requests: addresses on other hosts that it requested.
    """

    page: Any
    base: str
    complaints: list[str] = field(default_factory=list)
    foreign_requests: list[str] = field(default_factory=list)

    def open(self, path: str) -> None:
        """Open an address and wait for a verdict."""
        self.page.goto(self.base + path)
        self.page.wait_for_selector(JUDGED, timeout=1000 * PATIENCE_SECONDS)
        self.page.wait_for_selector("#canvas > *", timeout=1000 * PATIENCE_SECONDS)

    def text(self, selector: str) -> str:
        """Return the text of an element."""
        text: str = self.page.inner_text(selector)
        return text

    def open_menu(self) -> None:
        """Show the actions of the first card that are not needed first."""
        self.page.locator("#cards").get_by_role("button", name="More").first.click()

    def open_detector(self) -> None:
        """Unfold the status of the detector."""
        if not self.page.is_visible("#facts"):
            self.page.click("#detector summary")

    def until(self, true: Callable[[], Any], what: str, within: float = PATIENCE_SECONDS) -> Any:
        """Wait for a true value and return it. The browser keeps running."""
        ends = time.monotonic() + within
        while time.monotonic() < ends:
            if found := true():
                return found
            self.page.wait_for_timeout(50)
        raise AssertionError(f"not within {within:.0f} s: {what}; the page says {self.text('#verdict')!r}")

    def assert_clean(self, ignored: str | tuple[str, ...] = ()) -> None:
        """Check that the page made no complaint, except those that begin with ``ignored``, and asked no other host."""
        wrong = [text for text in self.complaints if not text.startswith(ignored)]
        assert not wrong, wrong
        assert self.foreign_requests == []

    def assert_accessible(self) -> None:
        """Check the page with axe, and that it does not scroll sideways."""
        from axe_playwright_python.sync_playwright import Axe

        found = Axe().run(self.page)
        assert found.violations_count == 0, (self.page.url, found.generate_report())
        wide = self.page.evaluate("() => [document.documentElement.scrollWidth, innerWidth]")
        assert wide[0] <= wide[1], f"the page scrolls sideways: it is {wide[0]} of {wide[1]} pixels wide"

    def red(self) -> int:
        """Count pixels of the graph in the colour of an incident's path."""
        return self.pixels("#stage", lambda r, g, b: (r > 150) & (g < 60) & (b < 60))

    def pixels(self, selector: str, like: Callable[[Any, Any, Any], Any]) -> int:
        """Count the pixels of an element that match."""
        import io

        import matplotlib.image
        import numpy as np

        shot = matplotlib.image.imread(io.BytesIO(self.page.locator(selector).screenshot()), format="png")
        red, green, blue = (np.rint(255 * shot[..., i]) for i in range(3))
        return int(like(red, green, blue).sum())


@contextmanager
def tab(browser: Any, base: str, **options: Any) -> Iterator[Tab]:
    """Open a tab with its own storage. ``options`` of the browser context: viewport, color_scheme."""
    context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
    context.set_default_timeout(1000 * PATIENCE_SECONDS)
    page = context.new_page()
    one = Tab(page, base)
    page.on("console", lambda message: one.complaints.append(message.text) if is_complaint(message) else None)
    page.on("pageerror", lambda error: one.complaints.append(str(error)))
    page.on(
        "request",
        lambda asked: None if asked.url.startswith((base, "data:")) else one.foreign_requests.append(asked.url),
    )
    try:
        yield one
    finally:
        context.close()


def is_complaint(message: Any) -> bool:
    """Return whether a console message is an error or a warning about the page."""
    return message.type in ("error", "warning")


@contextmanager
def start_demo(*arguments: str) -> Iterator[str]:
    """Run the demo in its own process and yield its URL. No process is left over."""
    with start_command(["demo", *arguments], r"(http://[0-9.:]+)/demo/") as (_, found):
        yield found[1]


def start_event(one: Tab, words: str) -> None:
    """Start a fault or a change with the demo's panel, by its name there."""
    one.page.select_option("#demo .event", label=words)
    one.page.click("#demo .start")


def show(base: str) -> dict[str, Any]:
    """Return the data of the demo's panel."""
    document: dict[str, Any] = httpx.get(f"{base}/demo/show").raise_for_status().json()
    return document
