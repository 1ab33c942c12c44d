"""The page's files, compressed once. All paths but the page's own contain a digest of all files, so that browsers can
cache them permanently; a new version has new paths.

Browsers accept Brotli over HTTPS and from this machine, else only gzip. Brotli makes these files a seventh smaller."""

import mimetypes
import re
import zlib
from dataclasses import dataclass
from functools import cache, lru_cache
from hashlib import blake2b
from html import escape
from pathlib import Path

import pyarrow as pa

from serve_app.web.numbers import page_numbers

FOLDER = Path(__file__).parent / "static"
GZIP = 16 + zlib.MAX_WBITS  # selects gzip in zlib
BROTLI = pa.Codec("brotli", compression_level=11)
MAX_BROTLI_BYTES = 1_000_000  # in a file: Brotli takes three seconds for Swagger UI, and every start would wait for it
# Nothing from other hosts, nothing inline, no frames: the page shows names from other systems.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",
}
CACHE_PERMANENTLY = {"x-content-type-options": "nosniff", "cache-control": "public, max-age=31536000, immutable"}
PLACEHOLDER = "@files@"  # in templates: the path of the files
ROOT = "@root@"  # in templates: the path of the service
IMPORT = re.compile(r'^import .*? from "\./([^"]+)";$', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class File:
    """A compressed file. ``brotli``: None above ``MAX_BROTLI_BYTES``."""

    gzip: bytes
    media_type: str
    brotli: bytes | None = None

    @property
    def plain(self) -> bytes:
        """Return the content for clients that accept no compression."""
        return zlib.decompress(self.gzip, GZIP)


@cache
def files() -> tuple[str, dict[str, File]]:
    """Return the digest of all files, and the files by name (``main.js``, ``vendor/uplot.min.js``)."""
    digest, contents = _contents()
    return digest, {name: _compress(content, _media_type(name)) for name, content in contents.items()}


def find_file(path: str) -> File | None:
    """Return the file at a path below the service (``/static/DIGEST/main.js``); None if there is none."""
    folder = f"/static/{_contents()[0]}/"
    return files()[1].get(path.removeprefix(folder)) if path.startswith(folder) else None


@cache
def page(*tags: str, root: str = "") -> File:
    """Return the page.

    Args:
        tags: for its head, such as the demo's script and style.
        root: path of the service relative to the page, which may be below a proxy's path.
    """
    links = "\n".join(f'<link rel="modulepreload" href="{PLACEHOLDER}/{name}">' for name in _modules("main.js"))
    return render("index.html", root, numbers=escape(page_numbers()), preloads=links, added="".join(tags))


@cache
def api_reference() -> File:
    return render("docs.html")


@lru_cache(maxsize=16)  # addresses can have any depth
def waiting_page(root: str, *, is_starting: bool) -> File:
    """Return the page that browsers get while the service does not answer; ``root`` as in :func:`page`."""
    head, story = (
        ("TAGAE is starting", "This takes up to a minute and a half.")
        if is_starting
        else ("TAGAE does not answer", "It is restarting or overloaded.")
    )
    return render("waiting.html", root, head=head, story=story)


def render(name: str, root: str = "", **places: str) -> File:
    """Return a page from a template, with HTML in its ``places`` (``@place@``); ``root`` as in :func:`page`."""
    digest, contents = _contents()
    text = contents[name].decode()
    for place, content in places.items():
        text = text.replace(f"@{place}@", content)
    text = text.replace(PLACEHOLDER, f"{root}static/{digest}").replace(ROOT, root)
    return _compress(text.encode(), "text/html; charset=utf-8")


def _modules(script: str) -> list[str]:
    """Return the modules that a script loads, also indirectly, so that a browser can request all at once."""
    _, contents = _contents()
    modules, queue = set[str](), [script]
    while queue:
        imports = set(IMPORT.findall(contents[queue.pop()].decode())) - modules
        modules |= imports
        queue += imports
    return sorted(modules)


@cache
def _contents() -> tuple[str, dict[str, bytes]]:
    contents = {path.relative_to(FOLDER).as_posix(): path.read_bytes() for path in sorted(FOLDER.rglob("*.*"))}
    digest = blake2b(digest_size=8)
    for name, content in contents.items():
        digest.update(name.encode() + b"\0" + content)
    return digest.hexdigest(), contents


def _compress(content: bytes, media_type: str) -> File:
    brotli = BROTLI.compress(content, asbytes=True) if len(content) <= MAX_BROTLI_BYTES else None
    return File(zlib.compress(content, 9, GZIP), media_type, brotli)


def _media_type(name: str) -> str:
    kind = "text/javascript" if name.endswith(".js") else mimetypes.guess_type(name)[0] or "text/plain"
    return f"{kind}; charset=utf-8" if kind.startswith("text/") else kind
