"""The decision on one request: is the host ours, is the origin ours, who is the caller, may the caller do this?"""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Literal

from serve_app.access.failures import FailedLogins
from serve_app.access.grants import Grant, meshes_with
from serve_app.access.hosts import Hosts
from serve_app.access.routes import SAFE, Need, need
from serve_app.access.rules import Rules, is_loopback
from serve_app.access.sign_ins import SignedInUser, SignInCookies
from serve_app.access.tokens import Scope, Token, TokenFile, parse_scopes
from serve_app.errors import BadSettings, Forbidden, Unauthenticated

COOKIE = "tagae_token"
COOKIE_SECONDS = 12 * 3600
LOOPBACK_PEERS = ("127.0.0.1", "::1")  # by default, uvicorn trusts their X-Forwarded-For
BEARER = "bearer "
MAX_TOKEN_LENGTH = 512  # a longer one is not ours; do not spend time on its hash
MAX_PATH_LENGTH = 100
MAX_USER_LENGTH = 128
_HEADERS = (
    b"host",
    b"origin",
    b"sec-fetch-site",
    b"authorization",
    b"cookie",
    b"x-forwarded-for",
    b"x-forwarded-proto",
)

Headers = Iterable[tuple[bytes, bytes]]  # of ASGI: names in lower case
Client = Sequence[object] | None  # of ASGI: address and port of the connection
Unknown = Literal["absent", "malformed", "unknown", "expired"]  # why a token identifies no one
Way = Literal["open", "anonymous", "token", "cookie", "proxy", "oidc"]


@dataclass(frozen=True, slots=True)
class Principal:
    """A caller.

    Attributes:
        name: of the token or the user; empty if the caller gave none.
        meshes: the meshes that the caller may see; None: all.
        digest: SHA-256 of the token.
        granted: what each group of such a user grants; ``scopes`` and ``meshes`` are the sums for the page and lists.
    """

    name: str = ""
    scopes: frozenset[Scope] = frozenset()
    meshes: frozenset[str] | None = None
    way: Way = "open"
    digest: bytes = b""
    user: SignedInUser | None = None
    granted: tuple[Grant, ...] = ()

    @property
    def grants(self) -> tuple[Grant, ...]:
        """What the caller may do: one grant must allow the whole request."""
        return self.granted or (Grant(self.scopes, self.meshes),)

    @property
    def way_in(self) -> str:
        """How the caller was identified, in the words of the audit log; empty: not at all."""
        return {"cookie": "token", "open": ""}.get(self.way, self.way)

    def has(self, scope: Scope) -> bool:
        """Whether the caller has a scope, for some mesh at least, directly or through ``admin``."""
        return any(grant.has(scope) for grant in self.grants)

    def can_see(self, mesh: str) -> bool:
        """Whether the caller may see a mesh."""
        return self.meshes is None or mesh in self.meshes


ANONYMOUS = Principal(scopes=frozenset(Scope), way="anonymous")


