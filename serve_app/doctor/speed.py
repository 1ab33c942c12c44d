"""Measures how fast this machine scores a store's meshes: ``tagae doctor --bench``.

A mesh's stored snapshots are pushed again in this process, to a temporary store. A push includes everything that a
session does: decode the body, score, and store. HTTP and Ray are extra.
"""

import asyncio
import math
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import count, islice
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch

from model.checkpoint import Checkpoint
from model.mesh_weights import load_weights
from model.scoring.score import PartitionScore
from model.snapshot import MeshSnapshot
from serve_app.api.codec import ARROW, JSON, decode_snapshot, encode_snapshot, pack_snapshot
from serve_app.collect.base import Finding
from serve_app.errors import UnknownMesh
from serve_app.mesh_steps import MeshSteps, NextSnapshot
from serve_app.pipeline import LocalRunner, Options, PreparedSnapshot, options, replayer
from serve_app.settings import Settings, StoreSettings
from serve_app.stores.cache import MeshCache
from serve_app.stores.opening import open_store
from serve_app.stores.repository import MeshRepository
from serve_app.stores.scored_snapshot import StoredVerdict, unpack_window
from serve_app.stores.sqlite.file import FILE_NAME
from serve_app.stores.state_store import StateStore

TARGET_MS = 50.0  # from a snapshot's body to its stored verdict, in 99 of 100 cases
MAX_MESHES = 5  # measured; the largest ones
LEARNED, MEASURED = 20, 100  # snapshots per mesh
MAX_SECONDS = 20.0  # per mesh; then fewer snapshots are measured
LARGE_SHARE = 0.5  # share of a push above which a shorter network pass makes the push shorter
BUSY_SHARE = 0.7  # of a session's time
DEFAULT_INTERVAL = 15.0  # s, for a mesh with one snapshot
Milliseconds = Sequence[float]


@dataclass(frozen=True, slots=True)
class Speed:
    """One mesh's measurements.

    Attributes:
        passes: network passes.
        pushes: from a JSON body to the stored verdict.
        json, arrow: decoding of the body; a push includes the JSON one.
        interval: time between two snapshots, s.
    """

    services: int
    calls: int
    passes: Milliseconds
    pushes: Milliseconds
    json: Milliseconds
    arrow: Milliseconds
    interval: float


def check_speed(settings: Settings, mesh: str | None = None) -> Iterator[Finding]:
    """Measure the largest meshes in the store, or one by name.

    Raises:
        UnknownMesh: the store has no mesh with this name.
        ServeError: the store cannot be read.
    """
    place = settings.store
    if place.kind == "local" and not (place.path / FILE_NAME).exists():
        yield _no_mesh(str(place.path))
        return
    torch.set_num_threads(settings.model.threads)
    weights = load_weights(settings.model.weights, settings.weights_by_mesh, network=settings.model.network)
    with closing(open_store(place)) as store:
        names = _names(store)
        if not names:
            yield _no_mesh(place.kind)
            return
        if mesh is not None and mesh not in names:
            raise UnknownMesh(f"mesh {mesh!r}: expected a mesh of the store ({', '.join(names)}); correct the name")
        measured_names = names[:MAX_MESHES] if mesh is None else [mesh]
        busy_share = 0.0
        for name in measured_names:
            window = [snapshot for _, snapshot in unpack_window(store.window(name))]
            speed = measure(weights.of(name), window, options(settings, name), settings)
            busy_share += float(np.median(speed.pushes)) / 1e3 / speed.interval
            yield judge(name, speed)
    if mesh is None:
        yield _load(busy_share, len(names) - len(measured_names), settings.serve.session_replicas)


def measure(checkpoint: Checkpoint, window: Sequence[MeshSnapshot], mesh_options: Options, settings: Settings) -> Speed:
    """Push a window's snapshots repeatedly to a temporary store."""
    with (
        TemporaryDirectory(prefix="tagae-bench-") as folder,
        closing(open_store(StoreSettings(path=Path(folder)))) as store,
    ):
        return asyncio.run(_measure(checkpoint, window, mesh_options, settings, store))


