"""Address and credentials of an external HTTP server."""

import re
import ssl
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from serve_app.errors import BadSettings

SECRET_HEADERS = frozenset({"authorization", "proxy-authorization", "cookie"})
HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")


class SecretUnreadable(Exception):
    """A secret file is missing, empty or not readable."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An external HTTP server.

    Attributes:
        url: the path of a webhook can contain a secret, so log only ``origin``.
        username, password_file: basic auth. Secret files are read again for each request, because secrets are rotated.
        bearer_token_file: bearer token, instead of basic auth.
        ca_file: CA bundle to use instead of the system store.
        headers: further headers for each request, as name and value, for example the tenant's.
        headers_file: file with more headers, one ``name: value`` per line.
        certificate_file, key_file: client certificate and its key (PEM); without a key file, the first one has both.
    """

    url: str
    _: KW_ONLY
    username: str = ""
    password_file: Path | None = None
    bearer_token_file: Path | None = None
    ca_file: Path | None = None
    headers: tuple[tuple[str, str], ...] = ()
    headers_file: Path | None = None
    certificate_file: Path | None = None
    key_file: Path | None = None

    @property
    def origin(self) -> str:
        """Scheme, host and port, such as ``https://alerts.example:9093``."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"

    def request_headers(self) -> dict[str, str]:
        """Return the configured headers, with ``Authorization`` if needed. Blocks while it reads the secret files.

        Raises:
            SecretUnreadable: if a secret cannot be read. The message names the file, never its content.
        """
        headers = dict(self.headers)
        if self.headers_file:
            headers |= read_headers(self.headers_file)
        if self.bearer_token_file:
            token = read_secret(self.bearer_token_file)
            if not token.isascii():
                raise SecretUnreadable(f"{self.bearer_token_file}: expected ASCII")
            headers["Authorization"] = f"Bearer {token}"
        elif self.username:
            password = read_secret(self.password_file) if self.password_file else ""
            headers["Authorization"] = basic_auth(self.username, password)
        return headers

    def ssl_context(self) -> ssl.SSLContext | bool:
        """Return the ``verify`` argument of httpx, with the client certificate.

        Raises:
            BadSettings: if the certificates or the key cannot be read.
        """
        if self.certificate_file is None:
            return ssl_context(self.ca_file)
        verify = ssl_context(self.ca_file)
        context = verify if isinstance(verify, ssl.SSLContext) else ssl.create_default_context()
        try:
            # Without a password here, OpenSSL would ask for an encrypted key's password on the terminal.
            context.load_cert_chain(self.certificate_file, self.key_file, password=lambda: "")
        except (OSError, ssl.SSLError) as error:
            raise BadSettings(
                f"certificate_file {self.certificate_file}: expected a certificate and its key in PEM, without a "
                f"password, got {error}"
            ) from None
        return context


def basic_auth(username: str, password: str) -> str:
    return f"Basic {b64encode(f'{username}:{password}'.encode()).decode()}"


def join_url(url: str, path: str) -> str:
    """Append ``path``, which begins with a slash, to a URL's path. Query parameters stay."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(path=parts.path.rstrip("/") + path))


def read_secret(file: Path) -> str:
    """Read a secret file of one line; surrounding white space is removed.

    Raises:
        SecretUnreadable: if it cannot be read. The message names the file, never its content.
    """
    text = _read_text(file).strip()
    if not text or not text.isprintable():
        raise SecretUnreadable(f"{file}: expected one line of text")
    return text


def read_headers(file: Path) -> dict[str, str]:
    """Read a secret file of headers, one ``name: value`` per line; empty lines and comments (``#``) are skipped.

    Raises:
        SecretUnreadable: if it cannot be read. The message names the file, never its content.
    """
    headers = {}
    for number, line in enumerate(_read_text(file).splitlines(), 1):
        name, colon, value = (part.strip() for part in line.partition(":"))
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if not (colon and HEADER_NAME.fullmatch(name) and value.isascii() and value.isprintable()):
            raise SecretUnreadable(f"{file}, line {number}: expected `name: value` in ASCII")
        headers[name] = value
    return headers


def _read_text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8-sig")  # Windows editors begin files with a byte order mark
    except (OSError, UnicodeDecodeError) as error:
        raise SecretUnreadable(f"cannot read {file}: {type(error).__name__}") from None


def check_headers(headers: Mapping[str, str]) -> None:
    """Check the names and values of literal headers.

    Raises:
        ValueError: if one cannot be sent, or contains a secret; the message says what was expected.
    """
    for name, value in headers.items():
        if not HEADER_NAME.fullmatch(name):
            raise ValueError(f"expected a header name, such as X-Scope-OrgID, got {name[:80]!r}")
        if not (value.isascii() and value.isprintable()) or value != value.strip():
            raise ValueError(f"{name}: expected printable ASCII without leading or trailing spaces")
        if name.lower() in SECRET_HEADERS:
            raise ValueError(
                f"{name}: expected no secret here; write the header into a file and name it in headers_file"
            )


def ssl_context(ca_file: Path | None) -> ssl.SSLContext | bool:
    """Return the ``verify`` argument of httpx: these certificates, or True for the system's.

    Raises:
        BadSettings: if they cannot be read.
    """
    if ca_file is None:
        return True
    try:
        return ssl.create_default_context(cafile=ca_file)
    except (OSError, ssl.SSLError) as error:
        raise BadSettings(f"ca_file {ca_file}: expected certificates in PEM, got {error}") from None


def check_url(url: str) -> str:
    """Return ``url`` if it is a valid HTTP URL without credentials.

    Raises:
        ValueError: if it is not; the message says what was expected.
    """
    parts = urlsplit(url)  # raises ValueError too
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0:
        raise ValueError("expected http://HOST[:PORT][/PATH] or https://...")
    if "@" in parts.netloc:
        raise ValueError("expected no password in the URL; give username and password_file")
    if not url.isprintable() or " " in url or parts.fragment:
        raise ValueError("expected a URL without spaces, control characters or a fragment")
    return url
