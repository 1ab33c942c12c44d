"""Opens the stores that the settings name."""

from typing import Any

from serve_app.collect.ownership import Leases
from serve_app.plugins import STORES
from serve_app.settings import StoreSettings
from serve_app.stores.plugin import StorePlugin
from serve_app.stores.records import Retention
from serve_app.stores.state_store import StateStore


def check_store(settings: StoreSettings) -> StorePlugin[Any]:
    """Return the store's plugin if everything that it needs is installed.

    Raises:
        BadSettings: there is no such plugin, its package is broken, or something that it needs is not installed.
    """
    plugin: StorePlugin[Any] = STORES.load(settings.kind, StorePlugin)
    plugin.check(_options(settings, plugin))
    return plugin


def open_store(
    settings: StoreSettings,
    *,
    max_meshes: int | None = None,
    archive: Retention | None = None,
    run: str | None = None,
) -> StateStore:
    """Open a store. :class:`~serve_app.stores.state_store.StateStore` describes the limits,
    :class:`~serve_app.stores.plugin.StorePlugin` the run.

    Raises:
        BadSettings: as in :func:`check_store`.
        CorruptState, StoreFull, StoreGone: a local store cannot be opened. Redis is first called on first use.
    """
    plugin = check_store(settings)
    database = plugin.open(_options(settings, plugin), run)
    return StateStore(database, max_meshes=max_meshes, archive=archive)


def open_leases(settings: StoreSettings) -> Leases | None:
    """Open the leases of collectors; None if the store has none, so that only one collector may run."""
    plugin = check_store(settings)
    return None if plugin.open_leases is None else plugin.open_leases(_options(settings, plugin))


def _options(settings: StoreSettings, plugin: StorePlugin[Any]) -> Any:
    """Return the options: our own plugins have them in the table ``store`` itself, others in ``store.options``."""
    return settings if plugin.options is StoreSettings else plugin.check_options(settings.options)
