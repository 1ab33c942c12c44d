"""Everything that can be configured, in one frozen model nested by subject.

Order, last wins: defaults; one TOML file (``config``, or ``TAGAE_CONFIG``); environment; values passed to ``Settings``
(command-line flags, Ray's ``args:``). In the environment ``TAGAE_MODEL__WINDOW_SIZE`` is ``model.window_size``; a few
plain names work too (``PLAIN_NAMES`` and ``USE_GPU``), below the nested ones. A nested name that is no setting is an
error; other ``TAGAE_*`` variables are left alone, as Kubernetes sets some for a Service named ``tagae``.

The floors below never import this: they are handed plain values.
"""

import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import AfterValidator, BaseModel, Field, ValidationError, model_validator
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
from serve_app.settings.alerting import AlertSettings, NotifySettings
from serve_app.settings.base import Location, Subject
from serve_app.settings.collector import CollectorSettings

PREFIX = "TAGAE_"
PLAIN_NAMES = {
    "TAGAE_WINDOW_SIZE": ("model", "window_size"),
    "TAGAE_ANOMALY_PERCENTILE": ("model", "anomaly_percentile"),
}
USE_GPU = {"true": "cuda", "1": "cuda", "yes": "cuda", "false": "cpu", "0": "cpu", "no": "cpu"}
MOST_SOCKET_BYTES = 107  # sun_path of Linux, less its end


class ModelSettings(Subject):
    """The detector."""

    window_size: int = Field(120, ge=10, le=10_000, description="W, snapshots in the sliding window")
    anomaly_percentile: float = Field(99.0, gt=50, lt=100, description="of the mesh score's history: the threshold")
    weights: Location | None = Field(None, description="checkpoint; none: the one that ships with the package")
    warm_up_snapshots: int = Field(10, ge=1, description="snapshots of a mesh before the first judgement")
    threads: int = Field(1, ge=1, description="threads of one scoring process")


class AdaptSettings(Subject):
    """What a mesh learns of itself while it runs."""

    enabled: bool = Field(True, description="fit an adapter to each mesh in the background, and heed it")
    every_snapshots: int = Field(40, ge=1, description="counted snapshots of a mesh between two fits")
    deadline_seconds: float = Field(60.0, gt=0, description="of one fit; what takes longer is dropped")
    niceness: int = Field(10, ge=0, le=19, description="of the process that fits: above 0 it gives way to scoring")


class PartitionSettings(Subject):
    """How a large mesh is cut."""

    max_services: int = Field(2000, ge=2, description="core services of one part; smaller meshes are not cut")
    groups: int = Field(2, ge=1, description="G: concurrent scoring calls a snapshot's parts are packed into")
    seed: int = Field(0, ge=0)


