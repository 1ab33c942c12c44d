"""Drift on the page: not known at first, advice with its command, stale telemetry."""

from datetime import UTC, datetime

from lab.simulator.mesh.topology import MeshSpec
from serve_app.api.schemas.drift import ConstantDocument, DataQualityDocument, DriftAdviceDocument, DriftDocument
from tests.page.browsing import IN_BROWSER, Tab
from tests.serve_app.running import record_simulation

pytestmark = IN_BROWSER

TEXT = "the latencies of at least 61% of the services are unlike training's since Tue 3 Mar, 12:00 UTC"
COMMAND = "tagae train weights.safetensors --recording FOLDER"
CONSTANT = [ConstantDocument(service=name, metric="active_connections") for name in ("shop/pay", "shop/web")]
DRIFTED = DriftDocument(
    judged_until=datetime(2026, 3, 4, tzinfo=UTC),
    days=6,
    advice=[
        DriftAdviceDocument(
            reference="training",
            subject="latencies",
            text=TEXT,
            command=COMMAND,
            purpose="if this is to stay, train weights",
            since=datetime(2026, 3, 3, 12, tzinfo=UTC),
        )
    ],
    measures=[],
    quality=DataQualityDocument(missing=[], stale=["shop/cart"], constant=CONSTANT),
)
PUSHED = {"shop": record_simulation(MeshSpec(services=30, seed=3), 14)}


def row(one: Tab, name: str) -> tuple[str, str]:
    """Return the text of a row, and its class; empty if there is none."""
    rows: list[list[str]] = one.page.evaluate(
        "() => [...document.querySelectorAll('#facts div')].map((div) =>"
        " [div.querySelector('dt').textContent, div.querySelector('dd').textContent, div.className])"
    )
    return next(((text, looks) for found, text, looks in rows if found == name), ("", ""))


def test_the_drift_of_a_young_mesh_is_not_known(one: Tab) -> None:
    one.open("/#mesh=shop")
    text, _ = one.until(lambda: (found := row(one, "drift"))[0] and found, "the drift")
    assert text.startswith("not known yet")
    assert one.text("#detector-title") == "Detector: fine"
    assert not one.page.is_visible("#facts"), "it is one line"


def test_advice_names_what_drifts_and_the_command(one: Tab) -> None:
    document = DRIFTED.model_dump_json()
    one.page.route("**/shop/drift", lambda route: route.fulfill(body=document, content_type="application/json"))
    one.open("/#mesh=shop")
    text, looks = one.until(lambda: (found := row(one, "drift"))[0] and found, "the drift")
    assert text == f"{TEXT}. If this is to stay, train weights: {COMMAND}"
    assert looks == "unclear"
    assert row(one, "stale telemetry") == ("nothing changes at shop/cart", "wrong")
    assert row(one, "constant telemetry") == ("2 metrics never change, such as active connections of shop/pay", "")
    problems = one.page.locator("#faults li").all_inner_texts()
    assert [text.split(":")[0] for text in problems] == ["Stale telemetry", "Drift"], "the most urgent first"
    one.assert_accessible()
