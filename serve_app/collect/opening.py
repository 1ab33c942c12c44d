"""Opens a mesh's source: its Prometheus, or the source that another package provides. Polls it outside the loop."""

from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

from serve_app.collect.base import LiveSource, Poll, PollSource, SourcePlugin
from serve_app.collect.prometheus.client import Instants, QueryAnswer
from serve_app.collect.prometheus.detect import MeshSource
from serve_app.collect.prometheus.past import RANGE_WITHIN_SECONDS, PastSource
from serve_app.collect.prometheus.workloads import WorkloadServices
from serve_app.errors import BadSettings
from serve_app.net.http import first_line
from serve_app.plugins import SOURCES
from serve_app.settings import CollectorSettings, MeshSettings

ROLE = ("source", "snapshot")  # stands for a Prometheus query


class OtherSource:
    """Polls another package's source, with the methods that the collector uses of :class:`MeshSource`."""

    workload_services: WorkloadServices = {}  # noqa: RUF012  # services are named by the source

    def __init__(self, source: LiveSource) -> None:
        self._source = source

    def poll(self, at: datetime) -> Poll:
        try:
            snapshot = self._source.snapshot_at(at)
            if snapshot is not None and snapshot.observed_at != at:
                raise ValueError(f"expected the snapshot of {at.isoformat()}, got {snapshot.observed_at.isoformat()}")
        except Exception as error:  # whatever another package may raise
            reason = first_line(error)
            return Poll(at, None, {ROLE: QueryAnswer(failed="unreadable", detail=reason)}, why=reason)
        return Poll(at, snapshot, {}, why="" if snapshot else "the source has no services at this instant")

    def read(self, instants: Instants) -> Iterator[Poll]:
        yield from map(self.poll, instants.times())

    def close(self) -> None:
        self._source.close()


OpenedSource = MeshSource | OtherSource


def open_source(mesh: MeshSettings, collector: CollectorSettings) -> OpenedSource:
    """Open the source of a collected mesh.

    Raises:
        BadSettings: the kind of source does not exist, or its package is broken.
    """
    return MeshSource(mesh, collector) if mesh.other_source is None else _open_other(mesh.other_source, mesh, collector)


def open_past(mesh: MeshSettings, collector: CollectorSettings, step: float) -> PastSource | OtherSource:
    """Open the past of a collected mesh, with ``step`` seconds between two snapshots. Raises the errors of
    :func:`open_source`."""
    if mesh.other_source is None:
        return PastSource(mesh, collector, step, RANGE_WITHIN_SECONDS)
    return _open_other(mesh.other_source, mesh, collector)


def poll_once(mesh: MeshSettings, collector: CollectorSettings, within: float) -> Poll:
    """Poll a mesh's Prometheus like the collector's loop. Each of up to two polls takes up to ``within`` s."""
    at = datetime.now(UTC) - timedelta(seconds=collector.behind_seconds)
    with closing(MeshSource(mesh, collector.model_copy(update={"deadline_seconds": within}))) as source:
        return poll_in_time(source, at, collector)


def poll_in_time(source: PollSource, at: datetime, collector: CollectorSettings) -> Poll:
    """Poll an instant. If its data arrive late, poll an earlier instant."""
    poll = source.poll(at)
    late = poll.behind_seconds - collector.behind_seconds
    return source.poll(at - timedelta(seconds=late)) if late > 0 else poll


def _open_other(kind: str, mesh: MeshSettings, collector: CollectorSettings) -> OtherSource:
    plugin: SourcePlugin[Any] = SOURCES.load(kind, SourcePlugin)
    try:
        options = plugin.check_options(mesh.source_options)
    except ValueError as error:
        raise BadSettings(f"meshes.NAME.source_options: {error}") from error
    return OtherSource(plugin.open(options, collector))
