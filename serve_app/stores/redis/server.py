"""The connection to Redis: clients for each kind of address, repeated calls, and our own errors.

While the server is unreachable, a call is repeated with growing pauses for ``store.timeout_seconds``. Further calls
then fail at once until the next attempt is due, so that no thread waits for a server that is down.
"""

import hashlib
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any, Self, TypeVar

import redis
from redis.backoff import NoBackoff
from redis.cluster import ClusterNode, RedisCluster
from redis.credentials import CredentialProvider
from redis.exceptions import (
    AuthenticationError,
    AuthorizationError,
    ClusterDownError,
    NoPermissionError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisClusterException,
    RedisError,
    ResponseError,
    TryAgainError,
)
from redis.retry import Retry
from redis.sentinel import Sentinel

from serve_app.errors import CorruptState, Overloaded, ServeError, StoreFull, StoreGone
from serve_app.net.backoff import Backoff
from serve_app.net.endpoint import SecretUnreadable, read_secret
from serve_app.net.redis_url import parse_redis_url
from serve_app.settings import StoreSettings

Client = redis.Redis | RedisCluster
T = TypeVar("T")
log = logging.getLogger(__name__)
_AWAY = (
    redis.ConnectionError,
    redis.TimeoutError,
    ReadOnlyError,  # a former primary after a failover
    ClusterDownError,
    TryAgainError,
    RedisClusterException,
    OSError,
)
_LOGIN = (AuthenticationError, AuthorizationError, NoPermissionError, SecretUnreadable)
_REPEAT = Backoff(0.02, 0.5)  # within a call
_RECONNECT = Backoff(0.1, 1.0)  # between calls


@dataclass(frozen=True, slots=True)
class Script:
    """A Lua script of ``lua/``, one atomic step for all clients, with the digest by which a server knows it."""

    text: str
    digest: str

    @classmethod
    def of(cls, name: str) -> Self:
        text = (Path(__file__).with_name("lua") / f"{name}.lua").read_text("utf-8")
        return cls(text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())

    def run(self, client: Client, keys: Sequence[str], arguments: Sequence[Any]) -> Any:
        try:
            return client.evalsha(self.digest, len(keys), *keys, *arguments)
        except NoScriptError:  # the first call since the server started
            return client.eval(self.text, len(keys), *keys, *arguments)


class _PasswordFile(CredentialProvider):
    """User name, and the password in the file when a connection begins."""

    def __init__(self, username: str, file: Path) -> None:
        self._username, self._file = username, file

    def get_credentials(self) -> tuple[str] | tuple[str, str]:
        password = read_secret(self._file)
        return (self._username, password) if self._username else (password,)


