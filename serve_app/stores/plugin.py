"""The plugin with which a package adds a store, as an entry point of ``tagae.stores``."""

from collections.abc import Callable
from dataclasses import dataclass

from serve_app.collect.ownership import Leases
from serve_app.plugins import O, Plugin
from serve_app.stores.row_store import RowStore


def _needs_nothing(options: object) -> None:
    """Pass every check."""


@dataclass(frozen=True, kw_only=True)
class StorePlugin(Plugin[O]):
    """A store that settings can choose. Only ``options`` and ``open`` are required.

    Attributes:
        open: opens a store with its options and the name of the service's run (None: outside a service). Several
            processes may share the store.
        check: called before the service starts; raises ``BadSettings`` if something is missing, such as a library.
        is_shared: whether processes on several nodes can open the same store. If not, all of them run on one node.
        open_leases: opens the leases with which several collectors divide the meshes; None: only one collector may run.
    """

    open: Callable[[O, str | None], RowStore]
    check: Callable[[O], None] = _needs_nothing
    is_shared: bool = False
    open_leases: Callable[[O], Leases] | None = None
