"""Decides on one request: are its host and origin ours, who is the caller, and may the caller do this?"""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from ipaddress import IPv6Address, IPv6Network, ip_network
from typing import Any, Literal

from serve_app.access.failures import FailedLogins
from serve_app.access.hosts import Hosts
from serve_app.access.routes import SAFE, Need, need
from serve_app.access.rules import Rules, is_loopback, parse_address
from serve_app.access.sign_ins import SignedInUser, SignInCookies
from serve_app.access.tokens import Grant, Scope, Token, find_token, parse_scopes, read_token_file
from serve_app.access.watched_file import WatchedFile
from serve_app.errors import BadSettings, Forbidden, Unauthenticated

COOKIE = "tagae_token"
COOKIE_SECONDS = 12 * 3600
LOOPBACK_PEERS = ("127.0.0.1", "::1")  # by default, uvicorn trusts their X-Forwarded-For
BEARER = "bearer "
MAX_TOKEN_LENGTH = 512  # a longer one is not ours; do not spend time on its hash
MAX_PATH_LENGTH = 100
MAX_USER_LENGTH = 128

HttpScope = Mapping[str, Any]  # as in ASGI
TokenProblem = Literal["absent", "malformed", "unknown", "expired"]  # why a token does not identify a caller
Way = Literal["open", "anonymous", "token", "cookie", "proxy", "oidc"]


@dataclass(frozen=True, slots=True)
class Principal:
    """A caller.

    Attributes:
        name: the token's or user's name; empty if the caller has none.
        grants: the caller's permissions: one of them must allow the whole request.
        digest: SHA-256 of the token.
    """

    name: str = ""
    grants: tuple[Grant, ...] = ()
    way: Way = "open"
    digest: bytes = b""
    user: SignedInUser | None = None

    @property
    def way_in(self) -> str:
        """How the caller was identified, in the audit log's words; empty: not at all."""
        return {"cookie": "token", "open": ""}.get(self.way, self.way)

    @property
    def scopes(self) -> frozenset[Scope]:
        """The scopes that the caller has for at least one mesh."""
        return frozenset(scope for grant in self.grants for scope in grant.scopes)

    @property
    def meshes(self) -> frozenset[str] | None:
        """The meshes that the caller may see; None: all."""
        mesh_sets = [grant.meshes for grant in self.grants if grant.has(Scope.READ)]
        return None if None in mesh_sets else frozenset(mesh for meshes in mesh_sets for mesh in meshes or ())


ANONYMOUS = Principal(grants=(Grant(frozenset(Scope)),), way="anonymous")


class RequestHead:
    """The parts of a request that a decision needs.

    Attributes:
        peer: the connection's address; empty if unknown.
    """

    def __init__(self, scope: HttpScope) -> None:
        client = scope.get("client")
        self.peer = str(client[0]) if client else ""
        self._headers: Iterable[tuple[bytes, bytes]] = scope["headers"]

    def join(self, name: bytes, separator: str = ", ") -> str | None:
        """The values of a header; None if it is missing."""
        values = self._values(name)
        return separator.join(values) if values else None

    def single(self, name: bytes) -> str | None:
        """The value of a header that may be sent only once; None if it is missing, empty if it is sent twice."""
        values = self._values(name)
        return None if not values else values[0] if len(values) == 1 else ""

    def cookie(self, name: str) -> str:
        """The value of a cookie; empty if there is none. If it is sent several times, the first value counts."""
        for pair in (self.join(b"cookie", ";") or "").split(";"):
            key, _, value = pair.strip().partition("=")
            if key == name and value:
                return value
        return ""

    def _values(self, name: bytes) -> list[str]:
        return [value.decode("latin-1") for key, value in self._headers if key == name]


