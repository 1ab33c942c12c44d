"""Opens the stores that the settings name."""

from collections.abc import Callable
from typing import Any

from serve_app.alerts.storage import AlertStorage, open_file
from serve_app.collect.ownership import Leases
from serve_app.settings import Settings, StoreSettings
from serve_app.settings.kinds import STORES
from serve_app.stores.base import ArchiveLimit, MeshLimit, StateStore
from serve_app.stores.kind import Opening, StoreKind


def check_store(settings: StoreSettings) -> StoreKind[Any]:
    """Return the kind of the store if everything that it needs is installed.

    Raises:
        BadSettings: there is no such kind, its package is broken, or something that it needs is not installed.
    """
    kind: StoreKind[Any] = STORES.load(settings.kind, StoreKind)
    kind.check(_options(settings, kind))
    return kind


def open_store(
    settings: StoreSettings,
    *,
    limit: MeshLimit | None = None,
    archive: ArchiveLimit | None = None,
    on_evicted: Callable[[str], None] | None = None,
    run: str | None = None,
) -> StateStore:
    """Open a store; for the arguments see :class:`~serve_app.stores.kind.Opening`.

    Raises:
        BadSettings: as in :func:`check_store`.
        CorruptState, StoreFull, StoreGone: a local store cannot be opened. Redis is first called on first use.
    """
    kind = check_store(settings)
    return kind.open(_options(settings, kind), Opening(limit, archive, on_evicted, run))


def open_leases(settings: StoreSettings) -> Leases | None:
    """Where collectors have their leases; None with a store that has none, which one collector uses.

    Raises:
        BadSettings: as in :func:`check_store`.
    """
    kind = check_store(settings)
    return None if kind.open_leases is None else kind.open_leases(_options(settings, kind))


def open_alert_storage(settings: Settings) -> AlertStorage:
    """Where the service stores the state of notifications: in its store if that can, unless ``notify.path`` names a
    directory.

    Raises:
        BadSettings: as in :func:`check_store`.
    """
    kind = check_store(settings.store)
    if kind.open_alert_storage is None or settings.notify.path is not None:
        return open_file(settings)
    return kind.open_alert_storage(_options(settings.store, kind))


def _options(settings: StoreSettings, kind: StoreKind[Any]) -> Any:
    """Our kinds have their options in the table ``store`` itself, others in ``store.options``."""
    return settings if kind.options is StoreSettings else kind.check_options(settings.options)
