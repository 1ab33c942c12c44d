"""All settings: ``settings`` has the whole model, each other file one of its tables, and ``loading`` reads them."""

from serve_app.settings.alerting import AlertSettings, NotifySettings
from serve_app.settings.collector import CollectorSettings
from serve_app.settings.limits import LimitSettings
from serve_app.settings.links import LinkSettings
from serve_app.settings.loading import load, sources
from serve_app.settings.meshes import MeshSettings
from serve_app.settings.model import ModelSettings
from serve_app.settings.serve import ServeSettings
from serve_app.settings.settings import PLAIN_NAMES, Settings
from serve_app.settings.source import GenericSettings
from serve_app.settings.store import StoreSettings

__all__ = [
    "PLAIN_NAMES",
    "AlertSettings",
    "CollectorSettings",
    "GenericSettings",
    "LimitSettings",
    "LinkSettings",
    "MeshSettings",
    "ModelSettings",
    "NotifySettings",
    "ServeSettings",
    "Settings",
    "StoreSettings",
    "load",
    "sources",
]
