"""The page's files: all references exist, no file comes from another host, and the total is small."""

import gzip
import re
from pathlib import PurePosixPath

import pyarrow as pa
import pytest

from serve_app.web.assets import FOLDER, HEADERS, MAX_BROTLI_BYTES, PLACEHOLDER, api_reference, files, find_file, page

DIGEST, FILES = files()
SCRIPTS = sorted(name for name in FILES if name.endswith(".js") and not name.startswith("vendor/"))
OURS = sorted(name for name in FILES if not name.startswith("vendor/"))
# Commands to copy name this machine.
ELSEWHERE = re.compile(r"""https?:(?!//(?:www\.w3\.org/|127\.0\.0\.1:))|\bwss?:|["'(`]//""")
IMPORT = re.compile(r"""(?:^\s*(?:import|export)\b[^;]*?\bfrom\s*|\bimport\s*\(?\s*)["']([^"']+)["']""", re.MULTILINE)
MOST_BYTES = 170_000  # size of the page and all files that it loads, compressed with Brotli


def text(name: str) -> str:
    return FILES[name].plain.decode()


def find_referred_files() -> list[str]:
    """Return the files that the page names."""
    named = re.findall(r'(?:href|src)="([^"#]+)"', page().plain.decode())
    return [name.removeprefix(f"static/{DIGEST}/") for name in named if name.startswith("static/")]


def find_modules(script: str) -> set[str]:
    """Return a module and all modules that it loads, also indirectly."""
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


def test_the_reference_of_the_api_loads_only_files_of_the_service() -> None:
    html = api_reference().plain.decode()
    named = re.findall(r'(?:href|src)="([^"]+)"', html)
    assert {name.removeprefix(f"static/{DIGEST}/") for name in named} <= FILES.keys()
    assert not re.search(r"<style|\sstyle=|\son\w+=|<script[^>]*>[^<]", html), "the policy forbids inline scripts"


def test_the_page_names_only_existing_files() -> None:
    html = page().plain.decode()
    assert PLACEHOLDER not in html
    named = re.findall(r'(?:href|src)="([^"#]+)"', html)
    named.remove("docs")  # the reference of the API
    assert all(name.startswith(f"static/{DIGEST}/") for name in named), (
        "addresses are relative, because a proxy may serve the page below a path"
    )
    assert f'href="../static/{DIGEST}/style.css"' in page(root="../").plain.decode()
    assert set(find_referred_files()) <= FILES.keys()
    assert {"main.js", "style.css", "vendor/uplot.min.js"} <= set(find_referred_files())


def test_every_import_is_a_module_of_a_page_and_the_page_preloads_all() -> None:
    loaded = find_modules("main.js")
    others = set().union(*(find_modules(name) for name in ("docs.js", "waiting.js", "refused.js")))
    assert loaded | others == set(SCRIPTS), "a module is missing or is never loaded"
    assert loaded == {name for name in find_referred_files() if name.endswith(".js") and not name.startswith("vendor/")}


def test_every_name_that_is_imported_is_exported() -> None:
    for script in SCRIPTS:
        for names, path in re.findall(r'import \{([^}]+)\} from "\./([^"]+)"', text(script)):
            exported = set(re.findall(r"export (?:async )?(?:function|class|const|let) (\w+)", text(path)))
            wanted = {name.split(" as ")[0].strip() for name in names.split(",")}
            assert wanted <= exported, (script, path)


@pytest.mark.parametrize("name", OURS)
def test_no_file_of_the_page_mentions_another_host(name: str) -> None:
    assert ELSEWHERE.findall(text(name)) == []


def test_no_script_or_style_is_inline() -> None:
    """The policy would forbid it, and the page would not work."""
    html = page().plain.decode()
    assert "unsafe" not in HEADERS["content-security-policy"]
    assert not re.search(r"<style|\sstyle=|\son\w+=|javascript:", html)
    assert all(body == "" for body in re.findall(r"<script[^>]*>([^<]*)</script>", html))
    assert not any(re.search(r"\beval\(|new Function\(|innerHTML\s*=[^=]", text(name)) for name in SCRIPTS)
    assert not re.search(r"@import|url\((?!data:)", text("style.css"))


def test_both_compressed_forms_have_the_content_of_the_file() -> None:
    for name, file in FILES.items():
        content = (FOLDER / name).read_bytes()
        assert file.plain == content
        assert gzip.decompress(file.gzip) == content
        assert (file.brotli is None) == (len(content) > MAX_BROTLI_BYTES), name
        assert file.brotli is None or pa.decompress(file.brotli, len(content), codec="brotli", asbytes=True) == content


def test_the_page_is_small() -> None:
    sizes = [len(file.brotli or b"") for file in (page(), *(FILES[name] for name in set(find_referred_files())))]
    assert sum(sizes) < MOST_BYTES


def test_a_file_is_found_by_its_whole_path_only() -> None:
    assert find_file(f"/static/{DIGEST}/vendor/uplot.min.js") is FILES["vendor/uplot.min.js"]
    for path in (f"/static/{'0' * 16}/main.js", f"/static/{DIGEST}/", f"/static/{DIGEST}/../main.js", "main.js", "/"):
        assert find_file(path) is None, path


def test_the_page_starts_before_the_libraries() -> None:
    """Deferred scripts and modules run in the order of the document. The verdict needs no library."""
    scripts = re.findall(r'<script[^>]* src="[^"]*/([^"/]+)"', page().plain.decode())
    assert scripts[0] == "main.js"
    assert {"uplot.min.js"} <= set(scripts)


def test_files_of_libraries_have_their_licence() -> None:
    vendored = {PurePosixPath(name) for name in FILES if name.startswith("vendor/")}
    libraries = {path.name.split(".")[0].removesuffix("-bundle") for path in vendored}
    assert libraries == {"uplot", "swagger-ui"}
    for library in libraries:
        licence = text(f"vendor/{library}.LICENSE.txt")
        assert re.search(r"copyright", licence, re.IGNORECASE), library
        assert "Permission is hereby granted" in licence or "Apache License" in licence, library


def test_media_types_are_the_ones_that_browsers_require() -> None:
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
