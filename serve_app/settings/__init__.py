"""All settings. ``settings`` holds the whole model, ``meshes`` the table of a mesh."""

from serve_app.settings.alerting import AlertSettings, NotifySettings
from serve_app.settings.collector import CollectorSettings
from serve_app.settings.former import FormerTable
from serve_app.settings.links import LinkSettings
from serve_app.settings.meshes import MeshSettings, ServiceSettings
from serve_app.settings.settings import (
    PLAIN_NAMES,
    LimitSettings,
    ModelSettings,
    Origin,
    ScorerSettings,
    ServeSettings,
    Settings,
    SidecarSettings,
    StoreSettings,
    former_tables,
    load,
    sources,
)
from serve_app.settings.sla import SlaSettings
from serve_app.settings.source import GenericSettings

__all__ = [
    "PLAIN_NAMES",
    "AlertSettings",
    "CollectorSettings",
    "FormerTable",
    "GenericSettings",
    "LimitSettings",
    "LinkSettings",
    "MeshSettings",
    "ModelSettings",
    "NotifySettings",
    "Origin",
    "ScorerSettings",
    "ServeSettings",
    "ServiceSettings",
    "Settings",
    "SidecarSettings",
    "SlaSettings",
    "StoreSettings",
    "former_tables",
    "load",
    "sources",
]
