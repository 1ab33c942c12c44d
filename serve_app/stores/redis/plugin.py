"""The plugin ``redis``. Its client, an extra of the package, is imported when a store is opened."""

from serve_app.collect.ownership import Leases
from serve_app.errors import BadSettings
from serve_app.settings import StoreSettings
from serve_app.stores.plugin import StorePlugin
from serve_app.stores.row_store import RowStore


def _check(settings: StoreSettings) -> None:
    try:
        import redis  # noqa: F401
    except ImportError as error:
        raise BadSettings(
            f"store.kind: expected the Python client of Redis for kind redis, got {error}; pip install 'tagae[redis]'"
        ) from None


def _open(settings: StoreSettings, run: str | None) -> RowStore:
    from serve_app.stores.redis.store import RedisRows

    return RedisRows(settings)


def _open_leases(settings: StoreSettings) -> Leases:
    from serve_app.stores.redis.store import RedisLeases

    return RedisLeases(settings)


REDIS = StorePlugin(options=StoreSettings, open=_open, check=_check, is_shared=True, open_leases=_open_leases)