async def _measure(
    checkpoint: Checkpoint, window: Sequence[MeshSnapshot], mesh_options: Options, settings: Settings, store: StateStore
) -> Speed:
    replay = replayer(lambda _: checkpoint, settings)
    steps = MeshSteps(store, MeshRepository(store, MeshCache(settings.serve.session_memory_bytes), replay))
    interval = _interval(window)
    passes, pushes, json_times, arrow_times = [], [], [], []
    deadline = time.perf_counter() + MAX_SECONDS
    for number, snapshot in enumerate(islice(_repeat(window, interval), LEARNED + MEASURED)):
        runner = _TimedRunner(checkpoint)
        json_body, arrow_body = encode_snapshot(snapshot, JSON), encode_snapshot(snapshot, ARROW)
        begin = time.perf_counter()
        decode_snapshot(arrow_body, ARROW)
        json_begin = time.perf_counter()
        decoded_snapshot = decode_snapshot(json_body, JSON)
        push_begin = time.perf_counter()
        result = await steps.push(NextSnapshot("bench", pack_snapshot(decoded_snapshot)), mesh_options, runner)
        end = time.perf_counter()
        if result.computation is not None:
            await steps.tidy("bench", result.computation[1], mesh_options)
        if number >= LEARNED or end > deadline:
            passes.append(1e3 * runner.seconds)
            pushes.append(1e3 * (end - json_begin))
            json_times.append(1e3 * (push_begin - json_begin))
            arrow_times.append(1e3 * (json_begin - begin))
        if end > deadline and len(pushes) > 1:
            break
    return Speed(snapshot.num_nodes, snapshot.num_edges, passes, pushes, json_times, arrow_times, interval)


class _TimedRunner(LocalRunner):
    seconds = 0.0  # of the network pass

    async def score(self, prepared: PreparedSnapshot) -> Sequence[PartitionScore]:
        begin = time.perf_counter()
        scores = await super().score(prepared)
        self.seconds = time.perf_counter() - begin
        return scores


def judge(mesh: str, speed: Speed) -> Finding:
    """Describe a mesh's figures, with the most effective remedy if they are above the target."""
    push, slowest = float(np.median(speed.pushes)), _p99(speed.pushes)
    one_pass, json, arrow = (float(np.median(values)) for values in (speed.passes, speed.json, speed.arrow))
    text = (
        f"{speed.services:,} services, {speed.calls:,} calls: pass {one_pass:.1f} / {_p99(speed.passes):.1f} ms, push "
        f"{push:.1f} / {slowest:.1f} ms (p50 / p99 of {len(speed.pushes)})"
    )
    subject = f"speed of {mesh}"
    if slowest <= TARGET_MS:
        return Finding(subject, "ok", f"{text}; within {slowest:.0f} ms of {TARGET_MS:.0f}")
    if slowest - json + arrow <= TARGET_MS:
        return Finding(subject, "warning", text, f"use Arrow: it saves {json - arrow:.0f} ms of decoding")
    if one_pass >= LARGE_SHARE * push:
        parts = math.ceil(one_pass / max(TARGET_MS - (push - one_pass), TARGET_MS / 4))
        max_services = math.ceil(speed.services / parts)
        return Finding(
            subject,
            "warning",
            text,
            f"partition at {max_services:,} services, one part for each of {parts} scorers on cores of their own: "
            f"partition.max_services = {max_services}, scorer.place = replicas, scorer.num_replicas = {parts}",
        )
    share = slowest / 1e3 / speed.interval
    return Finding(
        subject,
        "warning" if share > BUSY_SHARE else "ok",
        f"{text}; above {TARGET_MS:.0f} ms, {share:.0%} of the {speed.interval:.0f} s between snapshots; the work of "
        "the session takes most of it, so scorers would not help",
        "raise collector.interval_seconds, or use a faster core" if share > BUSY_SHARE else "",
    )


def _load(busy: float, left_out: int, sessions: int) -> Finding:
    """Describe the share of the sessions' time that the measured meshes take."""
    remark = f"; {left_out} smaller meshes were not measured" if left_out else ""
    text = f"these meshes take {busy:.0%} of one core, and the sessions are {sessions}{remark}"
    is_busy = busy > BUSY_SHARE * sessions
    remedy = "add a session on a core of its own: serve.session_replicas" if is_busy else ""
    return Finding("load", "warning" if is_busy else "ok", text, remedy)


def _names(store: StateStore) -> list[str]:
    """Return the names of meshes with snapshots, the largest first."""
    sizes = {state.mesh: StoredVerdict.unpack(state.verdict).services for state in store.meshes() if state.sequence}
    return sorted(sizes, key=lambda name: -sizes[name])


def _no_mesh(place: str) -> Finding:
    return Finding(
        "speed", "warning", f"the store has no mesh yet ({place})", "push snapshots first; `tagae simulate` makes some"
    )


def _repeat(window: Sequence[MeshSnapshot], interval: float) -> Iterator[MeshSnapshot]:
    """Yield the window's snapshots endlessly, each time with later times."""
    length = window[-1].observed_at - window[0].observed_at + timedelta(seconds=interval)
    for turn in count():
        for snapshot in window:
            yield replace(snapshot, observed_at=snapshot.observed_at + turn * length)


def _interval(window: Sequence[MeshSnapshot]) -> float:
    times = [snapshot.observed_at.timestamp() for snapshot in window]
    return float(np.median(np.diff(times))) if len(times) > 1 else DEFAULT_INTERVAL


def _p99(values: Milliseconds) -> float:
    return float(np.percentile(values, 99))