class Access:
    """The access control of one service: its rules, its tokens, and recent failed logins.

    Attributes:
        rules: the settings.
        sign_ins: reads and signs the cookies of users who signed in at the provider; None: there is no provider.
        ended: ids of sign-ins that were signed out, see :class:`~serve_app.stores.documents.EndedIds`.

    Raises:
        BadSettings: the tokens file or the client secret cannot be used, or a setting is wrong.
    """

    def __init__(self, rules: Rules, clock: Callable[[], float] = time.monotonic) -> None:
        self.rules = rules
        self._failures = FailedLogins(clock)
        self._file = TokenFile(rules.tokens_file, clock) if rules.tokens_file else None
        self._proxy_networks = tuple(ip_network(one) for one in rules.trusted_proxies)
        self._proxy_scopes = parse_scopes(rules.proxy_user_scopes, "serve.proxy_user_scopes")
        self.sign_ins = SignInCookies(rules.oidc) if rules.oidc else None
        self.ended: frozenset[str] = frozenset()
        self._user_header = (rules.proxy_user_header or "").lower().encode()
        self._used_headers = frozenset(_HEADERS) | ({self._user_header} if self._user_header else frozenset())
        try:
            self._hosts = Hosts(rules.allowed_hosts, rules.host, rules.external_url)
        except ValueError as error:
            raise BadSettings(f"serve.allowed_hosts: {error}") from None

    @property
    def has_login(self) -> bool:
        """Whether callers must identify themselves."""
        return self.rules.has_login

    @property
    def has_tokens(self) -> bool:
        """Whether callers can identify themselves with a token."""
        return self._file is not None

    def check(
        self,
        method: str,
        path: str,
        headers: Headers,
        client: Client,
        scheme: str = "http",
        http_version: str = "1.1",
    ) -> Principal:
        """Decide on a request from its ASGI scope. The body is not needed.

        Args:
            method: in upper case.
            path: percent-decoded once, relative to the service, as the router gets it.
            headers: pairs of bytes, names in lower case.
            client: address and port of the connection.
            http_version: such as ``1.1``.

        Returns:
            The caller; ``way`` is ``open`` if the route needs no login.

        Raises:
            BadHost: ``Host`` is missing or malformed.
            WrongHost: ``Host`` is not a name of this service.
            CrossOrigin: a page of another site made the browser send this.
            Unauthenticated: no token, or a wrong one; a wrong one sets ``details["reason"]``.
            TooManyFailedLogins: a wrong token, after many others from this address.
            Forbidden: the caller may not do this.
        """
        found = self._pick(headers)
        here = self._hosts.check_host(_only(found, b"host"), http_version)
        if method not in SAFE:
            self._hosts.check_origin(join_values(found, b"origin"), join_values(found, b"sec-fetch-site"), here)
        needed = need(method, path)
        if needed.scope is None:
            return Principal()
        principal = self._principal(found, client, f"{method} {path[:MAX_PATH_LENGTH]!r}")
        _require(principal, needed)
        return principal

    def sign_in(self, token: str, headers: Headers, client: Client, route: str) -> Principal:
        """The owner of a token from the login form.

        Raises:
            Unauthenticated, TooManyFailedLogins: as :meth:`check`.
        """
        entry = self._look_up(token)
        if isinstance(entry, Token):
            return _principal(entry, "cookie")
        raise self._refusal(entry, self._address(client, self._pick(headers)), route)

    def identify(self, headers: Headers, client: Client) -> Principal | None:
        """The caller, or None if the headers do not identify one. A wrong token does not count as a failed login."""
        caller = self._caller(self._pick(headers), client)
        return caller if isinstance(caller, Principal) else None

    def cookie(self, headers: Headers, name: str) -> str:
        """The value of a cookie of a request; empty if there is none."""
        return read_cookie(join_values(self._pick(headers), b"cookie", "; "), name)

    def locate(self, headers: Headers, client: Client) -> str:
        """The address of a caller, behind trusted proxies too."""
        return self._address(client, self._pick(headers))

    def is_valid(self, principal: Principal) -> bool:
        """Whether the token of a principal is still in the file, unchanged, and the sign-in of a user has neither ended
        nor expired. Streams check this while they last."""
        if principal.user is not None:
            return principal.user.id not in self.ended and time.time() < principal.user.expires
        if not principal.digest or self._file is None:
            return True
        now = datetime.now(UTC)
        # The gate may have read the file after this process did, or a token may be gone since.
        same = (entry for entry in self._file.tokens(is_newest=True) if entry.digest == principal.digest)
        return any(not entry.has_expired(now) and _principal(entry, principal.way) == principal for entry in same)

    def is_secure(self, scheme: str, headers: Headers, client: Client) -> bool:
        """Whether the caller uses TLS, to this service or to a trusted proxy."""
        if scheme == "https":
            return True
        found = self._pick(headers)
        scheme = join_values(found, b"x-forwarded-proto") or ""
        return self._is_trusted(client, found) and scheme.rpartition(",")[2].strip().lower() == "https"

    def _principal(self, found: dict[bytes, list[bytes]], client: Client, route: str) -> Principal:
        caller = self._caller(found, client)
        if not isinstance(caller, Principal):
            raise self._refusal(caller, self._address(client, found), route)
        return self._anonymous(client) if caller is ANONYMOUS else caller

    def _caller(self, found: dict[bytes, list[bytes]], client: Client) -> Principal | Unknown:
        """The caller, or why the headers do not identify one."""
        if not self.has_login:
            return ANONYMOUS
        token, way = _token(found)
        entry = self._look_up(token) if token else "absent"
        if isinstance(entry, Token):
            return _principal(entry, way)
        # Perhaps with an old cookie of a token, of a user who now signs in elsewhere.
        return (self._user(found, client) if way == "cookie" else None) or entry

    def _anonymous(self, client: Client) -> Principal:
        """Without a login, only this machine may use the service, unless ``allow_anonymous`` is set."""
        if self.rules.allow_anonymous or is_loopback(_host(client)):
            return ANONYMOUS
        raise Forbidden(
            f"client: expected a connection from this machine, since the service has no tokens, got "
            f"{_host(client)!r}; set serve.tokens_file, or serve.allow_anonymous to allow unauthenticated "
            "access"
        )

    def _refusal(self, why: Unknown, address: str, route: str) -> Unauthenticated:
        """The error for a caller who is not known. A wrong token counts as a failed login.

        Raises:
            TooManyFailedLogins: it came after many others from this address.
        """
        if why == "absent":
            return Unauthenticated(
                "authorization: expected `Authorization: Bearer TOKEN` or a signed-in page's cookie, got neither; "
                "send a token of this service"
            )
        self._failures.add(address, why, route)
        problem = "has expired" if why == "expired" else "is not a token of this service"
        return Unauthenticated(f"authorization: the token {problem}; send another one", reason=why)

    def _look_up(self, token: str) -> Token | Unknown:
        if self._file is None or not 0 < len(token) <= MAX_TOKEN_LENGTH or not token.isascii():
            return "malformed"
        entry = self._file.find(token)
        if entry is None:
            return "unknown"
        return "expired" if entry.has_expired(datetime.now(UTC)) else entry

    def _user(self, found: dict[bytes, list[bytes]], client: Client) -> Principal | None:
        """A user without a token: who signed in at the provider, or at a trusted proxy."""
        return self._signed_in_user(found) or self._proxy_user(found, client)

    def _signed_in_user(self, found: dict[bytes, list[bytes]]) -> Principal | None:
        """The user of a sign-in that has neither ended nor expired, whose groups still have grants."""
        if self.sign_ins is None or self.rules.oidc is None:
            return None
        user = self.sign_ins.user(read_cookie(join_values(found, b"cookie", "; "), self.sign_ins.name))
        grants = self.rules.oidc.grants_of(user.groups) if user else ()
        if user is None or not grants or user.id in self.ended:
            return None
        scopes = frozenset(scope for grant in grants for scope in grant.scopes)
        return Principal(user.name, scopes, meshes_with(grants, Scope.READ), "oidc", user=user, granted=grants)

    def _proxy_user(self, found: dict[bytes, list[bytes]], client: Client) -> Principal | None:
        """The user in a trusted proxy's header. If it is sent twice, both are ignored: one is forged."""
        if not self._user_header or not self._is_trusted(client, found):
            return None
        user = _only(found, self._user_header)
        if not user or len(user) > MAX_USER_LENGTH or not user.isprintable():
            return None
        return Principal(user, self._proxy_scopes, way="proxy")

    def _is_trusted(self, client: Client, found: dict[bytes, list[bytes]]) -> bool:
        """Whether the connection really comes from a trusted proxy."""
        host = _host(client)
        return self._is_proxy(host) and not _may_be_forged(host, join_values(found, b"x-forwarded-for"))

    def _is_proxy(self, host: str) -> bool:
        if not self._proxy_networks:
            return False
        address = _parse_address(host)
        return address is not None and any(address in network for network in self._proxy_networks)

    def _address(self, client: Client, found: dict[bytes, list[bytes]]) -> str:
        """Address of the client: behind trusted proxies, the last forwarded address that is not a proxy's."""
        host = _host(client)
        if self._is_trusted(client, found):
            chain = [one.strip() for one in (join_values(found, b"x-forwarded-for") or "").split(",")]
            for one in reversed(chain):
                if _parse_address(one) is None:
                    break
                host = one
                if not self._is_proxy(one):
                    break
        address = _parse_address(host)
        if isinstance(address, IPv6Address):  # one customer usually has a whole /64
            return str(IPv6Network((address, 64), strict=False))
        return host[:MAX_PATH_LENGTH]

    def _pick(self, headers: Headers) -> dict[bytes, list[bytes]]:
        found: dict[bytes, list[bytes]] = {}
        for name, value in headers:
            if name in self._used_headers:
                found.setdefault(name, []).append(value)
        return found