class Access:
    """The access control of one service: its rules, its tokens, and recent failed logins.

    Attributes:
        sign_ins: reads and signs the cookies of users who signed in at the provider; None: there is no provider.
        ended_sign_ins: ids of sign-ins that were signed out, see :class:`~serve_app.stores.documents.EndedIds`.

    Raises:
        BadSettings: the tokens file or the client secret cannot be used, or a setting is wrong.
    """

    def __init__(self, rules: Rules, clock: Callable[[], float] = time.monotonic) -> None:
        self.rules = rules
        self._failures = FailedLogins(clock)
        self._tokens = WatchedFile(rules.tokens_file, read_token_file, clock) if rules.tokens_file else None
        self._proxy_networks = tuple(ip_network(proxy) for proxy in rules.trusted_proxies)
        self._proxy_grant = Grant(parse_scopes(rules.proxy_user_scopes, "serve.proxy_user_scopes"))
        self.sign_ins = SignInCookies(rules.oidc) if rules.oidc else None
        self.ended_sign_ins: frozenset[str] = frozenset()
        self._user_header = (rules.proxy_user_header or "").lower().encode()
        try:
            self._hosts = Hosts(rules.allowed_hosts, rules.host, rules.external_url)
        except ValueError as error:
            raise BadSettings(f"serve.allowed_hosts: {error}") from None

    def check(self, scope: HttpScope) -> Principal:
        """Decide on a request. The body is not needed.

        Args:
            scope: its path is percent-decoded once and relative to the service, as the router gets it.

        Returns:
            The caller; ``way`` is ``open`` if the route needs no login.

        Raises:
            BadHost: ``Host`` is missing or malformed.
            WrongHost: ``Host`` is not a name of this service.
            CrossOrigin: a page of another site made the browser send this.
            Unauthenticated: no token, or a wrong one; a wrong one sets ``details["reason"]``.
            TooManyFailedLogins: a wrong token, after many others from this address.
            Forbidden: the caller lacks the permission.
        """
        head, method, path = RequestHead(scope), scope["method"], scope["path"]
        host = self._hosts.check_host(head.single(b"host"), scope["http_version"])
        if method not in SAFE:
            self._hosts.check_origin(head.join(b"origin"), head.join(b"sec-fetch-site"), host)
        requirement = need(method, path)
        if requirement.scope is None:
            return Principal()
        principal = self._caller(head)
        if not isinstance(principal, Principal):
            raise self._refusal(principal, scope)
        if principal is ANONYMOUS:
            self._require_this_machine(head.peer)
        _require(principal, requirement)
        return principal

    def sign_in(self, token: str, scope: HttpScope) -> Principal:
        """The owner of a token from the login form.

        Raises:
            Unauthenticated, TooManyFailedLogins: see :meth:`check`.
        """
        entry = self._look_up(token)
        if isinstance(entry, Token):
            return _principal(entry, "cookie")
        raise self._refusal(entry, scope)

    def identify(self, scope: HttpScope) -> Principal | None:
        """The caller, or None if the headers do not identify one. A wrong token does not count as a failed login."""
        caller = self._caller(RequestHead(scope))
        return caller if isinstance(caller, Principal) else None

    def is_valid(self, principal: Principal) -> bool:
        """Whether the token of a principal is still in the file, unchanged, and the sign-in of a user has neither ended
        nor expired. Streams check this while they last."""
        if principal.user is not None:
            return principal.user.id not in self.ended_sign_ins and time.time() < principal.user.expires
        if not principal.digest or self._tokens is None:
            return True
        now = datetime.now(UTC)
        # The gate may have read the file later than this process, or the token may have been removed since.
        entries = (entry for entry in self._tokens.content(check_now=True) if entry.digest == principal.digest)
        return any(not entry.has_expired(now) and _principal(entry, principal.way) == principal for entry in entries)

    def is_secure(self, scope: HttpScope) -> bool:
        """Whether the caller uses TLS, to this service or to a trusted proxy."""
        head = RequestHead(scope)
        forwarded_scheme = (head.join(b"x-forwarded-proto") or "").rpartition(",")[2].strip().lower()
        return scope.get("scheme") == "https" or (forwarded_scheme == "https" and self._is_trusted(head))

    def locate(self, scope: HttpScope) -> str:
        """The client's address: behind trusted proxies, the last forwarded address that is not a proxy's."""
        head = RequestHead(scope)
        host = head.peer
        if self._is_trusted(head):
            for hop in reversed((head.join(b"x-forwarded-for") or "").split(",")):
                if parse_address(hop.strip()) is None:
                    break
                host = hop.strip()
                if not self._is_proxy(host):
                    break
        address = parse_address(host)
        if isinstance(address, IPv6Address):  # one customer usually has a whole /64
            return str(IPv6Network((address, 64), strict=False))
        return host[:MAX_PATH_LENGTH]

    def _caller(self, head: RequestHead) -> Principal | TokenProblem:
        """The caller, or why the headers do not identify one."""
        if not self.rules.has_login:
            return ANONYMOUS
        token, way = _read_token(head)
        entry = self._look_up(token) if token else "absent"
        if isinstance(entry, Token):
            return _principal(entry, way)
        if way == "token":
            return entry
        # The user may also have an old token cookie, but now signs in elsewhere.
        return self._signed_in_user(head) or self._proxy_user(head) or entry

    def _require_this_machine(self, peer: str) -> None:
        """Without a login, only this machine may use the service, unless ``allow_anonymous`` is set."""
        if not self.rules.allow_anonymous and not is_loopback(peer):
            raise Forbidden(
                f"client: expected a connection from this machine, since the service has no tokens, got {peer!r}; set "
                "serve.tokens_file, or serve.allow_anonymous to allow unauthenticated access"
            )

    def _refusal(self, problem: TokenProblem, scope: HttpScope) -> Unauthenticated:
        """The error for an unknown caller. A wrong token counts as a failed login.

        Raises:
            TooManyFailedLogins: this address has failed too often.
        """
        if problem == "absent":
            return Unauthenticated(
                "authorization: expected `Authorization: Bearer TOKEN` or a signed-in page's cookie, got neither; "
                "send a token of this service"
            )
        self._failures.add(self.locate(scope), problem, f"{scope['method']} {scope['path'][:MAX_PATH_LENGTH]!r}")
        text = "has expired" if problem == "expired" else "is not a token of this service"
        return Unauthenticated(f"authorization: the token {text}; send another one", reason=problem)

    def _look_up(self, token: str) -> Token | TokenProblem:
        if self._tokens is None or not 0 < len(token) <= MAX_TOKEN_LENGTH or not token.isascii():
            return "malformed"
        entry = find_token(self._tokens.content(), token)
        if entry is None:
            return "unknown"
        return "expired" if entry.has_expired(datetime.now(UTC)) else entry

    def _signed_in_user(self, head: RequestHead) -> Principal | None:
        """The user of a sign-in that has neither ended nor expired, if the user's groups still have grants."""
        if self.sign_ins is None or self.rules.oidc is None:
            return None
        user = self.sign_ins.user(head.cookie(self.sign_ins.name))
        grants = self.rules.oidc.grants_of(user.groups) if user else ()
        if user is None or not grants or user.id in self.ended_sign_ins:
            return None
        return Principal(user.name, grants, "oidc", user=user)

    def _proxy_user(self, head: RequestHead) -> Principal | None:
        """The user in a trusted proxy's header. If it is sent twice, both are ignored: one is forged."""
        if not self._user_header or not self._is_trusted(head):
            return None
        user = head.single(self._user_header)
        if not user or len(user) > MAX_USER_LENGTH or not user.isprintable():
            return None
        return Principal(user, (self._proxy_grant,), "proxy")

    def _is_trusted(self, head: RequestHead) -> bool:
        """Whether the connection really comes from a trusted proxy."""
        return self._is_proxy(head.peer) and not _may_be_forged(head.peer, head.join(b"x-forwarded-for"))

    def _is_proxy(self, host: str) -> bool:
        address = parse_address(host) if self._proxy_networks else None
        return address is not None and any(address in network for network in self._proxy_networks)


