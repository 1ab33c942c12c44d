"""The decision on one request: host, origin, who asks, and whether they may."""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Literal

from serve_app.access.failures import FailedLogins
from serve_app.access.hosts import Hosts
from serve_app.access.routes import SAFE, Need, need
from serve_app.access.rules import Rules, is_loopback
from serve_app.access.tokens import Scope, Token, TokenFile, parse_scopes
from serve_app.errors import BadSettings, Forbidden, Unauthenticated

COOKIE = "tagae_token"
COOKIE_SECONDS = 12 * 3600
LOOPBACK_PEERS = ("127.0.0.1", "::1")  # of which uvicorn believes X-Forwarded-For by default
BEARER = "bearer "
MOST_TOKEN_LETTERS = 512  # a longer one is none of ours and is not hashed
MOST_PATH_SHOWN = 100
MOST_USER_LETTERS = 128
_HEADERS = (
    b"host",
    b"origin",
    b"sec-fetch-site",
    b"authorization",
    b"cookie",
    b"x-forwarded-for",
    b"x-forwarded-proto",
)

Headers = Iterable[tuple[bytes, bytes]]  # as ASGI has them: names in lower case
Client = Sequence[object] | None  # address and port of the connection, as ASGI has them
Way = Literal["open", "anonymous", "token", "cookie", "proxy"]


@dataclass(frozen=True, slots=True)
class Principal:
    """Who asks.

    Attributes:
        name: of the token or the user; empty where the caller gave none.
        scopes: what they may do.
        meshes: the only ones that they may see; None: all.
        way: how they are known.
        digest: of the token.
    """

    name: str = ""
    scopes: frozenset[Scope] = frozenset()
    meshes: frozenset[str] | None = None
    way: Way = "open"
    digest: bytes = b""

    def has(self, scope: Scope) -> bool:
        """Whether they may do what the scope stands for."""
        return scope in self.scopes or Scope.ADMIN in self.scopes

    def can_see(self, mesh: str) -> bool:
        """Whether a mesh is one of theirs."""
        return self.meshes is None or mesh in self.meshes


EVERYBODY = Principal(scopes=frozenset(Scope), way="anonymous")