def _require(principal: Principal, needed: Need) -> None:
    if needed.scope is None:
        return
    grants = [grant for grant in principal.grants if grant.has(needed.scope)]
    if not grants:
        scopes = ", ".join(sorted(principal.scopes))
        raise Forbidden(
            f"authorization: expected the scope {needed.scope}, {principal.name or 'this caller'!r} has {scopes}; use "
            "a token with that scope"
        )
    if needed.all_meshes and not any(grant.meshes is None for grant in grants):
        raise Forbidden(
            "authorization: this route covers all meshes, but the token is limited to some; use another token"
        )
    if needed.mesh is not None and not any(grant.covers(needed.mesh) for grant in grants):
        raise Forbidden(f"authorization: the token does not include the mesh {needed.mesh[:64]!r}; use another token")


def _principal(entry: Token, way: Way) -> Principal:
    return Principal(entry.name, entry.scopes, entry.meshes, way, entry.digest)


def _token(found: dict[bytes, list[bytes]]) -> tuple[str, Way]:
    """The token of a request, and where it came from. ``Authorization`` wins over the cookie. Other schemes than
    ``Bearer`` are ignored, since they may be meant for a proxy."""
    header = join_values(found, b"authorization")
    if header is not None and header[: len(BEARER)].lower() == BEARER:
        return header[len(BEARER) :].strip() or "-", "token"
    return read_cookie(join_values(found, b"cookie", "; "), COOKIE), "cookie"


