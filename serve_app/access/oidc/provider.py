"""The OpenID provider: its cached metadata and keys, and its endpoints. All answers are bounded."""

import asyncio
import json
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode, urlsplit

from serve_app.access.oidc.rules import OidcRules
from serve_app.access.rules import is_loopback
from serve_app.access.sign_ins import read_client_secret
from serve_app.access.watched_file import WatchedFile
from serve_app.errors import ProviderFailed
from serve_app.net.endpoint import Endpoint, basic_auth, check_url
from serve_app.net.http import HttpSender

if TYPE_CHECKING:
    from joserfc.jwk import Key

DISCOVERY = "/.well-known/openid-configuration"
MAX_ANSWER_BYTES = 256 * 1024
METADATA_SECONDS = 3600.0  # metadata and keys are read again after this time
REFRESH_SECONDS = 30.0  # minimum time between two reads because of an unknown key, which anyone can send
FORM = "application/x-www-form-urlencoded"
ENDPOINTS = ("authorization_endpoint", "token_endpoint", "jwks_uri")  # required
OPTIONAL_ENDPOINTS = ("userinfo_endpoint", "end_session_endpoint")
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ProviderMetadata:
    """A provider's metadata.

    Attributes:
        userinfo_endpoint: returns a user's claims; empty: there is none.
        end_session_endpoint: where browsers sign out; empty: there is none.
        secret_in_body: whether the client secret is sent in the body rather than with basic auth.
        names_itself: whether redirects to us always have the parameter ``iss`` (RFC 9207).
        keys: keys that sign ID tokens.
    """

    authorization_endpoint: str
    token_endpoint: str
    userinfo_endpoint: str
    end_session_endpoint: str
    secret_in_body: bool
    names_itself: bool
    keys: tuple["Key", ...]


