"""Signs users in at a provider, and out again."""

import asyncio
import hmac
import logging
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from serve_app.access.oidc.id_token import BadToken, UnknownKey, check_id_token
from serve_app.access.oidc.provider import REFRESH_SECONDS, Provider, ProviderMetadata
from serve_app.access.oidc.rules import OidcRules
from serve_app.access.sign_ins import ATTEMPT_SECONDS, SignedInUser, SignInCookies, begin_attempt
from serve_app.errors import Forbidden, Overloaded, ProviderFailed, ServeError, SignInRefused

MAX_CODE_LENGTH = 4096
MAX_NAME_LENGTH = 128
MAX_SUBJECT_LENGTH = 255  # OpenID Connect Core, section 2
MAX_AT_ONCE = 32  # concurrent checks of sign-in answers: each waits for the provider, and anyone can send one
MAX_GROUPS = 2000  # of a user; further ones are ignored
MAX_HINT_LENGTH = 3000  # length of an ID token that a browser keeps for the sign-out
Mark = Callable[[str, float], Awaitable[bool]]  # see EndedIds.add
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SignedIn:
    """The result of an attempt.

    Attributes:
        location: URL on our page to send the browser to.
        id_token: identifies the sign-in to the provider when the user signs out; empty if it is too long to keep.
    """

    user: SignedInUser
    location: str
    id_token: str


