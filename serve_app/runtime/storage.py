"""Opens this run's store for its replicas."""

from datetime import timedelta

from serve_app.runtime import replica
from serve_app.settings import Settings
from serve_app.settings.store import HistorySettings
from serve_app.stores import opening
from serve_app.stores.audit import AuditLog
from serve_app.stores.records import HistoryLimit, Retention
from serve_app.stores.state_store import StateStore

ARCHIVE_BYTES = 64 * 2**20  # per mesh; when full, the least severe, then the oldest incidents are deleted
AUDIT_BYTES = 16 * 2**20  # when full, the oldest records are deleted
KEEP_MINUTES = timedelta(days=7)  # rows of one minute; rows of ten minutes stay for history.keep_days


def open_store(settings: Settings) -> StateStore:
    """Open the store in ``settings.store`` with the limits in ``settings.limits`` and ``settings.archive``.

    The name of Ray's session identifies the run: a replica that Serve restarts does not create an empty store if the
    run's files have disappeared.

    Raises:
        BadSettings: the Redis client is not installed.
        CorruptState, StoreFull, StoreGone: it cannot be opened.
    """
    return opening.open_store(
        settings.store,
        max_meshes=settings.limits.max_meshes,
        archive=Retention(timedelta(days=settings.archive.keep_days), ARCHIVE_BYTES),
        run=replica.run_name(),
    )


def open_audit_log(store: StateStore, settings: Settings) -> AuditLog:
    """The audit log in a store, with the limits of ``settings.audit``."""
    return AuditLog(store, Retention(timedelta(days=settings.audit.keep_days), AUDIT_BYTES))


def history_limit(settings: HistorySettings) -> HistoryLimit | None:
    """The limits of each mesh's history; None: no history is written."""
    if not settings.max_bytes:
        return None
    return HistoryLimit(KEEP_MINUTES, timedelta(days=settings.keep_days), settings.max_bytes)
