"""The timeline: gaps, ranges beyond the live window, past moments, earlier days, before and after a deploy."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from model.snapshot import MeshSnapshot, PlannedChange
from serve_app.web.history import instant
from tests.page.browsing import IN_BROWSER, REFUSED, Tab, tab
from tests.page.meshes import ALERTED, ERRORS_FROM, FAILING, SNAPSHOTS
from tests.page.serving import push_all, serve
from tests.timing import PATIENCE_SECONDS

pytestmark = IN_BROWSER

OVER = 90  # snapshots, after which the incident of the errors is over
DEPLOYED = ERRORS_FROM - 1
GAP = range(55, 62)  # missing snapshots of the newest day
FORTNIGHT_AGO, WEEK_AGO, YESTERDAY, NOW = (timedelta(days=days) for days in (-7, 0, 6, 7))
PLOT = "#plot .u-over"


def on(day: timedelta, snapshots: Sequence[MeshSnapshot]) -> list[MeshSnapshot]:
    """Return the snapshots on a day, with a deploy of the service that fails next."""
    change = PlannedChange("deploy", FAILING, "v2")
    return [
        replace(one, observed_at=one.observed_at + day, changes=(change,) if i == DEPLOYED else ())
        for i, one in enumerate(snapshots)
    ]


def at(day: timedelta, index: int) -> str:
    return instant(SNAPSHOTS[index].observed_at + day)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A mesh whose service failed last week and yesterday, and fails now; only that is in the live window."""
    with serve(tmp_path_factory.mktemp("timeline"), {"model.window_size": 60}) as url:
        push_all(url, "shop", on(WEEK_AGO, SNAPSHOTS[:OVER]))
        push_all(url, "shop", on(YESTERDAY, SNAPSHOTS[:OVER]))
        newest = on(NOW, SNAPSHOTS[: ALERTED + 1])
        push_all(url, "shop", [one for i, one in enumerate(newest) if i not in GAP])
        push_all(url, "old", on(FORTNIGHT_AGO, SNAPSHOTS[:OVER]))
        push_all(url, "old", newest[:60])
        push_all(url, "over", on(NOW, SNAPSHOTS[:OVER]))
        for day in (4, 5, 6, 7):
            push_all(url, "days", on(timedelta(days=day), SNAPSHOTS[:30]))
        yield url


def open_mesh(one: Tab, view: str = "") -> None:
    one.open(f"/#mesh=shop{view}")
    one.until(lambda: one.text("#moment"), "the timeline")


def press_range(one: Tab, name: str) -> None:
    one.page.click(f"#ranges button:text-is('{name}')")


def incidents_of(one: Tab) -> list[str]:
    texts: list[str] = one.page.locator("#past button").all_inner_texts()
    return texts


def test_lines_leave_a_gap_where_snapshots_are_missing(one: Tab) -> None:
    open_mesh(one, f"&service={FAILING}")
    one.until(lambda: "1 gap without data" in one.text("#moment"), "the timeline tells the gap")
    line = one.page.locator("#panel .chart path.observed").first
    line.wait_for(state="attached")
    runs = [[float(point.split()[0]) for point in run.split("L")] for run in line.get_attribute("d").split("M")[1:]]
    assert len(runs) >= 2
    steps = [after - before for run in runs for before, after in pairwise(run)]
    assert max(steps) < 2 * min(steps), "no line crosses the gap"


def test_a_range_shows_older_incidents_and_how_coarse_it_is(one: Tab) -> None:
    open_mesh(one)
    assert len(incidents_of(one)) == 1
    press_range(one, "24 h")
    one.until(lambda: "1 point = " in one.text("#moment"), "the range")
    assert "range=24h" in one.page.url
    assert one.page.get_attribute("#ranges [aria-pressed='true']", "data-key") == "range 24h"
    one.until(lambda: len(incidents_of(one)) == 2, "yesterday's incident is listed")
    press_range(one, "30 d")
    one.until(lambda: len(incidents_of(one)) == 3, "the incident of last week is shown, too")
    assert "complete from" in one.text("#moment")
    assert all(FAILING in text for text in incidents_of(one))
    one.page.keyboard.press("Escape")
    one.until(lambda: len(incidents_of(one)) == 1, "Esc returns to the live window")
    assert "range=" not in one.page.url


def test_a_drag_zooms_and_the_link_keeps_the_period(one: Tab) -> None:
    open_mesh(one, "&range=7d")
    one.until(lambda: "1 point = " in one.text("#moment"), "the range")
    one.page.locator(PLOT).scroll_into_view_if_needed()
    box = one.page.locator(PLOT).bounding_box()
    y = box["y"] + box["height"] / 2
    one.page.mouse.move(box["x"] + 0.8 * box["width"], y)
    one.page.mouse.down()
    one.page.mouse.move(box["x"] + 0.9 * box["width"], y, steps=5)
    one.page.mouse.up()
    one.until(lambda: "~" in one.page.url or "%7E" in one.page.url, "the address has the period")
    one.until(
        lambda: "1 point = 2 min" in one.text("#moment") or "1 point = 60 s" in one.text("#moment"), "it is finer"
    )
    shown, link = one.text("#moment"), one.page.url
    one.page.goto("about:blank")
    one.page.goto(link)
    one.until(lambda: one.text("#moment") == shown, "the link shows the same period")


