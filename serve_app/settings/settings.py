"""All settings, in one frozen model with nested groups.

Sources, the last one wins: defaults; one TOML file (``config`` or ``TAGAE_CONFIG``); environment variables; values
passed to ``Settings`` (command-line options, Ray's ``args:``). The variable ``TAGAE_MODEL__WINDOW_SIZE`` sets
``model.window_size``. A few plain names work too (``PLAIN_NAMES`` and ``USE_GPU``); nested names win over them. An
unknown nested name is an error. Other ``TAGAE_*`` variables are ignored, because Kubernetes sets some for a Service
named ``tagae``.
"""

import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import AfterValidator, BaseModel, Field, ValidationError, ValidationInfo, field_validator, model_validator
from pydantic_core import ErrorDetails
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
)

from serve_app.access.hosts import parse_host_port
from serve_app.access.tokens import Scope
from serve_app.errors import BadSettings
from serve_app.net.redis_url import parse_redis_url
from serve_app.settings.alerting import AlertSettings, NotifySettings
from serve_app.settings.base import Location, MeshName, SettingsGroup
from serve_app.settings.collector import CollectorSettings
from serve_app.settings.former import FormerTable, MovedTables, find_former_tables, move_former_tables
from serve_app.settings.kinds import STORES
from serve_app.settings.links import LinkSettings
from serve_app.settings.meshes import MeshSettings, Priority
from serve_app.settings.observability import LogSettings, TraceSettings
from serve_app.settings.sla import SlaSettings

PREFIX = "TAGAE_"
PLAIN_NAMES = {
    "TAGAE_WINDOW_SIZE": ("model", "window_size"),
    "TAGAE_ANOMALY_PERCENTILE": ("model", "anomaly_percentile"),
}
USE_GPU = {"true": "cuda", "1": "cuda", "yes": "cuda", "false": "cpu", "0": "cpu", "no": "cpu"}
NO_SETTINGS = MeshSettings()  # of a mesh without a table
NO_ALERTS: dict[str, Any] = {"services": {}, "entry_points": ()}
MOST_SOCKET_BYTES = 107  # sun_path on Linux, without the terminating zero


class ModelSettings(SettingsGroup):
    """The detector."""

    window_size: int = Field(120, ge=10, le=10_000, description="W: snapshots in the sliding window")
    anomaly_percentile: float = Field(99.0, gt=50, lt=100, description="former name of alert.percentile, which wins")
    weights: Location | None = Field(None, description="checkpoint file; none: the shipped one")
    warm_up_snapshots: int = Field(10, ge=1, description="snapshots of a mesh before its first verdict")
    threads: int = Field(1, ge=1, description="threads of one scoring process")


class AdaptSettings(SettingsGroup):
    """Adaptation to each mesh while the service runs."""

    enabled: bool = Field(True, description="fit an adapter to each mesh in the background, and use it")
    every_snapshots: int = Field(40, ge=1, description="snapshots of a mesh between two fits")
    deadline_seconds: float = Field(60.0, gt=0, description="deadline of one fit; a longer fit is dropped")
    niceness: int = Field(10, ge=0, le=19, description="niceness of the process that fits; above 0, scoring goes first")


class PartitionSettings(SettingsGroup):
    """How a large mesh is divided into parts."""

    max_services: int = Field(2000, ge=2, description="core services of one part; smaller meshes are not divided")
    groups: int | None = Field(
        None, ge=1, description="concurrent scoring calls for the parts of a snapshot; none: one per scoring replica"
    )
    seed: int = Field(0, ge=0, description="seed of the partitioning")


