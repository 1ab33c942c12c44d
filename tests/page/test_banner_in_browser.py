"""The banner: the cause, chips for severity, impact and age, a line for each other incident, three lines on a phone."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from serve_app.web.history import instant
from tests.page.browsing import IN_BROWSER, Tab, tab
from tests.page.meshes import ALERTED, BEFORE, FAILING, RECOVERING, SNAPSHOTS

pytestmark = IN_BROWSER

PHONE, LAPTOP = {"width": 390, "height": 844}, {"width": 1280, "height": 720}
LONG = "a-very-long-namespace-of-a-platform-team/a-service-whose-name-hardly-fits-on-the-screen-of-a-phone"
THREE_LINES = 3 * 24 + 40  # pixels: text, and the frame with its gaps
SEVERITIES = ("critical", "major", "minor")
PUSHED = {"shop": SNAPSHOTS[: RECOVERING + 1]}


@pytest.fixture
def look(browser: Any, base: str) -> Iterator[Callable[..., Tab]]:
    """A function that opens the page at a snapshot, with a verdict that was changed on its way to the browser."""
    opened: list[Any] = []

    def at(index: int, change: Callable[[dict[str, Any]], None], viewport: dict[str, int] = LAPTOP) -> Tab:
        def answer(route: Any) -> None:
            verdict = route.fetch().json()
            change(verdict)
            route.fulfill(json=verdict)

        context = tab(browser, base, viewport=viewport)
        one = context.__enter__()
        opened.append((context, one))
        one.page.route("**/v1/meshes/shop/verdict?at=*", answer)
        time = instant(SNAPSHOTS[index].observed_at)
        one.open(f"/#mesh=shop&at={time}")
        one.until(lambda: f"At {time[11:19]}" in one.text("#headline"), "the verdict of then")
        return one

    yield at
    for context, one in opened:
        one.assert_clean()
        context.__exit__(None, None, None)


def others(count: int) -> Callable[[dict[str, Any]], None]:
    """Add incidents with long names."""

    def add(verdict: dict[str, Any]) -> None:
        first = verdict["incidents"][0]
        verdict["incidents"] = [first] + [
            {**first, "id": f"other-{i}", "severity": "minor", "headline": f"{LONG}-{i} is slow: p99 latency 2 s."}
            for i in range(count)
        ]

    return add


def rename(verdict: dict[str, Any]) -> None:
    incident = verdict["incidents"][0]
    incident["headline"] = f"{LONG} is failing: 80% of its requests, usually 0.1%. {incident['impact']['text']}."


def nothing(_: dict[str, Any]) -> None:
    """Change nothing."""


def height(one: Tab) -> float:
    pixels: float = one.page.evaluate("() => document.getElementById('verdict').getBoundingClientRect().height")
    return pixels


@pytest.mark.parametrize(
    ("index", "change"),
    [
        (ALERTED, nothing),
        (ALERTED, rename),
        (ALERTED, others(1)),
        (ALERTED, others(5)),
        (BEFORE, nothing),
        (RECOVERING, nothing),
    ],
    ids=["one", "long name", "two", "six", "calm", "recovering"],
)
def test_it_has_three_lines_on_a_phone_and_shows_the_rest_on_demand(
    look: Callable[..., Tab], index: int, change: Callable[[dict[str, Any]], None]
) -> None:
    one = look(index, change, PHONE)
    assert height(one) <= THREE_LINES
    one.assert_accessible()
    if one.page.is_visible("#more"):
        folded = height(one)
        one.page.click("#more")
        one.until(lambda: height(one) >= folded and one.text("#more") == "Less", "it shows the rest")
        one.assert_accessible()
        one.page.click("#more")
        one.until(lambda: height(one) <= THREE_LINES, "it is folded again")


def test_chips_say_how_bad_how_far_and_since_when(look: Callable[..., Tab]) -> None:
    one = look(ALERTED, nothing)
    chips = [chip.inner_text() for chip in one.page.locator("#chips li").all()]
    assert chips[0] == "Critical"
    assert "affected" in chips[1]
    assert chips[2].startswith("since 01:15 UTC, ")
    assert FAILING in one.text("#headline .cause")


def test_each_severity_has_its_own_shape_and_colour(look: Callable[..., Tab]) -> None:
    looks: dict[str, set[Any]] = {"icon": set(), "background": set(), "card": set()}
    for severity in SEVERITIES:
        one = look(ALERTED, lambda verdict, severity=severity: verdict["incidents"][0].update(severity=severity))
        assert one.text("#chips li:first-child") == severity.capitalize()
        looks["icon"].add(one.page.get_attribute("#state-icon", "src"))
        looks["background"].add(colour(one, "#verdict", "backgroundColor"))
        looks["card"].add(colour(one, "#cards .card", "borderLeftColor"))
        assert one.page.get_attribute("#cards .card h3 img", "src") == one.page.get_attribute("#state-icon", "src")
    assert {name: len(found) for name, found in looks.items()} == dict.fromkeys(looks, len(SEVERITIES))


def test_every_other_incident_has_a_line_that_selects_it(look: Callable[..., Tab]) -> None:
    one = look(ALERTED, others(3))
    assert one.page.locator("#others a").count() == 3
    one.page.locator("#others a").nth(1).click()
    one.until(lambda: f"{LONG}-1" in one.text("#headline"), "it is in the banner")
    assert one.page.locator("#others a").count() == 3, "the first one is among the others now"
    assert one.text("#chips li:first-child") == "Minor"


def test_the_timeline_is_directly_below_it(look: Callable[..., Tab]) -> None:
    one = look(ALERTED, nothing)
    tops = one.page.evaluate(
        "() => ['verdict', 'time', 'mesh-graph'].map((id) => document.getElementById(id).getBoundingClientRect().top)"
    )
    assert tops == sorted(tops)
    assert one.page.evaluate("() => document.getElementById('plot').getBoundingClientRect().bottom") < LAPTOP["height"]


def colour(one: Tab, selector: str, name: str) -> str:
    found: str = one.page.evaluate(f"() => getComputedStyle(document.querySelector('{selector}')).{name}")
    return found


STEP = "Look at shop/cart itself: its callees answer as usual, and no deploy of it is near, so roll nothing back yet."
CHANGE = {"at": "2026-01-01T01:11:00Z", "kind": "deploy", "reason": "v1.4.2", "text": "began 4 min after deploy"}


def advise(verdict: dict[str, Any]) -> None:
    verdict["incidents"][0].update(next_step=STEP, trend="worsening")


def advise_for_two(verdict: dict[str, Any]) -> None:
    others(1)(verdict)
    advise(verdict)


def test_it_says_what_to_do_below_the_cause(look: Callable[..., Tab]) -> None:
    one = look(ALERTED, advise)
    assert one.text("#next-step") == f"What to do: {STEP}"
    tops = one.page.evaluate(
        "() => ['headline', 'next-step', 'chips'].map((id) => document.getElementById(id).offsetTop)"
    )
    assert tops == sorted(set(tops))
    assert "worsening" in one.text("#chips")
    assert one.text("#cards .card > p >> nth=0") == f"What to do: {STEP}"
    assert "worsening" in one.text("#cards .card .when >> nth=0")
    one.assert_accessible()


@pytest.mark.parametrize("change", [advise, advise_for_two], ids=["one", "two"])
def test_on_a_phone_what_to_do_is_one_of_three_lines(
    look: Callable[..., Tab], change: Callable[[dict[str, Any]], None]
) -> None:
    one = look(ALERTED, change, PHONE)
    assert one.page.is_visible("#next-step")
    assert height(one) <= THREE_LINES
    one.page.click("#more")
    one.until(lambda: STEP in one.text("#next-step") and one.page.is_visible("#chips"), "it shows the rest")
    one.assert_accessible()


@pytest.mark.parametrize("is_suspect", [True, False])
def test_only_a_deploy_of_a_suspect_may_be_the_cause(look: Callable[..., Tab], is_suspect: bool) -> None:
    service = FAILING if is_suspect else "shop/elsewhere"
    one = look(ALERTED, lambda verdict: verdict["incidents"][0].update(changes=[{**CHANGE, "service": service}]))
    chips = one.page.locator("#chips .planned")
    assert chips.count() == int(is_suspect)
    assert one.page.locator("#cards .why.planned").count() == int(is_suspect)
    if not is_suspect:
        assert CHANGE["text"] in one.text("#chips"), "as the service puts it"
        assert CHANGE["text"] in one.text("#cards")


def test_numbers_of_the_peak_differ_from_the_present_ones(look: Callable[..., Tab]) -> None:
    peak = instant(SNAPSHOTS[ALERTED - 1].observed_at)

    def move_peak(verdict: dict[str, Any]) -> None:
        incident = verdict["incidents"][0]
        incident["suspects_at"] = peak
        reason = incident["suspects"][0]["reasons"][0]
        reason.update(metric="error_rate", observed=0.99, source=None, destination=None)
        reason["text"] = "error rate 99%, expected below 0.1%, since 01:15 UTC"
        reason["since"] = incident["since"]

    one = look(ALERTED, move_peak)
    assert f"peak at {peak[11:19]} UTC" in one.text("#chips")
    why = one.page.locator("#cards .suspect .why").first
    one.until(lambda: why.inner_text().endswith("% at this moment"), "the value of the moment")
    assert why.inner_text().startswith("error rate 99%, expected below 0.1%; "), (
        "the card has the time of the beginning"
    )
