"""A service as a process, and a client that pushes snapshots to it."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from model.snapshot import MeshSnapshot
from serve_app.api.client import Client
from tests.serve_app.running import start_service
from tests.timing import PATIENCE_SECONDS


@contextmanager
def serve(store: Path, settings: dict[str, Any] | None = None, port: int = 0) -> Iterator[str]:
    """Run a service that accepts snapshots of any time, and yield its URL.

    Args:
        store: folder of its state.
        settings: further settings, by their names with dots.
        port: 0 for a free one.
    """
    patient = {"limits.max_ahead_seconds": "inf", "serve.deadline_seconds": PATIENCE_SECONDS}
    chosen = {"store.path": store, **patient, **(settings or {})}
    arguments = [word for name, value in chosen.items() for word in ("--set", f"{name}={value}")]
    with start_service(*arguments, "--port", str(port)) as (_, url):
        yield url


def push_all(
    base: str, mesh: str, snapshots: Iterable[MeshSnapshot], *, token: str | None = None, as_baseline: bool = False
) -> dict[str, Any]:
    """Push snapshots, and return the last verdict; a baseline has none."""
    verdict: dict[str, Any] = {}
    with Client(base, timeout_seconds=PATIENCE_SECONDS, patience_seconds=5 * PATIENCE_SECONDS, token=token) as client:
        for snapshot in snapshots:
            if as_baseline:
                client.baseline(mesh, snapshot)
            else:
                verdict = client.push(mesh, snapshot).model_dump(mode="json")
    return verdict