class ScorerSettings(Subject):
    """The scoring replicas."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    num_replicas: int = Field(2, ge=1)
    max_replicas: int | None = Field(None, ge=1, description="above num_replicas: as many as the load asks for")
    num_cpus: float = Field(0.5, ge=0, description="claimed per replica; below 1 lets the house share two cores")
    num_gpus: float = Field(0.5, ge=0, le=1, description="claimed per replica where the device is cuda")
    max_batch_size: int = Field(8, ge=1, description="groups of parts, of any mesh, scored in one pass")
    batch_wait_seconds: float = Field(
        0.0, ge=0, le=1, description="longest wait for a fuller batch; groups that come during a pass batch anyway"
    )


def _host_name(text: str) -> str:
    parse_host_port(text)  # raises ValueError, with what was expected
    return text


HostName = Annotated[str, AfterValidator(_host_name)]


class ServeSettings(Subject):
    """The front of the service."""

    host: str = "127.0.0.1"
    port: int = Field(8000, ge=0, le=65535)
    metrics_port: int = Field(
        0, ge=0, le=65535, description="where Ray exports its metrics and ours, started on one machine; 0: a free one"
    )
    deadline_seconds: float = Field(5.0, gt=0, description="work past it is dropped")
    score_deadline_seconds: float = Field(30.0, gt=0, description="of a request with many snapshots at once")
    max_ongoing_scores: int = Field(2, ge=1, description="such requests at a time in a session replica; then 429")
    ingress_replicas: int = Field(2, ge=1, description="two, so that requests are answered while one is replaced")
    session_replicas: int = Field(2, ge=1, description="two, so that a mesh is answered while one is replaced")
    max_ongoing_requests: int = Field(200, ge=1, description="per replica; Serve's default of 5 is too few for streams")
    max_queued_requests: int = Field(400, ge=1, description="beyond it: 429 with Retry-After")
    max_streams: int = Field(
        64, ge=0, description="of verdicts, to open pages, at a time in an ingress replica; then 429"
    )
    header_seconds: float = Field(10.0, gt=0, description="within which the headers of a request must arrive")
    body_seconds: float = Field(30.0, gt=0, description="within which its body must arrive")
    least_body_bytes_per_second: float = Field(
        1024.0, ge=0, description="slower bodies are cut off, after a grace of 5 to 10 s"
    )
    keep_alive_seconds: float = Field(75.0, ge=1, description="for which an idle connection is kept")
    max_header_bytes: int = Field(16_384, ge=1024, description="of a request's line and headers together")
    max_connections: int = Field(4096, ge=16, description="at a time, of all clients")
    max_connections_per_client: int = Field(
        2048, ge=1, description="at a time from one address; a reverse proxy is one address"
    )
    recovery_seconds: float = Field(
        20.0, gt=0, description="within which a process that ended must be replaced; else `tagae serve` exits"
    )
    session_resource: str | None = Field(
        None, description="custom Ray resource of the one node that has the local store, where there are several nodes"
    )
    session_memory_bytes: int = Field(
        512 * 2**20, ge=0, description="of meshes held by one session replica; the others wait in the store"
    )
    tokens_file: Location | None = Field(
        None, description="hashes of access tokens (`tagae token create`); none: no login, for loopback only"
    )
    allow_anonymous: bool = Field(
        False, description="serve a network without a login: everyone who can connect may read, push and delete"
    )
    allowed_hosts: tuple[HostName, ...] = Field(
        (), description="further host names of this service; addresses, localhost and those of external_url are allowed"
    )
    trusted_proxies: tuple[IPv4Network | IPv6Network, ...] = Field(
        (), description="networks of proxies that log people in, such as 10.0.0.7/32"
    )
    proxy_user_header: str | None = Field(
        None, pattern="^[A-Za-z0-9-]+$", description="in which they name the user, such as X-Forwarded-User"
    )
    proxy_user_scopes: tuple[Scope, ...] = Field(
        (Scope.READ, Scope.WRITE), min_length=1, description="what their users may do: read, write, admin"
    )
    certificate_file: Location | None = Field(
        None, description="PEM, with the chain; with key_file the service is https"
    )
    key_file: Location | None = Field(None, description="PEM, of the certificate")

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        if (self.certificate_file is None) != (self.key_file is None):
            raise ValueError("expected certificate_file and key_file, came one of them; set both or neither")
        if self.proxy_user_header and not self.trusted_proxies:
            raise ValueError("proxy_user_header: expected trusted_proxies with it, or anyone could send the header")
        if self.allow_anonymous and (self.tokens_file or self.proxy_user_header):
            raise ValueError("expected allow_anonymous, or tokens_file and proxy_user_header, came both; choose one")
        return self


def _state_directory() -> Path:
    """XDG base directory specification: state that should survive restarts but is not worth a backup."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "tagae"


class StoreSettings(Subject):
    """Where the meshes' state is kept."""

    kind: Literal["local"] = Field("local", description="local: a directory of one node")
    path: Location = Field(default_factory=_state_directory, description="directory of the local store")