class Access:
    """The rules of one service, and what they remember between requests.

    Args:
        rules: as configured.
        clock: seconds, monotonic.

    Raises:
        BadSettings: the tokens file cannot be used, or a setting is wrong.
    """

    def __init__(self, rules: Rules, clock: Callable[[], float] = time.monotonic) -> None:
        self._rules = rules
        self._failures = FailedLogins(clock)
        self._file = TokenFile(rules.tokens_file, clock) if rules.tokens_file else None
        self._networks = tuple(ip_network(one) for one in rules.trusted_proxies)
        self._proxied = parse_scopes(rules.proxy_user_scopes, f"{rules.subject}.proxy_user_scopes")
        self._user_header = (rules.proxy_user_header or "").lower().encode()
        self._wanted = frozenset(_HEADERS) | ({self._user_header} if self._user_header else frozenset())
        try:
            self._hosts = Hosts(rules.allowed_hosts, rules.host, rules.external_url, rules.subject)
        except ValueError as error:
            raise BadSettings(f"{rules.subject}.allowed_hosts: {error}") from None

    @property
    def has_login(self) -> bool:
        """Whether callers have to say who they are."""
        return self._rules.has_login

    def check(
        self,
        method: str,
        path: str,
        headers: Headers,
        client: Client,
        scheme: str = "http",
        http_version: str = "1.1",
    ) -> Principal:
        """Decide on a request from what an ASGI scope says of it. No body is needed.

        Args:
            method: in upper case.
            path: percent-decoded once, as the router sees it, relative to the service.
            headers: pairs of bytes, names in lower case.
            client: address and port of the connection.
            scheme: of the connection.
            http_version: such as ``1.1``.

        Returns:
            Who asks; ``way`` is ``open`` where the route needs no login.

        Raises:
            BadHost: ``Host`` is missing or malformed.
            WrongHost: ``Host`` has a name of something else.
            CrossOrigin: a page of another site made the browser send this.
            Unauthenticated: the caller did not say who they are, or sent a wrong token. ``details["reason"]`` is there
                if a token was sent.
            TooManyFailedLogins: the token is wrong, as were many from this address.
            Forbidden: the caller may not do this.
        """
        found = self._pick(headers)
        here = self._hosts.check_host(_only(found, b"host"), http_version)
        if method not in SAFE:
            self._hosts.check_origin(_joined(found, b"origin"), _joined(found, b"sec-fetch-site"), here)
        needed = need(method, path)
        if needed.scope is None:
            return Principal()
        principal = self._principal(found, client, f"{method} {path[:MOST_PATH_SHOWN]!r}")
        _require(principal, needed)
        return principal

    def sign_in(self, token: str, headers: Headers, client: Client, route: str) -> Principal:
        """The owner of a token that somebody typed.

        Raises:
            Unauthenticated, TooManyFailedLogins: as of :meth:`check`.
        """
        return self._owner(token, self._address(client, self._pick(headers)), "cookie", route)

    def identify(self, headers: Headers, client: Client) -> Principal | None:
        """The caller, as far as the headers show; None: an unknown one. Counts no failure."""
        found = self._pick(headers)
        if not self.has_login:
            return EVERYBODY
        token, way = _token(found)
        entry = self._valid(token) if token else None
        if entry is not None:
            return _principal(entry, way)
        return self._proxy_user(found, client)

    def is_valid(self, principal: Principal) -> bool:
        """Whether a principal may go on: the token is still in the file as it was. For answers that last."""
        if not principal.digest or self._file is None:
            return True
        now = datetime.now(UTC)
        same = (entry for entry in self._file.tokens() if entry.digest == principal.digest)
        return any(not entry.has_expired(now) and _principal(entry, principal.way) == principal for entry in same)

    def is_secure(self, scheme: str, headers: Headers, client: Client) -> bool:
        """Whether the caller speaks TLS, to us or to a trusted proxy."""
        if scheme == "https":
            return True
        found = self._pick(headers)
        said = _joined(found, b"x-forwarded-proto") or ""
        return self._is_trusted(client, found) and said.rpartition(",")[2].strip().lower() == "https"

    def find_bearer(self, authorization: str | None, needed: Need) -> Principal | None:
        """Who asks, if they have a token and may do it; None: :meth:`check_bearer` says why not. Counts no failure."""
        if authorization is None:
            return None
        token, way = _token({b"authorization": [authorization.encode("utf-8", "replace")]})
        entry = self._valid(token) if token else None
        if entry is None:
            return None
        principal = _principal(entry, way)
        try:
            _require(principal, needed)
        except Forbidden:
            return None
        return principal

    def check_bearer(self, authorization: str | None, address: str, needed: Need, route: str) -> Principal:
        """Decide on a call that has no host and no origin, such as gRPC. Errors as of :meth:`check`."""
        found = {b"authorization": [authorization.encode("utf-8", "replace")]} if authorization is not None else {}
        principal = self._principal(found, (address, 0), route)
        _require(principal, needed)
        return principal

    def _principal(self, found: dict[bytes, list[bytes]], client: Client, route: str) -> Principal:
        if not self.has_login:
            return self._anonymous(client)
        token, way = _token(found)
        if way == "cookie" and self._valid(token) is None and (user := self._proxy_user(found, client)):
            return user  # a cookie from before the proxy knew them
        if token:
            return self._owner(token, self._address(client, found), way, route)
        user = self._proxy_user(found, client)
        if user is None:
            raise Unauthenticated(
                "authorization: expected `Authorization: Bearer TOKEN`, or the cookie of a page that is signed in, "
                "came none; send a token of this service"
            )
        return user

    def _anonymous(self, client: Client) -> Principal:
        """Without a login the service is for this machine, unless somebody said otherwise."""
        if self._rules.allow_anonymous or is_loopback(_host(client)):
            return EVERYBODY
        subject = self._rules.subject
        raise Forbidden(
            f"client: expected a connection from this machine, since the service has no tokens, came "
            f"{_host(client)!r}; set {subject}.tokens_file, or {subject}.allow_anonymous if everyone may do everything"
        )

    def _owner(self, token: str, address: str, way: Way, route: str) -> Principal:
        reason = "malformed"
        if 0 < len(token) <= MOST_TOKEN_LETTERS and token.isascii() and self._file is not None:
            entry = self._file.find(token)
            if entry is not None and not entry.has_expired(datetime.now(UTC)):
                return _principal(entry, way)
            reason = "unknown" if entry is None else "expired"
        self._failures.add(address, reason, route)
        said = "has expired" if reason == "expired" else "is not one of this service"
        raise Unauthenticated(f"authorization: the token {said}; send another one", reason=reason)

    def _valid(self, token: str) -> Token | None:
        if self._file is None or not 0 < len(token) <= MOST_TOKEN_LETTERS or not token.isascii():
            return None
        entry = self._file.find(token)
        return None if entry is None or entry.has_expired(datetime.now(UTC)) else entry

    def _proxy_user(self, found: dict[bytes, list[bytes]], client: Client) -> Principal | None:
        """The user that a trusted proxy names. A header that came twice is not the proxy's alone, so it is ignored."""
        if not self._user_header or not self._is_trusted(client, found):
            return None
        user = _only(found, self._user_header)
        if not user or len(user) > MOST_USER_LETTERS or not user.isprintable():
            return None
        return Principal(user, self._proxied, way="proxy")

    def _is_trusted(self, client: Client, found: dict[bytes, list[bytes]]) -> bool:
        """Whether the connection is one of a trusted proxy, and not of somebody who only says so."""
        host = _host(client)
        return self._is_proxy(host) and not _is_claimed(host, _joined(found, b"x-forwarded-for"))

    def _is_proxy(self, host: str) -> bool:
        if not self._networks:
            return False
        address = _parsed(host)
        return address is not None and any(address in network for network in self._networks)

    def _address(self, client: Client, found: dict[bytes, list[bytes]]) -> str:
        """Where a request comes from: before trusted proxies, the last address that is none of theirs."""
        host = _host(client)
        if self._is_trusted(client, found):
            chain = [one.strip() for one in (_joined(found, b"x-forwarded-for") or "").split(",")]
            for one in reversed(chain):
                if _parsed(one) is None:
                    break
                host = one
                if not self._is_proxy(one):
                    break
        address = _parsed(host)
        if isinstance(address, IPv6Address):  # one customer has a whole /64
            return str(IPv6Network((address, 64), strict=False))
        return host[:MOST_PATH_SHOWN]

    def _pick(self, headers: Headers) -> dict[bytes, list[bytes]]:
        found: dict[bytes, list[bytes]] = {}
        for name, value in headers:
            if name in self._wanted:
                found.setdefault(name, []).append(value)
        return found


