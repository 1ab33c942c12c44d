"""The plugin ``redis``. Its client is imported when a store is opened: it is an extra of the package."""

from serve_app.alerts.storage import AlertStorage
from serve_app.collect.ownership import Leases
from serve_app.errors import BadSettings
from serve_app.settings import StoreSettings
from serve_app.stores.base import StateStore
from serve_app.stores.plugin import Opening, StorePlugin


def _check(settings: StoreSettings) -> None:
    try:
        import redis  # noqa: F401
    except ImportError as error:
        raise BadSettings(
            f"store.kind: expected the Python client of Redis for kind redis, got {error}; pip install 'tagae[redis]'"
        ) from None


def _open(settings: StoreSettings, how: Opening) -> StateStore:
    from serve_app.stores.redis_store import RedisStore

    return RedisStore(settings, limit=how.limit, archive=how.archive, on_evicted=how.on_evicted)


def _open_leases(settings: StoreSettings) -> Leases:
    from serve_app.stores.redis_leases import RedisLeases

    return RedisLeases(settings)


def _open_alert_storage(settings: StoreSettings) -> AlertStorage:
    from serve_app.stores.redis_alerts import RedisAlertStorage

    return RedisAlertStorage(settings)


REDIS = StorePlugin(
    options=StoreSettings,
    open=_open,
    check=_check,
    is_shared=True,
    open_leases=_open_leases,
    open_alert_storage=_open_alert_storage,
)