def test_many_presses_send_few_requests(one: Tab) -> None:
    open_mesh(one)
    sent: list[str] = []
    one.page.on("request", lambda request: sent.append(request.url) if "/range?" in request.url else None)
    one.page.evaluate("() => document.querySelectorAll('#ranges button').forEach((button) => button.click())")
    one.until(lambda: "range=90d" in one.page.url and "complete from" in one.text("#moment"), "the last one is shown")
    assert len(sent) <= 2, sent


def test_a_moment_of_the_archive_has_its_graph_and_its_panel(one: Tab) -> None:
    open_mesh(one, "&range=24h")
    one.until(lambda: len(incidents_of(one)) == 2, "yesterday's incident")
    one.page.locator("#past button").last.click()
    one.until(lambda: "archive, 1-minute means" in one.text("#mesh-graph .stale-label"), "the graph says what it shows")
    assert "archive, 1-minute means" in one.text("#time .stale-label")
    day = at(YESTERDAY, ERRORS_FROM)[:10]
    one.until(
        lambda: one.text("#headline").startswith(f"At {day}") and FAILING in one.text("#headline"), "what was wrong"
    )
    assert f"showing {day}" in one.text("#moment")
    assert not one.page.locator("#cards .chart").count(), "their series are of now"
    one.page.keyboard.press("1")
    one.until(lambda: f"At {day}" in one.text("#panel") and "of them failed" in one.text("#panel"), "the panel of then")
    assert one.page.locator("#panel .chart").count() >= 4
    assert "caller" in one.text("#panel")
    link = one.page.url
    one.page.click("#live")
    one.until(lambda: "archive" not in one.text("#mesh-graph .stale-label"), "back to now")
    one.page.goto("about:blank")
    one.page.goto(link)
    one.until(lambda: "archive, 1-minute means" in one.text("#mesh-graph .stale-label"), "a link leads there")


def test_an_incident_of_the_window_that_is_over_is_shown_open_from_a_longer_range_too(one: Tab) -> None:
    one.open("/#mesh=over&range=24h")
    one.until(lambda: any(FAILING in text for text in incidents_of(one)), "the incident")
    one.page.locator(f"#past button:has-text('{FAILING}')").click()
    one.until(lambda: FAILING in one.text("#headline"), "what was wrong")
    assert "was open until" not in one.text("#notes")


def test_an_incident_within_ten_minutes_of_the_archive_is_shown(one: Tab) -> None:
    """Rows older than a week cover ten minutes, and an incident begins after its row does."""
    assert ERRORS_FROM % 10, "it begins within a row"
    one.open("/#mesh=old&range=30d")
    one.until(lambda: any(FAILING in text for text in incidents_of(one)), "the incident of a fortnight ago")
    one.page.locator(f"#past button:has-text('{FAILING}')").click()
    one.until(
        lambda: "archive, 10-minute means" in one.text("#mesh-graph .stale-label"), "the graph says what it shows"
    )
    one.until(lambda: FAILING in one.text("#headline"), "what was wrong")
    assert "expired" not in one.text("#notes")


def test_a_date_leads_to_its_moment(one: Tab) -> None:
    open_mesh(one)
    one.page.fill("#jump", at(WEEK_AGO, 60)[:16])
    one.page.keyboard.press("Tab")
    one.until(lambda: "archive, 1-minute means" in one.text("#mesh-graph .stale-label"), "the archive")
    one.until(lambda: one.text("#headline").startswith(f"At {at(WEEK_AGO, 60)[:10]}"), "of this time")


def test_a_moment_without_data_says_so(browser: Any, base: str) -> None:
    with tab(browser, base) as one:
        open_mesh(one, f"&at={at(WEEK_AGO, 0)[:4]}-01-01T00:00:00Z".replace("2026", "2020"))
        one.until(lambda: "is no longer kept; showing live data" in one.text("#notes"), "why it shows live data")
        one.assert_clean(REFUSED)


def test_the_usual_range_of_earlier_days_is_drawn(one: Tab) -> None:
    one.open(f"/#mesh=days&service={FAILING}&range=1h")
    one.until(lambda: "usually" in one.text("#panel"), "the band")
    assert one.page.locator("#panel path.usual").first.get_attribute("d")


def test_an_incident_is_shaded_in_the_charts_of_a_range(one: Tab) -> None:
    open_mesh(one, f"&service={FAILING}&range=1h")
    one.until(lambda: one.page.locator("#panel rect.incident").count(), "the incident")
    assert float(one.page.locator("#panel rect.incident").first.get_attribute("width") or 0) > 0