class ScorerSettings(SettingsGroup):
    """Where snapshots are scored, and the scoring replicas."""

    place: Literal["auto", "session", "replicas"] = Field(
        "auto",
        description="session: in the process that holds the mesh, on its CPU; replicas: in processes of their own; "
        "auto: replicas if there is a GPU or more than one node",
    )
    device: Literal["auto", "cpu", "cuda"] = Field("auto", description="auto: a GPU if there is one")
    num_replicas: int = Field(2, ge=1, description="replicas")
    max_replicas: int | None = Field(None, ge=1, description="upper limit of autoscaling; none: no autoscaling")
    meta_replicas: int = Field(1, ge=1, description="replicas that join the parts of a mesh of several parts")
    max_meta_replicas: int | None = Field(
        None, ge=1, description="upper limit of autoscaling of these; none: no autoscaling"
    )
    num_cpus: float = Field(
        0.5, ge=0, description="CPUs reserved per replica; below 1 so that all deployments fit on two cores"
    )
    num_gpus: float = Field(0.5, ge=0, le=1, description="GPUs reserved per replica, if the device is cuda")
    latency_target_ms: float = Field(
        35.0, gt=0, description="time from the arrival of parts at a replica to their scores that batches keep to, ms"
    )
    max_batch_size: int = Field(
        8, ge=1, description="upper limit of a batch: groups of parts, from any meshes, that are scored in one pass"
    )
    batch_wait_seconds: float = Field(
        0.01,
        ge=0,
        le=1,
        description="upper limit of the wait for a fuller batch; a replica waits only if groups arrive so fast that it "
        "saves time, and groups that arrive during a pass form the next batch anyway; 0: it never waits",
    )

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        if self.place == "session" and self.device == "cuda":
            raise ValueError("expected device cpu or auto with place session, which scores on the CPU, got cuda")
        return self


def _host_name(text: str) -> str:
    parse_host_port(text)  # raises ValueError
    return text


HostName = Annotated[str, AfterValidator(_host_name)]


