"""The reference of the API: complete, in step with the routes and the client, and with examples that run."""

import re
import shlex
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any

import httpx
import pytest

from serve_app.api.client import Client
from serve_app.deployments.http.ingress import http
from serve_app.web.api_page import api_page
from serve_app.web.api_page.client_methods import CALLS, methods
from serve_app.web.api_page.examples import ORIGIN
from serve_app.web.assets import HEADERS, PLACEHOLDER, files
from tests.serve_app.running import Service

OPENAPI = http.openapi()
HTML = api_page(OPENAPI).plain.decode()
OPERATIONS = {
    operation["operationId"]: (method.upper(), path)
    for path, methods_of_it in OPENAPI["paths"].items()
    for method, operation in methods_of_it.items()
}
ENDLESS = {"stream"}  # examples whose answer does not end
NEEDS_IDS = {  # examples with an id that this service does not have: incidents, mutes, models, saved views
    "accept", "compare_models", "delete_view", "incident", "lift", 
    "promote_model", "report", "roll_back", "roll_back_model", "take_back", "tell", "try_model",
}  # fmt: skip


class Articles(HTMLParser):
    """Collects the example of each route, and all anchors and links."""

    def __init__(self) -> None:
        super().__init__()
        self.examples: dict[str, str] = {}
        self.ids: list[str] = []
        self.links: set[str] = set()
        self._article, self._is_code = "", False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if name := given.get("id"):
            self.ids.append(name)
        if tag == "article" and "data-path" in given:
            self._article = given["id"] or ""
        self._is_code |= tag == "pre" and bool(self._article)
        if tag == "a" and (given.get("href") or "").startswith("#"):
            self.links.add((given["href"] or "")[1:])

    def handle_endtag(self, tag: str) -> None:
        self._is_code &= tag != "pre"
        if tag == "article":
            self._article = ""

    def handle_data(self, data: str) -> None:
        if self._is_code:
            self.examples[self._article] = self.examples.get(self._article, "") + data


@pytest.fixture(scope="module")
def articles() -> Articles:
    parser = Articles()
    parser.feed(HTML)
    return parser


def test_every_route_has_an_example_and_every_link_an_anchor(articles: Articles) -> None:
    assert articles.examples.keys() == OPERATIONS.keys()
    assert articles.links <= set(articles.ids)
    assert len(articles.ids) == len(set(articles.ids)), "an anchor is ambiguous"
    assert set(OPENAPI["components"]["schemas"]) <= set(articles.ids)
    assert PLACEHOLDER not in HTML
    assert not re.search(r"@[a-z]+@", HTML), "every place of the template is filled"


def test_the_client_is_documented_as_it_is(articles: Articles) -> None:
    names = {one.name for one in methods()}
    assert names == {name for name, member in vars(Client).items() if callable(member) and not name.startswith("_")}
    assert {f"client-{name}" for name in (*names, "Client")} <= set(articles.ids)
    assert set(CALLS.values()) <= names
    assert CALLS.keys() <= OPERATIONS.keys()
    assert "push(mesh: str, snapshot: MeshSnapshot) -&gt; VerdictDocument" in HTML
    assert all(one.text for one in methods())


def test_the_page_loads_only_its_own_files() -> None:
    loaded = re.findall(r'(?:src|href)="([^"#]+)"', HTML)
    digest, known = files()
    assert {one.removeprefix(f"static/{digest}/") for one in loaded} <= {*known, "./", "openapi.json"}
    assert not re.search(r"<style|\sstyle=|\son\w+=|javascript:", HTML)


def request_of(command: str, url: str) -> httpx.Request:
    """The request that a command of curl sends."""
    program, *words = shlex.split(command)
    assert program == "curl"
    (address,) = [word for word in words if word.startswith(ORIGIN)]
    headers = [words[i + 1].split(": ", 1) for i, word in enumerate(words) if word == "-H"]
    bodies = [words[i + 1] for i, word in enumerate(words) if word == "-d"]
    chosen = [words[i + 1] for i, word in enumerate(words) if word == "-X"]
    method = chosen[0] if chosen else "POST" if bodies else "GET"
    content = bodies[0].encode() if bodies else None
    return httpx.Request(method, address.replace(ORIGIN, url), headers=dict(headers), content=content)


@pytest.fixture(scope="module")
def example_mesh(service: Service) -> Iterator[None]:
    """The mesh of the examples, at their times."""
    for minute in range(18):
        document: dict[str, Any] = {
            "observed_at": f"2026-03-01T03:{minute:02}:00Z",
            "services": [
                {"namespace": "shop", "name": name, "metrics": {"request_rate": 40 + minute % 3, "p99_latency": 0.08}}
                for name in ("frontend", "cart")
            ],
            "calls": [{"source": "shop/frontend", "destination": "shop/cart", "requests_per_second": 40}],
        }
        if minute != 12:  # the time of the example
            assert service.http.post("/v1/meshes/shop/snapshots", json=document).status_code == 200
    yield
    service.http.delete("/v1/meshes/shop")


@pytest.mark.ray
@pytest.mark.timeout(240)
@pytest.mark.usefixtures("example_mesh")
def test_the_examples_run_and_the_page_is_served(service: Service, articles: Articles) -> None:
    answers: dict[str, int] = {}
    last = {"push", "baseline", "delete"}  # they change the mesh of the other examples
    for name in sorted(OPERATIONS, key=lambda name: (name == "delete", name in last, name)):
        if name in ENDLESS:
            continue
        request = request_of(articles.examples[name], service.url)
        assert (request.method, request.url.path.count("/")) == (OPERATIONS[name][0], OPERATIONS[name][1].count("/"))
        answers[name] = service.http.send(request).status_code
    assert {name: status for name, status in answers.items() if name not in NEEDS_IDS and status >= 300} == {
        "push": 409,  # its time is before the newest snapshot
    }
    # Whatever has an id of another service is well-formed all the same.
    assert {status for name, status in answers.items() if name in NEEDS_IDS} <= {200, 204, 404, 409}
    page = service.http.get("/docs")
    assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert page.headers["content-security-policy"] == HEADERS["content-security-policy"]
    assert page.text == HTML