def read_cookie(header: str | None, name: str) -> str:
    """The value of a cookie; empty if there is none. Of several, the first that has a value."""
    for pair in (header or "").split(";"):
        found, _, value = pair.strip().partition("=")
        if found == name and value:
            return value
    return ""


def _only(found: dict[bytes, list[bytes]], name: bytes) -> str | None:
    """The value of a header that may be sent once; None if it is missing, empty if it is sent twice."""
    values = found.get(name)
    if values is None:
        return None
    return values[0].decode("latin-1") if len(values) == 1 else ""


def join_values(found: dict[bytes, list[bytes]], name: bytes, separator: str = ", ") -> str | None:
    values = found.get(name)
    return None if values is None else separator.join(value.decode("latin-1") for value in values)


def _host(client: Client) -> str:
    return str(client[0]) if client else ""


def _may_be_forged(host: str, forwarded_for: str | None) -> bool:
    """Whether the address of a connection may come from its ``X-Forwarded-For``.

    For a connection from loopback, uvicorn (Ray Serve's HTTP server) replaces the peer's address by the last one in
    that header, unless ``FORWARDED_ALLOW_IPS`` forbids it (``tagae serve`` sets it). A user of this machine could then
    pose as a proxy. A real proxy does not put itself last: it adds the address of its own client.
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


def _parse_address(host: str) -> IPv4Address | IPv6Address | None:
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address