class ServeSettings(SettingsGroup):
    """The HTTP server and its replicas."""

    host: str = Field("127.0.0.1", description="address to listen on")
    port: int = Field(8000, ge=0, le=65535, description="port to listen on; 0: a free one")
    metrics_port: int = Field(
        0, ge=0, le=65535, description="port of Ray's and our metrics, on a single machine; 0: a free one"
    )
    deadline_seconds: float = Field(5.0, gt=0, description="deadline of a request; unfinished work is dropped")
    score_deadline_seconds: float = Field(30.0, gt=0, description="deadline of a request with many snapshots")
    max_ongoing_scores: int = Field(
        2, ge=1, description="concurrent requests of this kind in a session replica; more get 429"
    )
    ingress_replicas: int = Field(
        2, ge=1, description="replicas of the HTTP server; with two, requests are answered while one restarts"
    )
    max_ingress_replicas: int | None = Field(
        None, ge=1, description="upper limit of autoscaling of these; none: no autoscaling"
    )
    session_replicas: int = Field(
        2, ge=1, description="replicas that hold meshes; with two, meshes are available while one restarts"
    )
    max_session_replicas: int | None = Field(
        None, ge=1, description="upper limit of autoscaling of these; none: no autoscaling"
    )
    target_requests: float = Field(
        1.0,
        gt=0,
        description="requests that a session or ingress works on at once, on average, to which autoscaling keeps; "
        "open pages do not count",
    )
    upscale_seconds: float = Field(
        10.0, ge=0, description="how long the load must be higher before autoscaling adds replicas"
    )
    downscale_seconds: float = Field(
        300.0, ge=0, description="how long the load must be lower before autoscaling removes replicas"
    )
    max_ongoing_requests: int = Field(
        200, ge=1, description="concurrent requests per replica; Serve's default of 5 is too low for streams"
    )
    max_queued_requests: int = Field(400, ge=1, description="queued requests; more get 429 with Retry-After")
    max_streams: int = Field(
        64, ge=0, description="concurrent streams of verdicts to open pages, per ingress replica; more get 429"
    )
    header_seconds: float = Field(10.0, gt=0, description="time limit for the headers of a request")
    body_seconds: float = Field(30.0, gt=0, description="time limit for the body of a request")
    least_body_bytes_per_second: float = Field(1024.0, ge=0, description="slower bodies are refused after 5 to 10 s")
    keep_alive_seconds: float = Field(75.0, ge=1, description="how long an idle connection stays open")
    max_header_bytes: int = Field(16_384, ge=1024, description="size limit of request line and headers together")
    max_connections: int = Field(4096, ge=16, description="concurrent connections of all clients")
    max_connections_per_client: int = Field(
        2048, ge=1, description="concurrent connections from one address; a reverse proxy is one address"
    )
    recovery_seconds: float = Field(
        20.0, gt=0, description="time limit for replacing a process that ended; after that `tagae serve` exits"
    )
    session_resource: str | None = Field(
        None, description="custom Ray resource of the node with the local store, on a cluster of several nodes"
    )
    session_memory_bytes: int = Field(
        512 * 2**20,
        ge=0,
        description="memory for meshes and weights per session replica; other meshes are read for each snapshot",
    )
    tokens_file: Location | None = Field(
        None,
        description="file with hashes of access tokens (`tagae token create`); none: no login, for loopback only",
    )
    allow_anonymous: bool = Field(
        False, description="serve a network without login: anyone who can connect can read, push and delete"
    )
    allowed_hosts: tuple[HostName, ...] = Field(
        (),
        description="further host names of this service; IP addresses, localhost and external_url are always allowed",
    )
    trusted_proxies: tuple[IPv4Network | IPv6Network, ...] = Field(
        (), description="networks of proxies that authenticate users, such as 10.0.0.7/32"
    )
    proxy_user_header: str | None = Field(
        None,
        pattern="^[A-Za-z0-9-]+$",
        description="header in which these proxies name the user, such as X-Forwarded-User",
    )
    proxy_user_scopes: tuple[Scope, ...] = Field(
        (Scope.READ, Scope.WRITE),
        min_length=1,
        description="permissions of users from these proxies: read, write, admin",
    )
    certificate_file: Location | None = Field(
        None, description="certificate chain (PEM); with key_file, the service uses HTTPS"
    )
    key_file: Location | None = Field(None, description="private key of the certificate (PEM)")

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        if (self.certificate_file is None) != (self.key_file is None):
            raise ValueError("expected certificate_file and key_file, got one of them; set both or neither")
        if self.proxy_user_header and not self.trusted_proxies:
            raise ValueError(
                "proxy_user_header: expected trusted_proxies too, because otherwise anyone could send this header"
            )
        if self.allow_anonymous and (self.tokens_file or self.proxy_user_header):
            raise ValueError("expected allow_anonymous, or tokens_file and proxy_user_header, got both; choose one")
        return self


