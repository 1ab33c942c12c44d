"""What a package provides to add a store: the entry point of ``tagae.stores``."""

from collections.abc import Callable
from dataclasses import dataclass

from serve_app.alerts.storage import AlertStorage
from serve_app.collect.ownership import Leases
from serve_app.settings.plugins import O, Plugin
from serve_app.stores.base import ArchiveLimit, MeshLimit, StateStore


@dataclass(frozen=True, slots=True)
class Opening:
    """How the service opens a store.

    Attributes:
        limit: how many meshes it may hold; None: any number.
        archive: what the archive of each mesh keeps; None: everything.
        on_evicted: called with the name of a mesh that was deleted to make room for another, in the writing thread;
            None: not reported.
        run: name of the run of the service that opens it: its replicas have the same one. None: outside a service.
    """

    limit: MeshLimit | None = None
    archive: ArchiveLimit | None = None
    on_evicted: Callable[[str], None] | None = None
    run: str | None = None


def _needs_nothing(options: object) -> None:
    """Pass every check."""


@dataclass(frozen=True, kw_only=True)
class StorePlugin(Plugin[O]):
    """A store that settings can choose. Only ``options`` and ``open`` are required.

    Attributes:
        open: opens a store. It may run in several processes at once, which share the store.
        check: called before the service starts; raises ``BadSettings`` if something is missing, such as a library.
        is_shared: whether processes on several nodes can open the same store. If not, all of them run on one node.
        open_leases: opens the leases with which several collectors divide the meshes; None: there is one collector.
        open_alert_storage: opens the storage of the state of notifications; None: it is a file in ``notify.path``, or
            in ``store.path``.
    """

    open: Callable[[O, Opening], StateStore]
    check: Callable[[O], None] = _needs_nothing
    is_shared: bool = False
    open_leases: Callable[[O], Leases] | None = None
    open_alert_storage: Callable[[O], AlertStorage] | None = None
