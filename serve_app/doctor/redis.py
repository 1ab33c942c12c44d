"""Checks the store's Redis server: connection, version, persistence, and behaviour when memory is full."""

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
    """Yield findings about the Redis server, or about each primary of a Cluster. Changes nothing."""
    with closing(RedisServer(settings)) as server:
        try:
            servers = server.call(lambda client: [_describe(info) for info in RedisServer.primaries(client)])
        except ServeError as error:
            yield Finding("store", "problem", str(error), "start Redis, or correct the settings of store")
            return
    for info in servers:
        place = f" {info['address']}" if len(servers) > 1 else ""
        yield _version(info, f"store{place}", server.name)
        yield _persistence(info, f"persistence{place}")
        yield _memory(info, f"memory{place}")


def _describe(server: Redis) -> dict[str, Any]:
    """Return a server's answer to ``INFO``, with its address and ``appendfsync``."""
    pool = server.connection_pool.connection_kwargs
    info: dict[str, Any] = {"address": f"{pool.get('host')}:{pool.get('port')}", **server.info()}
    try:
        info["appendfsync"] = server.config_get("appendfsync").get("appendfsync", "unknown")
    except ResponseError:  # managed services often forbid it
        info["appendfsync"] = "unknown"
    return info


def _version(info: dict[str, Any], subject: str, url: str) -> Finding:
    name, version = info.get("server_name", "redis"), str(info["redis_version"])
    number = tuple(int(part) for part in version.split(".")[:2])
    text = f"{url}, {name} {info.get(f'{name}_version', version)}"
    if number < MIN_VERSION:
        minimum = ".".join(map(str, MIN_VERSION))
        return Finding(subject, "problem", text, f"expected {minimum} or later: use a newer server")
    return Finding(subject, "ok", text)


def _persistence(info: dict[str, Any], subject: str) -> Finding:
    if not info.get("aof_enabled"):
        rdb_remark = "; after a restart, only its last RDB file is left" if info.get("rdb_last_save_time") else ""
        return Finding(subject, "warning", f"no append-only file: restarting Redis loses all meshes{rdb_remark}", _AOF)
    if info.get("aof_last_write_status", "ok") != "ok":
        return Finding(
            subject, "problem", "its last write to the append-only file failed; it refuses writes", "free its disk"
        )
    sync = str(info["appendfsync"])
    text = f"append-only file, appendfsync {sync}"
    if sync == "unknown":
        remedy = "Redis does not show this setting; make sure that it is everysec or always"
        return Finding(subject, "warning", text, remedy)
    if sync not in _SAFE_SYNC:
        return Finding(subject, "warning", f"{text}: a power failure loses up to half a minute of verdicts", _AOF)
    if sync == "everysec":
        text += ": a power failure, or a kill while its disk is slow, loses up to two seconds of verdicts"
    return Finding(subject, "ok", text)


def _memory(info: dict[str, Any], subject: str) -> Finding:
    limit, policy = int(info.get("maxmemory", 0)), str(info.get("maxmemory_policy", "unknown"))
    usage = f"{int(info['used_memory']) / 2**20:,.0f} MiB used, "
    if not limit:
        return Finding(subject, "ok", f"{usage}no maxmemory, policy {policy}")
    text = f"{usage}maxmemory {limit / 2**20:,.0f} MiB, policy {policy}"
    if policy != "noeviction":
        return Finding(
            subject,
            "warning",
            f"{text}: a full Redis deletes parts of meshes, which then start from the beginning",
            "set maxmemory-policy noeviction: a full Redis then refuses snapshots (507), and loses nothing",
        )
    return Finding(subject, "ok", text)