class Provider:
    """A provider.

    Raises:
        BadSettings: the client secret or the certificates cannot be used.
    """

    def __init__(self, rules: OidcRules, deadline_seconds: float) -> None:
        self._rules, self._deadline = rules, deadline_seconds
        self._secret = WatchedFile(rules.client_secret_file, read_client_secret)
        Endpoint(rules.issuer, ca_file=rules.ca_file).ssl_context()  # raises its errors here
        self._metadata: ProviderMetadata | None = None
        self._read_at = 0.0
        self._lock = asyncio.Lock()

    async def metadata(self, max_age_seconds: float = METADATA_SECONDS) -> ProviderMetadata:
        """The metadata, not older than ``max_age_seconds``. If it cannot be read again, the old one is used.

        Raises:
            ProviderFailed: it cannot be read or is wrong, and was never read before.
        """
        async with self._lock:
            if self._metadata is None or time.monotonic() - self._read_at >= max_age_seconds:
                try:
                    self._metadata = await self._read()
                except ProviderFailed as error:
                    if self._metadata is None:
                        raise
                    log.warning("%s; its former metadata stays in use", error.message)
                self._read_at = time.monotonic()
            return self._metadata

    async def exchange(self, code: str, verifier: str) -> tuple[str, str]:
        """Exchange a code; returns the ID token and the access token, which may be empty.

        Raises:
            ProviderFailed: the provider refuses the code, or its answer is wrong.
        """
        metadata, secret, client = await self.metadata(), self._secret.content(), self._rules.client_id
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self._rules.redirect_url,
            "code_verifier": verifier,
            "client_id": client,
        }
        headers = {"content-type": FORM}
        if metadata.secret_in_body:
            form["client_secret"] = secret
        else:  # both are form-encoded first (RFC 6749, section 2.3.1)
            headers["authorization"] = basic_auth(quote(client, safe=""), quote(secret, safe=""))
        answer = await self._ask("POST", metadata.token_endpoint, urlencode(form).encode(), headers)
        token, access = answer.get("id_token"), answer.get("access_token")
        if not isinstance(token, str):
            raise ProviderFailed("sign-in: the provider sent no id_token; request the scope openid")
        return token, access if isinstance(access, str) and access.isascii() and access.isprintable() else ""

    async def userinfo(self, access_token: str, subject: str) -> Mapping[str, Any]:
        """Further claims of a user; empty if the provider has none.

        Raises:
            ProviderFailed: its answer is wrong, or about another user.
        """
        metadata = await self.metadata()
        if not metadata.userinfo_endpoint or not access_token:
            return {}
        claims = await self._ask("GET", metadata.userinfo_endpoint, headers={"authorization": f"Bearer {access_token}"})
        if claims.get("sub") != subject:
            raise ProviderFailed("sign-in: expected claims of the user from userinfo_endpoint, got another user's")
        return claims

    async def _read(self) -> ProviderMetadata:
        from serve_app.access.oidc.id_token import import_keys  # needs the extra

        document = await self._ask("GET", self._rules.issuer.rstrip("/") + DISCOVERY)
        if document.get("issuer") != self._rules.issuer:
            raise ProviderFailed(
                f"provider: expected the issuer {self._rules.issuer!r} in its metadata, got "
                f"{str(document.get('issuer'))[:200]!r}; set serve.oidc.issuer exactly as the provider writes it"
            )
        endpoints = {name: self._endpoint(document, name) for name in ENDPOINTS}
        endpoints |= {name: self._endpoint(document, name) if name in document else "" for name in OPTIONAL_ENDPOINTS}
        keys = import_keys(await self._ask("GET", endpoints.pop("jwks_uri")))
        if not keys:
            raise ProviderFailed("provider: its jwks_uri has no key that can verify signatures")
        auth = document.get("token_endpoint_auth_methods_supported")
        return ProviderMetadata(
            **endpoints,
            secret_in_body=isinstance(auth, list)
            and "client_secret_basic" not in auth
            and "client_secret_post" in auth,
            names_itself=document.get("authorization_response_iss_parameter_supported") is True,
            keys=keys,
        )

    def _endpoint(self, document: Mapping[str, Any], name: str) -> str:
        """An endpoint in the metadata. Secrets are sent there, so it must use HTTPS, unless everything runs on this
        machine."""
        url = document.get(name)
        try:
            parts = urlsplit(check_url(url if isinstance(url, str) else ""))
        except ValueError as error:
            raise ProviderFailed(f"provider: {name}: {error}, got {str(url)[:200]!r}") from None
        hosts = (parts.hostname, urlsplit(self._rules.issuer).hostname)
        if parts.scheme != "https" and not all(is_loopback(host or "") for host in hosts):
            raise ProviderFailed(f"provider: {name}: expected https://, got {str(url)[:200]!r}")
        return str(url)

    async def _ask(
        self, method: Any, url: str, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        """A JSON object from the provider.

        Raises:
            ProviderFailed: there is none; the message contains no secret.
        """
        place = urlsplit(url)._replace(query="").geturl()
        endpoint = Endpoint(url, ca_file=self._rules.ca_file)
        http = await asyncio.to_thread(HttpSender, endpoint, self._deadline)
        try:
            reply = await http.send(
                method, "", body, {"accept": "application/json", **(headers or {})}, MAX_ANSWER_BYTES + 1
            )
        finally:
            await http.close()
        if len(reply.content) > MAX_ANSWER_BYTES:
            raise ProviderFailed(f"provider: {place}: the answer exceeds {MAX_ANSWER_BYTES} bytes")
        try:
            answer = json.loads(reply.content)
        except (ValueError, RecursionError):
            answer = None
        if reply.failed:
            refusal = answer if isinstance(answer, dict) else {}
            detail = " ".join(str(refusal[key]) for key in ("error", "error_description") if refusal.get(key))
            detail = f"{reply.status} {detail}" if detail else reply.detail
            raise ProviderFailed(f"provider: {place}: expected an answer, got {detail[:200]!r} ({reply.failed})")
        if not isinstance(answer, dict):
            raise ProviderFailed(f"provider: {place}: expected a JSON object, got something else")
        return answer
