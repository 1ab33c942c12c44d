"""An OpenID provider that lies, errs and hangs if a test wants it to. It signs with the library, and speaks the
protocol by itself.
"""

import base64
import hashlib
import json
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlsplit

from joserfc import jwt
from joserfc.jwk import ECKey, Key, RSAKey

from tests.http_server import QuietHandler, serve_in_thread

CLIENT, SECRET = "tagae", "a-secret-of-the-client-0123456789"


def new_key(kid: str) -> RSAKey:
    return RSAKey.generate_key(2048, {"kid": kid, "use": "sig", "alg": "RS256"})


KEY, NEXT_KEY, FOREIGN_KEY = new_key("first"), new_key("next"), new_key("first")
EC_KEY = ECKey.generate_key("P-256", {"kid": "ec", "use": "sig"})


@dataclass
class ProviderStandIn:
    """A provider and its user.

    Attributes:
        url: its issuer.
        user: claims of the user who is signed in there.
        keys: that it publishes.
        key: that it signs with.
        metadata: changes of its metadata.
        sign: makes the ID token of its claims.
        change: changes the claims of the ID token.
        answers: instead of its own, by path: status and body, or a function that blocks.
        codes: nonce and code challenge of each code that was not used.
        is_strict: whether a code works once, with its verifier.
        requests: paths that were asked for.
    """

    url: str = ""
    user: dict[str, Any] = field(default_factory=lambda: {"sub": "u-1", "preferred_username": "ada", "groups": ["sre"]})
    keys: list[Key] = field(default_factory=lambda: [KEY])
    key: Key = field(default_factory=lambda: KEY)
    metadata: dict[str, Any] = field(default_factory=dict)
    sign: Callable[[dict[str, Any]], str] | None = None
    change: Callable[[dict[str, Any]], None] = field(default_factory=lambda: lambda claims: None)
    answers: dict[str, tuple[int, bytes] | Callable[[], None]] = field(default_factory=dict)
    codes: dict[str, tuple[str, str]] = field(default_factory=dict)
    is_strict: bool = True
    requests: list[str] = field(default_factory=list)
    closing: threading.Event = field(default_factory=threading.Event)

    def authorize(self, url: str) -> dict[str, str]:
        """What the provider sends back for a browser whose user is signed in there."""
        query = dict(parse_qsl(urlsplit(url).query))
        assert (query["response_type"], query["code_challenge_method"]) == ("code", "S256")
        code = secrets.token_urlsafe(8)
        self.codes[code] = (query["nonce"], query["code_challenge"])
        return {"code": code, "state": query["state"], "iss": self.url}

    def respond(self, method: str, path: str, body: bytes, authorization: str) -> tuple[int, bytes]:
        """Status and body of an answer."""
        self.requests.append(path)
        chosen = self.answers.get(path)
        if callable(chosen):
            chosen()
        elif chosen is not None:
            return chosen
        if path == "/.well-known/openid-configuration":
            return 200, json.dumps(self._describe()).encode()
        if path == "/keys":
            return 200, json.dumps({"keys": [key.as_dict(private=False) for key in self.keys]}).encode()
        if path == "/token":
            return self._exchange({name: values[0] for name, values in parse_qs(body.decode()).items()}, authorization)
        if path == "/userinfo" and authorization == "Bearer access":
            return 200, json.dumps(self.user).encode()
        return 404, b"{}"

    def id_token(self, nonce: str) -> str:
        now = int(time.time())
        claims = {"iss": self.url, "aud": CLIENT, "exp": now + 300, "iat": now, "nonce": nonce, **self.user}
        self.change(claims)
        claims = {name: value for name, value in claims.items() if value is not None}
        if self.sign is not None:
            return self.sign(claims)
        algorithm = "RS256" if self.key.key_type == "RSA" else "ES256"
        return jwt.encode({"alg": algorithm, "kid": self.key.kid}, claims, self.key, algorithms=[algorithm])

    def _describe(self) -> dict[str, Any]:
        places = {"authorization": "authorize", "token": "token", "userinfo": "userinfo", "end_session": "logout"}
        found: dict[str, Any] = {f"{name}_endpoint": f"{self.url}/{path}" for name, path in places.items()}
        return {"issuer": self.url, **found, "jwks_uri": f"{self.url}/keys", **self.metadata}

    def _exchange(self, form: dict[str, str], authorization: str) -> tuple[int, bytes]:
        basic = base64.b64encode(f"{CLIENT}:{SECRET}".encode()).decode()
        if authorization != f"Basic {basic}" and form.get("client_secret") != SECRET:
            return 401, b'{"error": "invalid_client"}'
        nonce, challenge = self.codes.get(form["code"], ("", ""))
        digest = hashlib.sha256(form["code_verifier"].encode()).digest()
        has_verifier = base64.urlsafe_b64encode(digest).decode().rstrip("=") == challenge
        if self.is_strict and not has_verifier:
            return 400, b'{"error": "invalid_grant", "error_description": "no such code"}'
        if self.is_strict:
            del self.codes[form["code"]]
        answer = {"access_token": "access", "token_type": "Bearer", "id_token": self.id_token(nonce)}
        return 200, json.dumps(answer).encode()


@contextmanager
def run_provider(**fields: Any) -> Iterator[ProviderStandIn]:
    provider = ProviderStandIn(**fields)

    class Answers(QuietHandler):
        def answer(self) -> None:
            path, authorization = urlsplit(self.path).path, self.headers.get("authorization", "")
            self.send(*provider.respond(self.command, path, self.body(), authorization))

        do_GET = do_POST = answer

    with serve_in_thread(ThreadingHTTPServer(("127.0.0.1", 0), Answers)) as url:
        provider.url = url
        try:
            yield provider
        finally:
            provider.closing.set()
