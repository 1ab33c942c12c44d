"""Settings for the store, and for its incident archive, history and audit log."""

import os
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import AfterValidator, Field, ValidationInfo, field_validator, model_validator

from serve_app.net.redis_url import parse_redis_url
from serve_app.plugins import STORES
from serve_app.settings.base import Location, SettingsGroup


def _state_directory() -> Path:
    """The XDG state directory: for files that should survive restarts but need no backup."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "tagae"


def _redis_url(url: str) -> str:
    parse_redis_url(url)  # raises ValueError
    return url


class StoreSettings(SettingsGroup):
    """Where the meshes' state is stored."""

    kind: str = Field(
        "local",
        description="local: a directory on one node; redis: a Redis or Valkey, which several nodes can share; or the "
        "kind of an installed package's store",
    )
    options: dict[str, Any] = Field(
        default_factory=dict,
        description="options of another package's store; the settings below are for local and redis",
    )
    path: Location = Field(default_factory=_state_directory, description="directory of the local store")
    url: Annotated[str, AfterValidator(_redis_url)] | None = Field(
        None, description="URL of Redis: redis://, rediss:// (TLS), unix://, redis+sentinel://, redis+cluster://"
    )
    username: str = Field("", description="user name for Redis; empty: its default user")
    password_file: Location | None = Field(
        None, description="file with the password for Redis; read again for each connection"
    )
    ca_file: Location | None = Field(
        None, description="CA bundle for TLS to Redis, to use instead of the system store (PEM)"
    )
    key_prefix: str = Field(
        "tagae",
        pattern="^[a-z0-9][a-z0-9_-]{0,30}$",
        description="first part of all keys in Redis; services with different prefixes can share one",
    )
    timeout_seconds: float = Field(2.0, gt=0, description="time limit of a call to Redis, including reconnects")

    @field_validator("kind")
    @classmethod
    def _is_known(cls, kind: str) -> str:
        return STORES.check_name(kind)

    @field_validator("options")
    @classmethod
    def _are_of_the_kind(cls, options: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        kind = info.data.get("kind")  # none if it is wrong
        if kind in STORES.own and options:
            raise ValueError(f"expected none with kind {kind}, whose settings are in store itself")
        if kind is not None and kind not in STORES.own:
            STORES.check_options(kind, options)
        return options

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        if self.kind == "redis" and self.url is None:
            raise ValueError("url is missing, which kind redis needs, such as redis://127.0.0.1:6379/0")
        if self.username and not self.password_file:
            raise ValueError("username: password_file is missing")
        return self


class ArchiveSettings(SettingsGroup):
    """The incident archive in the store."""

    keep_days: float = Field(
        90.0, gt=0, le=36_500, description="days after its end for which an incident is kept, by the clock of its mesh"
    )


class HistorySettings(SettingsGroup):
    """Each mesh's history in the store: means over one and ten minutes."""

    keep_days: float = Field(90.0, gt=0, le=3_660, description="days for which rows of ten minutes are kept")
    max_bytes: int = Field(
        256 * 2**20,
        ge=0,
        le=2**40,
        description="bytes of one mesh's history; when full, the oldest rows are deleted; 0: no history",
    )


class AuditSettings(SettingsGroup):
    """The audit log in the store: who changed what, and who signed in."""

    keep_days: float = Field(365.0, gt=0, le=36_500, description="days for which a record is kept")