class RedisServer:
    """The Redis at ``store.url``. Threads may share it. It connects with the first call.

    Args:
        settings: of the store; ``url`` is set.
    """

    def __init__(self, settings: StoreSettings) -> None:
        assert settings.url is not None  # the settings require it
        self.name = settings.url
        self._settings = settings
        self._address = parse_redis_url(settings.url)
        self._client: Client | None = None
        self._lock = Lock()
        self._failures = 0
        self._next_attempt = 0.0  # time.monotonic()
        self._reason = ""

    def close(self) -> None:
        """Close all connections; the next call opens new ones."""
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()

    def call(self, action: Callable[[Client], T], *, is_write: bool = False) -> T:
        """Call ``action`` with a client, and return its result. It is repeated while the server is unreachable, even if
        only the answer to a write was lost: a repeated write must change nothing.

        Raises:
            StoreGone: the server was unreachable for ``store.timeout_seconds``, or refused the login.
            StoreFull: its memory or disk is full.
            Overloaded: a script of another client keeps it busy.
            CorruptState: it answered with another error.
        """
        until = time.monotonic() + self._settings.timeout_seconds
        self._refuse_early(until)
        failures = 0
        while True:
            try:
                result = action(self._connect())
            except _LOGIN as error:
                reason = f"{error}; correct store.password_file"
                raise self._note_failure(reason, may_be_stored=False) from error
            except _AWAY as error:
                failures += 1
                pause = _REPEAT.seconds(failures)
                if time.monotonic() + pause >= until:
                    raise self._note_failure(str(error) or type(error).__name__, may_be_stored=is_write) from error
                time.sleep(pause)
            except RedisError as error:  # an answer, though a refusal
                self._note_success()
                raise self._translate(error) from error
            else:
                self._note_success()
                return result

    @staticmethod
    def primaries(client: Client) -> list[redis.Redis]:
        if isinstance(client, RedisCluster):
            return [client.get_redis_connection(node) for node in client.get_primaries()]
        return [client]

    def _refuse_early(self, until: float) -> None:
        """Raise the last error again unless the next attempt is due, which the caller then makes."""
        with self._lock:
            if not self._failures:
                return
            wait = self._next_attempt - time.monotonic()
            if wait <= 0:
                self._next_attempt = until
                return
            reason = self._reason
        raise self._absence(reason, wait)

    def _note_failure(self, reason: str, *, may_be_stored: bool) -> StoreGone:
        with self._lock:
            self._failures += 1
            first, self._reason = self._failures == 1, reason
            wait = _RECONNECT.seconds(self._failures)
            self._next_attempt = time.monotonic() + wait
        if self._address.kind == "cluster":  # its client knows only the nodes that it found: begin again with the URL
            self.close()
        error = self._absence(reason, wait, **({"stored": "unknown"} if may_be_stored else {}))
        if first:
            log.error("%s", error)
        return error

    def _note_success(self) -> None:
        if not self._failures:
            return
        with self._lock:
            self._failures = 0
        log.warning("state store %s: it answers again", self.name)

    def _absence(self, reason: str, wait: float, **details: Any) -> StoreGone:
        return StoreGone(
            f"state store {self.name}: expected an answer within {self._settings.timeout_seconds:g} s, got: {reason}; "
            "no acknowledged data is lost; start Redis, or correct store.url; sending the request "
            "again is safe",
            retry_after_seconds=max(wait, 1.0),
            **details,
        )

    def _translate(self, error: RedisError) -> ServeError:
        text = str(error)
        if isinstance(error, OutOfMemoryError) or text.startswith(("OOM", "MISCONF")):
            return StoreFull(
                f"state store {self.name}: expected space to write, got {text}; nothing was changed; raise maxmemory "
                "or free its disk, or delete unused meshes, and send the snapshot again"
            )
        if isinstance(error, ResponseError) and text.startswith("BUSY"):
            return Overloaded(
                f"state store {self.name}: a script of another client keeps it busy; try again", retry_after_seconds=1.0
            )
        return CorruptState(
            f"state store {self.name}: expected an answer of Redis 6.2 or later, got {text}; run `tagae doctor`"
        )

    def _connect(self) -> Client:
        with self._lock:
            if self._client is None:
                self._client = self._create_client()
            return self._client

    def _create_client(self) -> Client:
        settings, address = self._settings, self._address
        options: dict[str, Any] = {
            "socket_timeout": settings.timeout_seconds,
            "socket_connect_timeout": settings.timeout_seconds,
            "retry": Retry(NoBackoff(), 0),  # `call` repeats
            "protocol": 2,
            "client_name": "tagae",
        }
        secure: dict[str, Any] = {"ssl": True} if address.is_secure else {}
        if address.is_secure and settings.ca_file is not None:
            secure["ssl_ca_certs"] = str(settings.ca_file)
        login: dict[str, Any] = {}
        if settings.password_file is not None:
            login["credential_provider"] = _PasswordFile(settings.username, settings.password_file)
        if address.kind == "cluster":
            nodes = [ClusterNode(host, port) for host, port in address.hosts]
            return RedisCluster(startup_nodes=nodes, **{**options, "retry": Retry(NoBackoff(), 1)}, **secure, **login)
        if address.kind == "sentinel":
            watchers = Sentinel(list(address.hosts), sentinel_kwargs={**options, **secure}, **options, **secure)
            client: redis.Redis = watchers.master_for(address.service, db=address.database, **login)
            return client
        if address.kind == "socket":
            return redis.Redis(unix_socket_path=address.path, db=address.database, **options, **login)
        ((host, port),) = address.hosts
        return redis.Redis(host, port, address.database, **options, **secure, **login)