class LimitSettings(Subject):
    """What one request may bring."""

    max_services: int = Field(20_000, ge=1)
    max_calls: int = Field(200_000, ge=0)
    max_changes: int = Field(1000, ge=0, description="planned changes of one snapshot")
    max_policies: int = Field(20_000, ge=0, description="policies of one snapshot")
    max_body_bytes: int = Field(32 * 2**20, ge=1024)
    max_action_bytes: int = Field(
        2**20, ge=1024, description="of a body that is no snapshot: feedback, a mute, a rollback"
    )
    max_snapshots: int = Field(120, ge=10, description="in one request to score without keeping anything")
    max_meshes: int = Field(1000, ge=1, description="in the store; a snapshot of another mesh is refused with 409")
    evict_idle_seconds: float | None = Field(
        None, gt=0, description="since the last write to a mesh, after which a new mesh may take its place; none: never"
    )
    max_feedback: int = Field(200, ge=1, description="kept of one mesh at a time")
    max_mutes: int = Field(100, ge=1, description="of one mesh, in force and to come")
    max_mute_seconds: float = Field(30 * 86400.0, gt=0, description="from a mute's start to its end")
    max_ahead_seconds: float = Field(
        600.0, ge=0, description="how far a snapshot may be ahead of the service's clock; inf: any time"
    )


def _fits_an_address(path: Path) -> Path:
    if len(os.fsencode(path)) > MOST_SOCKET_BYTES:
        raise ValueError(f"expected at most {MOST_SOCKET_BYTES} bytes, which is what a Unix socket's address holds")
    return path


class SidecarSettings(Subject):
    """Where the one process beside a workload is asked (`tagae sidecar`)."""

    host: str = Field(
        "127.0.0.1", min_length=1, description="of another address it needs tokens_file or allow_anonymous"
    )
    port: int = Field(9091, ge=0, le=65535, description="of gRPC; 0 takes a free one")
    socket: Annotated[Location, AfterValidator(_fits_an_address)] | None = Field(
        None, description="Unix socket with the same, for its owner and their group (0660); none: the port alone"
    )
    max_watchers: int = Field(64, ge=1, description="who follow the verdicts at a time")
    metrics_port: int | None = Field(
        None, ge=0, le=65535, description="of /metrics for Prometheus; 0 takes a free one, none: there is no such page"
    )
    tokens_file: Location | None = Field(
        None, description="hashes of access tokens, for the ports; the socket has its mode; none: no login"
    )
    allow_anonymous: bool = Field(
        False, description="serve a network without a login: everyone who can connect may read and push"
    )
    allowed_hosts: tuple[HostName, ...] = Field((), description="further host names under which /metrics is asked for")
    certificate_file: Location | None = Field(
        None, description="PEM, with the chain; with key_file the ports speak TLS"
    )
    key_file: Location | None = Field(None, description="PEM, of the certificate")

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        if (self.certificate_file is None) != (self.key_file is None):
            raise ValueError("expected certificate_file and key_file, came one of them; set both or neither")
        if self.allow_anonymous and self.tokens_file:
            raise ValueError("expected allow_anonymous or tokens_file, came both; choose one")
        return self


class Settings(BaseSettings):
    """All settings; ``Settings()`` reads file and environment, ``Settings(scorer={"device": "cpu"})`` overrides them.

    Ray validates ``args:`` into this class and so gets the same order. :func:`load` has errors in the house's words.
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
    limits: LimitSettings = Field(default_factory=LimitSettings)
    collector: CollectorSettings = Field(default_factory=CollectorSettings)
    notify: NotifySettings = Field(default_factory=NotifySettings)
    sidecar: SidecarSettings = Field(default_factory=SidecarSettings)

    @classmethod
    def settings_customise_sources(
        cls, settings_cls: type[BaseSettings], init_settings: PydanticBaseSettingsSource, *_: Any, **__: Any
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """The layers as pydantic-settings wants them: first wins."""
        return tuple(InitSettingsSource(settings_cls, layer.values) for layer in reversed(_layers(init_settings())))


@dataclass(frozen=True, slots=True)
class Layer:
    """Nested values and the place they were given in."""

    origin: str
    values: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Origin:
    """One setting: dotted name, value in force, and ``default``, ``file``, ``environment`` or ``override``."""

    name: str
    value: Any
    origin: str


def load(config: Path | None = None, overrides: Mapping[str, Any] | None = None) -> Settings:
    """The settings in force.

    Args:
        config: a TOML file; None: ``TAGAE_CONFIG``, or none at all.
        overrides: nested values that win over everything else.

    Raises:
        BadSettings: names every wrong setting, what is allowed and where the value came from.
    """
    given = _given(config, overrides)
    try:
        return Settings(**given)
    except ValidationError as error:
        raise BadSettings("\n".join(_complaint(e, _layers(given)) for e in error.errors())) from None


def sources(config: Path | None = None, overrides: Mapping[str, Any] | None = None) -> list[Origin]:
    """Every setting with its value and where it came from; arguments and errors as of :func:`load`."""
    values = load(config, overrides).model_dump()
    layers = _layers(_given(config, overrides))
    return [Origin(".".join(path), value, _origin(path, layers)) for path, value in _leaves(values)]


def _given(config: Path | None, overrides: Mapping[str, Any] | None) -> dict[str, Any]:
    return {**(overrides or {}), **({} if config is None else {"config": config})}


def _layers(overrides: dict[str, Any]) -> list[Layer]:
    """Later wins; the defaults are the model's own."""
    environment = _environment()
    config = overrides.get("config") or environment.get("config")
    return [
        Layer("file", _file(Path(config).expanduser()) if config else {}),
        Layer("environment", environment),
        Layer("override", overrides),
    ]


