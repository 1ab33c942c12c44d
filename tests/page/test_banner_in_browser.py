"""The banner: chips for severity, harm and age, the cause, what to do, and a line for each other incident."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from serve_app.web.history import instant
from tests.page.browsing import IN_BROWSER, Tab, tab
from tests.page.meshes import ALERTED, BEFORE, FAILING, LEAKING, RECOVERING, SNAPSHOTS

pytestmark = IN_BROWSER

PHONE, LAPTOP, DESK = {"width": 390, "height": 844}, {"width": 1280, "height": 720}, {"width": 1440, "height": 900}
LONG = "a-very-long-namespace-of-a-platform-team/a-service-whose-name-hardly-fits-on-the-screen-of-a-phone"
SEVERITIES = ("critical", "major", "minor")
PUSHED = {"shop": SNAPSHOTS[: RECOVERING + 1]}


@pytest.fixture
def look(browser: Any, base: str) -> Iterator[Callable[..., Tab]]:
    """A function that opens the page at a snapshot, with a verdict that was changed on its way to the browser."""
    opened: list[Any] = []

    def at(
        index: int,
        change: Callable[[dict[str, Any]], None],
        viewport: dict[str, int] = LAPTOP,
        answer_map: Callable[[Any], None] | None = None,
    ) -> Tab:
        def answer(route: Any) -> None:
            verdict = route.fetch().json()
            change(verdict)
            route.fulfill(json=verdict)

        context = tab(browser, base, viewport=viewport)
        one = context.__enter__()
        opened.append((context, one))
        one.page.route("**/v1/meshes/shop/verdict?at=*", answer)
        # The service does not know the incidents that a test adds.
        one.page.route("**/v1/meshes/shop/incidents/other-*", lambda route: route.fulfill(json={"actions": []}))
        if answer_map:
            one.page.route("**/v1/meshes/shop/map?*", answer_map)
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
def test_on_a_phone_it_has_severity_age_and_the_whole_sentence(
    look: Callable[..., Tab], index: int, change: Callable[[dict[str, Any]], None]
) -> None:
    one = look(index, change, PHONE)
    hidden = one.page.evaluate(
        "() => (({ scrollHeight, clientHeight }) => scrollHeight - clientHeight)(document.getElementById('headline'))"
    )
    assert hidden <= 1, "pixels of the sentence"
    assert one.page.is_visible("#chips") == (index != BEFORE)
    assert height(one) < 0.75 * PHONE["height"]
    one.assert_accessible()


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
    assert {name: len(found) for name, found in looks.items()} == dict.fromkeys(looks, len(SEVERITIES))


def test_every_other_incident_has_a_line_that_selects_it(look: Callable[..., Tab]) -> None:
    one = look(ALERTED, others(3))
    assert one.page.locator("#others a").count() == 3
    one.page.locator("#others a").nth(1).click()
    one.until(lambda: f"{LONG}-1" in one.text("#headline"), "it is in the banner")
    assert one.page.locator("#others a").count() == 3, "the first one is among the others now"
    assert one.text("#chips li:first-child") == "Minor"


def test_graph_and_first_suspect_are_above_the_fold_with_three_incidents(look: Callable[..., Tab]) -> None:
    one = look(ALERTED, others(2), DESK)
    bottoms = one.page.evaluate(
        "() => ['#verdict', '#stage', '#cards .suspect .why'].map((one) => document.querySelector(one))"
        ".map((one) => one.getBoundingClientRect().bottom)"
    )
    assert max(bottoms) < DESK["height"], bottoms
    tops = one.page.evaluate(
        "() => ['verdict', 'mesh-graph', 'time'].map((id) => document.getElementById(id).offsetTop)"
    )
    assert tops == sorted(set(tops)), "the timeline is below the graph"


def test_only_the_incident_in_the_banner_has_a_card(look: Callable[..., Tab]) -> None:
    one = look(ALERTED, others(2))
    assert one.page.locator("#cards .card").count() == 1
    assert FAILING in one.text("#cards .suspect .name")
    one.page.locator("#others a").first.click()
    one.until(lambda: f"{LONG}-0" in one.text("#headline"), "the other one is in view")
    assert one.page.locator("#cards .card").count() == 1


def test_what_calls_share_is_the_headline_where_it_explains_more(look: Callable[..., Tab]) -> None:
    shared: dict[str, Any] = {
        "verb": "fail",
        "groups": [{"calls": "calls out of namespace maps", "bad": 31, "total": 31, "others_bad": 2, "others": 480}],
        "fact": "31 of 31 calls out of namespace maps fail, and 2 of 480 others",
        "next_step": "Check DNS and egress of namespace maps first.",
        "service": "",
    }

    def answer(route: Any) -> None:
        found = route.fetch().json()
        (incident, *_) = found["in_common"]
        route.fulfill(json={**found, "in_common": {incident: shared}})

    one = look(ALERTED, advise, LAPTOP, answer)
    one.until(lambda: shared["fact"] in one.text("#headline"), "the fact is the headline")
    assert f"Reported as: {FAILING}" in one.text("#notes"), "what the alert says"
    assert one.text("#next-step") == f"What to do: {shared['next_step']}"
    assert one.text("#commands code") == "kubectl -n maps get networkpolicies,pods -o wide"
    (row,) = one.page.locator("#cards .in-common tbody tr").all_inner_texts()
    assert [cell.strip() for cell in row.split("\t")] == ["calls out of namespace maps", "31 of 31", "2 of 480"]
    one.assert_accessible()


def test_a_command_belongs_to_what_to_do(look: Callable[..., Tab]) -> None:
    namespace, name = FAILING.split("/")
    for step, command in (
        (STEP, f"kubectl -n {namespace} logs deployment/{name} --since=30m"),
        (f"Roll back v1.4.2 of {FAILING}: it is slow.", f"kubectl -n {namespace} rollout undo deployment/{name}"),
        (f"Bring {FAILING} back: it gets no requests.", f"kubectl -n {namespace} get deployments,pods,events"),
        (f"Limit the retries of {FAILING}: it sends.", f"kubectl -n {namespace} logs deployment/{name} --since=30m"),
        (f"Scale {FAILING} out: it gets 3 times.", f"kubectl -n {namespace} get deployments,horizontalpodautoscalers"),
        (f"Correct the routing of the calls from {FAILING}: .", f"kubectl -n {namespace} get services,endpointslices"),
        (f"Look at the network, the node and the proxy of {FAILING}: .", f"kubectl -n {namespace} get pods -o wide"),
        (f"Find what uses the CPU of {FAILING} or of its host: .", f"kubectl -n {namespace} top pods --containers"),
        (f"Do something about {FAILING}: it is odd.", None),
    ):
        one = look(ALERTED, lambda verdict, step=step: verdict["incidents"][0].update(next_step=step))
        assert one.page.locator("#commands code").all_inner_texts() == ([command] if command else [])


def test_a_name_that_is_more_than_a_name_is_no_part_of_a_command(look: Callable[..., Tab]) -> None:
    commands = look(ALERTED, nothing).page.evaluate(
        """async () => {
            const path = document.querySelector("script[src*='/main.js']").src.replace("main.js", "command.js"),
                { kubectl } = await import(path);
            return ["shop/cart", "shop/cart; reboot", "shop/$(id)", "-n/cart"].map((one) => kubectl(one, "Look at"));
        }"""
    )
    assert commands == ["kubectl -n shop logs deployment/cart --since=30m", None, None, None]


def colour(one: Tab, selector: str, name: str) -> str:
    found: str = one.page.evaluate(f"() => getComputedStyle(document.querySelector('{selector}')).{name}")
    return found


STEP = "Look at shop/cart itself: its callees answer as usual, and no deploy of it is near, so roll nothing back yet."
CHANGE = {"at": "2026-01-01T01:11:00Z", "kind": "deploy", "reason": "v1.4.2", "text": "began 4 min after deploy"}


def advise(verdict: dict[str, Any]) -> None:
    verdict["incidents"][0].update(next_step=STEP, trend="worsening")


def test_it_says_what_to_do_below_the_cause(look: Callable[..., Tab]) -> None:
    one = look(ALERTED, advise)
    assert one.text("#next-step") == f"What to do: {STEP}"
    tops = one.page.evaluate(
        "() => ['chips', 'headline', 'next-step'].map((id) => document.getElementById(id).offsetTop)"
    )
    assert tops == sorted(set(tops))
    assert "worsening" in one.text("#chips")
    assert STEP not in one.text("#cards"), "each fact once"
    one.assert_accessible()


@pytest.mark.parametrize("is_suspect", [True, False])
def test_only_a_deploy_of_a_suspect_may_be_the_cause(look: Callable[..., Tab], is_suspect: bool) -> None:
    service = FAILING if is_suspect else "shop/elsewhere"
    one = look(ALERTED, lambda verdict: verdict["incidents"][0].update(changes=[{**CHANGE, "service": service}]))
    assert one.page.locator("#cards .why.planned").count() == int(is_suspect)
    assert CHANGE["text"] in one.text("#cards"), "as the service puts it"


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


def fact(metric: str, observed: float, text: str, **more: Any) -> dict[str, Any]:
    reason = {"metric": metric, "observed": observed, "expected": 0.1, "since": "2026-01-01T01:15:00Z", "text": text}
    return {**reason, "source": None, "destination": None, "load": 1.0, "forecast": None, **more}


def test_the_card_begins_with_the_facts_of_the_title_and_folds_the_others(look: Callable[..., Tab]) -> None:
    slow = [fact(metric, 0.6, f"{metric} is high") for metric in ("p99_latency", "p50_latency", "own_time")]
    cpu, limit = {"seconds": 360, "soonest_seconds": 60, "latest_seconds": None}, "memory reaches its limit"
    full = [fact("cpu_utilization", 0.9, "CPU is busy"), fact("memory_utilization", 0.8, limit, forecast=cpu)]

    def leak(verdict: dict[str, Any]) -> None:
        incident = verdict["incidents"][0]
        incident["kind"] = "resources"
        incident["suspects"][0].update(reasons=[*slow, full[0]], context=full[1:])

    one = look(ALERTED, leak)
    facts = one.page.locator("#cards .suspect >> nth=0 >> p.why")
    texts = lambda: [text.split(";")[0] for text in facts.all_inner_texts()]  # noqa: E731
    one.until(lambda: one.page.locator("#cards .suspect >> nth=0 >> .why + .chart").count(), "the chart")
    assert texts()[:3] == [limit, "CPU is busy", "p99_latency is high"]
    assert one.page.locator("#cards p.why:has-text('reaches its limit') + .chart").count() == 1, "of the first fact"
    assert "own_time is high" not in one.text("#cards")
    one.page.get_by_role("button", name="2 more facts").click()
    assert {"p50_latency is high", "own_time is high"} < set(texts())
    one.page.get_by_role("button", name="Less").first.click()
    assert "own_time is high" not in one.text("#cards")
    one.assert_accessible()


def test_the_card_folds_the_suspects_after_the_third(look: Callable[..., Tab]) -> None:
    names = [FAILING, *(name for name in SNAPSHOTS[-1].node_ids if name != FAILING)][:5]

    def suspect(verdict: dict[str, Any]) -> None:
        incident = verdict["incidents"][0]
        incident["suspects"] = [{**incident["suspects"][0], "service": name, "score": 0.2} for name in names]
        incident.update(origins=[FAILING], caller=None, title=FAILING)

    one = look(ALERTED, suspect)
    shown = one.page.locator("#cards .suspect .name")
    assert shown.count() == 3
    one.page.get_by_role("button", name="2 more suspects").click()
    assert shown.count() == 5
    one.assert_accessible()


def test_separate_faults_have_the_order_of_the_title(look: Callable[..., Tab]) -> None:
    def separate(verdict: dict[str, Any]) -> None:
        incident = verdict["incidents"][0]
        first = incident["suspects"][0]
        incident["suspects"] = [{**first, "service": LEAKING, "score": 0.6}, {**first, "score": 0.4}]
        incident.update(origins=[FAILING, LEAKING], title=f"{FAILING} and {LEAKING}", caller=None)

    one = look(ALERTED, separate)
    names = one.page.locator("#cards .suspect .name").all_inner_texts()
    assert [FAILING in names[0], LEAKING in names[1]] == [True, True], names
    assert ["fault 1 of 2" in names[0], "fault 2 of 2" in names[1]] == [True, True], names
    one.page.keyboard.press("1")
    one.until(lambda: one.text("#panel-title") == FAILING, "the key means the first of the card")


def test_a_calm_banner_says_what_silent_services_mean(look: Callable[..., Tab]) -> None:
    names = ["shop/a", "shop/b", "shop/c", "shop/d"]
    silence = {"services": 5, "total": 60, "since": "2026-01-01T01:10:00Z", "names": names}
    one = look(BEFORE, lambda verdict: verdict.update(silence=silence))
    assert one.text("#headline").endswith("No incident, as far as 55 of 60 services show")
    silent = "No telemetry from 5 of 60 services. Silent since 01:10 UTC: shop/a, shop/b, shop/c and 2 more."
    assert one.text("#story") == silent
    assert "No telemetry" not in one.text("#notes"), "each fact once"
    one.assert_accessible()