def _state_directory() -> Path:
    """The XDG state directory: for files that should survive restarts but need no backup."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "tagae"


def _redis_url(url: str) -> str:
    parse_redis_url(url)  # raises ValueError
    return url


class StoreSettings(SettingsGroup):
    """Where the state of meshes is stored."""

    kind: str = Field(
        "local",
        description="local: a directory on one node; redis: a Redis or Valkey, which several nodes can share; or a "
        "kind that an installed package has",
    )
    options: dict[str, Any] = Field(
        default_factory=dict,
        description="options of a kind of another package; the settings below are for local and redis",
    )
    path: Location = Field(default_factory=_state_directory, description="directory of the local store")
    url: Annotated[str, AfterValidator(_redis_url)] | None = Field(
        None, description="of the Redis: redis://, rediss:// (TLS), unix://, redis+sentinel://, redis+cluster://"
    )
    username: str = Field("", description="user name for the Redis; empty: its default user")
    password_file: Location | None = Field(
        None, description="file with the password for the Redis; read again for each connection"
    )
    ca_file: Location | None = Field(
        None, description="certificates to trust (PEM) for TLS to the Redis; none: the system's"
    )
    key_prefix: str = Field(
        "tagae",
        pattern="^[a-z0-9][a-z0-9_-]{0,30}$",
        description="first part of all keys in the Redis; services with different prefixes can share one",
    )
    timeout_seconds: float = Field(
        2.0, gt=0, description="how long a call waits for the Redis, with all reconnects, before it fails"
    )
    expire_seconds: float | None = Field(
        None,
        ge=1,
        description="time without a write after which the Redis deletes a mesh with its archive; none: never",
    )

    @field_validator("kind")
    @classmethod
    def _is_known(cls, kind: str) -> str:
        return STORES.check_name(kind)

    @field_validator("options")
    @classmethod
    def _are_of_the_kind(cls, given: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        kind = info.data.get("kind")  # none if it is wrong
        if kind in STORES.own and given:
            raise ValueError(f"expected none with kind {kind}, whose settings are in store itself")
        if kind is not None and kind not in STORES.own:
            STORES.check_options(kind, given)
        return given

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        if self.kind == "redis" and self.url is None:
            raise ValueError("expected url too with kind redis, such as redis://127.0.0.1:6379/0, got none")
        if self.username and not self.password_file:
            raise ValueError("username: expected password_file too, got none")
        return self


class ArchiveSettings(SettingsGroup):
    """The archive of incidents, in the store."""

    keep_days: float = Field(
        90.0, gt=0, le=36_500, description="days after its end for which an incident is kept, by the clock of its mesh"
    )
    max_bytes: int = Field(
        64 * 2**20,
        ge=2**20,
        description="bytes of the archive of one mesh; when full, the least severe, then the oldest incidents are "
        "deleted",
    )


class LimitSettings(SettingsGroup):
    """Limits on requests and on stored meshes."""

    max_services: int = Field(20_000, ge=1, description="services in one snapshot")
    max_calls: int = Field(200_000, ge=0, description="calls in one snapshot")
    max_changes: int = Field(1000, ge=0, description="planned changes in one snapshot")
    max_policies: int = Field(20_000, ge=0, description="policies in one snapshot")
    max_body_bytes: int = Field(32 * 2**20, ge=1024, description="size of a body with snapshots")
    max_action_bytes: int = Field(2**20, ge=1024, description="size of any other body: feedback, a mute, a rollback")
    max_metrics_bytes: int = Field(
        4 * 2**20,
        ge=1024,
        description="size of a body of OTLP metrics, unpacked; decoding one takes up to 50 times that",
    )
    max_snapshots: int = Field(120, ge=10, description="snapshots in one request to /v1/score")
    max_meshes: int = Field(1000, ge=1, description="meshes in the store; a snapshot of one more is refused with 409")
    evict_idle_seconds: float | None = Field(
        None, gt=0, description="time without a write after which a new mesh can replace a mesh; none: never"
    )
    max_feedback: int = Field(200, ge=1, description="stored feedback of one mesh")
    max_mutes: int = Field(100, ge=1, description="active and future mutes of one mesh")
    max_mute_seconds: float = Field(30 * 86400.0, gt=0, description="longest mute")
    max_ahead_seconds: float = Field(
        600.0, ge=0, description="how far a snapshot's time can be ahead of the service's clock; inf: no limit"
    )


def _fits_an_address(path: Path) -> Path:
    if len(os.fsencode(path)) > MOST_SOCKET_BYTES:
        raise ValueError(f"expected at most {MOST_SOCKET_BYTES} bytes, the limit of a Unix socket's path")
    return path


class SidecarSettings(SettingsGroup):
    """The single process next to a workload (`tagae sidecar`)."""

    host: str = Field(
        "127.0.0.1",
        min_length=1,
        description="address to listen on; outside loopback, tokens_file or allow_anonymous is required",
    )
    port: int = Field(9091, ge=0, le=65535, description="gRPC port; 0: a free one")
    socket: Annotated[Location, AfterValidator(_fits_an_address)] | None = Field(
        None, description="Unix socket for gRPC, for owner and group (mode 0660); none: the port only"
    )
    max_watchers: int = Field(64, ge=1, description="concurrent streams of verdicts")
    metrics_port: int | None = Field(
        None, ge=0, le=65535, description="port of /metrics for Prometheus; 0: a free one; none: no metrics"
    )
    tokens_file: Location | None = Field(
        None, description="file with hashes of access tokens, for the ports but not the socket; none: no login"
    )
    allow_anonymous: bool = Field(
        False, description="serve a network without login: anyone who can connect can read and push"
    )
    allowed_hosts: tuple[HostName, ...] = Field((), description="further host names of /metrics")
    certificate_file: Location | None = Field(
        None, description="certificate chain (PEM); with key_file, the ports use TLS"
    )
    key_file: Location | None = Field(None, description="private key of the certificate (PEM)")

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        if (self.certificate_file is None) != (self.key_file is None):
            raise ValueError("expected certificate_file and key_file, got one of them; set both or neither")
        if self.allow_anonymous and self.tokens_file:
            raise ValueError("expected allow_anonymous or tokens_file, got both; choose one")
        return self


class Settings(BaseSettings):
    """All settings. ``Settings()`` reads file and environment; ``Settings(scorer={"device": "cpu"})`` overrides them.

    Ray validates ``args:`` with this class, so the same order applies. :func:`load` raises errors that name the source.
    """

    model_config = SettingsConfigDict(
        extra="forbid", frozen=True, env_prefix=PREFIX, env_nested_delimiter="__", env_ignore_empty=True
    )

    config: Location | None = Field(None, description="TOML file with settings")
    model: ModelSettings = Field(default_factory=ModelSettings)
    alert: AlertSettings = Field(default_factory=AlertSettings)
    partition: PartitionSettings = Field(default_factory=PartitionSettings)
    adapt: AdaptSettings = Field(default_factory=AdaptSettings)
    scorer: ScorerSettings = Field(default_factory=ScorerSettings)
    serve: ServeSettings = Field(default_factory=ServeSettings)
    store: StoreSettings = Field(default_factory=StoreSettings)
    archive: ArchiveSettings = Field(default_factory=ArchiveSettings)
    limits: LimitSettings = Field(default_factory=LimitSettings)
    collector: CollectorSettings = Field(default_factory=CollectorSettings)
    notify: NotifySettings = Field(default_factory=NotifySettings)
    links: LinkSettings = Field(default_factory=LinkSettings)
    sla: SlaSettings = Field(default_factory=SlaSettings)
    sidecar: SidecarSettings = Field(default_factory=SidecarSettings)
    traces: TraceSettings = Field(default_factory=TraceSettings)
    logs: LogSettings = Field(default_factory=LogSettings)
    meshes: dict[MeshName, MeshSettings] = Field(default_factory=dict, description="everything about one mesh, by name")

    def mesh(self, name: str) -> MeshSettings:
        """The settings of a mesh, by its name; the defaults if there are none."""
        return self.meshes.get(name, NO_SETTINGS)

    def priority(self, mesh: str) -> Priority:
        """The priority of a mesh, by its name."""
        return self.mesh(mesh).priority

    @property
    def collected(self) -> dict[str, MeshSettings]:
        """The meshes that are polled, by name. Clients push the snapshots of all others."""
        return {name: mesh for name, mesh in self.meshes.items() if mesh.is_collected}

    @property
    def weights_by_mesh(self) -> dict[str, Path]:
        """The checkpoint files of meshes that have one of their own, by name."""
        return {name: mesh.weights for name, mesh in self.meshes.items() if mesh.weights is not None}

    def weights_of(self, mesh: str) -> Path | None:
        """The checkpoint file of a mesh, by its name; None: the shipped one."""
        return self.mesh(mesh).weights or self.model.weights

    def with_alerts(self, changed: Mapping[str, Any]) -> Self:
        """Return these settings with other alerts.

        Args:
            changed: fields of ``alert``. The former ``alert.meshes`` replaces services and entry points of all meshes.

        Raises:
            BadSettings: an unknown setting of a mesh.
            ValidationError: an unknown field of ``alert``, or an invalid value.
        """
        values = move_former_tables({"alert": {**self.alert.model_dump(), **changed}}, "user_config").values
        meshes = self.meshes
        if "meshes" in changed:
            given = values.get("meshes", {})
            meshes = {
                name: MeshSettings.model_validate({**self.mesh(name).model_dump(), **NO_ALERTS, **given.get(name, {})})
                for name in {**meshes, **given}
            }
        return self.model_copy(update={"alert": AlertSettings.model_validate(values["alert"]), "meshes": meshes})

    @classmethod
    def settings_customise_sources(
        cls, settings_cls: type[BaseSettings], init_settings: PydanticBaseSettingsSource, *_: Any, **__: Any
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """The layers in the order of pydantic-settings, where the first one wins."""
        return tuple(
            InitSettingsSource(settings_cls, layer.tables.values) for layer in reversed(_layers(init_settings()))
        )


class _WithMeshes(BaseModel):
    """A former table, as :mod:`serve_app.settings.former` moves it. It only says which variables are JSON."""

    meshes: dict[MeshName, MeshSettings]


class _FormerModel(ModelSettings, _WithMeshes):
    pass


class _FormerAlert(AlertSettings, _WithMeshes):
    pass


class _FormerCollector(CollectorSettings, _WithMeshes):
    pass


class _Environment(Settings):
    """All names that environment variables may have."""

    model: _FormerModel
    alert: _FormerAlert
    collector: _FormerCollector


@dataclass(frozen=True, slots=True)
class Layer:
    """Nested values from one source, with the tables of meshes at their new place."""

    origin: str
    tables: MovedTables


@dataclass(frozen=True, slots=True)
class Origin:
    """One setting: its path, effective value, and ``default``, ``file``, ``environment`` or ``override``."""

    path: tuple[str, ...]
    value: Any
    origin: str

    @property
    def name(self) -> str:
        """Its dotted name."""
        return ".".join(self.path)


def load(config: Path | None = None, overrides: Mapping[str, Any] | None = None) -> Settings:
    """Load the settings.

    Args:
        config: a TOML file; None for ``TAGAE_CONFIG``, if it is set.
        overrides: nested values that win over all other sources.

    Raises:
        BadSettings: names each invalid setting, what is allowed and where the value came from.
    """
    arguments = _arguments(config, overrides)
    try:
        return Settings(**arguments)
    except ValidationError as error:
        raise BadSettings("\n".join(_describe(e, _layers(arguments)) for e in error.errors())) from None


def sources(config: Path | None = None, overrides: Mapping[str, Any] | None = None) -> list[Origin]:
    """Every setting with its value and its source; arguments and errors as in :func:`load`."""
    values = load(config, overrides).model_dump()
    layers = _layers(_arguments(config, overrides))
    return [Origin(path, value, _origin(path, layers)) for path, value in _leaves(values)]


def former_tables(config: Path | None = None, overrides: Mapping[str, Any] | None = None) -> list[FormerTable]:
    """The former tables of meshes that are in use, each with the lines to write instead; arguments as in :func:`load`.

    Raises:
        BadSettings: a source cannot be read, or it gives a setting two values.
    """
    return find_former_tables({layer.origin: layer.tables for layer in _layers(_arguments(config, overrides))})


def _arguments(config: Path | None, overrides: Mapping[str, Any] | None) -> dict[str, Any]:
    return {**(overrides or {}), **({} if config is None else {"config": config})}


def _layers(overrides: dict[str, Any]) -> list[Layer]:
    """The sources above the defaults; later ones win."""
    environment = _environment()
    config = overrides.get("config") or environment.get("config")
    layers = {
        "file": _file(Path(config).expanduser()) if config else {},
        "environment": environment,
        "override": overrides,
    }
    return [Layer(origin, move_former_tables(values, origin)) for origin, values in layers.items()]


def _file(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadSettings(
            f"config {path}: expected a readable TOML file, got {error}; correct it or TAGAE_CONFIG"
        ) from error


def _environment() -> dict[str, Any]:
    for name in os.environ:
        group = name.upper().removeprefix(PREFIX).split("__")[0].lower()
        if name.upper().startswith(PREFIX) and "__" in name and group not in Settings.model_fields:
            raise BadSettings(f"{name}: no such group of settings: {group!r}; expected one of {_names(Settings)}")
    try:
        values: dict[str, Any] = EnvSettingsSource(_Environment)()
    except SettingsError as error:
        raise BadSettings(f"environment: {error}; expected JSON for a group; set single settings instead") from error
    plain = [(place, os.environ.get(name)) for name, place in PLAIN_NAMES.items()]
    for (group, field), value in [*plain, (("scorer", "device"), _device())]:
        if value:
            values.setdefault(group, {}).setdefault(field, value)
    return values


def _device() -> str | None:
    value = os.environ.get("USE_GPU")
    if value and value.lower() not in USE_GPU:
        raise BadSettings(f"USE_GPU: expected one of {', '.join(USE_GPU)}, got {value!r}; correct it or remove it")
    return USE_GPU[value.lower()] if value else None


def _leaves(values: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, (*path, name))
        else:
            yield (*path, name), value


def _origin(path: tuple[str, ...], layers: list[Layer]) -> str:
    """The last layer that sets a setting, or any setting of a group."""
    layer = _layer_of(path, layers)
    return layer.origin if layer else "default"


def _layer_of(path: tuple[str, ...], layers: list[Layer]) -> Layer | None:
    return next((layer for layer in reversed(layers) if _has(layer.tables.values, path)), None)


def _has(values: Any, path: tuple[str, ...]) -> bool:
    """Whether there is a value at a path."""
    for name in path:
        if not isinstance(values, Mapping) or name not in values:
            return False
        values = values[name]
    return True


def _describe(error: ErrorDetails, layers: list[Layer]) -> str:
    path = tuple(str(part) for part in error["loc"] if part != "[key]")  # pydantic marks an invalid key this way
    # A setting that is missing, or part of a list, is named after the group or the list that lacks or has it.
    above = (path[:end] for end in range(len(path), 0, -1))
    layer = next(filter(None, (_layer_of(one, layers) for one in above)), None)
    name = ".".join(layer.tables.as_written(path) if layer else path)
    subject = f"{name} (from {layer.origin if layer else 'default'})"
    if error["type"] == "extra_forbidden":
        return f"{subject}: no such setting; expected one of {_names(_group(path))}"
    message = error["msg"].removeprefix("Value error, ")
    given = error["input"]
    if path[-1] in ("headers", "options", "source_options") and isinstance(given, Mapping):
        given = list(given)  # a value may be a secret in the wrong place
    came = re.sub(r"//[^/\s'\"]*@", "//...@", repr(given))  # keep passwords out of logs
    return f"{subject}: {message}; got {came}"


def _group(path: tuple[str, ...]) -> type[BaseModel]:
    """The group that a path leads to; positions in lists are skipped."""
    found: type[BaseModel] = Settings
    for name in (part for part in path[:-1] if not part.isdigit()):
        field = found.model_fields.get(name)
        inner = (field.annotation, *get_args(field.annotation)) if field else ()
        found = next((cls for cls in inner if isinstance(cls, type) and issubclass(cls, BaseModel)), found)
    return found


def _names(model: type[BaseModel]) -> str:
    return ", ".join(model.model_fields)
