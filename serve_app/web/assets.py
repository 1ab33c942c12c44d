"""The page's files, compressed once. All but the page itself have a path with a digest of them all: browsers keep them
for good, and a new version is a new path."""

import mimetypes
import zlib
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from pathlib import Path

FOLDER = Path(__file__).parent / "static"
GZIP = 16 + zlib.MAX_WBITS  # zlib's word for the form
# Nothing from elsewhere, nothing inline, no frames: the page shows names that strangers chose.
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
FOR_GOOD = {"x-content-type-options": "nosniff", "cache-control": "public, max-age=31536000, immutable"}
PLACE = "@files@"  # in the page, where the path of the files goes
HEAD = "</head>"


@dataclass(frozen=True, slots=True)
class File:
    """A file as it is sent: compressed (gzip), with its media type."""

    zipped: bytes
    media_type: str

    @property
    def plain(self) -> bytes:
        """For who does not take gzip."""
        return zlib.decompress(self.zipped, GZIP)


@cache
def files() -> tuple[str, dict[str, File]]:
    """Their digest, and the files by name (``main.js``, ``vendor/sigma.min.js``)."""
    found = {path.relative_to(FOLDER).as_posix(): path.read_bytes() for path in sorted(FOLDER.rglob("*.*"))}
    digest = blake2b(digest_size=8)
    for name, content in found.items():
        digest.update(name.encode() + b"\0" + content)
    return digest.hexdigest(), {name: File(_zipped(content), _media_type(name)) for name, content in found.items()}


@cache
def page(*added: str, root: str = "") -> File:
    """The page.

    Args:
        added: tags that go into its head, such as those of the demo's script and style.
        root: of the service, as seen from the page: it may be below a path of somebody's proxy.
    """
    digest, found = files()
    text = found["index.html"].plain.decode().replace(PLACE, f"{root}static/{digest}")
    return File(_zipped(text.replace(HEAD, "".join(added) + HEAD).encode()), "text/html; charset=utf-8")


def _zipped(content: bytes) -> bytes:
    return zlib.compress(content, 9, GZIP)


def _media_type(name: str) -> str:
    kind = "text/javascript" if name.endswith(".js") else mimetypes.guess_type(name)[0] or "text/plain"
    return f"{kind}; charset=utf-8" if kind.startswith("text/") else kind
