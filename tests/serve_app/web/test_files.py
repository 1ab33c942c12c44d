"""The page's files: all that they refer to is there, nothing comes from elsewhere, and it is little."""

import gzip
import re
from pathlib import PurePosixPath

import pytest

from serve_app.web.assets import FOLDER, HEADERS, PLACEHOLDER, files, page

DIGEST, FILES = files()
SCRIPTS = sorted(name for name in FILES if name.endswith(".js") and not name.startswith("vendor/"))
OURS = sorted(name for name in FILES if not name.startswith("vendor/"))
ELSEWHERE = re.compile(r"""https?:(?!//www\.w3\.org/)|wss?:|["'(`]//""")
IMPORT = re.compile(r"""(?:^\s*(?:import|export)\b[^;]*?\bfrom\s*|\bimport\s*\(?\s*)["']([^"']+)["']""", re.MULTILINE)
MOST_BYTES = 300_000  # of the page and all that it loads, compressed


def text(name: str) -> str:
    return FILES[name].plain.decode()


def find_referred_files() -> list[str]:
    """The files that the page names."""
    return [
        name.removeprefix(f"static/{DIGEST}/") for name in re.findall(r'(?:href|src)="([^"#]+)"', page().plain.decode())
    ]


def find_modules(script: str) -> set[str]:
    """The modules that a module loads, itself and theirs included."""
    found, waiting = set[str](), [script]
    while waiting:
        name = waiting.pop()
        found.add(name)
        for path in IMPORT.findall(text(name)):
            assert path.startswith("./"), f"{name}: {path}"
            target = PurePosixPath(name).parent.joinpath(path).as_posix()
            assert target in FILES, f"{name} imports {path}"
            waiting += [] if target in found else [target]
    return found


def test_the_page_names_files_that_are_there_and_nothing_else() -> None:
    html = page().plain.decode()
    assert PLACEHOLDER not in html
    named = re.findall(r'(?:href|src)="([^"#]+)"', html)
    assert all(name.startswith(f"static/{DIGEST}/") for name in named), "relative: a proxy may serve it below a path"
    assert f'href="../static/{DIGEST}/style.css"' in page(root="../").plain.decode()
    assert set(find_referred_files()) <= FILES.keys()
    assert {"main.js", "style.css", "vendor/sigma.min.js"} <= set(find_referred_files())


def test_every_import_leads_to_a_module_of_ours_and_the_page_preloads_them_all() -> None:
    loaded = find_modules("main.js")
    assert loaded == set(SCRIPTS), "a module that is never loaded, or one that is missing"
    assert loaded == {name for name in find_referred_files() if name.endswith(".js") and not name.startswith("vendor/")}


def test_every_name_that_is_imported_is_exported() -> None:
    for script in SCRIPTS:
        for names, path in re.findall(r'import \{([^}]+)\} from "\./([^"]+)"', text(script)):
            exported = set(re.findall(r"export (?:async )?(?:function|class|const|let) (\w+)", text(path)))
            wanted = {name.split(" as ")[0].strip() for name in names.split(",")}
            assert wanted <= exported, (script, path)


@pytest.mark.parametrize("name", OURS)
def test_nothing_of_ours_mentions_a_place_elsewhere(name: str) -> None:
    assert ELSEWHERE.findall(text(name)) == []


def test_nothing_is_inline() -> None:
    """The policy would forbid it, and the page would be broken without a word."""
    html = page().plain.decode()
    assert "unsafe" not in HEADERS["content-security-policy"]
    assert not re.search(r"<style|\sstyle=|\son\w+=|javascript:", html)
    assert all(body == "" for body in re.findall(r"<script[^>]*>([^<]*)</script>", html))
    assert not any(re.search(r"\beval\(|new Function\(|innerHTML\s*=[^=]", text(name)) for name in SCRIPTS)
    assert not re.search(r"@import|url\((?!data:)", text("style.css"))


def test_it_is_little() -> None:
    assert all(gzip.decompress(file.zipped) == file.plain for file in FILES.values())
    assert len(page().zipped) + sum(len(FILES[name].zipped) for name in set(find_referred_files())) < MOST_BYTES


def test_what_others_wrote_has_its_licence() -> None:
    vendored = {PurePosixPath(name) for name in FILES if name.startswith("vendor/")}
    libraries = {path.name.split(".")[0] for path in vendored}
    assert {"sigma", "graphology", "uplot"} <= libraries
    for library in libraries:
        licence = text(f"vendor/{library}.LICENSE.txt")
        assert re.search(r"copyright", licence, re.IGNORECASE), library
        assert "Permission is hereby granted" in licence, library


def test_media_types_are_those_that_browsers_insist_on() -> None:
    assert {FILES[name].media_type for name in FILES if name.endswith(".js")} == {"text/javascript; charset=utf-8"}
    assert FILES["style.css"].media_type == "text/css; charset=utf-8"
    assert FILES["icon.svg"].media_type == "image/svg+xml"
    assert page().media_type == "text/html; charset=utf-8"


def test_tags_are_added_to_the_head() -> None:
    added = page('<script src="/demo/x.js"></script>').plain.decode()
    assert added.replace('<script src="/demo/x.js"></script>', "") == page().plain.decode()
    assert added.index("/demo/x.js") < added.index("</head>")


def test_all_files_of_the_folder_are_known() -> None:
    assert {path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("*") if path.is_file()} == FILES.keys()
