"""An incident of each kind: the state, the headline, the culprit and its panel."""

import re

import pytest

from tests.page.browsing import IN_BROWSER, Tab
from tests.page.scenes import SCENES
from tests.page.serving import push_all

pytestmark = IN_BROWSER

SINCE = re.compile(r", since [0-9: -]+ UTC")
STATES = {"silent": "unknown", "recovering": "recovering"}  # by scene; all others are open incidents
WORDS = {  # of the headline, by scene
    "slow": "has been slow for",
    "failing": "is failing",
    "gone": "has disappeared",
    "retries": "times its usual calls",
    "flood": "times its usual calls",
    "leak": "leaks memory",
    "cpu": "uses more CPU",
    "rerouted": "are rerouted",
    "silent": "sends no telemetry, so its state is unknown",
    "crowd": "is failing",
    "recovering": " recovering; ",
}


@pytest.mark.parametrize("name", SCENES)
def test_state_headline_culprit_and_panel_agree(one: Tab, base: str, name: str) -> None:
    scene = SCENES[name]
    verdict = push_all(base, name, scene.snapshots())
    incident = next(found for found in verdict["incidents"] if found["severity"] != "notice")
    culprit = incident["suspects"][0]["service"]
    assert incident["kind"] == scene.expected
    assert culprit == scene.service

    one.page.goto(
        f"{base}/#mesh={name}&at={verdict['observed_at']}"
    )  # a moment, which stays the same for slow machines
    one.until(lambda: one.text("#moment").startswith("showing"), "the timeline")
    one.until(lambda: one.page.locator("#cards .suspect").count(), "the suspects")
    assert one.page.get_attribute("#verdict", "class").split()[0] == STATES.get(name, "incident")
    words = " ".join(map(one.text, ("#headline", "#story", "#notes")))
    assert WORDS[name] in words
    impact = incident["impact"]["text"]
    cause = incident["headline"].removesuffix(f" {impact}.").removesuffix(".")
    for part in re.split("; |: ", cause):
        assert part.lower() in words.lower(), "on a second line, or below what calls share"
    assert impact.split(",")[0] in one.text("#chips")
    assert ("no telemetry" in incident["headline"]) == ("Its telemetry stopped" in one.text("#notes"))
    assert one.page.locator("#cards .suspect .name").first.get_attribute("data-key").endswith(f" {culprit}")
    of_calls = f"likely origin the calls {incident['suspects'][0]['reasons'][0].get('source')} → {culprit}"
    one.until(
        lambda: any(
            words in (one.page.get_attribute("#canvas", "aria-label") or "")
            for words in (f"likely origin {culprit}", of_calls)
        ),
        "the graph",
    )
    one.page.keyboard.press("1")
    one.until(lambda: one.text("#panel-title") == culprit, "the panel of the culprit")
    one.until(lambda: "Suspect 1" in one.text("#panel"), "why it is a suspect")
    panel = one.text("#panel")
    for reason in incident["suspects"][0]["reasons"]:
        text, short = reason["text"], SINCE.sub("", reason["text"])  # the incident says since when
        assert text in panel or short in panel
    assert " caller" in one.text("#panel")
