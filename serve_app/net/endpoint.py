"""Address and credentials of an external HTTP server."""

import re
import ssl
from base64 import b64encode
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from serve_app.errors import BadSettings

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
        ca_file: certificates to trust instead of the system's.
    """

    url: str
    username: str = ""
    password_file: Path | None = None
    bearer_token_file: Path | None = None
    ca_file: Path | None = None

    @property
    def origin(self) -> str:
        """Scheme, host and port, such as ``https://alerts.example:9093``."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"

    def auth_headers(self) -> dict[str, str]:
        """The ``Authorization`` header, if one is needed. Blocks while it reads the secret files.

        Raises:
            SecretUnreadable: if a secret cannot be read. The message names the file, never its content.
        """
        if self.bearer_token_file:
            token = read_secret(self.bearer_token_file)
            if not token.isascii():
                raise SecretUnreadable(f"expected ASCII in {self.bearer_token_file}")
            return {"Authorization": f"Bearer {token}"}
        if self.username:
            password = read_secret(self.password_file) if self.password_file else ""
            return {"Authorization": f"Basic {b64encode(f'{self.username}:{password}'.encode()).decode()}"}
        return {}


def read_secret(file: Path) -> str:
    """Read a secret file of one line; surrounding white space is removed.

    Raises:
        SecretUnreadable: if it cannot be read. The message names the file, never its content.
    """
    text = _read_text(file).strip()
    if not text or not text.isprintable():
        raise SecretUnreadable(f"expected one line of text in {file}")
    return text


def read_headers(file: Path) -> dict[str, str]:
    """Read a secret file of headers, one ``name: value`` a line; empty lines are skipped.

    Raises:
        SecretUnreadable: if it cannot be read. The message names the file, never its content.
    """
    headers = {}
    for number, line in enumerate(_read_text(file).splitlines(), 1):
        name, colon, value = (part.strip() for part in line.partition(":"))
        if not line.strip():
            continue
        if not (colon and HEADER_NAME.fullmatch(name) and value.isascii() and value.isprintable()):
            raise SecretUnreadable(f"{file}, line {number}: expected `name: value` in ASCII")
        headers[name] = value
    return headers


def _read_text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SecretUnreadable(f"expected a readable file {file}, came {type(error).__name__}") from None


def ssl_context(ca_file: Path | None) -> ssl.SSLContext | bool:
    """The ``verify`` argument of httpx: these certificates, or True for the system's.

    Raises:
        BadSettings: if they cannot be read.
    """
    if ca_file is None:
        return True
    try:
        return ssl.create_default_context(cafile=ca_file)
    except (OSError, ssl.SSLError) as error:
        raise BadSettings(f"ca_file {ca_file}: expected certificates in PEM, came {error}") from None


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
