"""A large mesh: its namespaces as nodes, and the services of one."""

from collections import Counter
from typing import Any

import pytest

from lab.simulator.mesh.topology import MeshSpec
from model.snapshot import namespace_of
from tests.page.browsing import IN_BROWSER, Tab, tab
from tests.serve_app.running import record_simulation

pytestmark = IN_BROWSER

SNAPSHOTS = record_simulation(MeshSpec(services=700, seed=2), 30, fault_from=24)
SIZES = Counter(namespace_of(name) for name in SNAPSHOTS[-1].node_ids)
LARGEST = SIZES.most_common(1)[0][0]
SMALL = next(name for name, size in SIZES.items() if 3 <= size <= 50)
PUSHED = {"shop": SNAPSHOTS}


def drawn(one: Tab) -> list[str]:
    """Return what a screen reader says of the nodes."""
    found: list[str] = one.page.evaluate(
        "[...document.querySelectorAll('#canvas .whole .service')].map((one) => one.ariaLabel)"
    )
    return found


def services_of(one: Tab, space: str) -> int:
    return sum(text.startswith(f"{space}/") for text in drawn(one))


def test_namespaces_lead_to_their_services_and_back(one: Tab) -> None:
    one.open("/#mesh=shop&view=all")
    one.until(lambda: any(text.startswith(f"{SMALL}/*") for text in drawn(one)), "a node for a namespace")
    assert any("likely origin" in said for said in drawn(one)), "services of the incident have their own nodes"
    folded = one.page.locator(f"#canvas [data-key='service {SMALL}/*']")
    folded.focus()
    one.page.keyboard.press("Enter")
    one.until(lambda: f"space={SMALL}" in one.page.url, "the link has the namespace")
    one.until(lambda: len(drawn(one)) == services_of(one, SMALL) == SIZES[SMALL], "its services, and no others")
    service = drawn(one)[0].split(":")[0]
    one.page.locator(f"#canvas [data-key='service {service}']").focus()
    one.page.keyboard.press("Enter")
    one.until(lambda: one.page.is_visible("#panel") and one.text("#panel-title") == service, "its panel")
    one.page.select_option("#space", "")
    one.until(lambda: any(text.startswith(f"{SMALL}/*") for text in drawn(one)), "all namespaces")
    assert "space=" not in one.page.url


def test_a_link_leads_to_a_namespace_of_any_size(one: Tab) -> None:
    for space in (LARGEST, SMALL):
        one.open(f"/#mesh=shop&space={space}")
        count = SIZES[space]
        one.until(lambda count=count: len(drawn(one)) == count, "its services")  # type: ignore[misc]
        assert one.page.input_value("#space") == space


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("space", ["", f"&space={LARGEST}"])
def test_it_is_accessible(browser: Any, base: str, space: str, width: int, scheme: str) -> None:
    with tab(browser, base, viewport={"width": width, "height": 844}, color_scheme=scheme) as one:
        one.open(f"/#mesh=shop&view=all{space}")
        one.page.wait_for_selector("#canvas .whole")
        one.assert_accessible()