def _require(principal: Principal, requirement: Need) -> None:
    if requirement.scope is None:
        return
    grants = [grant for grant in principal.grants if grant.has(requirement.scope)]
    if not grants:
        scopes = ", ".join(sorted(principal.scopes))
        raise Forbidden(
            f"authorization: expected the scope {requirement.scope}, {principal.name or 'this caller'!r} has {scopes}; "
            "use a token with that scope"
        )
    if requirement.all_meshes and not any(grant.meshes is None for grant in grants):
        raise Forbidden(
            "authorization: this route covers all meshes, but the token is limited to some; use another token"
        )
    if requirement.mesh is not None and not any(grant.covers(requirement.mesh) for grant in grants):
        raise Forbidden(
            f"authorization: the token does not include the mesh {requirement.mesh[:64]!r}; use another token"
        )


def _principal(entry: Token, way: Way) -> Principal:
    return Principal(entry.name, (entry,), way, entry.digest)


def _read_token(head: RequestHead) -> tuple[str, Way]:
    """A request's token, and where it came from. ``Authorization`` takes precedence over the cookie. Schemes other than
    ``Bearer`` are ignored, since they may be meant for a proxy."""
    header = head.join(b"authorization") or ""
    if header[: len(BEARER)].lower() == BEARER:
        return header[len(BEARER) :].strip() or "-", "token"
    return head.cookie(COOKIE), "cookie"


def _may_be_forged(host: str, forwarded_for: str | None) -> bool:
    """Whether a connection's address may come from its ``X-Forwarded-For``.

    For a connection from loopback, uvicorn (Ray Serve's HTTP server) replaces the peer's address with the last one in
    that header, unless ``FORWARDED_ALLOW_IPS`` forbids it (``tagae serve`` sets it). A user of this machine could then
    pose as a proxy. A real proxy does not put itself last: it adds its client's address.
    """
    if forwarded_for is None or host in LOOPBACK_PEERS:
        return False
    for entry in reversed(forwarded_for.split(",")):
        text = entry.strip()
        address = text[1:].partition("]")[0] if text.startswith("[") else text
        if address.count(":") == 1:
            address = address.partition(":")[0]
        if address not in LOOPBACK_PEERS:
            return address == host
    return False
