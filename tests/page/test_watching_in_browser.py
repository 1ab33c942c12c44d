"""Services that are watched, incidents of traffic, and several incidents at once, as the page shows them.

The service answers with its own verdict; a test adds to it what the detector finds only in rare cases.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from serve_app.web.history import instant
from tests.page.browsing import IN_BROWSER, REFUSED, Tab, tab
from tests.page.meshes import ALERTED, BEFORE, FAILING, LEAKING, SNAPSHOTS

pytestmark = IN_BROWSER

AT = instant(SNAPSHOTS[BEFORE].observed_at)
REASON = {
    "metric": "p99_latency",
    "source": None,
    "destination": None,
    "observed": 0.2,
    "expected": 0.08,
    "since": AT,
    "load": 1.0,
    "forecast": None,
    "text": "p99 latency 200 ms, expected 80 ms",
}
WATCHED: dict[str, Any] = {
    "service": LEAKING,
    "score": 4.9,
    "level": 5.8,
    "since": AT,
    "seen": 1,
    "needed": 3,
    "reasons": [REASON],
    "text": "alerts after 2 more snapshots like this",
}
PUSHED = {"shop": SNAPSHOTS[: ALERTED + 1]}


@pytest.fixture
def look(browser: Any, base: str) -> Iterator[Callable[..., Tab]]:
    """Open the page at a snapshot whose verdict a function changes."""
    with tab(browser, base) as opened:

        def at(index: int, change: Callable[[dict[str, Any]], None]) -> Tab:
            def answer(route: Any) -> None:
                response = route.fetch()
                verdict = response.json()
                change(verdict)
                route.fulfill(response=response, json=verdict)

            opened.page.route("**/v1/meshes/shop/verdict?at=*", answer)
            time = instant(SNAPSHOTS[index].observed_at)
            opened.open(f"/#mesh=shop&at={time}")
            opened.until(lambda: f"At {time[11:19]}" in opened.text("#headline"), "the verdict of then")
            opened.until(lambda: opened.page.locator("#front-door .chart").count(), "the traffic of users")
            return opened

        yield at
        opened.assert_clean(REFUSED)  # of incidents that a test added, the service knows nothing


def test_nothing_is_shown_if_nothing_is_watched(look: Callable[..., Tab]) -> None:
    one = look(BEFORE, lambda verdict: verdict.pop("watching"))  # as in a stored verdict of an earlier version
    assert not one.page.is_visible("#watching")


def test_a_watched_service_is_listed_without_an_alarm(look: Callable[..., Tab]) -> None:
    one = look(BEFORE, lambda verdict: verdict.update(watching=[WATCHED]))
    one.until(lambda: one.page.is_visible("#watching"), "the list")
    assert one.text("#watching-title") == "Watching"
    for text in (LEAKING, "p99 latency 200 ms, expected 80 ms", WATCHED["text"]):
        assert text in one.text("#watched")
    assert one.text("#headline").endswith("UTC: No incident yet")
    watching = f"Watching {LEAKING}: an alert follows if this lasts."
    assert one.text("#story") == f"{watching} P99 latency 200 ms, expected 80 ms."
    assert LEAKING not in one.page.title()
    assert (one.page.get_attribute("#verdict", "class") or "").split()[0] == "calm"
    colours = one.page.evaluate(
        "() => ['#watched li', '#front-door .affected'].map((name) => document.querySelector(name))"
        ".map((one) => getComputedStyle(one).color)"
    )
    assert colours[0] == colours[1], "the colour of any other remark"
    one.page.click("#watched button.name")
    one.until(lambda: f"service={LEAKING.replace('/', '%2F')}" in one.page.url, "the service is selected")


def test_each_incident_has_a_line_of_its_own(look: Callable[..., Tab]) -> None:
    def add(verdict: dict[str, Any]) -> None:
        other = {
            **verdict["incidents"][0],
            "id": "other",
            "headline": "shop/tax is slow: p99 latency 2 s, usually 1 s.",
        }
        verdict["incidents"] = [verdict["incidents"][0], other, {**other, "id": "third", "headline": "shop/web fails."}]

    one = look(ALERTED, add)
    assert FAILING in one.text("#headline")
    lines = [line.inner_text() for line in one.page.locator("#others a").all()]
    assert lines == ["shop/tax is slow: p99 latency 2 s, usually 1 s", "shop/web fails"]
    one.page.locator("#others a").first.click()
    one.until(lambda: "shop/tax is slow" in one.text("#headline"), "the other incident is in the banner")
    assert "incident=other" in one.page.url


def test_an_incident_of_traffic_is_about_its_scope(look: Callable[..., Tab]) -> None:
    headline = "Requests to the mesh fell from 3,400/s to 12/s since 03:12 UTC"

    def add(verdict: dict[str, Any]) -> None:
        verdict["incidents"][0].update(
            kind="traffic_lost", scope="*", title="requests to the mesh", headline=f"{headline}."
        )

    one = look(ALERTED, add)
    assert headline in one.text("#headline")
    assert one.text("#incidents-title") == "Entry points"


def test_a_cause_of_several_services_is_named_and_each_is_marked(look: Callable[..., Tab]) -> None:
    def add(verdict: dict[str, Any]) -> None:
        first = verdict["incidents"][0]["suspects"][0]["service"]
        verdict["incidents"][0].update(title="calls out of namespace shop", origins=[first, LEAKING])

    one = look(ALERTED, add)
    assert "Likely cause: calls out of namespace shop" in one.text("#cards")
    marked = one.page.locator("#canvas .service.first").all()
    assert {str(node.get_attribute("data-key")).removeprefix("service ") for node in marked} == {FAILING, LEAKING}


def test_an_incident_is_named_by_its_title(look: Callable[..., Tab]) -> None:
    one = look(BEFORE, lambda _: None)
    texts = one.page.evaluate(
        """async () => {
            const path = document.querySelector("script[src*='/main.js']").src.replace("main.js", "words.js"),
                { namedIncident } = await import(path);
            return [
                namedIncident({ title: "shop/cart" }),
                namedIncident({ title: "requests to the mesh", scope: "*" }),
                namedIncident({ title: "calls from shop/web to shop/cart", caller: "shop/web" }),
            ];
        }"""
    )
    assert texts == [
        "The incident at shop/cart",
        "The incident of the requests to the mesh",
        "The incident of the calls from shop/web to shop/cart",
    ]
