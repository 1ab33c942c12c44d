"""Saved views: who sees and changes them, what an address may be, and writers at the same time."""

import re
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from serve_app.api.schemas.saved_views import SavedViewDocument
from serve_app.errors import CorruptState, Forbidden, InvalidDocument, TooManySavedViews, UnknownSavedView
from serve_app.stores.base import SAVED_VIEWS
from serve_app.stores.state_store import StateStore
from serve_app.web.saved_views import FIELDS, SavedViews, check_address
from tests.serve_app.stores.local import local_store

LINKS = Path(__file__).parents[3] / "serve_app" / "web" / "static" / "link.js"
SHOP = frozenset({"shop"})


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StateStore]:
    with closing(local_store(tmp_path)) as opened:
        yield opened


@pytest.fixture
def views(store: StateStore) -> SavedViews:
    return SavedViews(store, 3)


def view(name: str, address: str = "mesh=shop", identity: str | None = None) -> SavedViewDocument:
    return SavedViewDocument(name=name, address=address, id=identity)


def names(views: SavedViews, meshes: frozenset[str] | None = None) -> list[str]:
    return [one.name for one in views.read(meshes).views]


def test_the_fields_are_those_of_the_page() -> None:
    (listed,) = re.findall(r"const FIELDS = \[(.*?)\]", LINKS.read_text(encoding="utf-8"), re.DOTALL)
    assert sorted(FIELDS) == sorted(re.findall(r'"(\w+)"', listed))


def test_views_are_listed_by_name_renamed_and_deleted(views: SavedViews, store: StateStore) -> None:
    first = views.save(view("web"), None, "ann")
    second = views.save(view(" Checkout ", "view=meshes&team=checkout"), None)
    assert names(views) == ["Checkout", "web"]
    assert (first.mesh, first.saved_by, second.mesh) == ("shop", "ann", None)
    again = views.save(view("the web", "mesh=shop&space=web", first.id), SHOP, "bob")
    assert (again.id, again.address, again.saved_by) == (first.id, "mesh=shop&space=web", "bob")
    assert names(views) == ["Checkout", "the web"]
    views.delete(first.id, SHOP)
    views.delete(second.id, None)
    assert names(views) == []
    assert store.read_document(SAVED_VIEWS) is None


def test_a_caller_with_some_meshes_sees_and_changes_the_views_of_these(views: SavedViews) -> None:
    shop, pay, everyone = (
        views.save(view(name, address), None)
        for name, address in (("shop", "mesh=shop"), ("pay", "mesh=pay"), ("all", "view=meshes"))
    )
    assert names(views, SHOP) == ["all", "shop"]
    with pytest.raises(UnknownSavedView):  # not even that it exists
        views.delete(pay.id, SHOP)
    for document in (view("mine", "mesh=pay"), view("mine", "view=meshes"), view("mine", "mesh=pay", shop.id)):
        with pytest.raises(Forbidden):
            views.save(document, SHOP)
    with pytest.raises(Forbidden):
        views.delete(everyone.id, SHOP)
    with pytest.raises(Forbidden):  # nor hidden in a mesh
        views.save(view("mine", "mesh=shop", everyone.id), SHOP)
    assert names(views) == ["all", "pay", "shop"]


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("", "expected fields"),
        ("mesh", "expected fields"),
        ("javascript:alert(1)", "expected fields"),
        ("//evil.example/", "expected fields"),
        ("https://evil.example/?mesh=shop", "expected the fields of a view"),
        ("mesh=shop&next=//evil.example", "got 'next'"),
        ("mesh=shop&mesh=pay", "each field once"),
        ("mesh=..%2Fadmin", "mesh"),
        ("mesh=", "mesh"),
        ("#mesh=shop", "expected the fields of a view"),
    ],
)
def test_only_addresses_of_the_page_are_saved(views: SavedViews, address: str, words: str) -> None:
    with pytest.raises(InvalidDocument, match=re.escape(words)) as caught:
        views.save(view("bad", address), None)
    assert caught.value.details["pointer"] == "/address"
    assert names(views) == []


def test_an_address_is_stored_in_one_form() -> None:
    address, mesh = check_address('mesh=shop&service=shop/"><script>&team=&at=2026-03-01T03:14:00Z')
    assert address == "mesh=shop&service=shop%2F%22%3E%3Cscript%3E&at=2026-03-01T03%3A14%3A00Z"
    assert mesh == "shop"
    assert check_address(address) == (address, mesh)


def test_their_number_is_limited(views: SavedViews) -> None:
    for i in range(3):
        kept = views.save(view(f"view {i}"), None)
    with pytest.raises(TooManySavedViews, match=r"limits\.max_saved_views"):
        views.save(view("one more"), None)
    views.save(view("renamed", identity=kept.id), None)
    assert names(views) == ["renamed", "view 0", "view 1"]


def test_an_unknown_view_is_neither_renamed_nor_deleted(views: SavedViews) -> None:
    with pytest.raises(UnknownSavedView):
        views.save(view("web", identity="0123"), None)
    with pytest.raises(UnknownSavedView):
        views.delete("0123", None)
    assert names(views) == []


def test_processes_that_save_at_the_same_time_keep_all_views(store: StateStore) -> None:
    writers, ready = 4, threading.Barrier(4)

    def save(number: int) -> None:
        ready.wait()
        SavedViews(store, 100).save(view(f"view {number}"), None)

    threads = [threading.Thread(target=save, args=(i,)) for i in range(writers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert names(SavedViews(store, 100)) == [f"view {i}" for i in range(writers)]


def test_views_of_another_version_are_kept(views: SavedViews, store: StateStore) -> None:
    store.write_document(SAVED_VIEWS, b'{"views": 7}', revision=0)
    with pytest.raises(CorruptState, match="saved views"):
        views.read(None)
    with pytest.raises(CorruptState):
        views.save(view("web"), None)
