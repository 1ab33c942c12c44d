"""One attempt to sign in: what the browser keeps until the provider sends it back.

The browser keeps one cookie with a random secret, the time, and the place to return to. State, nonce and code verifier
are hashes of this cookie. So a browser without it cannot finish the attempt, a changed cookie does not match the state,
and the service keeps nothing: callers who are not signed in cannot fill any memory of it.
"""

import hmac
import re
import secrets
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as NotBase64
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256

ATTEMPT_COOKIE = "tagae_login"
ATTEMPT_SECONDS = 600  # for passwords, second factors, and reading what the provider has to say
MAX_RETURN_LENGTH = 1500
VALUE = re.compile(r"[A-Za-z0-9_-]{43}\.[0-9]{1,12}\.[A-Za-z0-9_=-]{0,2100}", re.ASCII)
PLACE = re.compile(r"(?!/)[A-Za-z0-9/_.~-]*(?:[?#][!-\[\]-~]*)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class SignInAttempt:
    """An attempt to sign in.

    Attributes:
        began: s since 1970.
        return_to: place on our page, relative to its URL.
    """

    value: str
    began: int
    return_to: str

    @property
    def id(self) -> str:
        """Names the attempt, without its secret."""
        return self._derive("id")

    @property
    def state(self) -> str:
        """Ties the provider's answer to this browser."""
        return self._derive("state")

    @property
    def nonce(self) -> str:
        """Ties the ID token to this attempt."""
        return self._derive("nonce")

    @property
    def verifier(self) -> str:
        """Code verifier of PKCE (RFC 7636), which only this service learns from the browser."""
        return self._derive("verifier")

    @property
    def challenge(self) -> str:
        """Code challenge of PKCE, method S256."""
        return _encode(sha256(self.verifier.encode()).digest())

    def has_state(self, state: str) -> bool:
        """Whether this is the state of the attempt."""
        return hmac.compare_digest(state.encode(), self.state.encode())

    def _derive(self, purpose: str) -> str:
        return _encode(hmac.digest(self.value.encode(), purpose.encode(), "sha256"))


def begin(return_to: str, now: Callable[[], float] = time.time) -> SignInAttempt:
    """Begin an attempt; ``return_to`` as in :func:`own_place`."""
    began, place = int(now()), own_place(return_to)
    value = f"{secrets.token_urlsafe(32)}.{began}.{urlsafe_b64encode(place.encode()).decode()}"
    return SignInAttempt(value, began, place)


def resume(value: str, now: Callable[[], float] = time.time) -> SignInAttempt | None:
    """The attempt of a cookie; None if it is not one of ours, or too old."""
    if not VALUE.fullmatch(value):
        return None
    _, began, place = value.split(".")
    try:
        attempt = SignInAttempt(value, int(began), own_place(urlsafe_b64decode(place).decode()))
    except (NotBase64, UnicodeDecodeError):
        return None
    return attempt if -ATTEMPT_SECONDS < now() - attempt.began < ATTEMPT_SECONDS else None


def own_place(text: str) -> str:
    """A place on our page that a browser may be sent to, relative to the page's URL; empty for any other text.

    It is written behind that URL, which ends with a slash, so it cannot name another host. What browsers would take out
    again is refused: steps up, which lead to other services of a proxy, backslashes, and control characters.
    """
    path = re.split(r"[?#]", text, maxsplit=1)[0]
    has_steps_up = any(part in (".", "..") for part in path.split("/"))
    return text if len(text) <= MAX_RETURN_LENGTH and PLACE.fullmatch(text) and not has_steps_up else ""


def _encode(content: bytes) -> str:
    return urlsafe_b64encode(content).decode().rstrip("=")
