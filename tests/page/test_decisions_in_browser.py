"""What a person decides on the page: confirm, false alarm, culprit, mute; with who and why."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from serve_app.access import Scope, editing
from tests.page.browsing import IN_BROWSER, Tab, tab
from tests.page.meshes import INCIDENT
from tests.page.serving import push_all, serve

pytestmark = IN_BROWSER

PHONE = {"width": 390, "height": 844}


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tokens") / "tokens.toml"


@pytest.fixture(scope="module")
def tokens(file: Path) -> dict[str, str]:
    return {
        "alice": editing.create(file, "alice", [Scope.READ, Scope.WRITE]),
        "reader": editing.create(file, "reader", [Scope.READ]),
    }


@pytest.fixture(scope="module")
def service(file: Path, tokens: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serve(tmp_path_factory.mktemp("state"), {"serve.tokens_file": file}) as url:
        push_all(url, "shop", INCIDENT, token=tokens["alice"])
        yield url


def headers(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


@contextmanager
def signed_in(browser: Any, service: str, token: str, **options: Any) -> Iterator[Tab]:
    """The page of the mesh, with a cookie for this token."""
    with tab(browser, service, **options) as opened:
        assert opened.page.request.post(f"{service}/login", data={"token": token}).ok
        opened.open("/#mesh=shop")
        opened.until(lambda: opened.page.locator("#cards .card").count(), "the incident is listed")
        yield opened


def answer(opened: Tab, button: str, note: str) -> None:
    """Write the reason into the dialog, and send it."""
    opened.page.fill("#decision-note", note)
    opened.page.click(f"#decision-send:text-is('{button}')")


def has_title(opened: Tab, title: str) -> bool:
    return opened.text("#mutes-title") == title


def is_open(opened: Tab) -> bool:
    return bool(opened.page.locator("#decision[open]").count())


def read_stored(service: str, token: str, what: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = httpx.get(f"{service}/v1/meshes/shop/{what}", headers=headers(token)).json()[what]
    return found


def test_an_incident_is_confirmed_with_culprit_and_reason(browser: Any, service: str, tokens: dict[str, str]) -> None:
    with signed_in(browser, service, tokens["alice"]) as opened:
        page = opened.page
        first = page.locator("#cards .suspect .name").first
        culprit = first.get_attribute("data-key").split(" ")[-1]
        page.get_by_role("button", name="Confirm incident").click()
        assert page.locator("#decision select").input_value() == "", "nothing is suggested"
        page.keyboard.press("Escape")
        first.click()
        page.get_by_role("button", name="Confirm incident").click()
        assert page.locator("#decision select").input_value() == culprit
        answer(opened, "Confirm", "its disk was full")
        text = f"Confirmed by alice: {culprit}. Note: its disk was full"
        opened.until(lambda: text in opened.text("#cards"), "the page shows who and why")
        (kept,) = read_stored(service, tokens["alice"], "feedback")
        assert (kept["culprit"], kept["note"], kept["given_by"]) == (culprit, "its disk was full", "alice")
        page.get_by_role("button", name="Undo").click()
        page.get_by_role("button", name="False alarm").click()
        answer(opened, "Mark as false alarm", "")
        opened.until(lambda: "Marked as a false alarm by alice." in opened.text("#cards"), "it is a false alarm")
        page.get_by_role("button", name="Undo").click()
        page.get_by_role("button", name="Confirm incident").wait_for()
        assert read_stored(service, tokens["alice"], "feedback") == []
        assert opened.complaints == []


def test_a_mute_has_a_reason_and_is_removed(browser: Any, service: str, tokens: dict[str, str]) -> None:
    with signed_in(browser, service, tokens["alice"]) as opened:
        page = opened.page
        opened.open_menu()
        page.locator("#cards").get_by_role("button", name="Mute").click()
        page.select_option("#decision select[name=seconds]", "14400")
        answer(opened, "Mute", "   ")
        assert is_open(opened)
        opened.until(lambda: "reason" in opened.text("#decision-failed"), "the dialog shows the error of the service")
        answer(opened, "Mute", "database upgrade")
        opened.until(lambda: opened.text("#mutes-title") == "1 mute", "it is listed")
        assert "by alice: database upgrade" in opened.text("#mute-list")
        assert " UTC" in opened.text("#mute-list")
        (kept,) = read_stored(service, tokens["alice"], "mutes")
        assert (kept["given_by"], kept["reason"]) == ("alice", "database upgrade")
        assert kept["services"]
        page.click("#mute")
        page.select_option("#decision select[name=what]", label="the whole mesh")
        answer(opened, "Mute", "maintenance")
        opened.until(lambda: opened.text("#mutes-title") == "2 mutes", "both are listed")
        assert "The whole mesh" in opened.text("#mute-list")
        for left in ("1 mute", "No mutes"):
            page.get_by_role("button", name="Unmute").first.click()
            opened.until(partial(has_title, opened, left), f"{left} left")
        assert read_stored(service, tokens["alice"], "mutes") == []


def test_a_reader_sees_what_others_decided_and_no_buttons(browser: Any, service: str, tokens: dict[str, str]) -> None:
    end = INCIDENT[-1].observed_at.replace(month=1, day=20).isoformat()
    with httpx.Client(base_url=service, headers=headers(tokens["alice"])) as http:
        mute = http.post("/v1/meshes/shop/mutes", json={"end": end, "reason": "by hand"}).raise_for_status().json()
        with signed_in(browser, service, tokens["reader"]) as opened:
            opened.until(lambda: "by alice: by hand" in opened.text("#mute-list"), "the mute is listed")
            why = "Your token is read-only; feedback and mutes need the write scope."
            opened.until(lambda: why in opened.text("#cards"), "the page says why there are no buttons")
            assert opened.page.get_by_role("link", name="Report").count() == 1
            for name in ("Confirm incident", "False alarm", "More", "Mute", "Unmute"):
                assert opened.page.get_by_role("button", name=name, exact=True).count() == 0
        http.delete(f"/v1/meshes/shop/mutes/{mute['id']}").raise_for_status()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_dialog_works_by_keyboard_on_a_phone(
    browser: Any, service: str, tokens: dict[str, str], scheme: str
) -> None:
    with signed_in(browser, service, tokens["alice"], viewport=PHONE, color_scheme=scheme) as opened:
        page = opened.page
        opened.open_menu()
        button = page.locator("#cards").get_by_role("button", name="Mute")
        button.focus()
        page.keyboard.press("Enter")
        assert is_open(opened)
        assert page.evaluate("document.activeElement.closest('#decision') !== null"), "the focus is inside"
        box = page.locator("#decision").bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= PHONE["width"]
        opened.assert_accessible()
        page.keyboard.press("Escape")
        assert not is_open(opened)
        assert page.evaluate("document.activeElement.textContent") == "Mute", "the focus returns"
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]


def test_the_present_level_is_accepted_as_normal(browser: Any, service: str, tokens: dict[str, str]) -> None:
    push_all(service, "grown", INCIDENT, token=tokens["alice"])
    with signed_in(browser, service, tokens["alice"]) as opened:
        page = opened.page
        opened.open("/#mesh=grown")
        opened.open_menu()
        accept = page.locator("#cards").get_by_role("button", name="This is normal now")
        accept.first.click()
        about = "The present level becomes normal. The incident ends. You cannot undo this."
        assert opened.text("#decision-about") == about
        answer(opened, "Accept as normal", "the new release")
        said = "Accepted as normal by alice: the new release"
        opened.until(lambda: said in opened.text("#cards"), "the page says who accepted it")
        assert not accept.count()
        assert not is_open(opened)
    found = httpx.get(f"{service}/v1/meshes/grown/incidents", headers=headers(tokens["alice"])).json()["incidents"]
    (accepted,) = found[0]["actions"]
    assert (accepted["kind"], accepted["by"], accepted["text"]) == ("accept", "alice", "the new release")


def test_all_open_pages_show_what_a_person_does(browser: Any, service: str, tokens: dict[str, str]) -> None:
    """Through the stream, though no snapshot comes."""
    push_all(service, "shared", INCIDENT, token=tokens["alice"])
    hostile = "<img src=x onerror=alert(1)>"
    with (
        signed_in(browser, service, tokens["alice"]) as mine,
        signed_in(browser, service, tokens["reader"]) as other,
    ):
        other.page.add_init_script("window.setInterval = () => 0")  # it asks for nothing again: only the stream is left
        other.page.reload()
        for opened in (mine, other):
            opened.open("/#mesh=shared")
            opened.until(opened.page.locator("#cards .card").count, "the incident is listed")
        cards = mine.page.locator("#cards")
        cards.get_by_role("button", name="I'm on it").click()
        other.until(lambda: "UTC alice is on it" in other.text("#cards"), "the other page shows it")
        mine.until(lambda: not cards.get_by_role("button", name="I'm on it").count(), "the button has done its work")
        mine.open_menu()
        cards.get_by_role("button", name="Note", exact=True).click()
        answer(mine, "Add the note", hostile)
        other.until(lambda: f"Note by alice: {hostile}" in other.text("#cards"), "the note is text, and no markup")
        cards.get_by_role("button", name="What helped").click()
        answer(mine, "Save", "restarted it")
        other.until(lambda: "What helped, by alice: restarted it" in other.text("#cards"), "what helped is shown")
        assert not other.page.locator("#cards").get_by_role("button", name="Note", exact=True).count()
        mine.assert_accessible()
        mine.assert_clean()
        other.assert_clean()