@pytest.mark.parametrize("status", ["normal", "anomalous"])
def test_a_planned_change_after_which_the_mesh_stays_normal_had_no_effect(one: Tab, status: str) -> None:
    def answer(route: Any) -> None:
        timeline = route.fetch().json()
        seconds = [datetime.fromisoformat(at).timestamp() for at in timeline["observed_at"]]
        recent = [i for i, at in enumerate(seconds) if seconds[-1] - at < 300]
        if recent:
            change = {"at": timeline["observed_at"][recent[0]], "kind": "deploy", "service": FAILING, "reason": "v2"}
            timeline["status"][recent[0] :] = [status] * len(recent)
            timeline["changes"] = [change]
        route.fulfill(json=timeline)

    one.page.route("**/meshes/shop/timeline*", answer)
    open_mesh(one)
    one.until(lambda: f"deploy of {FAILING} (v2)" in one.text("#planned-title"), "the change")
    assert one.text("#planned-title").endswith(": no effect seen") == (status == "normal")


def test_a_deploy_opens_before_and_after(one: Tab) -> None:
    open_mesh(one)
    one.page.click("#planned summary")
    one.page.locator("#changes button", has_text="deploy of").click()
    one.until(lambda: "Before and after the deploy of" in one.text("#comparison"), "the title")
    one.until(lambda: "rose from" in one.text("#comparison .sentence"), "what is different")
    sentence = one.text("#comparison .sentence").lower()
    assert re.match(r"only \d+ min of data before and \d+ min of data after the change\. ", sentence), sentence
    assert f"error rate of {FAILING} rose from" in sentence
    head = one.page.locator("#comparison tbody tr").first.inner_text()
    assert head.startswith(FAILING)
    assert "▲" in head
    assert one.page.locator("#comparison tbody tr", has_text="→").count() >= 1, "calls to it"
    link = one.page.url
    one.page.goto("about:blank")
    one.page.goto(link)
    one.until(lambda: "rose from" in one.text("#comparison"), "the link shows the same")
    one.page.keyboard.press("c")
    one.until(lambda: not one.page.is_visible("#comparison"), "it closes")


def test_a_deploy_is_compared_from_the_list_the_card_and_the_panel(one: Tab) -> None:
    open_mesh(one, f"&service={FAILING}")
    one.page.click("#planned summary")
    one.page.locator("#changes button").first.click()
    one.until(lambda: one.page.is_visible("#comparison .sentence"), "from the list below the plot")
    for place in ("#panel a:text-is('before and after')", "#cards a:text-is('Before and after')"):
        one.page.keyboard.press("c")
        one.until(lambda: not one.page.is_visible("#comparison"), "it closes")
        if place.startswith("#cards"):
            one.page.click("#panel-close")
        one.page.locator(place).first.click()
        one.until(lambda: one.page.is_visible("#comparison .sentence"), place)


def test_a_range_that_fails_says_why_and_can_be_repeated(browser: Any, base: str) -> None:
    with tab(browser, base) as one:
        open_mesh(one)
        one.page.route("**/range?*", lambda route: route.fulfill(status=503, json={"detail": "overloaded; try again"}))
        press_range(one, "24 h")
        one.until(lambda: "This range could not be loaded: overloaded" in one.text("#range-state"), "why")
        one.page.unroute("**/range?*")
        one.page.click("#range-state button")
        one.until(lambda: "1 point = " in one.text("#moment"), "the range")
        one.assert_clean(REFUSED)


def test_a_stale_panel_says_since_when(browser: Any, base: str) -> None:
    quick = [
        replace(one, observed_at=SNAPSHOTS[0].observed_at + i * timedelta(seconds=1))
        for i, one in enumerate(SNAPSHOTS[:30])
    ]
    push_all(base, "stale", quick)
    with tab(browser, base) as one:
        one.open(f"/#mesh=stale&service={FAILING}")
        one.until(lambda: "Stale since " in one.text("#panel"), "the panel does not say Now")
        assert "Now," not in one.text("#panel")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_accessible(browser: Any, base: str, scheme: str, width: int) -> None:
    deploy = SNAPSHOTS[DEPLOYED].observed_at + YESTERDAY
    before, after = (
        f"{instant(deploy + timedelta(minutes=a))}~{instant(deploy + timedelta(minutes=b))}"
        for a, b in ((-30, -1), (0, 15))
    )
    views = {
        "&range=7d": "#past button",
        f"&at={at(YESTERDAY, ERRORS_FROM + 2)}&service={FAILING}": "#panel .chart",
        f"&service={FAILING}&range=6h": "#panel path.usual",
        f"&range=24h&focus={FAILING}&first={before}&second={after}": "#comparison .sentence",
    }
    with tab(browser, base, color_scheme=scheme, viewport={"width": width, "height": 844}) as one:
        for view, shown in views.items():
            one.page.goto("about:blank")
            open_mesh(one, view)
            one.page.wait_for_selector(shown, state="attached", timeout=1000 * PATIENCE_SECONDS)
            one.assert_clean()
            one.assert_accessible()
            one.complaints.clear()  # of axe, which the policy of the page stops
