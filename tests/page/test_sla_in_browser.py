"""The service level on the page: violated, unknown and fulfilled look different, in both modes."""

import json
import re
from dataclasses import replace

from lab.simulator.mesh.topology import MeshSpec
from serve_app.api.schemas.sla import sla_document
from serve_app.metrics import Objective, ObjectiveStatus, ServiceLevel, Violation
from tests.page.browsing import IN_BROWSER, Tab
from tests.serve_app.running import record_simulation

pytestmark = IN_BROWSER

KEPT = ServiceLevel(
    window_seconds=3600.0,
    known=1.0,
    reported_at=1_800_000_000.0,
    objectives=(
        Objective("p95", ObjectiveStatus.FULFILLED, 1.0, 0.12, 0.874),
        Objective("requests_per_second", ObjectiveStatus.NO_TARGET, 0.0, 4.0, None),
        Objective("error_rate", ObjectiveStatus.UNKNOWN, 0.01, None, None),
        Objective("availability", ObjectiveStatus.VIOLATED, 0.9999, 0.99989, -0.1, 1_800_000_000.0),
    ),
)
EARLY = replace(  # a service that began six minutes ago
    KEPT,
    known=0.1,
    objectives=(
        Objective("p95", ObjectiveStatus.VIOLATED, 1e-4, 0.02, -1.0, 1_800_000_000.0),
        Objective("p99", ObjectiveStatus.UNKNOWN, 50.0, 0.02, 1.0),
    ),
)
MISSED = replace(
    KEPT,
    objectives=(Objective("p95", ObjectiveStatus.VIOLATED, 1.0, 2.5, -0.5, 1_800_000_000.0),),
    violations=(
        Violation("p95", 1_800_000_000.0, None, 2.5, "slow_store"),
        *(Violation("p99", 1_700_000_000.0 - 1e6 * i, 1_700_000_120.0 - 1e6 * i, 4.0, "queue") for i in range(5)),
    ),
)
PUSHED = {"shop": record_simulation(MeshSpec(services=30, seed=3), 14)}


def row(one: Tab, name: str) -> tuple[str, str]:
    """Return the text of a row, and its class; empty if there is none."""
    rows: list[list[str]] = one.page.evaluate(
        "() => [...document.querySelectorAll('#facts div')].map((div) =>"
        " [div.querySelector('dt').textContent, div.querySelector('dd').textContent, div.className])"
    )
    return next(((text, looks) for found, text, looks in rows if found == name), ("", ""))


def test_targets_that_are_missed_and_not_known_are_shown(one: Tab) -> None:
    document = sla_document(EARLY).model_dump_json()
    one.page.route("**/v1/sla", lambda route: route.fulfill(body=document, content_type="application/json"))
    one.open("/#mesh=shop")
    missed = "95% of the verdicts within 0.1 ms"
    one.until(lambda: row(one, missed)[0].startswith("violated"), "the target that is missed")
    text, looks = row(one, missed)
    assert " UTC, " in text
    assert text.endswith("error budget overspent")
    assert looks == "wrong"
    text, looks = row(one, "99% of the verdicts within 50 s")
    assert re.match(r"not judged yet: 10% of the last 60 min is measured, ", text)
    assert looks == "", "there is nothing to do about it"
    assert one.text("#detector-title").endswith((" problem", " problems"))
    assert one.text("#faults li >> nth=0").startswith("95% of the verdicts within 0.1 ms: violated since ")
    one.open_detector()
    assert "fulfilled" not in one.text("#facts")
    one.until(lambda: not one.page.is_visible("#faults"), "the facts have the same")
    assert one.page.is_visible("#facts .wrong")
    one.assert_accessible()


def test_each_state_has_its_words_and_its_colour_in_both_modes(one: Tab) -> None:
    document = sla_document(KEPT).model_dump_json()
    one.page.route("**/v1/sla", lambda route: route.fulfill(body=document, content_type="application/json"))
    one.open("/#mesh=shop")
    kept = "95% of the verdicts within 1 s"
    one.until(lambda: row(one, kept)[0], "the service level")
    one.open_detector()
    assert row(one, kept) == ("fulfilled, 120 ms, 87% of the error budget left", "")
    assert row(one, "errors at most 1%") == ("unknown: too few requests in the last 60 min", "unclear")
    text, looks = row(one, "available at least 99.99%")
    assert text.startswith("violated since 2027-01-15 08:00 UTC, 99.98%, error budget overspent")
    assert looks == "wrong"
    assert "pushes" not in one.text("#facts")
    for _ in range(2):
        colours = [
            one.page.evaluate(f"() => getComputedStyle(document.querySelector('#facts {at} dd')).color")
            for at in (".wrong", ".unclear", "div:not([class])")
        ]
        assert len(set(colours)) == 3, colours
        one.assert_accessible()
        one.page.click("#theme")


def test_an_answer_that_does_not_come_is_unknown(one: Tab) -> None:
    problem = json.dumps({"detail": "no"})
    one.page.route("**/v1/sla", lambda route: route.fulfill(status=503, body=problem, content_type="application/json"))
    one.open("/#mesh=shop")
    one.until(lambda: row(one, "service level") == ("unknown: the service does not answer", "unclear"), "no answer")
    one.complaints.clear()  # the browser's own words about the 503


def test_violations_are_shown_with_duration_and_cause(one: Tab) -> None:
    document = sla_document(MISSED).model_dump_json()
    one.page.route("**/v1/sla", lambda route: route.fulfill(body=document, content_type="application/json"))
    one.open("/#mesh=shop")
    wanted = "95% of the verdicts within 1 s"
    one.until(lambda: row(one, wanted)[1] == "wrong", "the violation")
    text, looks = row(one, wanted)
    assert text.startswith("violated since 2027-01-15 08:00 UTC, the store was slow, 2.5 s")
    assert looks == "wrong"
    ended = "target missed: 99% of the verdicts"
    assert row(one, ended)[0] == "from 2023-11-14 22:13 UTC for 2 min, at worst 4 s, pushes waited for their turn"
    names = list(one.page.evaluate("() => [...document.querySelectorAll('#facts dt')].map((e) => e.textContent)"))
    assert names.count(ended) == 3, "the newest ones"
    one.assert_accessible()
