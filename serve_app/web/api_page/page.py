"""The page: routes by subject, each with its parameters, answers and examples."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from html import escape
from typing import Any

from serve_app.web.api_page.client_methods import Method, call_of, constructor, methods
from serve_app.web.api_page.examples import curl, value_of
from serve_app.web.api_page.markup import documents, prose, table, type_of
from serve_app.web.assets import File, render

TEMPLATE = "docs.html"
ENDLESS = "stream"  # the operation whose answer does not end
SUBJECTS = (  # the first that matches the path
    ("snapshots", "Snapshots in, verdicts out", r".*/(snapshots|baseline|metrics|verdict|verdicts|stream)|/v1/score"),
    ("incidents", "Incidents and reports", r".*/(incidents|report)\b.*"),
    ("feedback", "Feedback and mutes", r".*/(feedback|mutes)\b.*"),
    ("meshes", "Meshes and their history", r"/v1/meshes.*"),
    ("models", "Models", r"/v1/models?\b.*"),
    ("health", "Health of the service", r".*"),
)
SERVICE_METRICS = "/metrics"  # of the service, not of a mesh


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation of the OpenAPI document."""

    method: str
    path: str
    about: Mapping[str, Any]

    @property
    def id(self) -> str:
        """The id of the operation, which is also its anchor."""
        found: str = self.about["operationId"]
        return found

    @property
    def subject(self) -> str:
        """The id of its subject."""
        if self.path == SERVICE_METRICS:
            return SUBJECTS[-1][0]
        return next(name for name, _, pattern in SUBJECTS if re.fullmatch(pattern, self.path))


def api_page(openapi: Mapping[str, Any]) -> File:
    """The reference of an API.

    Args:
        openapi: the OpenAPI document.
    """
    schemas = openapi["components"]["schemas"]
    all_of_them = [
        Operation(method.upper(), path, about)
        for path, methods_of_it in openapi["paths"].items()
        for method, about in methods_of_it.items()
    ]
    groups = {name: [one for one in all_of_them if one.subject == name] for name, *_ in SUBJECTS}
    return render(
        TEMPLATE,
        version=escape(openapi["info"]["version"]),
        contents="".join(_contents(name, title, groups[name]) for name, title, _ in SUBJECTS),
        routes="".join(_group(name, title, groups[name], schemas) for name, title, _ in SUBJECTS),
        constructor=_method(constructor()),
        client="".join(map(_method, methods())),
        documents=documents(schemas),
    )


def _contents(name: str, title: str, operations: list[Operation]) -> str:
    links = "".join(
        f'<li><a href="#{one.id}"><b>{one.method}</b> {escape(_short(one.path))}</a></li>' for one in operations
    )
    return f'<li><a href="#about-{name}">{title}</a><ul>{links}</ul></li>'


def _short(path: str) -> str:
    """A path without what all paths of a mesh have in common."""
    return path.removeprefix("/v1/meshes/{mesh}") or path


def _group(name: str, title: str, operations: list[Operation], schemas: Mapping[str, Any]) -> str:
    routes = "".join(_route(one, schemas) for one in operations)
    return f'<section aria-labelledby="about-{name}"><h2 id="about-{name}">{title}</h2>{routes}</section>'


def _route(one: Operation, schemas: Mapping[str, Any]) -> str:
    sends = one.method == "GET" and one.id != ENDLESS
    send = '<button type="button" class="send">Send</button>' if sends else ""
    call = call_of(one.id, one.method, one.path)
    python = f'<p>Python: <a href="#client-{call}"><code>client.{call}</code></a></p>' if call else ""
    return (
        f'<article id="{one.id}" data-method="{one.method}" data-path="{escape(one.path)}">'
        f'<h3><b class="{one.method.lower()}">{one.method}</b> <code>{escape(one.path)}</code></h3>'
        f"<p>{prose(one.about['description'])}</p>"
        f"{_parameters(one)}{_body(one)}"
        f'<div class="command"><pre tabindex="0" aria-label="Example of {one.id}"><code>'
        f"{curl(one.method, one.path, one.about, schemas)}</code></pre>"
        f'<button type="button" class="copy">Copy</button>{send}</div>'
        f'<div class="answer" role="status"></div>{python}{_answers(one)}</article>'
    )


def _parameters(one: Operation) -> str:
    rows = (
        (
            f'<label for="{one.id}-{parameter["name"]}"><code>{escape(parameter["name"])}</code></label>'
            f"{'' if parameter.get('required') else ' (optional)'}",
            f'<input id="{one.id}-{parameter["name"]}" name="{parameter["name"]}" data-in="{parameter["in"]}" '
            f'value="{escape(value_of(parameter))}"{_choices(parameter)} autocomplete="off" spellcheck="false">',
            prose(parameter.get("description") or parameter["schema"].get("description", "")),
        )
        for parameter in one.about.get("parameters", ())
    )
    return table(("parameter", "value", "meaning"), rows)


def _choices(parameter: Mapping[str, Any]) -> str:
    return ' list="known-meshes"' if parameter["name"] == "mesh" else ""


def _body(one: Operation) -> str:
    content = one.about.get("requestBody", {}).get("content", {})
    forms = (f"<code>{media_type}</code>: {type_of(form['schema'])}" for media_type, form in content.items())
    text = "; ".join(forms)
    return f"<p>Body: {text}</p>" if text else ""


def _answers(one: Operation) -> str:
    rows = (
        (status, _content(answer) or "no content", "" if status < "400" else prose(answer["description"]))
        for status, answer in sorted(one.about["responses"].items())
    )
    return f"<details><summary>Answers</summary>{table(('status', 'content', 'codes'), rows)}</details>"


def _content(answer: Mapping[str, Any]) -> str:
    return "; ".join(_forms(answer.get("content", {})))


def _forms(content: Mapping[str, Any]) -> Iterator[str]:
    for media_type, form in content.items():
        yield type_of(form.get("schema", {})) if "json" in media_type else f"<code>{media_type}</code>"


def _method(one: Method) -> str:
    paragraphs = "".join(f"<p>{prose(text)}</p>" for text in one.text.split("\n\n"))
    return (
        f'<article id="client-{one.name}"><h3><code>{one.name}{escape(one.signature)}</code></h3>{paragraphs}</article>'
    )
