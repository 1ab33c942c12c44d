"""Redis addresses: one server, servers that Sentinel watches, or a Cluster."""

import re
from dataclasses import dataclass
from typing import Literal
from urllib.parse import parse_qsl, unquote, urlsplit

_EXPECTED = (
    "expected redis://HOST[:PORT][/DATABASE], unix:///PATH[?db=DATABASE], redis+sentinel://HOST[:PORT],.../SERVICE"
    "[/DATABASE] or redis+cluster://HOST[:PORT],...; with TLS rediss instead of redis"
)
_PORTS = {"server": 6379, "sentinel": 26379, "cluster": 6379}
Kind = Literal["server", "socket", "sentinel", "cluster"]


@dataclass(frozen=True, slots=True)
class RedisAddress:
    """The address of Redis.

    Attributes:
        kind: one server, its Unix socket, servers that Sentinel watches, or nodes of a Cluster.
        hosts: names and ports of the server, the Sentinels or the nodes; none for a socket.
        service: name under which Sentinel watches the servers.
    """

    kind: Kind
    hosts: tuple[tuple[str, int], ...] = ()
    database: int = 0
    is_secure: bool = False
    path: str = ""
    service: str = ""


def parse_redis_url(url: str) -> RedisAddress:
    """Parse a Redis URL.

    Raises:
        ValueError: it is not a Redis URL, or it has a password. The message says what was expected.
    """
    if not url.isprintable() or " " in url:
        raise ValueError(f"{_EXPECTED}; no spaces or control characters")
    parts = urlsplit(url)
    if "@" in parts.netloc:
        raise ValueError("expected no user or password in the URL; give store.username and store.password_file")
    if parts.scheme == "unix" and not parts.netloc and parts.path:
        return RedisAddress("socket", database=_socket_database(parts.query), path=unquote(parts.path))
    scheme, _, kind = parts.scheme.partition("+")
    if scheme not in ("redis", "rediss") or kind not in ("", "sentinel", "cluster") or parts.query or parts.fragment:
        raise ValueError(_EXPECTED)
    address_kind: Kind = "sentinel" if kind == "sentinel" else "cluster" if kind == "cluster" else "server"
    hosts = tuple(_host(text, _PORTS[address_kind]) for text in parts.netloc.split(","))
    if address_kind == "server" and len(hosts) > 1:
        raise ValueError(f"{_EXPECTED}; several hosts need +sentinel or +cluster")
    names = [name for name in parts.path.split("/") if name]
    service = names.pop(0) if address_kind == "sentinel" and names else ""
    if (address_kind == "sentinel" and not service) or len(names) > (address_kind != "cluster"):
        raise ValueError(_EXPECTED)
    return RedisAddress(address_kind, hosts, _database(names[0]) if names else 0, scheme == "rediss", service=service)


def _host(text: str, port: int) -> tuple[str, int]:
    match = re.fullmatch(r"(\[[0-9a-fA-F:.]+\]|[^:\[\]/]+)(?::(\d{1,5}))?", text)
    if match is None or not 0 < int(match[2] or port) < 2**16:
        raise ValueError(_EXPECTED)
    return match[1].strip("[]"), int(match[2] or port)


def _database(text: str) -> int:
    if not re.fullmatch(r"\d{1,5}", text):
        raise ValueError(_EXPECTED)
    return int(text)


def _socket_database(query: str) -> int:
    parameters = dict(parse_qsl(query, strict_parsing=bool(query)))
    if parameters.keys() - {"db"}:
        raise ValueError(_EXPECTED)
    return _database(parameters.get("db", "0"))
