"""All settings in one frozen model with nested groups.

Later sources take precedence: defaults; one TOML file (``config`` or ``TAGAE_CONFIG``); environment variables; values
passed to ``Settings`` (command-line options, Ray's ``args:``). The variable ``TAGAE_MODEL__WINDOW_SIZE`` sets
``model.window_size``. A few plain names also work (``PLAIN_NAMES`` and ``USE_GPU``); nested names take precedence. An
unknown nested name is an error. Other ``TAGAE_*`` variables are ignored, because Kubernetes sets some for a Service
named ``tagae``.
"""

import os
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
)

from serve_app.errors import BadSettings
from serve_app.settings.alerting import AlertSettings, NotifySettings
from serve_app.settings.base import Location, MeshName
from serve_app.settings.collector import CollectorSettings
from serve_app.settings.limits import LimitSettings
from serve_app.settings.links import LinkSettings
from serve_app.settings.meshes import MeshSettings
from serve_app.settings.model import ModelSettings, ModelsSettings, PartitionSettings
from serve_app.settings.observability import LogSettings, TraceSettings
from serve_app.settings.scorer import ScorerSettings
from serve_app.settings.serve import ServeSettings
from serve_app.settings.store import ArchiveSettings, AuditSettings, HistorySettings, StoreSettings

PREFIX = "TAGAE_"
PLAIN_NAMES = {
    "TAGAE_WINDOW_SIZE": ("model", "window_size"),
    "TAGAE_ANOMALY_PERCENTILE": ("model", "anomaly_percentile"),
}
USE_GPU = {"true": "cuda", "1": "cuda", "yes": "cuda", "false": "cpu", "0": "cpu", "no": "cpu"}
NO_SETTINGS = MeshSettings()  # for a mesh without a table


class Settings(BaseSettings):
    """All settings. ``Settings()`` reads file and environment; ``Settings(scorer={"device": "cpu"})`` overrides them.

    Ray validates ``args:`` with this class, in the same order. ``load`` raises errors that name the source.
    """

    model_config = SettingsConfigDict(
        extra="forbid", frozen=True, env_prefix=PREFIX, env_nested_delimiter="__", env_ignore_empty=True
    )

    config: Location | None = Field(None, description="TOML file with settings")
    model: ModelSettings = Field(default_factory=ModelSettings)
    alert: AlertSettings = Field(default_factory=AlertSettings)
    partition: PartitionSettings = Field(default_factory=PartitionSettings)
    models: ModelsSettings = Field(default_factory=ModelsSettings)
    scorer: ScorerSettings = Field(default_factory=ScorerSettings)
    serve: ServeSettings = Field(default_factory=ServeSettings)
    store: StoreSettings = Field(default_factory=StoreSettings)
    archive: ArchiveSettings = Field(default_factory=ArchiveSettings)
    audit: AuditSettings = Field(default_factory=AuditSettings)
    history: HistorySettings = Field(default_factory=HistorySettings)
    limits: LimitSettings = Field(default_factory=LimitSettings)
    collector: CollectorSettings = Field(default_factory=CollectorSettings)
    notify: NotifySettings = Field(default_factory=NotifySettings)
    links: LinkSettings = Field(default_factory=LinkSettings)
    traces: TraceSettings = Field(default_factory=TraceSettings)
    logs: LogSettings = Field(default_factory=LogSettings)
    meshes: dict[MeshName, MeshSettings] = Field(default_factory=dict, description="everything about one mesh, by name")

    def mesh(self, name: str) -> MeshSettings:
        """Return a mesh's settings; the defaults if it has none."""
        return self.meshes.get(name, NO_SETTINGS)

    @property
    def collected(self) -> dict[str, MeshSettings]:
        """The polled meshes by name. Clients push the snapshots of all others."""
        return {name: mesh for name, mesh in self.meshes.items() if mesh.is_collected}

    @property
    def weights_by_mesh(self) -> dict[str, Path]:
        """The meshes' own checkpoint files by name."""
        return {name: mesh.weights for name, mesh in self.meshes.items() if mesh.weights is not None}

    def weights_of(self, mesh: str) -> Path | None:
        """Return a mesh's checkpoint file; None: the shipped one."""
        return self.mesh(mesh).weights or self.model.weights

    @classmethod
    def settings_customise_sources(
        cls, settings_cls: type[BaseSettings], init_settings: PydanticBaseSettingsSource, *_: Any, **__: Any
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Return the layers in pydantic-settings' order, in which the first one takes precedence."""
        return tuple(InitSettingsSource(settings_cls, layer.values) for layer in reversed(read_layers(init_settings())))


@dataclass(frozen=True, slots=True)
class Layer:
    """Nested values from one source."""

    origin: str
    values: dict[str, Any]


def read_layers(overrides: dict[str, Any]) -> list[Layer]:
    """Return the sources above the defaults; later ones take precedence."""
    environment = _environment()
    config = overrides.get("config") or environment.get("config")
    layers = {
        "file": _file(Path(config).expanduser()) if config else {},
        "environment": environment,
        "override": overrides,
    }
    return [Layer(origin, values) for origin, values in layers.items()]


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
            raise BadSettings(
                f"{name}: no such group of settings: {group!r}; expected one of {setting_names(Settings)}"
            )
    try:
        values: dict[str, Any] = EnvSettingsSource(Settings)()
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


def setting_names(model: type[BaseModel]) -> str:
    return ", ".join(model.model_fields)
