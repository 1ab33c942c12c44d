"""The page shows the original names of services, whatever their telemetry calls them."""

from dataclasses import replace

import pytest

from lab.simulator.mesh.topology import MeshSpec
from lab.simulator.simulator import Simulator
from model.names import escape_name, readable
from tests.page.browsing import IN_BROWSER, Tab

pytestmark = IN_BROWSER

NAMES = ["bank gateway", "订单服务", "<img src=x onerror=alert(1)>", "a\u202eb", "zażółć", "bank/gateway"]
TEXTS = [
    "shop/bank~20~gateway is slow", "about ~20 ms ~30", "a~202E~b", "a~7E~20~7E~b", "~1F600~", "a~2F~b", "a~10FFFF~",
    "a~FE0F~", "a~2800~", "a~3164~", "a~A0~b", "a~E9~", "a~2015~", "a~3A~", "x~0123456789abcdef0123456789abcdef~",
]  # fmt: skip


SNAPSHOTS = list(Simulator(MeshSpec(services=30, seed=3), snapshots=12).snapshots())
IDS = tuple(f"shop/{escape_name(name)}" for name in NAMES) + SNAPSHOTS[0].node_ids[len(NAMES) :]
PUSHED = {"shop": [replace(one, node_ids=IDS, changes=(), signals=()) for one in SNAPSHOTS]}


@pytest.mark.parametrize("name", NAMES)
def test_search_and_panel_show_the_original_name(one: Tab, name: str) -> None:
    shown = readable(f"shop/{escape_name(name)}")
    one.open("")
    one.page.fill("#find", shown)
    one.page.press("#find", "Enter")
    one.until(lambda: one.text("#panel-title") == shown, f"the panel of {shown!r} opens")


def test_the_page_reads_names_as_reports_do(one: Tab, base: str) -> None:
    one.open("")
    script = one.page.locator("script[src*='main.js']").get_attribute("src")
    found = one.page.evaluate(
        "async ([path, texts]) => { const { readable } = await import(path); return texts.map(readable); }",
        [f"{base}/{script.replace('main.js', 'words.js')}", TEXTS],
    )
    assert found == [readable(text) for text in TEXTS]
