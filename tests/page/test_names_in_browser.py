"""The page shows the original names of services, whatever their telemetry calls them."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lab.simulator.mesh.topology import MeshSpec
from lab.simulator.simulator import Simulator
from model.names import escape_name, readable
from tests.page.browsing import IN_BROWSER, tab
from tests.page.serving import push_all, serve

pytestmark = IN_BROWSER

NAMES = ["bank gateway", "订单服务", "<img src=x onerror=alert(1)>", "a\u202eb", "zażółć", "bank/gateway"]
TEXTS = [
    "shop/bank~20~gateway is slow", "about ~20 ms ~30", "a~202E~b", "a~7E~20~7E~b", "~1F600~", "a~2F~b", "a~10FFFF~",
    "a~FE0F~", "a~2800~", "a~3164~", "a~A0~b", "a~E9~", "a~2015~", "a~3A~", "x~0123456789abcdef0123456789abcdef~",
]  # fmt: skip


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Any:
    store: Path = tmp_path_factory.mktemp("names")
    snapshots = list(Simulator(MeshSpec(services=30, seed=3), snapshots=12).snapshots())
    ids = tuple(f"shop/{escape_name(name)}" for name in NAMES) + snapshots[0].node_ids[len(NAMES) :]
    with serve(store) as url:
        push_all(url, "shop", [replace(one, node_ids=ids, changes=(), signals=()) for one in snapshots])
        yield url


@pytest.mark.parametrize("name", NAMES)
def test_search_and_panel_show_the_original_name(browser: Any, base: str, name: str) -> None:
    shown = readable(f"shop/{escape_name(name)}")
    with tab(browser, base) as opened:
        opened.open("")
        opened.page.fill("#find", shown)
        opened.page.press("#find", "Enter")
        opened.until(lambda: opened.text("#panel-title") == shown, f"the panel of {shown!r} opens")
        opened.assert_clean()


def test_the_page_reads_names_as_reports_do(browser: Any, base: str) -> None:
    with tab(browser, base) as opened:
        opened.open("")
        script = opened.page.locator("script[src*='main.js']").get_attribute("src")
        found = opened.page.evaluate(
            "async ([path, texts]) => { const { readable } = await import(path); return texts.map(readable); }",
            [f"{base}/{script.replace('main.js', 'words.js')}", TEXTS],
        )
    assert found == [readable(text) for text in TEXTS]
