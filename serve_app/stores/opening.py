"""Opens the stores that the settings name."""

from collections.abc import Callable

from serve_app.alerts.storage import AlertStorage, open_file
from serve_app.collect.ownership import Leases
from serve_app.errors import BadSettings
from serve_app.settings import Settings, StoreSettings
from serve_app.stores.base import ArchiveLimit, MeshLimit, StateStore
from serve_app.stores.sqlite import LocalStore


def check_store(settings: StoreSettings) -> None:
    """Check that what the store needs is installed.

    Raises:
        BadSettings: it is not.
    """
    if settings.kind == "redis":
        try:
            import redis  # noqa: F401
        except ImportError as error:
            raise BadSettings(
                f"store.kind: expected the Python client of Redis for kind redis, came {error}; "
                "pip install 'tagae[redis]'"
            ) from None


def open_store(
    settings: StoreSettings,
    *,
    limit: MeshLimit | None = None,
    archive: ArchiveLimit | None = None,
    on_evicted: Callable[[str], None] | None = None,
    run: str | None = None,
) -> StateStore:
    """Open a store; for the arguments see :class:`~serve_app.stores.sqlite.LocalStore`.

    Raises:
        BadSettings: the client of Redis is not installed.
        CorruptState, StoreFull, StoreGone: a local store cannot be opened. A Redis is first called with the first use.
    """
    check_store(settings)
    if settings.kind == "redis":
        from serve_app.stores.redis_store import RedisStore

        return RedisStore(settings, limit=limit, archive=archive, on_evicted=on_evicted)
    return LocalStore(settings.path, limit=limit, archive=archive, on_evicted=on_evicted, run=run)


def open_leases(settings: StoreSettings) -> Leases | None:
    """Where collectors have their leases; None with a local store, which one collector uses.

    Raises:
        BadSettings: the client of Redis is not installed.
    """
    if settings.kind == "local":
        return None
    check_store(settings)
    from serve_app.stores.redis_leases import RedisLeases

    return RedisLeases(settings)


def open_alert_storage(settings: Settings) -> AlertStorage:
    """Where the service stores the state of notifications: in its Redis, unless ``notify.path`` names a directory.

    Raises:
        BadSettings: the client of Redis is not installed.
    """
    if settings.store.kind == "local" or settings.notify.path is not None:
        return open_file(settings)
    check_store(settings.store)
    from serve_app.stores.redis_alerts import RedisAlertStorage

    return RedisAlertStorage(settings.store)
