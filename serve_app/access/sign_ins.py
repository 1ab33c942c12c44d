"""Users who signed in at an OpenID provider, and the signed cookie that shows it.

Every process that answers requests can check the cookie, without shared state and after a restart: the key that signs
it is derived from the client secret, which all of them read. Its format is our own rather than a JWT, so that nothing
of it is parsed before its signature was checked.

A sign-in that was signed out is on a list in the store (:mod:`serve_app.stores.documents`). The application checks
that, beside the signature, so that a copy of the cookie is useless too.
"""

import hmac
import json
import logging
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as NotBase64
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from serve_app.access.oidc.rules import OidcRules
from serve_app.errors import BadSettings, Forbidden
from serve_app.net.endpoint import SecretUnreadable, read_secret

SIGN_IN_COOKIE = "tagae_sign_in"  # with a prefix if browsers use HTTPS
MAX_COOKIE_LENGTH = 3800  # browsers keep at most 4096 bytes, with name and attributes
MIN_SECRET_LENGTH = 24  # a signed cookie lets its owner try secrets offline
RELOAD_SECONDS = 1.0  # between two checks of the file with the secret
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SignedInUser:
    """A user who signed in at the provider.

    Attributes:
        id: of this sign-in, random.
        subject: identifies the user at the provider; never reassigned.
        name: for people; the provider may let users change it.
        groups: those with a grant, of which the user was a member at the sign-in.
        expires: s since 1970.
    """

    id: str
    subject: str
    name: str
    groups: tuple[str, ...]
    expires: int


class SignInCookies:
    """Signs cookies of signed-in users, and reads them.

    Args:
        now: s since 1970.

    Raises:
        BadSettings: the client secret cannot be read, or is too short.
    """

    def __init__(self, rules: OidcRules, now: Callable[[], float] = time.time) -> None:
        self.name = rules.cookie_name(SIGN_IN_COOKIE)
        self._now = now
        # Another provider, client or address is another key, so that no other service's cookie is valid here.
        purpose = json.dumps(["tagae sign-in", rules.issuer, rules.client_id, rules.external_url])
        self._secret = ClientSecret(rules.client_secret_file)
        self._purpose = purpose.encode()

    def seal(self, user: SignedInUser) -> str:
        """The value of the cookie.

        Raises:
            Forbidden: it would be too long.
        """
        content = urlsafe_b64encode(json.dumps(asdict(user), separators=(",", ":")).encode()).decode()
        value = f"{content}.{self._signature(content)}"
        if len(value) > MAX_COOKIE_LENGTH:
            raise Forbidden(
                f"sign-in: expected at most {MAX_COOKIE_LENGTH} characters for the name and the groups of a user, got "
                f"{len(value)}; give grants to fewer groups, or shorten their names"
            )
        return value

    def open(self, value: str) -> SignedInUser | None:
        """The user of a cookie; None if it is not ours, was changed, or has expired."""
        content, _, signature = value.partition(".")
        if len(value) > MAX_COOKIE_LENGTH or not value.isascii():
            return None
        if not hmac.compare_digest(signature, self._signature(content)):
            return None
        try:
            fields = json.loads(urlsafe_b64decode(content))
            user = SignedInUser(**{**fields, "groups": tuple(fields["groups"])})
        except (NotBase64, ValueError, TypeError, KeyError):  # signed by another version
            return None
        return user if self._now() < user.expires else None

    def _signature(self, content: str) -> str:
        key = hmac.digest(self._secret.read().encode(), self._purpose, "sha256")
        return urlsafe_b64encode(hmac.digest(key, content.encode(), "sha256")).decode().rstrip("=")


class ClientSecret:
    """The client secret, read again when its file changes.

    Raises:
        BadSettings: it cannot be read, or is too short.
    """

    def __init__(self, file: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._file, self._clock = file, clock
        self._checked_at = clock()
        self._secret = self._load()

    def read(self) -> str:
        """The secret. If its file has become unreadable, the former one is used, and an error is logged."""
        now = self._clock()
        if now - self._checked_at >= RELOAD_SECONDS:
            self._checked_at = now
            try:
                self._secret = self._load()
            except BadSettings as error:
                log.error("%s; the former secret stays in use", error.message)
        return self._secret

    def _load(self) -> str:
        try:
            secret = read_secret(self._file)
        except SecretUnreadable as error:
            raise BadSettings(f"serve.oidc.client_secret_file: {error}; correct the file or its path") from None
        if len(secret) < MIN_SECRET_LENGTH:
            raise BadSettings(
                f"serve.oidc.client_secret_file: expected at least {MIN_SECRET_LENGTH} characters, since it signs "
                f"the cookies of users too, got {len(secret)}; have the provider create a longer secret"
            )
        return secret
