"""Where something outside is and how to be let in: the same for those we ask and those we tell."""

import ssl
from base64 import b64encode
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from serve_app.errors import BadSettings


class SecretUnreadable(Exception):
    """A file with a secret that is not there, not readable or empty."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Somebody outside.

    Attributes:
        url: secrets of a webhook may be in its path, so only ``place`` of it is ever logged.
        username, password_file: basic auth. Files are read with every request: secrets are rotated.
        bearer_token_file: likewise, instead.
        ca_file: certificates to trust instead of the system's.
    """

    url: str
    username: str = ""
    password_file: Path | None = None
    bearer_token_file: Path | None = None
    ca_file: Path | None = None

    @property
    def origin(self) -> str:
        """``https://alerts.example:9093``."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"

    def auth_headers(self) -> dict[str, str]:
        """The header that lets us in, if one is needed. Reads files, which may lie on a network.

        Raises:
            SecretUnreadable: names the file, never what is in it.
        """
        if self.bearer_token_file:
            token = secret(self.bearer_token_file)
            if not token.isascii():
                raise SecretUnreadable(f"expected ASCII in {self.bearer_token_file}")
            return {"Authorization": f"Bearer {token}"}
        if self.username:
            password = secret(self.password_file) if self.password_file else ""
            return {"Authorization": f"Basic {b64encode(f'{self.username}:{password}'.encode()).decode()}"}
        return {}


def secret(file: Path) -> str:
    """The text of a file, without white space around it.

    Raises:
        SecretUnreadable: names the file, never what is in it.
    """
    try:
        text = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SecretUnreadable(f"expected a readable file {file}, came {type(error).__name__}") from None
    if not text or not text.isprintable():
        raise SecretUnreadable(f"expected one line of text in {file}")
    return text


def ssl_context(ca_file: Path | None) -> ssl.SSLContext | bool:
    """What httpx verifies a server by: these certificates, or the system's.

    Raises:
        BadSettings: they cannot be read.
    """
    if ca_file is None:
        return True
    try:
        return ssl.create_default_context(cafile=ca_file)
    except (OSError, ssl.SSLError) as error:
        raise BadSettings(f"ca_file {ca_file}: expected certificates in PEM, came {error}") from None


def address(url: str) -> str:
    """The URL itself.

    Raises:
        ValueError: with what is wrong about it.
    """
    parts = urlsplit(url)  # raises ValueError for what is none
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0:
        raise ValueError("expected http://HOST[:PORT][/PATH] or https://...")
    if "@" in parts.netloc:
        raise ValueError("expected no password in the URL; give username and password_file")
    if not url.isprintable() or " " in url or parts.fragment:
        raise ValueError("expected a URL without spaces, control characters and fragment")
    return url
