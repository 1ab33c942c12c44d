"""The sources' contract: they return a live mesh's snapshot at the requested time, or none.

A package with a source of its own subclasses :class:`SourceContract` in a test module::

    class TestFilesSource(SourceContract):
        @pytest.fixture
        def mesh(self, tmp_path: Path) -> MeshSettings:
            ...
            return MeshSettings(source="files", source_options={"folder": str(tmp_path)})

The source is opened as the collector opens it: by the name of its kind.
"""

from collections.abc import Iterator
from contextlib import closing
from datetime import datetime

import pytest

from model.snapshot import MeshSnapshot
from serve_app.collect.base import LiveSource, SourcePlugin
from serve_app.collect.opening import open_source
from serve_app.plugins import SOURCES
from serve_app.settings import CollectorSettings, MeshSettings


class SourceContract:
    """The tests that every source passes.

    A subclass, or its module, has three fixtures: ``mesh`` is the settings of a mesh with this kind of source;
    ``instants`` are three or more times with snapshots, one interval apart, oldest first; ``empty`` is a time that
    never has one.
    """

    @pytest.fixture
    def collector(self) -> CollectorSettings:
        return CollectorSettings()

    @pytest.fixture
    def source(self, mesh: MeshSettings, collector: CollectorSettings) -> Iterator[LiveSource]:
        assert mesh.other_source is not None
        plugin = SOURCES.load(mesh.other_source, SourcePlugin)
        with closing(plugin.open(plugin.check_options(mesh.source_options), collector)) as live_source:
            yield live_source

    def test_a_snapshot_has_the_time_that_was_asked_for(self, source: LiveSource, instants: list[datetime]) -> None:
        for at in instants:
            assert _require(source.snapshot_at(at)).observed_at == at

    def test_the_same_instant_has_the_same_content(self, source: LiveSource, instants: list[datetime]) -> None:
        first = [_require(source.snapshot_at(at)).digest for at in instants]
        again = [_require(source.snapshot_at(at)).digest for at in instants]
        assert first == again, "an instant comes again after a push that failed"

    def test_missed_instants_are_read_later(
        self, mesh: MeshSettings, collector: CollectorSettings, source: LiveSource, instants: list[datetime]
    ) -> None:
        digests = [_require(source.snapshot_at(at)).digest for at in instants]
        plugin = SOURCES.load(mesh.other_source or "", SourcePlugin)
        for at, digest in zip(instants, digests, strict=True):
            with closing(plugin.open(plugin.check_options(mesh.source_options), collector)) as second_source:
                assert _require(second_source.snapshot_at(at)).digest == digest

    def test_an_instant_without_services_has_no_snapshot(self, source: LiveSource, empty: datetime) -> None:
        assert source.snapshot_at(empty) is None, "the snapshot of another time stands for nothing"

    def test_the_collector_polls_it(
        self, mesh: MeshSettings, collector: CollectorSettings, instants: list[datetime], empty: datetime
    ) -> None:
        with closing(open_source(mesh, collector)) as live_source:
            polls = [live_source.poll(at) for at in instants]
            assert [poll.why for poll in polls] == [""] * len(instants)
            assert all(poll.snapshot is not None for poll in polls)
            no_snapshot = live_source.poll(empty)
        assert (no_snapshot.snapshot, list(no_snapshot.answers)) == (None, []), (
            "not an error, so that it is not polled again"
        )

    def test_unknown_options_are_refused(self, mesh: MeshSettings) -> None:
        with pytest.raises(ValueError, match="no_such_option"):
            MeshSettings(source=mesh.source, source_options={**mesh.source_options, "no_such_option": 1})


def _require(snapshot: MeshSnapshot | None) -> MeshSnapshot:
    assert snapshot is not None, "expected a snapshot for each of `instants`"
    return snapshot
