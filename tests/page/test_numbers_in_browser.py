"""Numbers on the page read like numbers in reports, messages and on the command line."""

from collections.abc import Iterator
from functools import partial
from html import escape
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from serve_app.web.numbers import page_numbers
from tests.number_examples import EXAMPLES
from tests.page.browsing import IN_BROWSER, tab

pytestmark = IN_BROWSER
STATIC = Path(__file__).parents[2] / "serve_app" / "web" / "static"
SHOWN = [one for one in EXAMPLES if one[0] != "score"]  # the page ranks suspects
WRITE = """async (examples) => {
  const { anomalyText: anomaly, shareText: share, metricValue } = await import("./numbers.js");
  const { span } = await import("./words.js");
  const kinds = { anomaly, share, span };
  return examples.map(([kind, value]) => (kinds[kind] ?? ((x) => metricValue(kind, x)))(value));
}"""
ABOUT = "async (values) => { const { about } = await import('./numbers.js'); return values.map(about); }"


class Quiet(SimpleHTTPRequestHandler):
    """Serves files without a line of log for each."""

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="module")
def base() -> Iterator[str]:
    """The files of the page, without a service."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=STATIC)) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def test_numbers_read_as_in_python(browser: Any, base: str) -> None:
    with tab(browser, base) as opened:
        opened.page.goto(f"{base}/docs.html")
        opened.page.set_content(f'<meta id="numbers" content="{escape(page_numbers())}">')
        written = opened.page.evaluate(WRITE, [[kind, value] for kind, value, _ in SHOWN])
        rounded = opened.page.evaluate(ABOUT, [0.44, 34.6, 4109, 28_135])
    assert written == [text for *_, text in SHOWN]
    assert rounded == ["0.44", "35", "4,100", "28,000"], "an estimate has two digits"
