"""A service as a process, and a client that pushes snapshots to it."""

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from model.snapshot import MeshSnapshot
from serve_app.api.codec import snapshot_document
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
    base: str, mesh: str, snapshots: Iterable[MeshSnapshot], *, token: str = "", route: str = "snapshots"
) -> dict[str, Any]:
    """Push snapshots, and return the last verdict; nothing after a push to ``baseline``, which has no answer."""
    answer = None
    headers = {"authorization": f"Bearer {token}"} if token else {}
    with httpx.Client(base_url=base, timeout=PATIENCE_SECONDS, headers=headers) as http:
        for snapshot in snapshots:
            content = json.dumps(snapshot_document(snapshot))
            answer = http.post(f"/v1/meshes/{mesh}/{route}", content=content).raise_for_status()
    verdict: dict[str, Any] = answer.json() if answer is not None and answer.content else {}
    return verdict