class SignOn:
    """Sign-in at the configured provider.

    Args:
        deadline_seconds: total deadline of all requests for one answer to a browser.
        mark: marks an id as used.
        now: s since 1970.

    Raises:
        BadSettings: the client secret or the certificates cannot be used.
    """

    def __init__(
        self, rules: OidcRules, deadline_seconds: float, mark: Mark, now: Callable[[], float] = time.time
    ) -> None:
        self._rules, self._deadline, self._mark, self._now = rules, deadline_seconds, mark, now
        self._provider, self._cookies = Provider(rules, deadline_seconds), SignInCookies(rules, now)
        self._in_progress = 0

    async def begin(self, return_to: str) -> tuple[str, str]:
        """Begin an attempt; returns its cookie, and the provider's URL to send the browser to.

        Args:
            return_to: location on our page; any other value counts as the page itself.

        Raises:
            ProviderFailed: the provider does not answer.
        """
        async with self._in_time():
            metadata = await self._provider.metadata()
        attempt = begin_attempt(return_to, self._now())
        query = {
            "response_type": "code",
            "client_id": self._rules.client_id,
            "redirect_uri": self._rules.redirect_url,
            "scope": " ".join(self._rules.scopes),
            "state": attempt.state,
            "nonce": attempt.nonce,
            "code_challenge": attempt.challenge,
            "code_challenge_method": "S256",
        }
        return self._cookies.seal(attempt), _with_query(metadata.authorization_endpoint, query)

    async def finish(self, cookie: str, answer: Mapping[str, str]) -> SignedIn:
        """Finish an attempt.

        Args:
            cookie: the attempt's cookie; empty: the browser sent none.
            answer: parameters with which the provider sent the browser back.

        Raises:
            SignInRefused: the answer does not belong to an attempt of this browser, or the provider refuses.
            Forbidden: the user is in no group with a grant.
            ProviderFailed: the provider's answer is wrong. Overloaded: too many users are signing in at once.
            ServeError: the store, which has the ids of used attempts, is unavailable.
        """
        attempt, state = self._cookies.attempt(cookie), answer.get("state", "")
        if attempt is None or not hmac.compare_digest(state.encode(), attempt.state.encode()):
            raise SignInRefused(
                f"sign-in: this sign-in expired after {ATTEMPT_SECONDS // 60} minutes or began in another browser; "
                f"sign in again at {self._rules.home}"
            )
        if self._in_progress >= MAX_AT_ONCE:
            raise Overloaded(
                f"sign-in: the limit of {MAX_AT_ONCE} sign-ins at the same time is reached; try again in a moment",
                retry_after_seconds=1.0,
            )
        self._in_progress += 1
        try:
            async with self._in_time():
                metadata = await self._provider.metadata()
                self._check_answer(metadata, answer)
                token, access = await self._provider.exchange(answer["code"], attempt.verifier)
                claims = await self._claims(metadata, token, access, attempt.nonce)
        finally:
            self._in_progress -= 1
        user = self._user(claims)
        if not await self._mark(attempt.id, self._now() + 2 * ATTEMPT_SECONDS):
            raise SignInRefused("sign-in: this sign-in was already used; sign in again")
        hint = token if len(token) <= MAX_HINT_LENGTH else ""
        return SignedIn(user, self._rules.home + attempt.return_to, hint)

    async def end(self, user: SignedInUser, id_token: str) -> str:
        """Sign a user out; returns the URL at which the browser also signs out at the provider, or else our page's URL.
        A failure is logged, and does not keep the user signed in: the browser drops its cookie."""
        try:
            await self._mark(user.id, user.expires)
        except ServeError as error:
            log.error("sign-out: a copy of the cookie stays valid until it expires, since %s", error.message)
        try:
            async with self._in_time():
                metadata = await self._provider.metadata()
        except ProviderFailed as error:
            log.warning("sign-out at the provider: %s", error.message)
            return self._rules.home
        if not metadata.end_session_endpoint:
            return self._rules.home
        query = {"client_id": self._rules.client_id, "post_logout_redirect_uri": self._rules.home}
        return _with_query(
            metadata.end_session_endpoint, {**query, **({"id_token_hint": id_token} if id_token else {})}
        )

    def _check_answer(self, metadata: ProviderMetadata, answer: Mapping[str, str]) -> None:
        issuer = answer.get("iss")
        if (issuer is None and metadata.names_itself) or issuer not in (None, self._rules.issuer):
            sender = f"one of {issuer[:200]!r}" if issuer else "one without an issuer"
            raise SignInRefused(f"sign-in: expected an answer of {self._rules.issuer!r}, got {sender}; sign in again")
        if error := answer.get("error"):
            refusal = " ".join(filter(None, (error, answer.get("error_description"))))
            raise SignInRefused(
                f"sign-in: expected a code from {self._rules.name}, got {refusal[:200]!r}; sign in again"
            )
        if not 0 < len(answer.get("code", "")) <= MAX_CODE_LENGTH:
            raise SignInRefused("sign-in: the provider sent no code; sign in again")

    async def _claims(self, metadata: ProviderMetadata, token: str, access: str, nonce: str) -> Mapping[str, Any]:
        try:
            try:
                claims = self._check_token(metadata, token, nonce)
            except UnknownKey:  # the provider may have changed its keys
                claims = self._check_token(await self._provider.metadata(REFRESH_SECONDS), token, nonce)
        except BadToken as error:
            raise SignInRefused(
                f"sign-in: expected a valid ID token from the provider, got a wrong one: {error}; check serve.oidc, "
                "and the clocks of both"
            ) from None
        if self._rules.groups_claim in claims:
            return claims
        return {**await self._provider.userinfo(access, claims["sub"]), **claims}

    def _check_token(self, metadata: ProviderMetadata, token: str, nonce: str) -> Mapping[str, Any]:
        rules = self._rules
        return check_id_token(
            token, metadata.keys, issuer=rules.issuer, client_id=rules.client_id, nonce=nonce, now=self._now()
        )

    def _user(self, claims: Mapping[str, Any]) -> SignedInUser:
        rules, subject = self._rules, claims["sub"]
        if not 0 < len(subject) <= MAX_SUBJECT_LENGTH or not subject.isprintable():
            raise SignInRefused("sign-in: expected a printable subject in the ID token, got something else")
        name = claims.get(rules.user_claim)
        is_name = isinstance(name, str) and 0 < len(name) <= MAX_NAME_LENGTH and name.isprintable()
        name = str(name) if is_name else subject[:MAX_NAME_LENGTH]
        groups = claims.get(rules.groups_claim, ())
        groups = [groups] if isinstance(groups, str) else groups if isinstance(groups, list) else []
        granted_groups = sorted(
            {group for group in groups[:MAX_GROUPS] if isinstance(group, str) and group in rules.groups}
        )
        if not granted_groups:
            raise Forbidden(
                f"sign-in: expected {name!r} to be in a group with access ({rules.groups_claim!r} in the answer of "
                f"{rules.name}), got {len(groups)} without; give a group access in serve.oidc.groups",
                user=name,
                subject=subject,
            )
        expires = int(self._now() + rules.valid_seconds)
        return SignedInUser(secrets.token_urlsafe(16), subject, name, tuple(granted_groups), expires)

    @asynccontextmanager
    async def _in_time(self) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(self._deadline):
                yield
        except TimeoutError:
            raise ProviderFailed(f"provider: no complete answer within {self._deadline:g} s; try again later") from None


def _with_query(url: str, query: Mapping[str, str]) -> str:
    return f"{url}{'&' if '?' in url else '?'}{urlencode(query)}"