def _require(principal: Principal, needed: Need) -> None:
    if needed.scope is not None and not principal.has(needed.scope):
        scopes = ", ".join(sorted(principal.scopes))
        raise Forbidden(
            f"authorization: expected the scope {needed.scope}, {principal.name or 'this caller'!r} has {scopes}; use "
            "a token with that scope"
        )
    if needed.all_meshes and principal.meshes is not None:
        raise Forbidden("authorization: this route is about all meshes, and the token is limited to some; use another")
    if needed.mesh is not None and not principal.can_see(needed.mesh):
        raise Forbidden(f"authorization: the token is not for the mesh {needed.mesh[:64]!r}; use another")


def _principal(entry: Token, way: Way) -> Principal:
    return Principal(entry.name, entry.scopes, entry.meshes, way, entry.digest)


def _token(found: dict[bytes, list[bytes]]) -> tuple[str, Way]:
    """The token that a request brings, and in what; the header wins. Other schemes are for others, such as a proxy."""
    said = _joined(found, b"authorization")
    if said is not None and said[: len(BEARER)].lower() == BEARER:
        return said[len(BEARER) :].strip() or "-", "token"
    for pair in (_joined(found, b"cookie", "; ") or "").split(";"):
        name, _, value = pair.strip().partition("=")
        if name == COOKIE and value:
            return value, "cookie"
    return "", "cookie"


def _only(found: dict[bytes, list[bytes]], name: bytes) -> str | None:
    """A header that may come once; None: not there. Twice is as malformed as any text that cannot be its value."""
    values = found.get(name)
    if values is None:
        return None
    return values[0].decode("latin-1") if len(values) == 1 else ""


def _joined(found: dict[bytes, list[bytes]], name: bytes, separator: str = ", ") -> str | None:
    values = found.get(name)
    return None if values is None else separator.join(value.decode("latin-1") for value in values)


def _host(client: Client) -> str:
    return str(client[0]) if client else ""


def _is_claimed(host: str, forwarded_for: str | None) -> bool:
    """Whether the address of a connection may come from its ``X-Forwarded-For``.

    uvicorn, which Serve listens with, puts the last address of that header in place of a peer on loopback, unless
    ``FORWARDED_ALLOW_IPS`` says otherwise (``tagae serve`` does). A user of this machine could then pass for a proxy.
    A proxy does not name itself last: it adds the address of its own client.
    """
    if forwarded_for is None or host in LOOPBACK_PEERS:
        return False
    for entry in reversed(forwarded_for.split(",")):
        said = entry.strip()
        named = said[1:].partition("]")[0] if said.startswith("[") else said
        if named.count(":") == 1:
            named = named.partition(":")[0]
        if named not in LOOPBACK_PEERS:
            return named == host
    return False


def _parsed(host: str) -> IPv4Address | IPv6Address | None:
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address
