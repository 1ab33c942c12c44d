"""Bearer tokens that expire: fetched from their issuer, and cached while they are valid."""

import math
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import requests

from serve_app.net.endpoint import basic_auth, read_secret
from serve_app.net.http import first_line

EARLY_SECONDS = 10.0  # a token is replaced this long before it expires; at most a quarter of its lifetime
DEFAULT_SECONDS = 300.0  # lifetime of a token if its issuer does not say when it expires
MAX_FETCH_SECONDS = 5.0  # shorter than a poll's deadline, so that errors name the issuer and not Prometheus
PAUSE_SECONDS = 5.0  # after a failed fetch or a refused token, so that concurrent queries do not overload the issuer
MAX_DETAIL = 200  # characters in an issuer's error description


class NoToken(Exception):
    """No token was issued. The message contains no secret."""


class TokenSource(ABC):
    """Issues bearer tokens, and keeps one until shortly before it expires. Any thread may call it; it may block.

    Subclasses implement :meth:`fetch`.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()  # one thread fetches, the others wait for its token
        self._token, self._until = "", 0.0
        self._failed: tuple[float, NoToken] | None = None
        self._rejected_at = -math.inf

    def token(self) -> str:
        """Return a valid token.

        Raises:
            NoToken: none was issued.
            SecretUnreadable: a secret file cannot be read.
        """
        with self._lock:
            now = time.monotonic()
            if self._token and now < self._until:
                return self._token
            if self._failed and now < self._failed[0] + PAUSE_SECONDS:
                raise self._failed[1]
            try:
                self._token, lifetime = self.fetch()
            except NoToken as error:
                self._token, self._failed = "", (now, error)
                raise
            self._until = now + lifetime - min(EARLY_SECONDS, lifetime / 4)
            self._failed = None
            return self._token

    def reject(self, token: str) -> None:
        """Discard a refused token if it is still the newest; not too often, since a server may refuse all tokens."""
        with self._lock:
            now = time.monotonic()
            if token == self._token and now >= self._rejected_at + PAUSE_SECONDS:
                self._token, self._rejected_at = "", now

    @abstractmethod
    def fetch(self) -> tuple[str, float]:
        """Return a new token and its lifetime, s.

        Raises:
            NoToken, SecretUnreadable: see :meth:`token`.
        """


@dataclass(frozen=True, slots=True)
class OAuth2Client:
    """The client that requests tokens, and the address to request them from.

    Attributes:
        token_url: the issuer's URL; its query may contain a secret, so it is never logged.
        parameters: further parameters of the request, such as ``scope``.
        ca_file: CA bundle to use instead of the system store.
    """

    token_url: str
    client_id: str
    client_secret_file: Path
    parameters: Mapping[str, str] = field(default_factory=dict)
    ca_file: Path | None = None


class OAuth2Tokens(TokenSource):
    """Tokens for client credentials (RFC 6749, section 4.4).

    The client authenticates with basic auth, which every issuer has to support; if that is refused, with parameters in
    the body, which some issuers require.
    """

    def __init__(self, client: OAuth2Client) -> None:
        super().__init__()
        self._client = client
        self._in_body = False

    def fetch(self) -> tuple[str, float]:
        secret = read_secret(self._client.client_secret_file)
        reply = self._request(secret, in_body=self._in_body)
        if reply.status_code in (400, 401):
            second_reply = self._request(secret, in_body=not self._in_body)
            if second_reply.ok:
                self._in_body, reply = not self._in_body, second_reply
        return self._read(reply)

    def _request(self, secret: str, *, in_body: bool) -> requests.Response:
        client = self._client
        form = {"grant_type": "client_credentials", **client.parameters}
        headers = {"Accept": "application/json"}
        if in_body:
            form |= {"client_id": client.client_id, "client_secret": secret}
        else:  # both are form-encoded first (RFC 6749, section 2.3.1)
            headers["Authorization"] = basic_auth(quote(client.client_id, safe=""), quote(secret, safe=""))
        try:
            with requests.Session() as session:
                session.trust_env = True
                session.auth = _unchanged  # otherwise a .netrc could replace the header
                return session.post(
                    client.token_url,
                    data=form,
                    headers=headers,
                    timeout=MAX_FETCH_SECONDS,
                    allow_redirects=False,
                    verify=str(client.ca_file) if client.ca_file else True,
                )
        except OSError as error:  # the library's base class for errors
            raise NoToken(f"oauth2: no token from token_url: {first_line(error)}") from None

    def _read(self, reply: requests.Response) -> tuple[str, float]:
        try:
            body: Any = reply.json()
        except ValueError:
            body = None
        body = body if isinstance(body, dict) else {}
        token = body.get("access_token")
        if not (reply.ok and isinstance(token, str) and token and token.isascii() and token.isprintable()):
            description = " ".join(str(body[key]) for key in ("error", "error_description") if body.get(key))
            raise NoToken(
                f"oauth2: no token from token_url: {reply.status_code} {description[:MAX_DETAIL]}".rstrip()
                + "; check client_id, client_secret_file and scopes"
            )
        try:
            lifetime = float(body.get("expires_in") or DEFAULT_SECONDS)
        except (TypeError, ValueError):
            lifetime = DEFAULT_SECONDS
        return token, lifetime if lifetime > 0 else DEFAULT_SECONDS


def _unchanged(request: requests.PreparedRequest) -> requests.PreparedRequest:
    return request
