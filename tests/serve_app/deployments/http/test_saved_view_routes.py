"""Saved views over HTTP: save, list, rename, delete, and what is refused."""

from collections.abc import Iterator

import pytest

from serve_app.api.client import Client
from serve_app.api.schemas.saved_views import SavedViewDocument
from tests.serve_app.running import Service, problem

pytestmark = [pytest.mark.ray, pytest.mark.timeout(180)]
PATH = "/v1/views"
CHECKOUT = {"name": "Checkout", "address": "mesh=shop&space=checkout"}


@pytest.fixture(autouse=True)
def delete_views(service: Service) -> Iterator[None]:
    """Other tests of this service may have saved some."""
    delete_all(service)
    yield
    delete_all(service)


def delete_all(service: Service) -> None:
    for view in service.http.get(PATH).json()["views"]:
        service.http.delete(f"{PATH}/{view['id']}").raise_for_status()


def test_a_view_is_saved_renamed_and_deleted(service: Service) -> None:
    assert service.http.get(PATH).json() == {"views": []}
    saved = service.http.post(PATH, json=CHECKOUT).json()
    assert (saved["name"], saved["address"], saved["mesh"]) == ("Checkout", CHECKOUT["address"], "shop")
    assert service.http.get(PATH).json() == {"views": [saved]}
    renamed = service.http.post(PATH, json={**CHECKOUT, "name": "Cart", "id": saved["id"]}).json()
    assert [one["name"] for one in service.http.get(PATH).json()["views"]] == ["Cart"]
    assert renamed["id"] == saved["id"]
    assert service.http.delete(f"{PATH}/{saved['id']}").status_code == 204
    assert service.http.get(PATH).json() == {"views": []}
    problem(service.http.delete(f"{PATH}/{saved['id']}"), 404, "unknown-saved-view")


def test_the_python_client_does_the_same(service: Service) -> None:
    with Client(service.url) as client:
        saved = client.save_view(SavedViewDocument(name="All meshes", address="view=meshes"))
        assert client.saved_views() == [saved]
        client.delete_view(saved.id)
        assert client.saved_views() == []


@pytest.mark.parametrize(
    ("changed", "pointer"),
    [
        ({"address": "https://evil.example/"}, "/address"),
        ({"address": "javascript:alert(1)"}, "/address"),
        ({"address": "mesh=shop&" + "service=x" * 300}, "/address"),
        ({"name": ""}, "/name"),
        ({"name": "two\nlines"}, "/name"),
        ({"name": "x" * 81}, "/name"),
        ({"url": "mesh=shop"}, "/url"),
    ],
)
def test_other_documents_are_refused(service: Service, changed: dict[str, str], pointer: str) -> None:
    problem(service.http.post(PATH, json={**CHECKOUT, **changed}), 422, "invalid-document", pointer)
    assert service.http.get(PATH).json() == {"views": []}
