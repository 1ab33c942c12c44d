"""Checks the store's Redis server: connection, version, what survives a restart, and what happens if it is full."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

from redis import Redis
from redis.exceptions import ResponseError

from serve_app.collect.base import Finding
from serve_app.errors import ServeError
from serve_app.settings import StoreSettings
from serve_app.stores.redis.server import RedisServer
from serve_app.stores.redis.store import MIN_VERSION

_SAFE_SYNC = ("always", "everysec")
_AOF = "set appendonly yes and appendfsync everysec"


def check_redis(settings: StoreSettings) -> Iterator[Finding]:
    """Query Redis and yield findings, for each primary in a Cluster. Changes nothing."""
    with closing(RedisServer(settings)) as server:
        try:
            found = server.call(lambda client: [_describe(one) for one in RedisServer.primaries(client)])
        except ServeError as error:
            yield Finding("store", "problem", str(error), "start Redis, or correct the settings of store")
            return
    for one in found:
        place = f" {one['address']}" if len(found) > 1 else ""
        yield _version(one, f"store{place}", server.name)
        yield _persistence(one, f"persistence{place}")
        yield _memory(one, f"memory{place}")


def _describe(server: Redis) -> dict[str, Any]:
    """The answers of ``INFO``, and of ``CONFIG`` if the server permits it."""
    pool = server.connection_pool.connection_kwargs
    found: dict[str, Any] = {"address": f"{pool.get('host')}:{pool.get('port')}", **server.info()}
    try:
        found["appendfsync"] = server.config_get("appendfsync").get("appendfsync", "unknown")
    except ResponseError:  # managed services often forbid it
        found["appendfsync"] = "unknown"
    return found


def _version(found: dict[str, Any], subject: str, url: str) -> Finding:
    name, version = found.get("server_name", "redis"), str(found["redis_version"])
    number = tuple(int(part) for part in version.split(".")[:2])
    text = f"{url}, {name} {found.get(f'{name}_version', version)}"
    if number < MIN_VERSION:
        minimum = ".".join(map(str, MIN_VERSION))
        return Finding(subject, "problem", text, f"expected {minimum} or later: use a newer server")
    return Finding(subject, "ok", text)


def _persistence(found: dict[str, Any], subject: str) -> Finding:
    if not found.get("aof_enabled"):
        saved = "; after a restart, only its last RDB file is left" if found.get("rdb_last_save_time") else ""
        return Finding(subject, "warning", f"no append-only file: restarting Redis loses all meshes{saved}", _AOF)
    if found.get("aof_last_write_status", "ok") != "ok":
        return Finding(
            subject, "problem", "its last write to the append-only file failed; it refuses writes", "free its disk"
        )
    sync = str(found["appendfsync"])
    text = f"append-only file, appendfsync {sync}"
    if sync == "unknown":
        remedy = "Redis does not show this setting; make sure that it is everysec or always"
        return Finding(subject, "warning", text, remedy)
    if sync not in _SAFE_SYNC:
        return Finding(subject, "warning", f"{text}: a power failure loses up to half a minute of verdicts", _AOF)
    lost = ": a power failure, or a kill while its disk is slow, loses up to two seconds of verdicts"
    lost = "" if sync == "always" else lost
    return Finding(subject, "ok", text + lost)


def _memory(found: dict[str, Any], subject: str) -> Finding:
    limit, policy = int(found.get("maxmemory", 0)), str(found.get("maxmemory_policy", "unknown"))
    used = f"{int(found['used_memory']) / 2**20:,.0f} MiB used, "
    if not limit:
        return Finding(subject, "ok", f"{used}no maxmemory, policy {policy}")
    text = f"{used}maxmemory {limit / 2**20:,.0f} MiB, policy {policy}"
    if policy != "noeviction":
        return Finding(
            subject,
            "warning",
            f"{text}: a full Redis deletes parts of meshes, which then start from the beginning",
            "set maxmemory-policy noeviction: a full Redis then refuses snapshots (507), and loses nothing",
        )
    return Finding(subject, "ok", text)