def _file(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadSettings(
            f"config {path}: expected a readable TOML file, came {error}; correct it or TAGAE_CONFIG"
        ) from error


def _environment() -> dict[str, Any]:
    for name in os.environ:
        subject = name.upper().removeprefix(PREFIX).split("__")[0].lower()
        if name.upper().startswith(PREFIX) and "__" in name and subject not in Settings.model_fields:
            raise BadSettings(f"{name}: there is no subject {subject!r}; expected one of {_names(Settings)}")
    try:
        values: dict[str, Any] = EnvSettingsSource(Settings)()
    except SettingsError as error:
        raise BadSettings(
            f"environment: {error}; a whole subject is JSON, single settings are easier to write"
        ) from error
    plain = [(place, os.environ.get(name)) for name, place in PLAIN_NAMES.items()]
    for (subject, field), value in [*plain, (("scorer", "device"), _device())]:
        if value:
            values.setdefault(subject, {}).setdefault(field, value)
    return values


def _device() -> str | None:
    value = os.environ.get("USE_GPU")
    if value and value.lower() not in USE_GPU:
        raise BadSettings(f"USE_GPU: expected one of {', '.join(USE_GPU)}, came {value!r}; correct it or remove it")
    return USE_GPU[value.lower()] if value else None


def _leaves(values: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, (*path, name))
        else:
            yield (*path, name), value


def _origin(path: tuple[str, ...], layers: list[Layer]) -> str:
    """Of a leaf, or of the last layer that says anything about a subject."""
    for layer in reversed(layers):
        if any(given[: len(path)] == path for given, _ in _leaves(layer.values)):
            return layer.origin
    return "default"


def _complaint(error: ErrorDetails, layers: list[Layer]) -> str:
    path = tuple(str(part) for part in error["loc"] if part != "[key]")  # pydantic's mark of a key that is wrong
    origin = _origin(path, layers)
    if error["type"] == "extra_forbidden":
        return f"{'.'.join(path)} (from {origin}): no such setting; expected one of {_names(_subject(path))}"
    message = error["msg"].removeprefix("Value error, ")
    came = re.sub(r"//[^/\s'\"]*@", "//...@", repr(error["input"]))  # no password in a log
    return f"{'.'.join(path)} (from {origin}): {message}; came {came}"


def _subject(path: tuple[str, ...]) -> type[BaseModel]:
    """What holds the setting that a path leads to; positions in lists are passed over."""
    found: type[BaseModel] = Settings
    for name in (part for part in path[:-1] if not part.isdigit()):
        field = found.model_fields.get(name)
        inner = (field.annotation, *get_args(field.annotation)) if field else ()
        found = next((cls for cls in inner if isinstance(cls, type) and issubclass(cls, BaseModel)), found)
    return found


def _names(model: type[BaseModel]) -> str:
    return ", ".join(model.model_fields)
