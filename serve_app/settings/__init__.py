"""All settings. ``settings`` holds the whole model, ``alerting`` and ``collector`` its two largest groups."""

from serve_app.settings.alerting import AlertSettings, MeshAlertSettings, NotifySettings, ServiceSettings
from serve_app.settings.collector import CollectorSettings, GenericSettings, MeshSettings
from serve_app.settings.links import LinkSettings
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
    load,
    sources,
)
from serve_app.settings.sla import SlaSettings

__all__ = [
    "PLAIN_NAMES",
    "AlertSettings",
    "CollectorSettings",
    "GenericSettings",
    "LimitSettings",
    "LinkSettings",
    "MeshAlertSettings",
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
    "load",
    "sources",
]
