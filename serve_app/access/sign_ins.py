"""Signed cookies of users who sign in at an OpenID provider.

Every process that answers requests can check the cookies, without shared state and after a restart: the signing key is
derived from the client secret, which all of them read. So callers who are not signed in cannot fill the service's
memory. The format is our own rather than a JWT, so that nothing is parsed before its signature is checked.

After the sign-out, a sign-in's id is on a list in the store (:mod:`serve_app.stores.documents`). The application checks
the list, too, so that a copy of the cookie is useless.
"""

import hmac
import json
import re
import secrets
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as NotBase64
from collections.abc import Callable
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar

from serve_app.access.oidc.rules import OidcRules
from serve_app.access.watched_file import WatchedFile
from serve_app.errors import BadSettings, Forbidden
from serve_app.net.endpoint import SecretUnreadable, read_secret

SIGN_IN_COOKIE = "tagae_sign_in"  # with a prefix if browsers use HTTPS
ATTEMPT_COOKIE = "tagae_login"
ATTEMPT_SECONDS = 600  # time for passwords, second factors and the provider's notices
MAX_RETURN_LENGTH = 1500
MAX_COOKIE_LENGTH = 3800  # browsers keep at most 4096 bytes, with name and attributes
MIN_SECRET_LENGTH = 24  # a signed cookie lets its owner try secrets offline
PLACE = re.compile(r"(?!/)[A-Za-z0-9/_.~-]*(?:[?#][!-\[\]-~]*)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class SignedInUser:
    """A user who signed in at the provider.

    Attributes:
        subject: identifies the user at the provider; never reassigned.
        name: for display; the provider may let users change it.
        groups: the user's groups that had a grant at the sign-in.
        expires: s since 1970.
    """

    id: str
    subject: str
    name: str
    groups: tuple[str, ...]
    expires: int


@dataclass(frozen=True, slots=True)
class SignInAttempt:
    """An attempt to sign in by the browser that has its cookie.

    Attributes:
        id: random, like the next three.
        state: ties the provider's answer to this browser.
        nonce: ties the ID token to this attempt.
        verifier: PKCE code verifier (RFC 7636), which the browser sends only to this service.
        return_to: location on our page, relative to its URL.
        expires: s since 1970.
    """

    id: str
    state: str
    nonce: str
    verifier: str
    return_to: str
    expires: int

    @property
    def challenge(self) -> str:
        """The PKCE code challenge, method S256."""
        return _encode(sha256(self.verifier.encode()).digest())


Content = TypeVar("Content", SignedInUser, SignInAttempt)


def begin_attempt(return_to: str, now: float) -> SignInAttempt:
    """Begin an attempt; ``return_to`` as in :func:`own_place`."""
    id, state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(4))
    return SignInAttempt(id, state, nonce, verifier, own_place(return_to), int(now) + ATTEMPT_SECONDS)


def own_place(text: str) -> str:
    """A location on our page that a browser may be sent to, relative to the page's URL; empty for any other text.

    It follows that URL, which ends with a slash, so it cannot name another host. Parts that browsers would resolve or
    remove are refused: ``..``, which leads to other services behind a proxy, backslashes, and control characters.
    """
    path = re.split(r"[?#]", text, maxsplit=1)[0]
    has_steps_up = any(part in (".", "..") for part in path.split("/"))
    return text if len(text) <= MAX_RETURN_LENGTH and PLACE.fullmatch(text) and not has_steps_up else ""


class SignInCookies:
    """Signs the cookies of users who sign in, and reads them.

    Args:
        now: s since 1970.

    Raises:
        BadSettings: the client secret cannot be read, or is too short.
    """

    def __init__(self, rules: OidcRules, now: Callable[[], float] = time.time) -> None:
        self.name = rules.cookie_name(SIGN_IN_COOKIE)
        self._now = now
        # Another provider, client or address has another key, so that no other service's cookie is valid here.
        purpose = json.dumps(["tagae sign-in", rules.issuer, rules.client_id, rules.external_url])
        self._secret = WatchedFile(rules.client_secret_file, read_client_secret)
        self._purpose = purpose.encode()

    def seal(self, content: SignedInUser | SignInAttempt) -> str:
        """The cookie's value.

        Raises:
            Forbidden: it would be too long.
        """
        payload = urlsafe_b64encode(json.dumps(asdict(content), separators=(",", ":")).encode()).decode()
        value = f"{payload}.{self._signature(payload, type(content))}"
        if len(value) > MAX_COOKIE_LENGTH:
            raise Forbidden(
                f"sign-in: expected at most {MAX_COOKIE_LENGTH} characters for the name and the groups of a user, got "
                f"{len(value)}; give grants to fewer groups, or shorten their names"
            )
        return value

    def user(self, value: str) -> SignedInUser | None:
        """The user in a cookie; None if it is not ours, was changed, or has expired."""
        return self._read(value, SignedInUser)

    def attempt(self, value: str) -> SignInAttempt | None:
        """The attempt in a cookie; None as in :meth:`user`."""
        return self._read(value, SignInAttempt)

    def _read(self, value: str, form: type[Content]) -> Content | None:
        payload, _, signature = value.partition(".")
        if len(value) > MAX_COOKIE_LENGTH or not value.isascii():
            return None
        if not hmac.compare_digest(signature, self._signature(payload, form)):
            return None
        try:
            fields: dict[str, Any] = json.loads(urlsafe_b64decode(payload))
            fields.update({name: tuple(item) for name, item in fields.items() if isinstance(item, list)})
            content = form(**fields)
        except (NotBase64, ValueError, TypeError, AttributeError):  # signed by another version
            return None
        return content if self._now() < content.expires else None

    def _signature(self, content: str, form: type) -> str:
        key = hmac.digest(self._secret.content().encode(), self._purpose, "sha256")
        return _encode(hmac.digest(key, f"{form.__name__} {content}".encode(), "sha256"))


def _encode(content: bytes) -> str:
    return urlsafe_b64encode(content).decode().rstrip("=")


def read_client_secret(file: Path) -> str:
    """Read the client secret.

    Raises:
        BadSettings: it cannot be read, or is too short.
    """
    try:
        secret = read_secret(file)
    except SecretUnreadable as error:
        raise BadSettings(f"serve.oidc.client_secret_file: {error}; correct the file or its path") from None
    if len(secret) < MIN_SECRET_LENGTH:
        raise BadSettings(
            f"serve.oidc.client_secret_file: expected at least {MIN_SECRET_LENGTH} characters, since it signs the "
            f"cookies of users too, got {len(secret)}; have the provider create a longer secret"
        )
    return secret
