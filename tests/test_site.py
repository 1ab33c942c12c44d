"""The site of docs/: the pages that are written from the code, and links out of docs/.

``make docs`` builds the site, and MkDocs checks every link and that the navigation names every page. The rest is
checked here.
"""

import itertools
import re
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from docs.site.links import on_page_markdown
from docs.site.reference import REFERENCE, pages
from serve_app.cli import app
from serve_app.metrics import METRICS
from serve_app.settings import Settings, sources
from tests.site_pages import ROOT, site_pages

DOCS = ROOT / "docs"
CONFIG = (ROOT / "mkdocs.yml").read_text("utf-8")


def test_the_home_page_leads_to_each_page() -> None:
    """Directly, except decisions: their index does."""
    home = (DOCS / "index.md").read_text("utf-8")
    pages = [page.relative_to(DOCS).as_posix() for page in site_pages() if page.name[0] not in "0"]
    assert [page for page in pages if page != "index.md" and f"({page})" not in home] == []


@pytest.mark.parametrize("name", sorted(pages()))
def test_a_reference_page_is_what_the_code_gives(name: str) -> None:
    """After a change of the code, run `make reference`."""
    assert (REFERENCE / name).read_text("utf-8") == pages()[name]


def test_there_is_no_other_reference_page() -> None:
    assert sorted(page.name for page in REFERENCE.glob("*")) == sorted(pages())


def test_the_reference_has_each_setting_with_a_description() -> None:
    rows = re.findall(r"^\| `([^`]+)` \| (.*) \| (.*) \| (.*) \|$", pages()["settings.md"], re.MULTILINE)
    names = [name for name, *_ in rows]
    assert [name for name, times in Counter(names).items() if times > 1] == []
    assert {origin.name for origin in sources()} <= set(names) | set(Settings.model_fields)
    assert [row for row in rows if not all(row)] == []
    assert "`serve.port` | integer ≥ 0, ≤ 65,535 | `8000` | port to listen on" in pages()["settings.md"]


def test_the_reference_has_each_metric() -> None:
    text = pages()["metrics.md"]
    assert [metric.name for metric in METRICS if f"| `{metric.name}` |" not in text] == []
    boards = "".join(path.read_text("utf-8") for path in (ROOT / "deploy/grafana/dashboards").glob("*.json"))
    shown = {name.removeprefix("ray_") for name in re.findall(r"\b(?:ray_)?tagae_[a-z0-9_]+", boards)}
    known = set(re.findall(r"^\| `([a-z0-9_]+)`", text, re.MULTILINE))
    known |= {f"{name}_{part}" for name in known for part in ("bucket", "sum", "count")}
    assert len(shown) > 50
    assert sorted(shown - known) == []


def test_the_reference_has_each_command() -> None:
    text = pages()["commands.md"]
    groups = [(group.name, group.typer_instance) for group in app.registered_groups]
    assert len(re.findall(r"^## tagae", text, re.MULTILINE)) > 20
    assert [name for name, _ in groups if f"## tagae {name}\n" not in text] == []


def rewrite(source: str, markdown: str, repository: str = "") -> str:
    page: Any = SimpleNamespace(file=SimpleNamespace(src_uri=source))
    files: Any = None
    return on_page_markdown(markdown, page, SimpleNamespace(repo_url=repository), files)


@pytest.mark.parametrize(
    ("source", "markdown", "expected"),
    [
        ("a.md", "[b](b.md#c) [d](https://e.f)", "[b](b.md#c) [d](https://e.f)"),
        ("decisions/a.md", "[b](../api.md#names)", "[b](../api.md#names)"),
        ("a.md", "[the log](../CHANGELOG.md)", "the log (`CHANGELOG.md`)"),
        ("a.md", "[CHANGELOG.md](../CHANGELOG.md)", "CHANGELOG.md"),
        ("decisions/a.md", "[b](../../SECURITY.md#scope)", "b (`SECURITY.md`)"),
        ("decisions/a.md", "![b](../pictures/how.svg)", "![b](../pictures/how.svg)"),
        ("a.md", "```text\n[b](../no)\n```\n[b](../CHANGELOG.md)", "```text\n[b](../no)\n```\nb (`CHANGELOG.md`)"),
    ],
)
def test_links_out_of_docs_are_rewritten(source: str, markdown: str, expected: str) -> None:
    assert rewrite(source, markdown) == expected


def test_links_out_of_docs_lead_to_the_repository_if_its_address_is_known() -> None:
    written = rewrite("decisions/a.md", "[b](../../SECURITY.md#scope)", "https://code.example/tagae/")
    assert written == "[b](https://code.example/tagae/blob/main/SECURITY.md#scope)"


def test_a_link_to_a_missing_file_fails() -> None:
    with pytest.raises(ValueError, match=r"a\.md: expected a file of the repository, got \.\./no; correct the link"):
        rewrite("a.md", "[b](../no)")


def test_a_warning_fails_the_site_and_it_loads_nothing_from_other_hosts() -> None:
    assert "\nstrict: true\n" in CONFIG
    assert "\n  font: false\n" in CONFIG
    assert not re.search(r"https?://", CONFIG)


@pytest.mark.parametrize("page", site_pages(), ids=lambda page: page.relative_to(DOCS).as_posix())
def test_a_list_or_table_begins_after_an_empty_line(page: Path) -> None:
    """GitHub needs none, MkDocs shows the lines as one paragraph without it."""
    text = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    lines = ["", *text.splitlines()]
    is_item = re.compile(r"[-*] |\d+\. |\|").match
    wrong = [
        line
        for before, line in itertools.pairwise(lines)
        if is_item(line) and before and not is_item(before) and not before.startswith(" ")
    ]
    assert wrong == []
